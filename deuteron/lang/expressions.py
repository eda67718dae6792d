"""Expressions without calls: constants, names, operators, attributes, subscripts, tuples."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import ModuleType
from typing import Final

from deuteron.lang import loops, operators
from deuteron.lang.assignments import assign_target
from deuteron.lang.control import condition
from deuteron.lang.merge import is_tuple
from deuteron.lang.remedies import suggest
from deuteron.lang.scope import (
    MISSING,
    ForbiddenGlobalError,
    admit_attribute,
)
from deuteron.lang.values import Tensor, constexpr, describe, unwrap
from deuteron.lang.walker import BINARY, Walker, expression

UNARY: Final[dict[type[ast.unaryop], str]] = {
    ast.UAdd: "+",
    ast.USub: "-",
    ast.Invert: "~",
    ast.Not: "not",
}
COMPARISONS: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}


@expression(ast.Constant)
def visit_constant(w: Walker, node: ast.Constant) -> object:
    """A literal is a constexpr."""
    return constexpr(node.value)


@expression(ast.Name)
def visit_name(w: Walker, node: ast.Name) -> object:
    """A name in use."""
    return w.name(node)


@expression(ast.Tuple, ast.List)
def visit_tuple(w: Walker, node: ast.Tuple | ast.List) -> object:
    """A list is a tuple: nothing in a kernel can be changed in place."""
    return tuple(w.expr(element) for element in node.elts)


@expression(ast.BinOp)
def visit_binary(w: Walker, node: ast.BinOp) -> object:
    """`left op right`."""
    left, right = w.expr(node.left), w.expr(node.right)
    w.at(node)
    return operators.binary(w.ctx, BINARY[type(node.op)], left, right)


@expression(ast.UnaryOp)
def visit_unary(w: Walker, node: ast.UnaryOp) -> object:
    """`op operand`."""
    operand = w.expr(node.operand)
    w.at(node)
    return operators.unary(w.ctx, UNARY[type(node.op)], operand)


@expression(ast.BoolOp)
def visit_logical(w: Walker, node: ast.BoolOp) -> object:
    """`and`, `or`: a constant decides at once or drops out; tensors are all computed."""
    word = "and" if isinstance(node.op, ast.And) else "or"
    result: object = MISSING
    value: object = MISSING
    for operand in node.values:
        value = w.expr(operand)
        if isinstance(value, Tensor):
            w.at(node)
            result = value if result is MISSING else operators.logical(w.ctx, word, result, value)
        elif bool(unwrap(value)) == (word == "or"):
            return value
    return value if result is MISSING else result


@expression(ast.Compare)
def visit_compare(w: Walker, node: ast.Compare) -> object:
    """`a < b < c` is `(a < b) and (b < c)` with b computed once."""
    left, result = w.expr(node.left), MISSING
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        right = w.expr(comparator)
        w.at(node)
        holds = _compare(w, node, op, left, right)
        result = holds if result is MISSING else operators.logical(w.ctx, "and", result, holds)
        left = right
    return result


def _compare(w: Walker, node: ast.Compare, op: ast.cmpop, left: object, right: object) -> object:
    symbol = COMPARISONS.get(type(op))
    if symbol is not None:
        return operators.compare(w.ctx, symbol, left, right)
    if isinstance(op, (ast.Is, ast.IsNot)):
        same = unwrap(left) is unwrap(right)
        return constexpr(same == isinstance(op, ast.Is))
    word = "in" if isinstance(op, ast.In) else "not in"
    raise w.error(
        node,
        f"`{word}` is not supported in a kernel",
        expected="<, <=, >, >=, ==, !=, is, is not",
        got=f"`{word}`",
        remedy="compare with each: `x == a or x == b`",
    )


@expression(ast.NamedExpr)
def visit_walrus(w: Walker, node: ast.NamedExpr) -> object:
    """`(name := value)`."""
    assign_target(w, node.target, w.expr(node.value))
    return w.name(node.target)


# -- attributes and subscripts -----------------------------------------------------------------
@expression(ast.Attribute)
def visit_attribute(w: Walker, node: ast.Attribute) -> object:
    """`value.name`."""
    return attribute(w, node, w.expr(node.value), node.attr)


def attribute(w: Walker, node: ast.expr, value: object, name: str) -> object:
    """`value.name`, asked for at `node`."""
    if isinstance(value, ModuleType):
        return _module_attribute(w, node, value, name)
    w.at(node)
    return operators.attribute(w.ctx, value, name)


def _module_attribute(w: Walker, node: ast.expr, module: ModuleType, name: str) -> object:
    try:
        value = admit_attribute(module, name)
    except ForbiddenGlobalError as forbidden:
        raise w.forbidden(node, ast.unparse(node), forbidden.value) from None
    if value is MISSING:
        raise w.error(
            node,
            f"`{module.__name__}` has no `{name}`",
            expected="a name of that module",
            got=f"`{name}`",
            remedy=suggest(name, dir(module)) or f"see dir({ast.unparse(node).rpartition('.')[0]})",
        )
    return value


@expression(ast.Subscript)
def visit_subscript(w: Walker, node: ast.Subscript) -> object:
    """`value[index]`: axes of a tensor, an item of a tuple."""
    value = w.expr(node.value)
    items = node.slice
    if isinstance(items, ast.Tuple):
        index: object = tuple(_item(w, item) for item in items.elts)
    else:
        index = _item(w, items)
    w.at(node)
    if callable(unwrap(value)):
        raise w.error(
            node,
            f"{describe(value)} cannot be launched from a kernel",
            expected="a call without a grid",
            got=f"`{ast.unparse(node)}`",
            remedy="call it like a function, without `[grid]`: it becomes part of this kernel",
        )
    return operators.subscript(w.ctx, value, index)


def _item(w: Walker, node: ast.expr) -> object:
    if not isinstance(node, ast.Slice):
        return w.expr(node)
    bounds = [None if b is None else unwrap(w.expr(b)) for b in (node.lower, node.upper, node.step)]
    return slice(*bounds)


# -- text and comprehensions -------------------------------------------------------------------
@expression(ast.JoinedStr)
def visit_fstring(w: Walker, node: ast.JoinedStr) -> object:
    """An f-string of constants."""
    return constexpr("".join(_text(w, part) for part in node.values))


def _text(w: Walker, node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.FormattedValue)
    value = w.expr(node.value)
    if isinstance(value, Tensor):
        raise w.error(
            node.value,
            "an f-string is made at compile time, when a tensor has no value yet",
            expected="a constexpr",
            got=describe(value),
            remedy='print tensors with tl.device_print("name", x)',
        )
    plain = unwrap(value)
    convert = {ord("r"): repr, ord("s"): str, ord("a"): ascii}.get(node.conversion)
    spec = "" if node.format_spec is None else str(unwrap(w.expr(node.format_spec)))
    try:
        return format(plain if convert is None else convert(plain), spec)
    except (TypeError, ValueError) as error:
        raise w.error(
            node.value,
            f"cannot format this: {error}",
            expected="a constant that the format fits",
            got=describe(value),
            remedy="correct the format, or leave it out",
        ) from None


@expression(ast.ListComp, ast.GeneratorExp)
def visit_comprehension(w: Walker, node: ast.ListComp | ast.GeneratorExp) -> object:
    """A tuple made from the items of a tuple, or from a range known at compile time."""
    if len(node.generators) != 1:
        raise w.error(
            node,
            "a comprehension with several `for` is not supported in a kernel",
            expected="one `for`",
            got=str(len(node.generators)),
            remedy="use one `for`, or write the tuple out",
        )
    generator = node.generators[0]
    outer, results = w.scope, list[object]()
    for item in _comprehension_items(w, generator.iter):
        w.scope = outer.copy()  # the names of a comprehension stay inside it
        assign_target(w, generator.target, item, keeps_constants=True)
        if all(_static_test(w, test) for test in generator.ifs):
            results.append(w.expr(node.elt))
    w.scope = outer
    return tuple(results)


def _comprehension_items(w: Walker, node: ast.expr) -> Iterator[object]:
    source = w.expr(node)
    got = describe(source)
    if is_tuple(source):
        return iter(source)
    if isinstance(source, (loops.range, loops.static_range)):
        bounds = [unwrap(b) for b in (source.start, source.stop, source.step)]
        if all(isinstance(b, int) for b in bounds):
            return (constexpr(i) for i in range(*bounds))
        got = f"a range of {', '.join(map(describe, bounds))}"
    raise w.error(
        node,
        "a comprehension cannot go over this",
        expected="a tuple, or a range with constexpr bounds",
        got=got,
        remedy="make the bounds tl.constexpr, or use a `for` loop",
    )


def _static_test(w: Walker, node: ast.expr) -> bool:
    test = condition(w, node)
    if isinstance(test, Tensor):
        raise w.error(
            node,
            "the `if` of a comprehension must be known at compile time",
            expected="a constexpr",
            got=describe(test),
            remedy="choose by element with tl.where",
        )
    return test
