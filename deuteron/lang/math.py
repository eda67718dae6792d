"""The elementwise mathematics of the language: `tl.exp`, `tl.maximum`, …, also as `tl.math`.

Float functions take float16, bfloat16, float32 and float64 and keep the dtype.  The long tail
stands in `libdevice.py`.
"""

from __future__ import annotations

from enum import IntEnum

from deuteron.lang.context import Context, builtin
from deuteron.lang.semantic import arith
from deuteron.lang.values import Operand, Tensor, tensor_member


class PropagateNan(IntEnum):
    """What `minimum`, `maximum` and `clamp` do with a NaN operand: drop it, or give NaN."""

    NONE = 0
    ALL = 0xFFFF


# -- one operand ---------------------------------------------------------------------------
@tensor_member
@builtin
def abs(ctx: Context, x: Operand) -> Tensor:
    """|x| of floats and integers; the least signed integer stays itself."""
    return arith.absolute(ctx, x)


@tensor_member
@builtin
def ceil(ctx: Context, x: Operand) -> Tensor:
    """The least whole number not below x, as a float."""
    return arith.float_unary(ctx, "ceil", x)


@tensor_member
@builtin
def floor(ctx: Context, x: Operand) -> Tensor:
    """The greatest whole number not above x, as a float."""
    return arith.float_unary(ctx, "floor", x)


@tensor_member
@builtin
def exp(ctx: Context, x: Operand) -> Tensor:
    """e to the power x."""
    return arith.float_unary(ctx, "exp", x)


@tensor_member
@builtin
def exp2(ctx: Context, x: Operand) -> Tensor:
    """2 to the power x."""
    return arith.float_unary(ctx, "exp2", x)


@tensor_member
@builtin
def log(ctx: Context, x: Operand) -> Tensor:
    """The natural logarithm."""
    return arith.float_unary(ctx, "log", x)


@tensor_member
@builtin
def log2(ctx: Context, x: Operand) -> Tensor:
    """The logarithm to base 2."""
    return arith.float_unary(ctx, "log2", x)


@tensor_member
@builtin
def cos(ctx: Context, x: Operand) -> Tensor:
    """The cosine of x radians."""
    return arith.float_unary(ctx, "cos", x)


@tensor_member
@builtin
def sin(ctx: Context, x: Operand) -> Tensor:
    """The sine of x radians."""
    return arith.float_unary(ctx, "sin", x)


@tensor_member
@builtin
def erf(ctx: Context, x: Operand) -> Tensor:
    """The error function."""
    return arith.float_unary(ctx, "erf", x)


@tensor_member
@builtin
def sqrt(ctx: Context, x: Operand) -> Tensor:
    """The square root."""
    return arith.float_unary(ctx, "sqrt", x)


@tensor_member
@builtin
def sqrt_rn(ctx: Context, x: Operand) -> Tensor:
    """The square root, rounded to nearest as IEEE 754 asks."""
    with ctx.ieee_arithmetic():
        return arith.float_unary(ctx, "sqrt", x)


@tensor_member
@builtin
def rsqrt(ctx: Context, x: Operand) -> Tensor:
    """One over the square root."""
    return arith.float_unary(ctx, "rsqrt", x)


# -- two operands --------------------------------------------------------------------------
@builtin
def add(ctx: Context, x: Operand, y: Operand, sanitize_overflow: bool = True) -> Tensor:
    """x + y.  `sanitize_overflow` is accepted and has no effect here."""
    return arith.add(ctx, x, y)


@builtin
def sub(ctx: Context, x: Operand, y: Operand, sanitize_overflow: bool = True) -> Tensor:
    """x - y.  `sanitize_overflow` is accepted and has no effect here."""
    return arith.sub(ctx, x, y)


@builtin
def mul(ctx: Context, x: Operand, y: Operand, sanitize_overflow: bool = True) -> Tensor:
    """x * y.  `sanitize_overflow` is accepted and has no effect here."""
    return arith.mul(ctx, x, y)


@builtin
def fdiv(ctx: Context, x: Operand, y: Operand, ieee_rounding: bool = False) -> Tensor:
    """x / y of floats, in their common dtype; with `ieee_rounding` as IEEE 754 asks."""
    with ctx.ieee_arithmetic(ieee_rounding):
        return arith.fdiv(ctx, x, y)


@builtin
def div_rn(ctx: Context, x: Operand, y: Operand) -> Tensor:
    """x / y of floats, rounded to nearest as IEEE 754 asks."""
    with ctx.ieee_arithmetic():
        return arith.fdiv(ctx, x, y, "div_rn")


@builtin
def umulhi(ctx: Context, x: Operand, y: Operand) -> Tensor:
    """The upper half of the product of 32- or 64-bit integers, read as unsigned."""
    return arith.umulhi(ctx, x, y)


@builtin
def minimum(
    ctx: Context, x: Operand, y: Operand, propagate_nan: PropagateNan = PropagateNan.NONE
) -> Tensor:
    """The lesser of x and y; bfloat16 goes to float32."""
    return arith.minimum(ctx, x, y, propagate_nan=_propagates(ctx, propagate_nan))


@builtin
def maximum(
    ctx: Context, x: Operand, y: Operand, propagate_nan: PropagateNan = PropagateNan.NONE
) -> Tensor:
    """The greater of x and y; bfloat16 goes to float32."""
    return arith.maximum(ctx, x, y, propagate_nan=_propagates(ctx, propagate_nan))


# -- three operands ------------------------------------------------------------------------
@builtin
def clamp(
    ctx: Context,
    x: Operand,
    min: Operand,
    max: Operand,
    propagate_nan: PropagateNan = PropagateNan.NONE,
) -> Tensor:
    """x limited to [min, max], for floats; bfloat16 goes to float32.

    `propagate_nan` is about a NaN in x; a NaN bound or min > max gives an unspecified result.
    """
    return arith.clamp(ctx, x, min, max, propagate_nan=_propagates(ctx, propagate_nan))


@builtin
def fma(ctx: Context, x: Operand, y: Operand, z: Operand) -> Tensor:
    """x * y + z of floats, rounded once."""
    return arith.fma(ctx, x, y, z)


def _propagates(ctx: Context, mode: object) -> bool:
    if mode in (PropagateNan.NONE, PropagateNan.ALL):
        return mode == PropagateNan.ALL
    raise ctx.error(
        "unknown propagate_nan",
        expected="tl.PropagateNan.NONE or tl.PropagateNan.ALL",
        got=repr(mode),
        remedy="leave it out to drop NaN",
    )
