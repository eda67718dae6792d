"""Elementwise ops where a GPU has something better than the shared code.

Floats of up to 32 bits: a quotient is within 2.1 units in the last place, a square root within 1,
an exponential within 2, a power of two within 2.4; in 16 bits all are within 1.  An op with the
attribute `ieee` is rounded to nearest instead.  What is promised to users stands in
docs/precision.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deuteron.backends.llvm import elementwise
from deuteron.backends.llvm.builder import Builder, Val
from deuteron.backends.llvm.registers import narrow_float
from deuteron.dtypes import bfloat16, float16, float32, float64
from deuteron.ir import Op

_LOG2_E = 1.4426950408889634
_LOG2_E_HIGH = 1.44269502162933349609375  # rounded to a float
# 2 ** 23 * 1.5: added to a small float, it leaves the nearest integer in the low bits.
_ROUNDING = 12582912.0
_EXPONENT_BIAS = 127
_EXPONENTS = 252  # how many steps of the exponent, from the least up, normal floats have
_FUSED = {"add": "fadd", "sub": "fsub", "mul": "fmul"}


def emit_op(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    """The result of an elementwise table op of scalars in registers."""
    dtype = op.operands[-1].type.element
    if not op.attrs.get("ieee"):
        if op.name in _FUSED and b.fuses_products and dtype in (float32, float64):
            return b.binary(f"{_FUSED[op.name]} contract", *args)
        if op.name in _FAST and dtype is not float64:
            return _in_float(b, op, args)
    return elementwise.emit_op(b, op, args)


def _in_float(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    dtype = op.operands[0].type.dtype
    if dtype is float16:
        args = [b.convert("fpext", arg, "float") for arg in args]
    if op.name == "exp" and dtype.bits < 32:
        result = _exp2(b, b.fmul(args[0], b.const(_LOG2_E, args[0].type)))
    else:
        result = _FAST[op.name](b, *args)
    return narrow_float(b, result, dtype) if dtype in (float16, bfloat16) else result


def _divide(b: Builder, x: Val, y: Val) -> Val:
    """x times the reciprocal of y, both scaled where that of y would not be normal.

    What depends on y alone is common to all quotients by it.
    """
    type = y.type
    size = b.fabs(y)
    scale = b.select(
        b.fcmp("ogt", size, b.const(2.0**126, type)), b.const(0.25, type), b.const(1.0, type)
    )
    tiny = b.fcmp("olt", size, b.const(2.0**-126, type))
    scale = b.select(tiny, b.const(2.0**24, type), scale)
    reciprocal = b.call(type, "llvm.nvvm.rcp.approx.ftz.f", [b.fmul(y, scale)])
    return b.fmul(b.fmul(x, scale), reciprocal)


def _sqrt(b: Builder, value: Val) -> Val:
    return b.call(value.type, "llvm.nvvm.sqrt.approx.f", [value])


def _exp2(b: Builder, value: Val) -> Val:
    return b.call(value.type, "llvm.nvvm.ex2.approx.f", [value])


def _exp(b: Builder, value: Val) -> Val:
    """2 ** whole * 2 ** rest, with whole + rest = value * log2(e) and |rest| <= 1.

    The whole part is held within the exponents of normal floats, so that the rest is large, and
    its power 0 or infinite or small, only where the result is.
    """
    type = value.type

    def const(number: float) -> Val:
        return b.const(number, type)

    part = b.emit(
        f'call float asm "fma.rn.sat.f32 $0, $1, $2, $3;", "=f,f,f,f"'
        f"({value}, {const(_LOG2_E / _EXPONENTS)}, {const(0.5)})",
        type,
    )
    lowest = const(_ROUNDING + 1)
    biased = b.call(type, "llvm.nvvm.fma.rm.f", [part, const(_EXPONENTS), lowest])
    whole = b.fadd(biased, const(-(_ROUNDING + _EXPONENT_BIAS)))
    rest = b.fma(value, const(_LOG2_E_HIGH), b.fneg(whole))
    rest = b.fma(value, const(_LOG2_E - _LOG2_E_HIGH), rest)
    bits = b.bitcast(biased, "i32")
    power = b.bitcast(b.shl(bits, b.const(23, bits.type)), "float")
    return b.fmul(b.call(type, "llvm.nvvm.ex2.approx.ftz.f", [rest]), power)


_FAST: dict[str, Callable[..., Val]] = {
    "div": _divide,
    "sqrt": _sqrt,
    "exp": _exp,
    "exp2": _exp2,
}
