"""Constants, and conversions between element types."""

from __future__ import annotations

from typing import Any

from deuteron.dtypes import (
    DType,
    float32,
    float64,
    int1,
    int32,
    int64,
    int_range,
    uint32,
    uint64,
)
from deuteron.ir.types import Element, Pointer
from deuteron.lang.context import Context
from deuteron.lang.values import Scalar, Tensor, describe

_FLOAT32_MIN_NORMAL = 2.0**-126
_FLOAT32_MAX = (2 - 2**-23) * 2.0**127


def literal_dtype(ctx: Context, value: Scalar) -> DType:
    """The dtype a Python number has on its own: the first of the list that holds it."""
    if isinstance(value, bool):
        return int1
    if isinstance(value, int):
        for dtype in (int32, uint32, int64, uint64):
            least, greatest = int_range(dtype)
            if least <= value <= greatest:
                return dtype
        raise ctx.error(
            "an integer does not fit any dtype",
            expected="-2**63 to 2**64 - 1",
            got=str(value),
            remedy="use a float, or compute in parts",
        )
    size = abs(value)
    special = size == 0 or size == float("inf") or value != value
    return float32 if special or _FLOAT32_MIN_NORMAL <= size <= _FLOAT32_MAX else float64


def is_scalar(value: object) -> bool:
    """True for a Python number."""
    return isinstance(value, (bool, int, float))


def constant(ctx: Context, value: Scalar, dtype: DType) -> Tensor:
    """A scalar constant.  An integer dtype needs a value in its range."""
    if dtype.is_int() and not dtype.is_bool():
        value = _integer_constant(ctx, value, dtype)
    return Tensor(ctx.builder.const(value, dtype))


def _integer_constant(ctx: Context, value: Scalar, dtype: DType) -> int:
    least, greatest = int_range(dtype)
    if isinstance(value, float) and not value.is_integer():
        raise ctx.error(
            f"a fraction cannot be a constant of {dtype}",
            expected="a whole number",
            got=repr(value),
            remedy="use a float dtype, or int(...) to cut the fraction off",
        )
    whole = int(value)
    if not least <= whole <= greatest:
        raise ctx.error(
            f"{whole} is out of range for {dtype}",
            expected=f"{least} to {greatest}",
            got=str(whole),
            remedy=f"cast the other operand to a wider dtype than {dtype}",
        )
    return whole


def bits_constant(ctx: Context, value: Scalar, dtype: DType) -> Tensor:
    """A scalar constant whose integer may also be given as the dtype's bit pattern.

    `full((8,), -1, uint32)` and `full((8,), 0xFFFFFFFF, int32)` both mean 32 ones.
    """
    if isinstance(value, int) and dtype.is_int() and dtype.bits > 1:
        least, greatest = -(1 << (dtype.bits - 1)), (1 << dtype.bits) - 1
        if least <= value <= greatest:
            value &= greatest
            if dtype.is_int_signed() and value > int_range(dtype)[1]:
                value -= 1 << dtype.bits
    return constant(ctx, value, dtype)


def to_tensor(ctx: Context, value: object) -> Tensor:
    """A Tensor as it is; a Python number as a scalar constant of its own dtype."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (bool, int, float)):
        return constant(ctx, value, literal_dtype(ctx, value))
    raise ctx.error(
        "this value cannot be used in arithmetic when the kernel runs",
        expected="a tensor or a number",
        got=describe(value),
        remedy="annotate the name with tl.constexpr if the value is only needed at compile time",
    )


def check_dtype(ctx: Context, what: str, value: object) -> Element:
    """The value as an element type, or an error."""
    if isinstance(value, (DType, Pointer)):
        return value
    raise ctx.error(
        f"`{what}` is no dtype",
        expected="a dtype such as tl.float32",
        got=describe(value),
        remedy="pass the dtype itself, as in tl.float32, x.dtype or ptr.dtype.element_ty",
    )


def check_number_dtype(ctx: Context, what: str, value: object) -> DType:
    """The value as a dtype of numbers, or an error."""
    element = check_dtype(ctx, what, value)
    if isinstance(element, Pointer):
        raise ctx.error(
            f"`{what}` is a pointer type",
            expected="a dtype such as tl.float32",
            got=str(element),
            remedy="take what it points to: ptr.dtype.element_ty",
        )
    return element


def cast(ctx: Context, x: Tensor, to: Element, rounding: object = None) -> Tensor:
    """Convert the elements of `x` to `to`.

    `rounding` ("rtne" or "rtz") is allowed only where a float loses bits; the default there is to
    nearest, ties to even.  Pointers convert to int64 and back, and to other pointers.
    """
    source = x.dtype
    if source == to:
        return x
    attrs = _rounding_attrs(ctx, source, to, rounding)
    if isinstance(source, Pointer) or isinstance(to, Pointer):
        return _cast_pointer(ctx, x, to)
    mixes_fp8 = (source.is_fp8() and to.is_int()) or (source.is_int() and to.is_fp8())
    if mixes_fp8:
        x = ctx.op("cast", x, to=float32)
    return ctx.op("cast", x, to=to, **attrs)


def _rounding_attrs(ctx: Context, source: Element, to: Element, rounding: object) -> dict[str, Any]:
    if rounding is None:
        return {}
    if rounding not in ("rtne", "rtz"):
        raise ctx.error(
            "unknown fp_downcast_rounding",
            expected='"rtne" or "rtz"',
            got=repr(rounding),
            remedy="leave it out to round to nearest",
        )
    narrows = (
        isinstance(source, DType)
        and isinstance(to, DType)
        and source.is_floating()
        and to.is_floating()
        and to.bits < source.bits
    )
    if not narrows:
        raise ctx.error(
            "fp_downcast_rounding is only for casts to a narrower float",
            expected="a float to a narrower float",
            got=f"{source} to {to}",
            remedy="leave fp_downcast_rounding out",
        )
    return {"rounding": "rtz"} if rounding == "rtz" else {}


def _cast_pointer(ctx: Context, x: Tensor, to: Element) -> Tensor:
    source = x.dtype
    if isinstance(source, Pointer) and isinstance(to, Pointer):
        return ctx.op("bitcast", x, to=to)
    if isinstance(source, Pointer) and isinstance(to, DType) and to.is_int() and to.bits in (1, 64):
        return cast(ctx, ctx.op("ptr_to_int", x), to)
    if isinstance(source, DType) and source.is_int() and isinstance(to, Pointer):
        return ctx.op("int_to_ptr", cast(ctx, x, int64), to=to)
    raise ctx.error(
        f"cannot cast {source} to {to}",
        expected="a pointer to int64, uint64 or another pointer; an integer to a pointer",
        got=f"{source} to {to}",
        remedy="load what it points to first, with tl.load",
    )


def bitcast(ctx: Context, x: Tensor, to: Element) -> Tensor:
    """The same bits under another element type of the same width."""
    source = x.dtype
    if source == to:
        return x
    if isinstance(source, Pointer) or isinstance(to, Pointer):
        return _cast_pointer(ctx, x, to)
    if source.bits != to.bits:
        raise ctx.error(
            f"cannot bitcast {source} to {to}",
            expected="dtypes of one width",
            got=f"{source.bits} bits to {to.bits} bits",
            remedy="leave bitcast=True out to convert the value",
        )
    return ctx.op("bitcast", x, to=to)
