"""Roots, powers, hypot, and the functions that round."""

from __future__ import annotations

import math

from deuteron.backends.llvm.math_core import (
    Num,
    at_least,
    at_most,
    copysign,
    fma,
    narrow,
    sqrt,
    trunc,
    two_product,
    where,
    widen,
)
from deuteron.backends.llvm.math_exp import exp, exp_sum
from deuteron.backends.llvm.math_log import log, log_sum


def rsqrt(x: Num) -> Num:
    """1 / √x."""
    return 1.0 / sqrt(x)


def cbrt(x: Num) -> Num:
    """Cube root.

    A third of the bit pattern is a first guess within 3.5 %; each of Halley's steps cubes the
    error.
    """
    fmt = x.format
    size = abs(x)
    # Away from both ends of the format: no denormals, no overflow of the cube.
    below = size < 1.0
    a = size * where(below, size.lift(2.0**54), 2.0**-54)
    # The pattern's upper half as a float, a third of it, and back.
    exponent_bits = fmt.sign_mask.bit_length() - 1 - fmt.fraction
    one = 2.0**fmt.fraction
    pattern = ((a.bits() >> exponent_bits) | a.lift(one).bits()).as_float() - one
    bias = (fmt.bias * (2.0 / 3.0) - 0.03306235651) * 2.0 ** (fmt.fraction - exponent_bits)
    third = fma(pattern, 1.0 / 3.0, one + bias).bits() & ((1 << fmt.fraction) - 1)
    t = (third << exponent_bits).as_float()
    for _ in range({"float": 2, "double": 3}[fmt.elem]):
        cube = t * t * t
        t = fma(t, (a - cube) / fma(cube, 2.0, a), t)
    t = t * where(below, size.lift(2.0**-18), 2.0**18)
    regular = (size > 0.0) & (size < math.inf)
    return copysign(where(regular, t, size), x)


def hypot(x: Num, y: Num) -> Num:
    """√(x² + y²) without overflow or underflow in between."""
    a, b = abs(x), abs(y)
    if x.format.elem == "float":
        p, q = widen(a), widen(b)
        length = narrow(sqrt(fma(p, p, q * q)))
    else:
        larger = where(a > b, a, b)
        huge, tiny = larger > 2.0**500, larger < 2.0**-500
        up = where(huge, x.lift(2.0**-600), where(tiny, x.lift(2.0**600), 1.0))
        down = where(huge, x.lift(2.0**600), where(tiny, x.lift(2.0**-600), 1.0))
        p, q = a * up, b * up
        length = sqrt(fma(p, p, q * q)) * down
    infinite = a.eq(math.inf) | b.eq(math.inf)
    return where(infinite, math.inf, length)


def pow(x: Num, y: Num) -> Num:
    """x^y, with the special values of C's pow."""
    a = abs(x)
    if x.format.elem == "float":
        size = narrow(exp(_bounded_power(widen(y)) * log(widen(a))))
    else:
        size = _pow_double(a, _bounded_power(y))
    whole = trunc(y).eq(y)
    half = y * 0.5
    odd = whole & trunc(half).ne(half)
    signed = where(odd, copysign(size, x), size)
    # A negative finite base has real powers at integers only.
    defined = whole | (x >= 0.0) | a.eq(0.0) | a.eq(math.inf) | x.is_nan()
    result = where(defined, signed, math.nan)
    return where(x.eq(1.0) | y.eq(0.0), 1.0, result)


def _bounded_power(y: Num) -> Num:
    """y, with infinities made finite so that their product with log 1 is 0."""
    return at_least(at_most(y, 2.0**900), -(2.0**900))


def _pow_double(a: Num, y: Num) -> Num:
    """a^y for a >= 0: the logarithm to 64 bits, because y magnifies its error."""
    high, low = log_sum(a)
    # log_sum knows nothing of the ends; there y times the right pole is all that counts.
    regular = (a > 0.0) & (a < math.inf)
    high = where(regular, high, where(a.eq(0.0), a.lift(-math.inf), a))
    product, error = two_product(y, high)
    tail = fma(y, low, error)
    return exp_sum(product, where(abs(product) < 2000.0, tail, 0.0))


def round_half_away(x: Num) -> Num:
    """The nearest integer, halves away from zero."""
    # The greatest number below 1/2: adding 1/2 itself would carry 0.49999997 to 1.
    almost_half = 0.5 - 2.0 ** -(x.format.fraction + 2)
    return trunc(x + copysign(almost_half, x))
