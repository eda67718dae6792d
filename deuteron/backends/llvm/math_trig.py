"""Trigonometric functions and their inverses.

sin, cos and tan share one reduction to [-π/4, π/4].  All polynomials are minimax fits (Remez).

Large arguments are a matter of the reduction.  In float it is right for every finite argument.  In
double it is for |x| < 2^47 (1.4e14); beyond, where neighbouring doubles are 1/32 of a radian and
more apart, the result is NaN: a thousand bits of π for every argument would cost more than the
function itself, and a wrong number is worse than none.
"""

from __future__ import annotations

import math
from fractions import Fraction

from deuteron.backends.llvm.math_core import (
    CONSTANTS,
    Num,
    Pair,
    copysign,
    flip_sign,
    fma,
    narrow,
    poly,
    round_scaled,
    sqrt,
    two_product,
    where,
    widen,
    words,
)

# (sin r / r - 1) / r² and (cos r - 1 + r² / 2) / r⁴ in r².  Double: |r| <= π/4, relative error of
# sin and cos 2^-57.9 and 2^-63.8.  Float: |r| <= 1.06, because `_reduce` may pass π/4 when x is
# huge; 2^-30.9 and 2^-28.4.
_SIN = {
    "float": (-0.166666657, 0.00833326951, -0.000198285896, 2.65822996e-06),
    "double": (
        -0.1666666666666663, 0.008333333333321837, -0.00019841269829354142, 2.755731353661403e-06,
        -2.5050734047488606e-08, 1.589541144356718e-10,
    ),
}  # fmt: skip
_COS = {
    "float": (0.0416665338, -0.00138835423, 2.41248254e-05),
    "double": (
        0.04166666666666659, -0.0013888888888872186, 2.480158728829553e-05,
        -2.7557314015211175e-07, 2.0875678103250845e-09, -1.1357337974396204e-11,
    ),
}  # fmt: skip

# (asin r / r - 1) / r² in r², |r| <= 1/2; relative error of asin r 2^-27.6 and 2^-55.9.
_ASIN = {
    "float": (0.166667521, 0.0749530643, 0.0454697683, 0.024180796, 0.0421663821),
    "double": (
        0.16666666666665403, 0.075000000003386, 0.04464285682693258, 0.03038195919738011,
        0.02237175654368475, 0.017359728257857716, 0.013884996529308843, 0.012170821815416434,
        0.006520844931599974, 0.019548207155873357, -0.016256183859173795, 0.0319345742192422,
    ),
}  # fmt: skip

# (atan r / r - 1) / r² in r², |r| <= 1; relative error of atan r 2^-28.5 and 2^-56.0.
_ATAN = {
    "float": (
        -0.333332986, 0.199985296, -0.142640159, 0.109508798, -0.0839930549, 0.0578815304,
        -0.0310974196, 0.0108691398, -0.00178298296,
    ),
    "double": (
        -0.3333333333333307, 0.1999999999995175, -0.14285714282588186, 0.11111111007344804,
        -0.09090907007842745, 0.07692279889356037, -0.06666404426430916, 0.058805298242564384,
        -0.05253526848002948, 0.04722348586796123, -0.042192441940196126, 0.03664317355634339,
        -0.029905770883237495, 0.021987108769787586, -0.01390260782598193, 0.007197905777676485,
        -0.0028856190633406646, 0.0008315625704358853, -0.00015221170968743674,
        1.323005057575466e-05,
    ),
}  # fmt: skip

# Above, n π/2 is no longer exact enough (see `_reduce`).
_DOUBLE_LIMIT = 2.0**47

# Where the reduction of float arguments changes its factor 2^e, and e (see `_fold`).
_FOLDS = ((2.0**48, 19), (2.0**72, 48), (2.0**102, 79))


def sin(x: Num) -> Num:
    """Sine of x radians."""
    # The sign of x is put back at the end, so that sin(-0) is -0.
    r, n = _reduce(abs(x))
    return flip_sign(_quadrant(r, n), _half_turns(n) ^ x.bits())


def cos(x: Num) -> Num:
    """Cosine of x radians."""
    r, n = _reduce(abs(x))
    return flip_sign(_quadrant(r, n + 1), _half_turns(n + 1))


def tan(x: Num) -> Num:
    """Tangent of x radians."""
    r, n = _reduce(abs(x))
    sine, cosine = _odd(r, _SIN), _cos_small(r)
    odd = (n & 1).ne(0)
    return flip_sign(where(odd, cosine, sine) / where(odd, -sine, cosine), x)


def asin(x: Num) -> Num:
    """Arc sine, in [-π/2, π/2]."""
    outer, p = _asin_folded(x)
    quarter, _ = words("pi", x.format.elem, scale=0.5)
    base = where(outer, x.lift(quarter), 0.0)
    return copysign(_from_axis(base, where(outer, p * -2.0, p)), x)


