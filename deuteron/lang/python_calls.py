"""What Python's own functions mean in a kernel."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from deuteron.errors import CompilationError
from deuteron.lang import loops, operators
from deuteron.lang.core import device_print
from deuteron.lang.expressions import attribute
from deuteron.lang.merge import is_tuple
from deuteron.lang.semantic import arith
from deuteron.lang.values import Tensor, constexpr, describe, is_static, unwrap, wrap
from deuteron.lang.walker import Walker

Args = list[object]
Kwargs = dict[str, object]
PythonCall = Callable[[Walker, ast.Call, Args, Kwargs], object]

# By identity, since not everything that is called can be hashed.
PYTHON_CALLS: Final[dict[int, PythonCall]] = {}
PYTHON_NAMES: Final[list[str]] = ["print"]

_ANY: Final = 1 << 30


def _means(function: object, low: int, high: int | None = None) -> Callable[[Any], PythonCall]:
    """Decorator: the meaning of a function of Python that takes `low` to `high` arguments."""
    name = getattr(function, "__name__", "")
    most = low if high is None else high
    count = str(low) if most == low else f"{low} or more" if most == _ANY else f"{low} to {most}"

    def register(rule: Callable[[Walker, ast.Call, Args], object]) -> PythonCall:
        def call(w: Walker, node: ast.Call, args: Args, kwargs: Kwargs) -> object:
            if kwargs:
                raise w.error(
                    node,
                    f"`{name}` takes no keyword arguments in a kernel",
                    expected="arguments by position",
                    got=", ".join(f"{key}=…" for key in kwargs),
                    remedy="leave the names out",
                )
            if not low <= len(args) <= most:
                raise w.error(
                    node,
                    f"`{name}` is called wrongly",
                    expected=f"{count} arguments",
                    got=str(len(args)),
                    remedy=f"see help({name})",
                )
            return rule(w, node, args)

        PYTHON_CALLS[id(function)] = call
        if function is not constexpr:
            PYTHON_NAMES.append(name)
        return call

    return register


# -- numbers -----------------------------------------------------------------------------------
def _convert(function: Callable[[Any], object], remedy: str) -> None:
    name = function.__name__

    @_means(function, 1)
    def convert(w: Walker, node: ast.Call, args: Args) -> object:
        if not is_static(args[0]):
            raise w.error(
                node,
                f"`{name}` converts values known at compile time",
                expected="a constexpr",
                got=describe(args[0]),
                remedy=remedy,
            )
        try:
            return wrap(function(unwrap(args[0])))
        except (TypeError, ValueError, OverflowError) as error:
            raise w.error(
                node,
                f"`{name}`: {error}",
                expected=f"a constant that `{name}` can convert",
                got=describe(args[0]),
                remedy="correct it",
            ) from None


_convert(int, "cast a tensor with x.to(tl.int32)")
_convert(float, "cast a tensor with x.to(tl.float32)")
_convert(bool, "compare a tensor with zero: x != 0")
_convert(str, 'print a tensor with tl.device_print("x", x)')


@_means(abs, 1)
def call_abs(w: Walker, node: ast.Call, args: Args) -> object:
    """|x| of a tensor or a number."""
    if isinstance(args[0], Tensor):
        w.at(node)
        w.ctx.beyond_triton("Python's `abs` of a tensor", "call tl.abs")
        return arith.absolute(w.ctx, args[0])
    return _fold(w, node, abs, args)


def _extreme(function: Callable[..., object], on_tensors: Callable[..., Tensor]) -> None:
    @_means(function, 1, _ANY)
    def call(w: Walker, node: ast.Call, args: Args) -> object:
        items = args
        if len(args) == 1 and is_tuple(args[0]):
            items = list(args[0])
        if len(items) < 2:
            raise w.error(
                node,
                f"`{function.__name__}` compares values",
                expected="two values or more",
                got=", ".join(map(describe, args)),
                remedy=f"reduce a tile with tl.{function.__name__}(x, axis=0)",
            )
        if all(map(is_static, items)):
            return _fold(w, node, function, items)
        result = items[0]
        for item in items[1:]:
            result = on_tensors(w.ctx, unwrap(result), unwrap(item))
        return result


_extreme(min, arith.minimum)
_extreme(max, arith.maximum)


def _fold(w: Walker, node: ast.Call, function: Callable[..., object], args: Args) -> object:
    try:
        return wrap(function(*map(unwrap, args)))
    except (TypeError, ValueError) as error:
        raise w.error(
            node,
            str(error),
            expected="constants that Python can compute with",
            got=", ".join(map(describe, args)),
            remedy="correct them",
        ) from None


# -- tuples and ranges -------------------------------------------------------------------------
@_means(len, 1)
def call_len(w: Walker, node: ast.Call, args: Args) -> object:
    """The length of a tuple, or of the first axis of a tile."""
    value = args[0]
    if isinstance(value, Tensor) and not value.shape:
        raise w.error(
            node,
            "a scalar has no length",
            expected="a tuple, or a tile of one axis or more",
            got=describe(value),
            remedy="pass the sizes of arrays as arguments of the kernel",
        )
    if isinstance(value, Tensor):
        return operators.subscript(w.ctx, operators.attribute(w.ctx, value, "shape"), constexpr(0))
    return _fold(w, node, len, args)


def _to_tuple(w: Walker, node: ast.Call, args: Args) -> object:
    value = args[0] if args else ()
    if not is_tuple(value):
        raise w.error(
            node,
            "only a tuple can become a tuple",
            expected="a tuple",
            got=describe(value),
            remedy="write (x,) for a tuple of one",
        )
    return tuple(value)


_means(tuple, 0, 1)(_to_tuple)
_means(list, 0, 1)(_to_tuple)


@_means(range, 1, 3)
def call_range(w: Walker, node: ast.Call, args: Args) -> object:
    """Python's range is tl.range."""
    return loops.range(*args)


