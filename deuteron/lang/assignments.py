"""Assignments, and the statements that stand alone."""

from __future__ import annotations

import ast

from deuteron.lang import core
from deuteron.lang.control import name_value
from deuteron.lang.merge import is_number, is_tuple
from deuteron.lang.operators import binary
from deuteron.lang.semantic.casts import to_tensor
from deuteron.lang.source import is_constexpr_annotation
from deuteron.lang.values import constexpr, describe, is_static, wrap
from deuteron.lang.walker import BINARY, FALLS, Walker, statement


@statement(ast.Assign)
def visit_assign(w: Walker, node: ast.Assign) -> object:
    """`a = b = value`: every target gets the value."""
    value = w.expr(node.value)
    for target in node.targets:
        assign_target(w, target, value)
    return FALLS


@statement(ast.AugAssign)
def visit_augmented(w: Walker, node: ast.AugAssign) -> object:
    """`name += value` is `name = name + value`."""
    target = node.target
    if not isinstance(target, ast.Name):
        raise _no_target(w, target)
    left, right = w.name(target), w.expr(node.value)
    w.at(node)
    assign_target(w, target, binary(w.ctx, BINARY[type(node.op)], left, right))
    return FALLS


@statement(ast.AnnAssign)
def visit_annotated(w: Walker, node: ast.AnnAssign) -> object:
    """`name: tl.constexpr = value` keeps the value a constant; other annotations say nothing.

    Without a value, the annotation holds for the next assignment.
    """
    if not is_constexpr_annotation(ast.unparse(node.annotation)):
        if node.value is not None:
            assign_target(w, node.target, w.expr(node.value))
        return FALLS
    if not isinstance(node.target, ast.Name):
        raise _no_target(w, node.target)
    name = node.target.id
    if name in w.scope.values and w.scope.declared.get(name, node) is not node:
        raise w.error(
            node.target,
            f"`{name}` is already a constexpr, which keeps its value",
            expected="one declaration of a name",
            got=f"a second one of `{name}`",
            remedy="use another name",
        )
    if node.value is None:
        w.scope.announce(name, node)
    else:
        _declare(w, node.value, name, w.expr(node.value), node)
    return FALLS


def _declare(
    w: Walker, place: ast.expr, name: str, value: object, statement: ast.stmt | None
) -> None:
    if not is_static(value):
        raise w.error(
            place,
            f"`{name}` is annotated tl.constexpr, but its value is known only at run time",
            expected="a value known at compile time",
            got=describe(value),
            remedy=f"leave the annotation out: `{name} = ...`",
        )
    w.scope.declare(name, wrap(value), statement)


def assign_target(
    w: Walker, target: ast.expr, value: object, *, keeps_constants: bool = False
) -> None:
    """Give a value to a name, or the parts of a tuple to several.

    A number becomes a tensor unless `keeps_constants`, for a plain name may change when the kernel
    runs; everything else stays what it is.
    """
    if isinstance(target, ast.Name):
        if w.scope.is_announced(target.id):
            _declare(w, target, target.id, value, w.scope.declared[target.id])
            return
        if not keeps_constants and is_number(value):
            w.at(target)
            value = to_tensor(w.ctx, value.value)
        name_value(target.id, value)
        w.scope.assign(target.id, value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for element, part in zip(target.elts, _parts(w, target, value), strict=True):
            assign_target(w, element, part, keeps_constants=keeps_constants)
    else:
        raise _no_target(w, target)


def _parts(w: Walker, target: ast.Tuple | ast.List, value: object) -> tuple[object, ...]:
    wanted = len(target.elts)
    for element in target.elts:
        if isinstance(element, ast.Starred):
            raise w.error(
                element,
                "`*` in an assignment is not supported in a kernel",
                expected="names, or tuples of names",
                got=f"`{ast.unparse(element)}`",
                remedy="name every part, or index the tuple",
            )
    if not is_tuple(value):
        raise w.error(
            target,
            "only a tuple can be unpacked",
            expected=f"{wanted} values",
            got=describe(value),
            remedy="assign it to one name",
        )
    parts = value
    if len(parts) != wanted:
        raise w.error(
            target,
            "the tuple has another length than the names on the left",
            expected=f"{wanted} values",
            got=f"{len(parts)} values",
            remedy="name every value, those that are not needed `_`",
        )
    return parts


def _no_target(w: Walker, target: ast.expr) -> Exception:
    remedy = "assign to a plain name"
    if isinstance(target, ast.Subscript):
        remedy = "write memory with tl.store(ptr + offsets, value); for a tile, use tl.where"
    if isinstance(target, ast.Attribute):
        remedy = "make a changed copy of an aggregate: x = tl.aggregate_replace(x, field=value)"
    return w.error(
        target,
        "this cannot be assigned to in a kernel",
        expected="a name, or a tuple of names",
        got=f"`{ast.unparse(target)}`",
        remedy=remedy,
    )


# -- statements that stand alone ---------------------------------------------------------------
@statement(ast.Pass)
def visit_pass(w: Walker, node: ast.Pass) -> object:
    """Nothing."""
    return FALLS


@statement(ast.Assert)
def visit_assert(w: Walker, node: ast.Assert) -> object:
    """`assert` is tl.device_assert: checked in kernels launched with debug=True."""
    message = constexpr("") if node.msg is None else w.expr(node.msg)
    value = w.expr(node.test)
    w.at(node)
    core.device_assert(value, message, _ctx=w.ctx)  # pyright: ignore[reportCallIssue]
    return FALLS
