"""The exact remainder of a division, fmod, without a loop.

With a = p 2^i and b = m 2^j (p, m integers below 2^53) the remainder of a by b is
(p 2^(i - j) mod m) 2^j.  The power of two, up to 2^2045, comes from repeated squaring modulo m;
an fma makes each product modulo m exact.
"""

from __future__ import annotations

import math

from deuteron.backends.llvm.math_core import (
    Num,
    Pair,
    copysign,
    fma,
    pow2,
    round_even,
    through_double,
    two_product,
    where,
)

# i - j is below 2^11: five bits for the first power, one for each of six squarings.
_SQUARINGS = 6


def _fmod(x: Num, y: Num) -> Num:
    a, b = abs(x), abs(y)
    p, i = _integer_mantissa(a)
    m, j = _integer_mantissa(b)
    inverse = 1.0 / m
    shift = i - j
    first = pow2((shift >> _SQUARINGS) + x.format.bias)
    power = _center(first, m, inverse)
    for bit in reversed(range(_SQUARINGS)):
        square = _product(power, power, m, inverse)
        doubled = (shift & (1 << bit)).ne(0)
        power = _center(where(doubled, square + square, square), m, inverse)
    # Twice, because p / m may be as large as 2^53 and its quotient wrong by one.
    start = _center(_center(p, m, inverse), m, inverse)
    r = _center(_product(power, start, m, inverse), m, inverse)
    r = where(r < 0.0, r + m, r)
    # 2^j in two factors, each within the format.
    half = j >> 1
    r = r * pow2(half + 486) * pow2(j - half + 485)
    defined = (b > 0.0) & (a < math.inf)
    return copysign(where(a < b, a, where(defined, r, math.nan)), x)


def fmod(x: Num, y: Num) -> Num:
    """x - y * trunc(x / y), exactly, with the sign of x."""
    return through_double(_fmod)(x, y)


def _integer_mantissa(a: Num) -> Pair:
    """(p, i): the double a >= 0 is p * 2^(i - 1075) with p an integer (as a double) below 2^53."""
    fmt = a.format
    one = 2.0**fmt.fraction
    exponent = a.bits() >> fmt.fraction
    fraction = a.bits() & ((1 << fmt.fraction) - 1)
    p = (fraction | a.lift(one).bits()).as_float()
    denormal = exponent.eq(0)
    return where(denormal, p - one, p), where(denormal, exponent + 1, exponent)


def _center(v: Num, m: Num, inverse: Num) -> Num:
    """An integer congruent to v modulo m, within m / 2 of 0 if v / m is below 2^50."""
    return fma(-round_even(v * inverse), m, v)


def _product(p: Num, q: Num, m: Num, inverse: Num) -> Num:
    """An integer congruent to p * q modulo m and within 0.9 m of 0, for |p|, |q| <= m / 2."""
    high, low = two_product(p, q)
    # The quotient is below 2^51, and within 3/4 of the true one: what is left is exact.
    magic = p.format.magic
    quotient = fma(high, inverse, magic) - magic
    return fma(-quotient, m, high) + low