# -- asking about values -----------------------------------------------------------------------
@_means(isinstance, 2)
def call_isinstance(w: Walker, node: ast.Call, args: Args) -> object:
    """Whether a value, or what its constexpr holds, is of a class."""
    value, classes = args[0], unwrap(args[1])
    try:
        return constexpr(isinstance(value, classes) or isinstance(unwrap(value), classes))
    except TypeError as error:
        raise w.error(
            node,
            f"`isinstance`: {error}",
            expected="a class, or a tuple of classes",
            got=describe(args[1]),
            remedy="compare values with ==",
        ) from None


@_means(getattr, 2, 3)
def call_getattr(w: Walker, node: ast.Call, args: Args) -> object:
    """`value.name`, or the default where there is none."""
    try:
        return attribute(w, node, args[0], _attribute_name(w, node, args))
    except CompilationError:
        if len(args) < 3:
            raise
        return args[2]


@_means(hasattr, 2)
def call_hasattr(w: Walker, node: ast.Call, args: Args) -> object:
    """Whether `value.name` would be an error."""
    name = _attribute_name(w, node, args)
    try:
        attribute(w, node, args[0], name)
    except CompilationError:
        return constexpr(False)
    return constexpr(True)


def _attribute_name(w: Walker, node: ast.Call, args: Args) -> str:
    name = unwrap(args[1])
    if not isinstance(name, str):
        raise w.error(
            node.args[1],
            "an attribute's name is a string",
            expected="a string",
            got=describe(args[1]),
            remedy="write it in quotes",
        )
    return name


# -- printing ----------------------------------------------------------------------------------
def call_print(w: Walker, node: ast.Call, args: Args, kwargs: Kwargs) -> object:
    """`print` is tl.device_print; the label in front may be left out."""
    labelled = bool(args) and isinstance(unwrap(args[0]), str)
    values = args if labelled else [constexpr(""), *args]
    return w.ctx.call(device_print, values, kwargs)


PYTHON_CALLS[id(print)] = call_print


@_means(constexpr, 1)
def call_constexpr(w: Walker, node: ast.Call, args: Args) -> object:
    """`tl.constexpr(x)` of a constant."""
    if not is_static(args[0]):
        raise w.error(
            node,
            "a tensor cannot become a constexpr",
            expected="a constant",
            got=describe(args[0]),
            remedy="a constexpr is known while the kernel is compiled: pass it as an argument",
        )
    return wrap(unwrap(args[0]))