def acos(x: Num) -> Num:
    """Arc cosine, in [0, π]."""
    outer, p = _asin_folded(x)
    half, _ = words("pi", x.format.elem)
    base = where(outer, where(x < 0.0, x.lift(half), 0.0), 0.5 * half)
    p = copysign(p, x)
    return _from_axis(base, where(outer, p + p, -p))


def atan(x: Num) -> Num:
    """Arc tangent, in [-π/2, π/2]."""
    a = abs(x)
    steep = a > 1.0
    p = _odd(where(steep, 1.0 / a, a), _ATAN)
    quarter, _ = words("pi", x.format.elem, scale=0.5)
    base = where(steep, x.lift(quarter), 0.0)
    return copysign(_from_axis(base, where(steep, -p, p)), x)


def atan2(y: Num, x: Num) -> Num:
    """The angle of the point (x, y), in [-π, π]."""
    a, b = abs(y), abs(x)
    steep, left = a > b, (x.bits() & x.format.sign_mask).ne(0)
    smaller, larger = where(steep, b, a), where(steep, a, b)
    # Equal sides need no division, which would be NaN for 0 / 0 and inf / inf.
    diagonal = where(larger.eq(0.0), x.lift(0.0), 1.0)
    p = _odd(where(smaller.eq(larger), diagonal, smaller / larger), _ATAN)
    half, _ = words("pi", x.format.elem)
    base = where(steep, x.lift(0.5 * half), where(left, x.lift(half), 0.0))
    return copysign(_from_axis(base, where(steep ^ left, -p, p)), y)


def _reduce(x: Num) -> Pair:
    """(r, n): x = n π/2 + r (modulo 2π) with |r| <= π/4 or a little more; x is not negative.

    n is an integer of x's width of which only the last two bits mean anything.
    """
    if x.format.elem == "float":
        head, tail = _fold(x)
        quarters, n = round_scaled(head, 2.0 / math.pi)
        high, low = words("pi", "double", scale=0.5)
        r = narrow(fma(quarters, -low, fma(quarters, -high, head)) + tail)
        return r, n.convert("trunc", "i32")
    # Three words of π make the result relatively exact even where x is closest to n π/2.
    quarters, n = round_scaled(x, 2.0 / math.pi)
    r = x
    for word in words("pi", "double", 3, 0.5):
        r = fma(quarters, -word, r)
    return where(x < _DOUBLE_LIMIT, r, math.nan), n


def _fold(x: Num) -> Pair:
    """A float x >= 0 as head + tail (doubles), congruent to x modulo 2π, with |head| < 2^51.

    A float at or above 2^(e + 23) is an integer multiple of 2^e, and so congruent to x 2^-e times
    (2^e modulo 2π).  The remainder is kept to 106 bits; the three e are those for which it is
    small.  The tail is 0 for |x| < 2^48.  No float is closer to a multiple of π/2 than 2^-30, so
    that an absolute error of 2^-55 is small enough.
    """
    wide = widen(x)
    high, low = wide.lift(1.0), wide.lift(0.0)
    for start, e in _FOLDS:
        above = x >= start
        folded = _folding_factor(e)
        high = where(above, wide.lift(folded[0]), high)
        low = where(above, wide.lift(folded[1]), low)
    head, error = two_product(wide, high)
    return head, fma(wide, low, error)


def _folding_factor(e: int) -> tuple[float, float]:
    """(2^e modulo 2π) / 2^e as the sum of two doubles."""
    turn = 2 * Fraction(CONSTANTS["pi"])
    remainder = 2**e - turn * round(2**e / turn)
    high = float(remainder)
    return high * 2.0**-e, float(remainder - Fraction(high)) * 2.0**-e


def _odd(r: Num, coefficients: dict[str, tuple[float, ...]]) -> Num:
    """r + r³ P(r²)."""
    square = r * r
    return fma(poly(square, coefficients[r.format.elem]), square * r, r)


def _cos_small(r: Num) -> Num:
    square = r * r
    return fma(fma(poly(square, _COS[r.format.elem]), square, -0.5), square, 1.0)


def _quadrant(r: Num, n: Num) -> Num:
    """sin r or, for odd n, cos r."""
    return where((n & 1).ne(0), _cos_small(r), _odd(r, _SIN))


def _half_turns(n: Num) -> Num:
    """The second last bit of n, which tells a half turn, as a sign bit."""
    return n << (n.format.sign_mask.bit_length() - 2)


def _asin_folded(x: Num) -> Pair:
    """(outer, p): whether |x| > 1/2, and asin |x| where not or asin √((1 - |x|) / 2) where so."""
    a = abs(x)
    outer = a > 0.5
    square = where(outer, fma(a, -0.5, 0.5), a * a)
    r = where(outer, sqrt(square), a)
    return outer, fma(poly(square, _ASIN[x.format.elem]) * square, r, r)


def _from_axis(base: Num, angle: Num) -> Num:
    """base + angle, where base is 0, π/2 or π cut to the format and is meant exactly."""
    high, low = words("pi", base.format.elem)
    return base + fma(base, low / high, angle)
