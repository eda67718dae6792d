"""Calls: what may stand before the parentheses, and the inlining of jit functions."""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, update_wrapper
from types import BuiltinMethodType, MethodType, ModuleType
from typing import Any, cast

from deuteron.dtypes import DType
from deuteron.errors import CompilationError
from deuteron.ir.nodes import Value
from deuteron.lang import loops
from deuteron.lang.aggregates import Aggregate, construct
from deuteron.lang.constexpr_function import ConstexprFunction
from deuteron.lang.context import Context, is_builtin
from deuteron.lang.control import run_body
from deuteron.lang.merge import is_tuple
from deuteron.lang.python_calls import PYTHON_CALLS, PYTHON_NAMES
from deuteron.lang.remedies import parameter_named, suggest
from deuteron.lang.scope import Scope
from deuteron.lang.semantic.casts import cast as cast_tensor
from deuteron.lang.semantic.casts import to_tensor
from deuteron.lang.source import Parameter, Source, source_of
from deuteron.lang.values import (
    BoundMethod,
    Composite,
    Tensor,
    constexpr,
    describe,
    is_static,
    parts_of,
    unwrap,
    wrap,
)
from deuteron.lang.walker import FALLS, Walker, expression, statement
from deuteron.runtime.jit import JITFunction

MAX_DEPTH = 32
"""How deep jit functions may call each other; a level takes about twenty frames of Python."""


@expression(ast.Call)
def visit_call(w: Walker, node: ast.Call) -> object:
    """`function(*args, **kwargs)`."""
    return call(w, node, w.expr(node.func))


def call(w: Walker, node: ast.Call, function: object) -> object:
    """What a call of `function` gives, which is the value of `node.func`."""
    args = _positional(w, node)
    kwargs: dict[str, object] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise w.error(
                keyword.value,
                "`**` in a call is not supported in a kernel",
                expected="arguments by position or by name",
                got=f"`**{ast.unparse(keyword.value)}`",
                remedy="write the arguments out",
            )
        kwargs[keyword.arg] = w.expr(keyword.value)
    w.at(node)
    try:
        return _call(w, node, function, args, kwargs)
    except CompilationError as error:
        here = error.loc == w.loc(node) and not w.source.is_library
        if not here or "tl.constexpr" not in error.remedy:
            raise
        name = _demoted_name(w, node, error.got)
        if name is None:
            raise
        raise _demotion_error(w, name, error) from None


@statement(ast.Expr)
def visit_expression(w: Walker, node: ast.Expr) -> object:
    """An expression for its effect, such as a call of tl.store."""
    if isinstance(node.value, ast.Call):
        function = w.expr(node.value.func)
        _check_use(w, node.value, function)
        call(w, node.value, function)
    elif not isinstance(node.value, ast.Constant):  # a docstring, or `...`
        w.expr(node.value)
    return FALLS


def _check_use(w: Walker, node: ast.Call, function: object) -> None:
    """Raise when the result of a function marked by `must_use_result` is dropped."""
    target = unwrap(function)
    marked = target.function if isinstance(target, BoundMethod) else target
    reason = getattr(marked, "must_use_result", None)
    if reason:
        why = f". {reason}" if isinstance(reason, str) else ""
        name = ast.unparse(node.func)
        raise w.error(
            node,
            f"The result of {name} is not being used{why}",
            expected=f"`x = {name}(...)`, or an operand of something else",
            got="a statement of its own",
            remedy="use the result, or take the call out",
        )


def _positional(w: Walker, node: ast.Call) -> list[object]:
    args: list[object] = []
    for arg in node.args:
        if not isinstance(arg, ast.Starred):
            args.append(w.expr(arg))
            continue
        value = w.expr(arg.value)
        if not is_tuple(value):
            raise w.error(
                arg,
                "only a tuple can be spread out",
                expected="a tuple",
                got=describe(value),
                remedy="take the `*` away",
            )
        args.extend(value)
    return args


def _call(
    w: Walker, node: ast.Call, function: object, args: list[object], kwargs: dict[str, object]
) -> object:
    target = unwrap(function)
    if isinstance(target, BoundMethod) and _is_constexpr_function(target.function):
        # Its own aggregate may hold tensors, which the method may hand on but not look into.
        method = update_wrapper(partial(target.function, unwrap(target.receiver)), target.function)
        return _call_python(w, node, method, args, kwargs)
    if isinstance(target, (BoundMethod, JITFunction)) or is_builtin(target):
        return w.ctx.call(target, args, kwargs)
    if isinstance(target, DType) and len(args) == 1 and not kwargs:
        return cast_tensor(w.ctx, to_tensor(w.ctx, unwrap(args[0])), target)
    python_call = PYTHON_CALLS.get(id(target))
    if python_call is not None:
        return python_call(w, node, args, kwargs)
    if isinstance(target, type) and issubclass(target, Aggregate):
        return construct(w.ctx, target, args, kwargs)
    if isinstance(target, type):
        keeps_tensors = hasattr(target, "_fields") or target.__module__ == loops.__name__
        if keeps_tensors or target.__module__.split(".")[0] == "deuteron":
            return _call_python(w, node, target, args, kwargs, keeps_tensors=keeps_tensors)
    if _runs_at_compile_time(target):
        return _call_python(w, node, target, args, kwargs)
    raise _not_callable(w, node, function)


