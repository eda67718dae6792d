"""What Python's operators, attributes and brackets mean in a kernel.

Operands and results are values as the AST walker holds them (`values.py`).  Where all operands
are known at compile time the operation folds in Python; otherwise `semantic` builds IR.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeGuard, cast

from deuteron.dtypes import DType
from deuteron.ir.types import Pointer
from deuteron.lang.aggregates import Aggregate
from deuteron.lang.context import Context
from deuteron.lang.remedies import instead_of_attribute, suggest
from deuteron.lang.semantic import arith, casts, indexing, shape
from deuteron.lang.values import (
    TENSOR_MEMBERS,
    BlockType,
    BoundMethod,
    Composite,
    ConstexprType,
    Operand,
    Tensor,
    constexpr,
    describe,
    is_static,
    unwrap,
    wrap,
)

_TENSOR_BINARY: Final[Mapping[str, Callable[[Context, Operand, Operand], Tensor]]] = {
    "+": arith.add,
    "-": arith.sub,
    "*": arith.mul,
    "/": arith.truediv,
    "//": arith.floordiv,
    "%": arith.mod,
    "<<": arith.shift_left,
    ">>": arith.shift_right,
    "&": arith.bit_and,
    "|": arith.bit_or,
    "^": arith.bit_xor,
    "**": arith.power,
}
_PYTHON_NAMES: Final[Mapping[str, str]] = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow",
    "<<": "lshift", ">>": "rshift", "&": "and_", "|": "or_", "^": "xor",
    "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne",
}  # fmt: skip
_MAX_POWER_BITS: Final = 1 << 16
_PYTHON_UNARY_NAMES: Final[Mapping[str, str]] = {
    "+": "pos", "-": "neg", "~": "invert", "not": "not_",
}  # fmt: skip
_NO_TENSOR_FORM: Final[Mapping[str, str]] = {
    "@": "call tl.dot",
}


def binary(ctx: Context, symbol: str, left: object, right: object) -> object:
    """`left symbol right` for an arithmetic or bitwise operator."""
    method = _special(ctx, symbol, left, right)
    if method is not None:
        return method
    if is_static(left) and is_static(right):
        return _fold(ctx, symbol, left, right)
    if symbol in _NO_TENSOR_FORM:
        raise ctx.error(
            f"tensors have no `{symbol}` operator",
            expected="one of + - * / // % ** & | ^ << >>",
            got=f"{describe(left)} and {describe(right)}",
            remedy=_NO_TENSOR_FORM[symbol],
        )
    if symbol == "+" and _is_tuple(left) and _is_tuple(right):
        return (*left, *right)
    return _TENSOR_BINARY[symbol](ctx, _operand(ctx, symbol, left), _operand(ctx, symbol, right))


def _special(ctx: Context, symbol: str, left: object, right: object) -> object | None:
    """What an aggregate's own method for an operator gives; None when there is none."""
    name = _PYTHON_NAMES.get(symbol, symbol).strip("_")
    for value, other, prefix in ((left, right, ""), (right, left, "r")):
        method = value.method(f"__{prefix}{name}__") if isinstance(value, Aggregate) else None
        if method is not None:
            return ctx.call(method, [value, other], {})
    return None


def compare(ctx: Context, symbol: str, left: object, right: object) -> object:
    """`left symbol right` for a comparison."""
    method = _special(ctx, symbol, left, right)
    if method is not None:
        return method
    if is_static(left) and is_static(right):
        return _fold(ctx, symbol, left, right)
    return arith.compare(ctx, symbol, _operand(ctx, symbol, left), _operand(ctx, symbol, right))


def unary(ctx: Context, symbol: str, value: object) -> object:
    """`symbol value` for `+`, `-`, `~` and `not`."""
    if isinstance(value, Aggregate):
        method = value.method(f"__{_PYTHON_UNARY_NAMES[symbol].strip('_')}__")
        if method is not None:
            return ctx.call(method, [value], {})
    if not isinstance(value, Tensor):
        return _fold(ctx, symbol, value)
    match symbol:
        case "+":
            return value
        case "-":
            return arith.negate(ctx, value)
        case "~":
            return arith.invert(ctx, value)
        case _:
            return arith.logical_not(ctx, value)


def logical(ctx: Context, word: str, left: object, right: object) -> object:
    """`left and right` or `left or right`, both evaluated already."""
    if not isinstance(left, Tensor) and not isinstance(right, Tensor):
        return (left and right) if word == "and" else (left or right)
    apply = arith.logical_and if word == "and" else arith.logical_or
    return apply(ctx, _operand(ctx, word, left), _operand(ctx, word, right))


def truth(ctx: Context, value: object) -> Tensor:
    """The scalar int1 that a branch or loop depends on."""
    tensor = casts.to_tensor(ctx, unwrap(value))
    if tensor.shape:
        raise ctx.error(
            "a tile has no single truth value",
            expected="a scalar condition",
            got=describe(tensor),
            remedy="choose elements with tl.where, or reduce the tile with tl.max first",
        )
    return arith.truth(ctx, tensor)


def _is_tuple(value: object) -> TypeGuard[tuple[object, ...]]:
    return isinstance(value, tuple)


