"""Logarithms: log, log2, log10, log1p, and the inverse hyperbolic functions.

All split x = 2^n (1 + f) with 1 + f in [√½, √2) and evaluate log(1 + f) = f + f² Q(f), Q a
minimax polynomial (Remez).  No tables and no division.
"""

from __future__ import annotations

import math
from fractions import Fraction

from deuteron.backends.llvm.math_core import (
    CONSTANTS,
    Num,
    Pair,
    copysign,
    fast_two_sum,
    fma,
    poly,
    pow2,
    sqrt,
    two_product,
    two_sum,
    where,
    words,
)

LN2 = math.log(2.0)

# Q of log(1 + f) = f + f² Q(f) on [√½ - 1, √2 - 1]; relative error of the logarithm 2^-27.3 and
# 2^-56.5.
_Q = {
    "float": (
        -0.5, 0.333333313, -0.250008196, 0.200012401, -0.166234061, 0.142016158, -0.131596833,
        0.127620012, -0.0763597414,
    ),
    "double": (
        -0.5, 0.3333333333333314, -0.2499999999998799, 0.20000000000066745, -0.1666666666982354,
        0.14285714280085526, -0.1249999969159559, 0.11111111147723624, -0.10000015201022044,
        0.09090923925460632, -0.08332913645257219, 0.07691529940156461, -0.07149438261079928,
        0.06684587554381126, -0.06196687183223877, 0.0566838987964973, -0.056777513649601,
        0.06503440291935046, -0.05981753393363736, 0.02615178344235609,
    ),
}  # fmt: skip

# R of artanh s = s + s³/3 + s⁵ R(s²) for |s| <= (√2 - 1) / (√2 + 1); relative error of artanh
# 2^-66.3.
_R = (
    0.20000000000001128, 0.1428571428504966, 0.11111111260004229, 0.09090892178260246,
    0.07693378975531677, 0.06628400229327845, 0.06598257050506592,
)  # fmt: skip

# ln2 cut to 41 bits, and the rest.
_LN2_CUT = math.ldexp(math.floor(math.ldexp(LN2, 41)), -41)
_LN2_REST = float(Fraction(CONSTANTS["ln2"]) - Fraction(_LN2_CUT))

# The bit pattern of √½.
_SQRT_HALF = {"float": 0x3F3504F3, "double": 0x3FE6A09E667F3BCC}


def log(x: Num) -> Num:
    """Natural logarithm."""
    n, f, _ = _split(x)
    return _with_poles(x, _plus_exponent(n, "ln2", _log1p_small(f)))


def log2(x: Num) -> Num:
    """Logarithm to base 2."""
    n, f, _ = _split(x)
    return _with_poles(x, n + _log1p_small(f, "log2e"))


def log10(x: Num) -> Num:
    """Logarithm to base 10."""
    n, f, _ = _split(x)
    return _with_poles(x, _plus_exponent(n, "log10_2", _log1p_small(f, "log10e")))


def log1p(x: Num) -> Num:
    """log(1 + x)."""
    fmt = x.format
    u = x + 1.0
    n, f, exponent = _split(u, denormals=False)
    # u has lost low bits of x.  2^-n (1 + x) - 1 keeps them; for huge x there are none to lose,
    # and 2^-n might be denormal.
    scale = pow2(2 * fmt.bias - exponent)
    f = where(x < 2.0**60, fma(x, scale, scale - 1.0), f)
    result = _with_poles(u, _plus_exponent(n, "ln2", _log1p_small(f)))
    return copysign(result, x)


def acosh(x: Num) -> Num:
    """The y >= 0 whose cosh is x."""
    t = x - 1.0
    # x² may overflow; up there x + sqrt(x² - 1) is 2 x.
    huge = x > 2.0**60
    y = log1p(where(huge, x, t + sqrt(fma(t, t, t + t))))
    return where(x < 1.0, math.nan, where(huge, y + LN2, y))


def asinh(x: Num) -> Num:
    """The y whose sinh is x."""
    a = abs(x)
    huge = a > 2.0**60
    square = a * a
    y = log1p(where(huge, a, a + square / (sqrt(square + 1.0) + 1.0)))
    return copysign(where(huge, y + LN2, y), x)