def _is_constexpr_function(target: Any) -> bool:
    return isinstance(target, ConstexprFunction)


def _runs_at_compile_time(target: Any) -> bool:
    """Functions marked so, those of `math`, and methods of constants, such as dtypes."""
    if _is_constexpr_function(target):
        return True
    if isinstance(target, (MethodType, BuiltinMethodType)):
        receiver = target.__self__
        return receiver is math or not isinstance(receiver, (ModuleType, Tensor))
    return False


def _call_python(
    w: Walker,
    node: ast.Call,
    function: Any,
    args: list[object],
    kwargs: dict[str, object],
    *,
    keeps_tensors: bool = False,
) -> object:
    """Call a function or class of Python while the kernel is compiled."""
    name = getattr(function, "__name__", repr(function))
    is_math = getattr(function, "__module__", "") == "math"
    if keeps_tensors:
        plain, named = args, kwargs
    else:
        for value in (*args, *kwargs.values()):
            if not is_static(value):
                raise w.error(
                    node,
                    f"`{name}` runs while the kernel is compiled, when a tensor has no value yet",
                    expected="constexpr arguments",
                    got=describe(value),
                    remedy=f"use tl.{name} or libdevice.{name}" if is_math else "",
                )
        plain, named = [unwrap(a) for a in args], {k: unwrap(v) for k, v in kwargs.items()}
    try:
        return wrap(function(*plain, **named))
    except Exception as error:
        raise w.error(
            node,
            f"`{name}` raised {type(error).__name__}: {error}",
            expected="a call that works in plain Python",
            got=", ".join(map(describe, (*args, *kwargs.values()))) or "no arguments",
            remedy="correct the arguments, or the function",
        ) from error


def _not_callable(w: Walker, node: ast.Call, function: object) -> CompilationError:
    target = unwrap(function)
    if not callable(target):
        return w.error(
            node.func,
            "this cannot be called",
            expected="a function",
            got=describe(function),
            remedy="take the parentheses away",
        )
    name = getattr(target, "__name__", repr(target))
    remedy = f"decorate `{name}` with @jit, or with @constexpr_function if it runs at compile time"
    if getattr(target, "__module__", "") == "builtins":
        remedy = f"Python's own functions in kernels are {', '.join(PYTHON_NAMES)}"
    return w.error(
        node.func,
        f"`{name}` cannot be called in a kernel",
        expected="a function of the language, or one decorated with @jit",
        got=describe(target),
        remedy=remedy,
    )


# -- constants that became tensors -------------------------------------------------------------
def _demoted_name(w: Walker, node: ast.Call, got: str) -> str | None:
    """An argument's name that would be a constant, had it not been assigned plainly.

    `got` describes the tensor that came instead; None when another name may be to blame.
    """
    suspects: dict[str, Tensor] = {}
    for arg in (*node.args, *(k.value for k in node.keywords)):
        for inner in ast.walk(arg):
            value = w.scope.values.get(inner.id) if isinstance(inner, ast.Name) else None
            if isinstance(inner, ast.Name) and isinstance(value, Tensor) and describe(value) == got:
                suspects[inner.id] = value
    if suspects and all(_is_constant(value.handle) for value in suspects.values()):
        return next(iter(suspects))
    return None


def _is_constant(value: Value) -> bool:
    op = value.op
    if op is None:
        return False
    return op.name == "const" or (bool(op.operands) and all(map(_is_constant, op.operands)))


def _demotion_error(w: Walker, name: str, error: CompilationError) -> CompilationError:
    """Name the assignment that made a constant a tensor."""
    handle = cast(Tensor, w.scope.values[name]).handle
    line = handle.op.loc.line if handle.op is not None else 0
    return CompilationError(
        error.error_message,
        error.loc,
        expected=error.expected,
        got=error.got,
        remedy=f"`{name} = ...` makes a tensor; write `{name}: tl.constexpr = ...` in line {line}",
    )


