# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false
# Much below is kernels' code, whose parameters a Python type checker does not know.
"""Floats by their exponents and neighbours, and lengths of vectors."""

from __future__ import annotations

from deuteron.dtypes import float64, int32, int64
from deuteron.lang.context import Context, builtin
from deuteron.lang.core import where
from deuteron.lang.jit import jit
from deuteron.lang.libdevice.elementary import cbrt, copysign, fmod
from deuteron.lang.libdevice.operands import call, exactly, floats, in_float64, named, precise
from deuteron.lang.libdevice.rounding import bits_of, step_down, step_up
from deuteron.lang.loops import static_range
from deuteron.lang.math import abs as magnitude
from deuteron.lang.math import maximum, minimum
from deuteron.lang.math import sqrt as root
from deuteron.lang.semantic import casts
from deuteron.lang.values import Operand, Tensor, constexpr

_INT_MIN, _INT_MAX = constexpr(-(2**31)), constexpr(2**31 - 1)


# -- exponents -----------------------------------------------------------------------------
@jit
def _power_of_two(exponent):
    """2 to a power from -1022 to 1023, in float64."""
    return ((exponent.to(int64) + 1023) << 52).to(float64, bitcast=True)


@jit
def scaled(x, exponent):
    """x * 2^exponent in float64, rounded once: steps stay clear of the subnormals but for the last.

    A first step down goes no further than the least normal, with 53 bits kept above it.
    """
    exponent = minimum(maximum(exponent, -3000), 3000)
    for _ in static_range(2):
        up = minimum(maximum(exponent - 1023, 0), 1023)
        down = maximum(minimum(exponent + 969, 0), -969)
        x = x * _power_of_two(up + down)
        exponent -= up + down
    return x * _power_of_two(minimum(maximum(exponent, -1022), 1023))


@jit
def _exponent(x):
    """floor(log2(|x|)) of a finite float64 that is not 0."""
    small = magnitude(x) < 2.0**-1022
    bits = (x * where(small, 2.0**54, 1.0)).to(int64, bitcast=True)
    return ((bits >> 52) & 0x7FF).to(int32) - 1023 - where(small, 54, 0)


def _with_exponent(name: str):
    def compute(ctx: Context, x: Operand, n: Operand) -> Tensor:
        (value,) = floats(ctx, name, x)
        exponent = exactly(ctx, name, n, int32)
        wide = call(ctx, scaled, casts.cast(ctx, value, float64), exponent)
        return casts.cast(ctx, wide, value.number)

    return named(name, "x times 2 to the power n, an int32; rounded once.", compute)


ldexp = _with_exponent("ldexp")
scalbn = _with_exponent("scalbn")


@jit
def _whole_exponent(x):
    size = magnitude(x)
    known = where((x == 0) | (x != x), _INT_MIN, _exponent(x))
    return where(size == float("inf"), _INT_MAX, known)


@jit
def _float_exponent(x):
    size = magnitude(x)
    return where(size < float("inf"), where(x == 0, -float("inf"), _exponent(x).to(float64)), size)


@builtin
def ilogb(ctx: Context, x: Operand) -> Tensor:
    """floor(log2(|x|)), an int32.  0 and NaN give the least one, infinities the greatest."""
    (value,) = floats(ctx, "ilogb", x)
    return call(ctx, _whole_exponent, casts.cast(ctx, value, float64))


logb = in_float64("logb", "floor(log2(|x|)), a float; 0 gives -inf.", _float_exponent)


# -- neighbours and remainders -------------------------------------------------------------
@jit
def _next(x, y):
    up, down = step_up(x), step_down(x)
    result = where(x < y, up, where(x > y, down, y))
    return where((x != x) | (y != y), x + y, result)


@builtin
def nextafter(ctx: Context, x: Operand, y: Operand) -> Tensor:
    """The float next to x on the way to y; float32 or float64."""
    return call(ctx, _next, *precise(ctx, "nextafter", x, y))


@jit
def _remainder(x, y):
    """What is left of x after the nearest multiple of y, each step exact."""
    size, step = magnitude(x), magnitude(y)
    # Up to twice the step is enough, where that is a float at all.
    doubled = where(step < 2.0**1022, step * 2, step)
    rest = where(size < doubled, size, fmod(size, doubled))
    half = step * 0.5
    # The halves of the least floats are no floats: compare doubles there.
    tiny = step < 2.0**-1000
    over = where(tiny, rest + rest > step, rest > half)
    rest = where(over, rest - step, rest)
    again = over & where(tiny, rest + rest >= step, rest >= half)
    rest = where(again, rest - step, rest)
    result = where(rest == 0, copysign(rest, x), where(bits_of(x) < 0, -rest, rest))
    undefined = (size == float("inf")) | (step == 0) | (x != x) | (y != y)
    return where(undefined, float("nan"), result)


remainder = in_float64(
    "remainder", "x minus the nearest multiple of y, ties to even multiples.", _remainder, 2
)


@jit
def _rough_reciprocal(x):
    return ((1 / x).to(int64, bitcast=True) & -(2**32)).to(float64, bitcast=True)


@builtin
def rcp64h(ctx: Context, x: Operand) -> Tensor:
    """The upper 32 bits of 1 / x, a float64, with zeros below."""
    return call(ctx, _rough_reciprocal, exactly(ctx, "rcp64h", x, float64))


# -- roots and lengths ---------------------------------------------------------------------
@jit
def _one_over_cbrt(x):
    return 1 / cbrt(x)


@jit
def _length(x, y, z, w):
    """The length times a power of two, and that power: squares must not overflow or vanish."""
    x, y, z, w = magnitude(x), magnitude(y), magnitude(z), magnitude(w)
    greatest = maximum(maximum(x, y), maximum(z, w))
    scale = where(greatest > 2.0**500, 2.0**-600, where(greatest < 2.0**-400, 2.0**600, 1.0))
    x, y, z, w = x * scale, y * scale, z * scale, w * scale
    length = root(x * x + y * y + (z * z + w * w))
    # An infinity is the longest, even next to NaN.
    return where(greatest == float("inf"), float("inf"), length), scale


@jit
def _norm(x, y, z, w):
    length, scale = _length(x, y, z, w)
    return length / scale


@jit
def _one_over_norm(x, y, z, w):
    length, scale = _length(x, y, z, w)
    return 1 / length * scale


@jit
def _norm3(x, y, z):
    return _norm(x, y, z, z * 0)


@jit
def _one_over_norm3(x, y, z):
    return _one_over_norm(x, y, z, z * 0)


@jit
def _one_over_norm2(x, y):
    return _one_over_norm(x, y, y * 0, y * 0)


rcbrt = in_float64("rcbrt", "One over the cube root.", _one_over_cbrt)
rhypot = in_float64("rhypot", "One over the length of (x, y).", _one_over_norm2, 2)
norm3d = in_float64("norm3d", "The length of (x, y, z).", _norm3, 3)
rnorm3d = in_float64("rnorm3d", "One over the length of (x, y, z).", _one_over_norm3, 3)
norm4d = in_float64("norm4d", "The length of (x, y, z, w).", _norm, 4)
rnorm4d = in_float64("rnorm4d", "One over the length of (x, y, z, w).", _one_over_norm, 4)
