# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false
# Much below is kernels' code, whose parameters a Python type checker does not know.
"""Arithmetic rounded down, up or toward zero, on machines that round to nearest.

The operation is done to nearest, and then the sign of what rounding left out is found: it is exact
in float64 for float32 operands, and comes from error-free transformations for float64 (T. J.
Dekker, "A floating-point technique for extending the available precision", 1971; S. Boldo and J.-M.
Muller, "Exact and approximated error of the FMA", 2011).  Where the result is on the wrong side of
the exact value it moves by one place.

Transformations lose their footing near the ends of the exponents' range; there the operands are
scaled by powers of two first, which changes no sign.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deuteron.dtypes import float64, int32, int64
from deuteron.lang.context import Context
from deuteron.lang.core import where
from deuteron.lang.jit import jit
from deuteron.lang.libdevice.operands import call, named, precise
from deuteron.lang.math import abs as magnitude
from deuteron.lang.math import fma, sqrt_rn
from deuteron.lang.values import Operand, Tensor, constexpr
from deuteron.runtime.jit import JITFunction

DOWN, UP, TO_ZERO = constexpr(-1), constexpr(1), constexpr(0)
_WORDS = {"rz": (TO_ZERO, "toward zero"), "rd": (DOWN, "down"), "ru": (UP, "up")}

_TINY = constexpr(2.0**-900)
_HUGE = constexpr(2.0**1000)
_LEAST = constexpr(5e-324)
# Of a tiny product no factor is beyond 2^174; of the least two, its last bit is 2^-2148.
_UP = constexpr(2.0**540)


# -- neighbours ----------------------------------------------------------------------------
@jit
def bits_of(x):
    """The bits of a float32 or float64, as a signed integer."""
    if x.dtype.primitive_bitwidth == 64:
        bits = x.to(int64, bitcast=True)
    else:
        bits = x.to(int32, bitcast=True)
    return bits


@jit
def step_up(x):
    """The least float above x; NaN and the positive infinity stay."""
    bits = bits_of(x)
    # Negative floats grow as their bits shrink; above -0 comes the least positive float.
    one = bits * 0 + 1
    above = where(x == 0, one, bits + where(bits < 0, -one, one)).to(x.dtype, bitcast=True)
    return where(x < float("inf"), above, x)


@jit
def step_down(x):
    """The greatest float below x; NaN and the negative infinity stay."""
    return -step_up(-x)


@jit
def settled(nearest, error, toward: constexpr):
    """A result to nearest whose exact value is greater (error > 0), less (< 0) or the same."""
    if toward == UP:
        result = where(error > 0, step_up(nearest), nearest)
    elif toward == DOWN:
        result = where(error < 0, step_down(nearest), nearest)
    else:
        shrink = where(error < 0, step_down(nearest), nearest)
        grow = where(error > 0, step_up(nearest), nearest)
        result = where(nearest > 0, shrink, where(nearest < 0, grow, nearest))
    return result


@jit
def _settled_finite(nearest, error, exactly_infinite, toward: constexpr):
    """The same, where an infinity that finite operands overflowed to is beyond the exact value."""
    infinite = magnitude(nearest) == float("inf")
    overflow = where(exactly_infinite, nearest * 0, -nearest)
    return settled(nearest, where(infinite, overflow, error), toward)


@jit
def _finite(x):
    return magnitude(x) < float("inf")


# -- the sign of what is left out ----------------------------------------------------------
@jit
def _two_sum_error(a, b, total):
    """a + b - total, exactly."""
    part = total - a
    return (a - (total - part)) + (b - part)


@jit
def _add(x, y, toward: constexpr):
    total = x + y
    error = _two_sum_error(x, y, total)
    result = _settled_finite(total, error, (_finite(x) & _finite(y)) == 0, toward)
    if toward == DOWN:
        # A sum of nothing is -0 when rounding down, unless both operands are +0.
        nothing = _finite(x) & (x == -y)
        result = where(nothing & ((x != 0) | (bits_of(x) < 0) | (bits_of(y) < 0)), -0.0, result)
    return result


@jit
def _sub(x, y, toward: constexpr):
    return _add(x, -y, toward)


@jit
def _product_error(x, y, product):
    """Of the sign of x * y - product."""
    if x.dtype == float64:
        up = where(magnitude(product) < _TINY, _UP, 1.0)
        error = fma(x * up, y * up, -(product * up * up))
    else:
        error = x.to(float64) * y.to(float64) - product.to(float64)
    return error


@jit
def _mul(x, y, toward: constexpr):
    product = x * y
    error = _product_error(x, y, product)
    return _settled_finite(product, error, (_finite(x) & _finite(y)) == 0, toward)


@jit
def _div(x, y, toward: constexpr):
    quotient = x / y
    if x.dtype == float64:
        # A tiny x: x * 2^600 - (quotient * p) * (y * q) with p * q = 2^600, neither of them too
        # large.  A large y: both divided by 2^100.
        tiny, large = magnitude(x) < _TINY, magnitude(y) > 1
        p = where(tiny, where(large, 2.0**600, 2.0**300), 1.0)
        q = where(tiny & (large == 0), 2.0**300, 1.0)
        rest = fma(-(quotient * p), y * q, x * p * q)
    else:
        rest = x.to(float64) - quotient.to(float64) * y.to(float64)
    error = where(bits_of(y) < 0, -rest, rest)
    return _settled_finite(quotient, error, (_finite(x) & (y != 0)) == 0, toward)


@jit
def _rcp(x, toward: constexpr):
    return _div(x * 0 + 1, x, toward)


@jit
def _sqrt(x, toward: constexpr):
    root = sqrt_rn(x)
    up = where(x < _TINY, 2.0**300, 1.0).to(float64)
    wide = root.to(float64) * up
    error = fma(-wide, wide, x.to(float64) * up * up)
    return settled(root, where(_finite(root), error, 0.0), toward)


@jit
def _not_lost(value, original):
    """The value, or the least of its sign where scaling made nothing of a number."""
    least = where(original < 0, -_LEAST, _LEAST)
    return where((value == 0) & (original != 0), least, value)


@jit
def _fma_error(x, y, z, result):
    """Of the sign of x * y + z - result, in float64."""
    size = magnitude(x * y)
    down = where((size > _HUGE) | (magnitude(z) > _HUGE), 2.0**-200, 1.0)
    tiny = (size < _TINY) & (magnitude(z) < _TINY)
    up = where(tiny, _UP, 1.0)
    larger = magnitude(x) > magnitude(y)
    sign = where((bits_of(x) < 0) == (bits_of(y) < 0), 1.0, -1.0)
    some = (x != 0) & (y != 0)
    x, y = x * up * where(larger, down, 1.0), y * up * where(larger, 1.0, down)
    z, result = _not_lost(z * up * up * down, z), result * up * up * down
    product = x * y
    product_error = fma(x, y, -product)
    product = where(some, _not_lost(product, sign), product)
    upper = z + product_error
    lower = _two_sum_error(z, product_error, upper)
    total = product + upper
    rest = _two_sum_error(product, upper, total)
    return ((total - result) + rest) + lower


@jit
def _fma(x, y, z, toward: constexpr):
    result = fma(x, y, z)
    error = _fma_error(x.to(float64), y.to(float64), z.to(float64), result.to(float64))
    finite = _finite(x) & _finite(y) & _finite(z)
    result = _settled_finite(result, error, finite == 0, toward)
    if toward == DOWN:
        negative = ((bits_of(x) < 0) != (bits_of(y) < 0)) | (bits_of(z) < 0)
        result = where((result == 0) & (error == 0) & negative, -0.0, result)
    return result


# -- by name -------------------------------------------------------------------------------
def _directed(name: str, sign: str, function: JITFunction, suffix: str) -> Callable[..., Any]:
    toward, word = _WORDS[suffix]

    def one(ctx: Context, x: Operand) -> Tensor:
        return call(ctx, function, *precise(ctx, full, x), toward)

    def two(ctx: Context, x: Operand, y: Operand) -> Tensor:
        return call(ctx, function, *precise(ctx, full, x, y), toward)

    def three(ctx: Context, x: Operand, y: Operand, z: Operand) -> Tensor:
        return call(ctx, function, *precise(ctx, full, x, y, z), toward)

    full = f"{name}_{suffix}"
    arity = len({*"xyz"} & {*sign.replace("sqrt", "")})
    return named(full, f"{sign}, rounded {word}.", (one, two, three)[arity - 1])


add_rz = _directed("add", "x + y", _add, "rz")
add_rd = _directed("add", "x + y", _add, "rd")
add_ru = _directed("add", "x + y", _add, "ru")
sub_rz = _directed("sub", "x - y", _sub, "rz")
sub_rd = _directed("sub", "x - y", _sub, "rd")
sub_ru = _directed("sub", "x - y", _sub, "ru")
mul_rz = _directed("mul", "x * y", _mul, "rz")
mul_rd = _directed("mul", "x * y", _mul, "rd")
mul_ru = _directed("mul", "x * y", _mul, "ru")
div_rz = _directed("div", "x / y", _div, "rz")
div_rd = _directed("div", "x / y", _div, "rd")
div_ru = _directed("div", "x / y", _div, "ru")
fma_rz = _directed("fma", "x * y + z", _fma, "rz")
fma_rd = _directed("fma", "x * y + z", _fma, "rd")
fma_ru = _directed("fma", "x * y + z", _fma, "ru")
rcp_rz = _directed("rcp", "1 / x", _rcp, "rz")
rcp_rd = _directed("rcp", "1 / x", _rcp, "rd")
rcp_ru = _directed("rcp", "1 / x", _rcp, "ru")
sqrt_rz = _directed("sqrt", "The square root of x", _sqrt, "rz")
sqrt_rd = _directed("sqrt", "The square root of x", _sqrt, "rd")
sqrt_ru = _directed("sqrt", "The square root of x", _sqrt, "ru")