def _is_vast(base: object, exponent: object) -> bool:
    """Whether Python would compute an integer power for too long."""
    if not isinstance(base, int) or not isinstance(exponent, int):
        return False
    return base.bit_length() * exponent > _MAX_POWER_BITS


def _fold(ctx: Context, symbol: str, *operands: object) -> object:
    """What Python makes of constants."""
    names = _PYTHON_NAMES if len(operands) == 2 else _PYTHON_UNARY_NAMES
    plain = [unwrap(o) for o in operands]
    try:
        if symbol not in names:
            raise TypeError(f"constants have no `{symbol}` operator")
        if symbol == "**" and _is_vast(*plain):
            raise OverflowError(f"the result has more than {_MAX_POWER_BITS} bits")
        return wrap(getattr(operator, names[symbol])(*plain))
    except (TypeError, ValueError, ArithmeticError, MemoryError) as error:
        got = " and ".join(describe(o) for o in operands)
        raise ctx.error(
            f"`{symbol}` of constants failed: {error}",
            expected="constants that Python can compute with",
            got=got,
            remedy="correct them, or keep the line from being compiled with an `if` on constants",
        ) from None


_NO_OPERAND: Final = "use its parts, or another value"
_OPERAND_REMEDIES: Final[Mapping[type, str]] = {
    type(None): "guard what may be None with `if x is not None`",
    str: "convert it before, outside of the kernel",
    tuple: "take its items: t[0]",
    DType: "call it to convert a value: tl.float32(x)",
}


def _operand(ctx: Context, symbol: str, value: object) -> Operand:
    plain = unwrap(value)
    if isinstance(plain, (Tensor, bool, int, float)):
        return plain
    raise ctx.error(
        f"`{symbol}` does not take this operand",
        expected="a tensor or a number",
        got=describe(value),
        remedy=_OPERAND_REMEDIES.get(type(cast(object, plain)), _NO_OPERAND),
    )


# -- attributes and brackets ---------------------------------------------------------------
_TENSOR_ATTRIBUTES: Final = frozenset({"dtype", "shape", "numel", "ndim"})


def attribute(ctx: Context, value: object, name: str) -> object:
    """`value.name`."""
    if isinstance(value, Tensor):
        return _tensor_attribute(ctx, value, name)
    if isinstance(value, Composite):
        return _composite_attribute(ctx, value, name)
    plain = unwrap(value)
    is_number = isinstance(plain, (bool, int, float))
    if isinstance(value, constexpr) and name in ("value", "type"):
        return value if name == "value" else ConstexprType(plain)
    if is_number and name in TENSOR_MEMBERS:
        return BoundMethod(TENSOR_MEMBERS[name], casts.to_tensor(ctx, plain))
    try:
        return wrap(getattr(plain, name))
    except AttributeError:
        raise ctx.error(
            f"{describe(value)} has no attribute `{name}`",
            expected="an attribute that it has",
            got=f"`{name}`",
            remedy="check the spelling, and whether the value is what it should be",
        ) from None


def _composite_attribute(ctx: Context, value: Composite, name: str) -> object:
    try:
        return wrap(value.attribute(name))
    except AttributeError as error:
        raise ctx.error(
            f"{describe(value)} has no attribute `{name}`",
            expected=f"{error}",
            got=f"`{name}`",
            remedy="check the spelling, and whether the value is what it should be",
        ) from None


def _tensor_attribute(ctx: Context, tensor: Tensor, name: str) -> object:
    if name in _TENSOR_ATTRIBUTES:
        return wrap(getattr(tensor, name))
    if name == "T":
        return shape.transpose(ctx, tensor)
    if name == "type":
        element = tensor.dtype
        return BlockType(element, tensor.shape) if tensor.shape else constexpr(element)
    if name in TENSOR_MEMBERS:
        return BoundMethod(TENSOR_MEMBERS[name], tensor)
    remedy = instead_of_attribute(name) or suggest(name, TENSOR_MEMBERS) or "see dir(tl.tensor)"
    if isinstance(tensor.dtype, Pointer) and name not in ("size", "stride", "data_ptr", "device"):
        remedy = "load from the pointer first, with tl.load"
    raise ctx.error(
        f"a tensor has no attribute `{name}`",
        expected=f"{', '.join(sorted(_TENSOR_ATTRIBUTES))}, T, type, or a method",
        got=describe(tensor),
        remedy=remedy,
    )


def subscript(ctx: Context, value: object, items: object) -> object:
    """`value[items]`: axes of a tensor, or an item of a tuple or constant."""
    method = value.method("__getitem__") if isinstance(value, Aggregate) else None
    if method is not None:
        return ctx.call(method, [value, items], {})
    index = unwrap(items)
    if isinstance(value, Tensor):
        return indexing.subscript(ctx, value, index if _is_tuple(index) else (index,))
    plain: Any = value if _is_tuple(value) else unwrap(value)
    try:
        return wrap(plain[index])
    except (TypeError, IndexError, KeyError) as error:
        raise ctx.error(
            f"cannot index this: {error}",
            expected="a tuple, and an integer known at compile time",
            got=f"{describe(value)} and {describe(index)}",
            remedy=(
                "a scalar or a pointer has no axes: pass sizes as arguments of the kernel"
                if plain == ()
                else "count the items with len; select from tensors with tl.where"
            ),
        ) from None