# -- jit functions -----------------------------------------------------------------------------
@dataclass(slots=True)
class Inliner:
    """Compiles jit functions into their callers.  `stack` holds the calls now being compiled."""

    ctx: Context
    stack: list[tuple[object, ...]] = field(default_factory=list[tuple[object, ...]])

    def call(
        self, function: object, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> object:
        """Inline a call at the builder's place; the value it returns."""
        ctx = self.ctx
        if not isinstance(function, JITFunction):
            raise ctx.error(
                "only a jit function can be called here",
                expected="a function decorated with @jit",
                got=describe(function),
                remedy="decorate it with @jit",
            )
        source = source_of(function)
        scope = bind(ctx, source, args, kwargs)
        self.enter(source, scope)
        caller = ctx.builder.loc
        outcome = run_body(Walker(ctx, function, source, scope, caller), source.tree.body)
        self.stack.pop()
        ctx.builder.loc = caller
        return constexpr(None) if outcome is FALLS else outcome

    def enter(self, source: Source, scope: Scope) -> None:
        """Note that a function is being compiled.  Raises when it is already, for the same."""
        key = (source.tree, *(_specialization(v) for v in scope.values.values()))
        if key in self.stack:
            raise self.ctx.error(
                f"`{source.name}` calls itself with arguments of the same types, without end",
                expected="a recursion that ends while the kernel is compiled",
                got=f"`{source.name}` inside of `{source.name}`, with nothing changed",
                remedy="use a loop; recursion must change a constexpr argument and end by it",
            )
        if len(self.stack) >= MAX_DEPTH:
            raise self.ctx.error(
                "jit functions call each other too deeply",
                expected=f"at most {MAX_DEPTH} calls inside each other",
                got="one more",
                remedy="use a loop instead of recursion",
            )
        self.stack.append(key)


def _specialization(value: object) -> object:
    """What of an argument decides how a call is compiled."""
    if isinstance(value, Tensor):
        return value.type
    parts = parts_of(value)
    if parts is not None:
        kind = value.kind if isinstance(value, Composite) else None
        return (kind, *map(_specialization, parts))
    plain = unwrap(value)
    return (type(plain).__qualname__, repr(plain))


def bind(
    ctx: Context, source: Source, args: Sequence[object], kwargs: Mapping[str, object]
) -> Scope:
    """The scope a function starts with, given the arguments of a call."""
    scope, used = Scope(), 0
    left = dict(kwargs)
    names = {p.name for p in source.parameters if not p.is_variadic}
    for name in left:
        if name not in names:
            raise _call_error(
                ctx, source, f"there is no parameter `{name}`", f"{name}=…", _rename(name, names)
            )
    for parameter in source.parameters:
        name = parameter.name
        if parameter.is_variadic:
            value: object = tuple(args[used:])
            used = len(args)
        elif used < len(args) and not parameter.is_keyword_only:
            value = args[used]
            used += 1
            if name in left:
                raise _call_error(
                    ctx, source, f"`{name}` is given twice", f"`{name}` by position and by name",
                    "give it once",
                )  # fmt: skip
        elif name in left:
            value = left.pop(name)
        elif parameter.has_default:
            value = wrap(parameter.default)
        else:
            raise _call_error(
                ctx, source, f"`{name}` is missing", _count(len(args)), f"add {name}=… to the call"
            )
        _bind_parameter(ctx, source, scope, parameter, value)
    if used < len(args):
        surplus = len(args) - used
        raise _call_error(
            ctx, source, f"{len(args)} arguments are too many", _count(len(args)),
            f"leave the last {surplus} out" if surplus > 1 else "leave the last one out",
        )  # fmt: skip
    return scope


def _bind_parameter(
    ctx: Context, source: Source, scope: Scope, parameter: Parameter, value: object
) -> None:
    if not parameter.is_constexpr:
        scope.assign(parameter.name, value)
        return
    if not is_static(value):
        raise ctx.error(
            f"`{parameter.name}` of `{source.name}` must be known at compile time",
            expected="a constexpr",
            got=describe(value),
            remedy="pass a constant or a tl.constexpr name",
        )
    scope.declare(parameter.name, value, None)


def _count(positional: int) -> str:
    return f"{positional} argument{'s' * (positional != 1)} by position"


def _rename(name: str, known: Collection[str]) -> str:
    return suggest(parameter_named(name), known) or f"leave {name}=… out"


def _call_error(
    ctx: Context, source: Source, problem: str, got: str, remedy: str
) -> CompilationError:
    texts = [
        f"{'*' if p.is_variadic else ''}{p.name}{' = ...' if p.has_default else ''}"
        for p in source.parameters
    ]
    signature = f"{source.name}({', '.join(texts)})"
    message = f"`{source.name}` is called wrongly: {problem}"
    return ctx.error(message, expected=signature, got=got, remedy=remedy)
