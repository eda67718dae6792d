# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false
# Much below is kernels' code, whose parameters a Python type checker does not know.
"""Conversions between integers and floats, rounded each way, and between floats and their bits.

A float that no integer of the result's dtype is near to gives the nearest end of the dtype's range.
NaN gives what NVIDIA's instructions give: 0 for 32 bits out of a float32, and otherwise the integer
whose highest bit alone is set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deuteron.dtypes import DType, float32, float64, int32, int64, int_range, uint32, uint64
from deuteron.lang.context import Context, builtin
from deuteron.lang.core import where
from deuteron.lang.jit import jit
from deuteron.lang.libdevice.operands import call, exactly, floats, named
from deuteron.lang.libdevice.rounding import DOWN, TO_ZERO, UP, settled
from deuteron.lang.semantic import casts
from deuteron.lang.values import Operand, Tensor, constexpr

_NEAREST = constexpr(2)
_TOWARD = {"rn": _NEAREST.value, "rz": TO_ZERO, "rd": DOWN, "ru": UP}
_WHOLE = {"rn": "rint", "rz": "trunc", "rd": "floor", "ru": "ceil"}
_WORDS = {"rn": "to nearest, ties to even", "rz": "toward zero", "rd": "down", "ru": "up"}


# -- floats to integers --------------------------------------------------------------------
@jit
def _saturated(whole, dtype: constexpr, least: constexpr, greatest: constexpr, nan: constexpr):
    """A whole float as an integer.  `greatest` may not be a float; the float above it is."""
    low, high = whole < least, whole >= greatest + 1.0
    inside = where(low | high | (whole != whole), 0.0, whole).to(dtype)
    result = where(low, least, where(high, greatest, inside))
    return where(whole != whole, nan, result)


def _to_integer(source: DType, short: str, to: DType, suffix: str) -> Callable[..., Any]:
    name = f"{'float' if source == float32 else 'double'}2{short}_{suffix}"
    least, greatest = int_range(to)
    zero_nan = source == float32 and to.bits == 32
    top = least if to.is_int_signed() else 1 << (to.bits - 1)

    def convert(ctx: Context, x: Operand) -> Tensor:
        whole = ctx.op(_WHOLE[suffix], exactly(ctx, name, x, source))
        return call(ctx, _saturated, whole, to, least, greatest, 0 if zero_nan else top)

    return named(name, f"The {to} of a {source}, rounded {_WORDS[suffix]}.", convert)


def _whole(name: str, doc: str, op: str, to: DType) -> Callable[..., Any]:
    least, greatest = int_range(to)

    def convert(ctx: Context, x: Operand) -> Tensor:
        (value,) = floats(ctx, name, x)
        # The ends of int64's range are beyond 16-bit floats.
        wide = casts.cast(ctx, value, float32) if value.number.bits < 32 else value
        return call(ctx, _saturated, ctx.op(op, wide), to, least, greatest, least)

    return named(name, doc, convert)


llrint = _whole("llrint", "The nearest whole number, ties to even; an int64.", "rint", int64)
llround = _whole("llround", "The nearest whole number, ties away from 0; an int64.", "round", int64)
float2int_rn = _to_integer(float32, "int", int32, "rn")
float2int_rz = _to_integer(float32, "int", int32, "rz")
float2int_rd = _to_integer(float32, "int", int32, "rd")
float2int_ru = _to_integer(float32, "int", int32, "ru")
float2uint_rn = _to_integer(float32, "uint", uint32, "rn")
float2uint_rz = _to_integer(float32, "uint", uint32, "rz")
float2uint_rd = _to_integer(float32, "uint", uint32, "rd")
float2uint_ru = _to_integer(float32, "uint", uint32, "ru")
float2ll_rn = _to_integer(float32, "ll", int64, "rn")
float2ll_rz = _to_integer(float32, "ll", int64, "rz")
float2ll_rd = _to_integer(float32, "ll", int64, "rd")
float2ll_ru = _to_integer(float32, "ll", int64, "ru")
float2ull_rn = _to_integer(float32, "ull", uint64, "rn")
float2ull_rz = _to_integer(float32, "ull", uint64, "rz")
float2ull_rd = _to_integer(float32, "ull", uint64, "rd")
float2ull_ru = _to_integer(float32, "ull", uint64, "ru")
double2int_rn = _to_integer(float64, "int", int32, "rn")
double2int_rz = _to_integer(float64, "int", int32, "rz")
double2int_rd = _to_integer(float64, "int", int32, "rd")
double2int_ru = _to_integer(float64, "int", int32, "ru")
double2uint_rn = _to_integer(float64, "uint", uint32, "rn")
double2uint_rz = _to_integer(float64, "uint", uint32, "rz")
double2uint_rd = _to_integer(float64, "uint", uint32, "rd")
double2uint_ru = _to_integer(float64, "uint", uint32, "ru")
double2ll_rn = _to_integer(float64, "ll", int64, "rn")
double2ll_rz = _to_integer(float64, "ll", int64, "rz")
double2ll_rd = _to_integer(float64, "ll", int64, "rd")
double2ll_ru = _to_integer(float64, "ll", int64, "ru")
double2ull_rn = _to_integer(float64, "ull", uint64, "rn")
double2ull_rz = _to_integer(float64, "ull", uint64, "rz")
double2ull_rd = _to_integer(float64, "ull", uint64, "rd")
double2ull_ru = _to_integer(float64, "ull", uint64, "ru")


# -- integers and wide floats to floats ----------------------------------------------------
@jit
def _rounded(x, dtype: constexpr, toward: constexpr):
    """An integer as a float.  What rounding left out is found in integers, or in float64."""
    nearest = x.to(dtype)
    if toward == _NEAREST:
        result = nearest
    else:
        result = settled(nearest, _left_out(x, nearest), toward)
    return result


@jit
def _left_out(x, nearest):
    """Of the sign of x - nearest."""
    if x.dtype.primitive_bitwidth == 32 or x.dtype.is_floating():
        rest = x.to(float64) - nearest.to(float64)
        error = (rest > 0).to(int32) - (rest < 0).to(int32)
    else:
        # Beyond the range there is only the power of two above it, which rounding went up to.
        beyond = nearest >= _beyond(x)
        back = where(beyond, 0.0, nearest).to(x.dtype)
        error = where(beyond, -1, (x > back).to(int32) - (x < back).to(int32))
    return error


@builtin
def _beyond(ctx: Context, x: Tensor) -> float:
    """The least power of two that the integers of x do not reach."""
    return float(int_range(x.number)[1] + 1)


def _to_float(short: str, source: DType, to: DType, suffix: str) -> Callable[..., Any]:
    name = f"{short}2{'float' if to == float32 else 'double'}_{suffix}"

    def convert(ctx: Context, x: Operand) -> Tensor:
        return call(ctx, _rounded, exactly(ctx, name, x, source), to, _TOWARD[suffix])

    return named(name, f"The {to} of a {source}, rounded {_WORDS[suffix]}.", convert)


int2float_rn = _to_float("int", int32, float32, "rn")
int2float_rz = _to_float("int", int32, float32, "rz")
int2float_rd = _to_float("int", int32, float32, "rd")
int2float_ru = _to_float("int", int32, float32, "ru")
int2double_rn = _to_float("int", int32, float64, "rn")
uint2float_rn = _to_float("uint", uint32, float32, "rn")
uint2float_rz = _to_float("uint", uint32, float32, "rz")
uint2float_rd = _to_float("uint", uint32, float32, "rd")
uint2float_ru = _to_float("uint", uint32, float32, "ru")
uint2double_rn = _to_float("uint", uint32, float64, "rn")
ll2float_rn = _to_float("ll", int64, float32, "rn")
ll2float_rz = _to_float("ll", int64, float32, "rz")
ll2float_rd = _to_float("ll", int64, float32, "rd")
ll2float_ru = _to_float("ll", int64, float32, "ru")
ll2double_rn = _to_float("ll", int64, float64, "rn")
ll2double_rz = _to_float("ll", int64, float64, "rz")
ll2double_rd = _to_float("ll", int64, float64, "rd")
ll2double_ru = _to_float("ll", int64, float64, "ru")
ull2float_rn = _to_float("ull", uint64, float32, "rn")
ull2float_rz = _to_float("ull", uint64, float32, "rz")
ull2float_rd = _to_float("ull", uint64, float32, "rd")
ull2float_ru = _to_float("ull", uint64, float32, "ru")
ull2double_rn = _to_float("ull", uint64, float64, "rn")
ull2double_rz = _to_float("ull", uint64, float64, "rz")
ull2double_rd = _to_float("ull", uint64, float64, "rd")
ull2double_ru = _to_float("ull", uint64, float64, "ru")
double2float_rn = _to_float("double", float64, float32, "rn")
double2float_rz = _to_float("double", float64, float32, "rz")
double2float_rd = _to_float("double", float64, float32, "rd")
double2float_ru = _to_float("double", float64, float32, "ru")


# -- bits ----------------------------------------------------------------------------------
def _reinterpret(name: str, source: DType, to: DType) -> Callable[..., Any]:
    def convert(ctx: Context, x: Operand) -> Tensor:
        return casts.bitcast(ctx, exactly(ctx, name, x, source), to)

    return named(name, f"The bits of a {source} read as a {to}.", convert)


float_as_int = _reinterpret("float_as_int", float32, int32)
float_as_uint = _reinterpret("float_as_uint", float32, uint32)
int_as_float = _reinterpret("int_as_float", int32, float32)
uint_as_float = _reinterpret("uint_as_float", uint32, float32)
double_as_longlong = _reinterpret("double_as_longlong", float64, int64)
longlong_as_double = _reinterpret("longlong_as_double", int64, float64)


@jit
def _low_half(x):
    return (x.to(int64, bitcast=True) & 0xFFFFFFFF).to(uint32).to(int32, bitcast=True)


@jit
def _high_half(x):
    return (x.to(int64, bitcast=True) >> 32).to(int32)


@jit
def _joined(high, low):
    return ((high.to(int64) << 32) | low.to(uint32, bitcast=True).to(int64)).to(
        float64, bitcast=True
    )


@builtin
def double2loint(ctx: Context, x: Operand) -> Tensor:
    """The lower 32 bits of a float64, as an int32."""
    return call(ctx, _low_half, exactly(ctx, "double2loint", x, float64))


@builtin
def double2hiint(ctx: Context, x: Operand) -> Tensor:
    """The upper 32 bits of a float64, as an int32."""
    return call(ctx, _high_half, exactly(ctx, "double2hiint", x, float64))


@builtin
def hiloint2double(ctx: Context, hi: Operand, lo: Operand) -> Tensor:
    """The float64 of two halves, each an int32."""
    high, low = (exactly(ctx, "hiloint2double", half, int32) for half in (hi, lo))
    return call(ctx, _joined, high, low)