def atanh(x: Num) -> Num:
    """The y whose tanh is x."""
    a = abs(x)
    return copysign(0.5 * log1p((a + a) / (1.0 - a)), x)


def log_with_rest(x: Num) -> Pair:
    """(log x, what its last rounding lost); no rest where the logarithm is infinite or NaN."""
    n, f, _ = _split(x)
    high, low = words("ln2", x.format.elem)
    rest = fma(n, low, _log1p_small(f))
    result = fma(n, high, rest)
    return _with_poles(x, result), fma(n, high, -result) + rest


def log_sum(x: Num) -> Pair:
    """log x as high + low, in double, with a relative error of 2^-64; x is positive and finite.

    log m = 2 artanh s = 2 (s + s³/3 + s⁵ R(s²)) with s = (m - 1) / (m + 1), where all but the last
    term is in double-double arithmetic.
    """
    n, f, _ = _split(x)
    # s_high + s_low = f / (2 + f); the remainder of the division is exact.
    inverse = 1.0 / (f + 2.0)
    s = f * inverse
    s_low = inverse * fma(s, -f, fma(s, -2.0, f))
    z, z_low = two_product(s, s)
    z_low = fma(s + s, s_low, z_low)
    # a = z/3 + z² R(z)
    third, third_low = 1.0 / 3.0, 2.0**-54 / 3.0
    a, a_low = two_product(z, third)
    a, carry = fast_two_sum(a, z * z * poly(z, _R))
    a_low = a_low + fma(z, third_low, fma(z_low, third, carry))
    # high + low = s (1 + a)
    p, p_low = two_product(s, a)
    p_low = fma(s, a_low, fma(s_low, a, p_low)) + s_low
    high, low = fast_two_sum(s, p)
    low = low + p_low
    # Then n ln2 + 2 (high + low), where the cut ln2 makes its product with n exact.
    base, carry = two_sum(n * _LN2_CUT, high + high)
    return fast_two_sum(base, fma(n, _LN2_REST, carry + low + low))


def _split(x: Num, denormals: bool = True) -> tuple[Num, Num, Num]:
    """(n, f, e): x = 2^n (1 + f) for positive finite x, n as a float and as the integer n + bias.

    Any other x gives meaningless numbers.
    """
    fmt = x.format
    scale = 2.0**fmt.fraction
    bias = x.lift(scale + fmt.bias)
    if denormals:
        small = x < fmt.tiny
        x = where(small, x * scale, x)
        bias = where(small, scale + fmt.bias + fmt.fraction, bias)
    lowest = _SQRT_HALF[fmt.elem]
    shifted = x.bits() + (fmt.one_bits - lowest)
    exponent = shifted >> fmt.fraction
    f = ((shifted & ((1 << fmt.fraction) - 1)) + lowest).as_float() - 1.0
    # An integer in the low bits of the float 2^fraction adds itself to it.
    n = (exponent | x.lift(scale).bits()).as_float() - bias
    return n, f, exponent


def _log1p_small(f: Num, base: str | None = None) -> Num:
    """log(1 + f) for 1 + f in [√½, √2), times the constant `base` (log2e or log10e) if given."""
    q = poly(f, _Q[f.format.elem])
    if base is None:
        return fma(q, f * f, f)
    high, low = words(base, f.format.elem)
    # The leading term f * high is kept whole in the last fma.
    return fma(f, high, fma(q * (f * f), high, f * low))


def _plus_exponent(n: Num, log_2: str, r: Num) -> Num:
    """n * log(2) + r."""
    high, low = words(log_2, n.format.elem)
    return fma(n, high, fma(n, low, r))


def _with_poles(x: Num, result: Num) -> Num:
    """The logarithm of x: NaN below 0, -inf at 0, +inf at +inf, else the result."""
    outside = where(x.eq(0.0), x.lift(-math.inf), math.nan)
    return where(x > 0.0, where(x < math.inf, result, x), outside)
