"""Exponentials: exp, exp2, exp10, expm1, and the hyperbolic functions.

All split x = n * step + r with n an integer and evaluate a minimax polynomial (Remez, coefficients
rounded one by one) in r.  The exponentials split at double steps, x = 2 n ln2 + r, so that the two
factors 2^n of the result are one value: overflow and denormal results come out right without a
second scale, at the price of one or two polynomial terms.
"""

from __future__ import annotations

import math

from deuteron.backends.llvm.math_core import (
    Num,
    at_least,
    at_most,
    copysign,
    fma,
    poly,
    pow2,
    round_scaled,
    where,
    words,
)

LN2, LOG2E = math.log(2.0), math.log2(math.e)
LOG10_2, LOG2_10 = math.log10(2.0), math.log2(10.0)

# (e^r - 1 - r) / r² for |r| <= ln2; relative error of e^r 2^-29.4 and 2^-56.3.
_EXP = {
    "float": (
        0.5, 0.166666806, 0.0416667648, 0.00833210256, 0.00138825458, 0.000201711737,
        2.58432137e-05,
    ),
    "double": (
        0.4999999999999992, 0.16666666666666932, 0.04166666666670375, 0.008333333333270576,
        0.0013888888883405565, 0.00019841269892353994, 2.480159090927172e-05,
        2.755730082485391e-06, 2.7556141266419845e-07, 2.505499335539228e-08,
        2.106364816732912e-09, 1.5939205637119547e-10,
    ),
}  # fmt: skip

# (2^r - 1) / r for |r| <= 1; relative error of 2^r 2^-30.0 and 2^-56.5.
_EXP2 = {
    "float": (
        0.693147182, 0.240226507, 0.0555041134, 0.00961811282, 0.00133326871, 0.000154074587,
        1.54342542e-05, 1.30472574e-06,
    ),
    "double": (
        0.6931471805599453, 0.2402265069591003, 0.055504108664822825, 0.009618129107637386,
        0.0013333558146309832, 0.0001540353038718549, 1.5252733847521218e-05,
        1.3215488727316372e-06, 1.0178078719288716e-07, 7.054609408465012e-09,
        4.446079886197228e-10, 2.5908301460803355e-11, 1.3581957834518146e-12,
    ),
}  # fmt: skip

# (e^r - 1 - r) / r² for |r| <= ln2 / 2; relative error of e^r - 1 2^-31.0 and 2^-61.5.
_EXPM1 = {
    "float": (0.5, 0.166666657, 0.0416664854, 0.00833353866, 0.00139332295, 0.000197695103),
    "double": (
        0.5, 0.16666666666666677, 0.04166666666666668, 0.008333333333321686,
        0.001388888888889734, 0.00019841269885822126, 2.4801587272566493e-05,
        2.7557244505748153e-06, 2.755733402422511e-07, 2.510896048644239e-08,
        2.089286848387906e-09,
    ),
}  # fmt: skip

# The same for a relative error of e^r of 2^-28.2, enough for the outer half of tanh in float.
_EXP_NARROW = (0.49999994, 0.166665167, 0.041668281, 0.00836924836, 0.00138207374)

# (tanh x / x - 1) / x² in x², |x| <= 0.55; relative error of tanh x 2^-24.7.
_TANH = (-0.333329469, 0.133207291, -0.0526720136, 0.0164378919)

# Outside of these exponents of two a result is certainly 0 or infinite.
_LOG2_RANGE = {"float": (-150.0, 128.5), "double": (-1075.0, 1024.5)}


def exp(x: Num) -> Num:
    """e^x."""
    return exp_sum(x)


def exp_sum(x: Num, tail: Num | None = None) -> Num:
    """e^(x + tail) for a tail of a few units in the last place of x at most."""
    elem = x.format.elem
    high, low = words("ln2", elem, scale=2.0)
    t = at_most(x, _LOG2_RANGE[elem][1] * LN2)
    n, biased = round_scaled(t, 0.5 * LOG2E, x.format.bias)
    r = fma(n, -low, fma(n, -high, t))
    if tail is not None:
        r = r + tail
    return _flush(x, LN2, _scale_twice(fma(poly(r, _EXP[elem]), r * r, r), biased))


def exp2(x: Num) -> Num:
    """2^x."""
    elem = x.format.elem
    t = at_most(x, _LOG2_RANGE[elem][1])
    n, biased = round_scaled(t, 0.5, x.format.bias)
    r = fma(n, -2.0, t)
    s = pow2(biased)
    return _flush(x, 1.0, fma(poly(r, _EXP2[elem]), r, 1.0) * s * s)


def exp10(x: Num) -> Num:
    """10^x."""
    elem = x.format.elem
    high, low = words("log10_2", elem, scale=2.0)
    t = at_most(x, _LOG2_RANGE[elem][1] * LOG10_2)
    n, biased = round_scaled(t, 0.5 * LOG2_10, x.format.bias)
    t = fma(n, -low, fma(n, -high, t))
    high, low = words("ln10", elem)
    r = fma(t, high, t * low)
    return _flush(x, LOG10_2, _scale_twice(fma(poly(r, _EXP[elem]), r * r, r), biased))


def _scale_twice(q: Num, biased: Num) -> Num:
    """(1 + q) * 2^2n from the bits of n: only the last product can overflow or turn denormal."""
    s = pow2(biased)
    return fma(q, s, s) * s


def _flush(x: Num, unit: float, result: Num) -> Num:
    """0 where x (in units of log2 `unit`) is so low that the result is; else the result.

    The bits of n are meaningless there.  A lower bound on x would do as well, but the product
    would then underflow, which costs over 100 cycles on x86; here the selection masks it.
    """
    return where(x < _LOG2_RANGE[x.format.elem][0] * unit, 0.0, result)


# -- e^x - 1 and what is made of it ---------------------------------------------------------
def _expm1_scaled(x: Num, shift: int) -> Num:
    """(e^x - 1) / 2^shift, relatively exact near 0, for 2^(n - shift) within the format."""
    elem = x.format.elem
    n, biased = round_scaled(x, LOG2E, x.format.bias - shift)
    high, low = words("ln2", elem)
    r = fma(n, -low, fma(n, -high, x))
    q = fma(poly(r, _EXPM1[elem]), r * r, r)
    s = pow2(biased)
    return fma(q, s, s - 2.0**-shift)


def expm1(x: Num) -> Num:
    """e^x - 1."""
    low, high = _LOG2_RANGE[x.format.elem]
    # e^x is lost beside 1 long before 2^n leaves the format.
    t = at_least(at_most(x, high * LN2), 0.5 * low * LN2)
    # Halved, because 2^n alone would overflow for the largest results.
    return copysign(_expm1_scaled(t, 1) * 2.0, x)


def tanh(x: Num) -> Num:
    """Hyperbolic tangent."""
    return _tanh_float(x) if x.format.elem == "float" else _tanh_double(x)


def _tanh_float(x: Num) -> Num:
    """1 - 2 / (e^2x + 1), and an odd polynomial where that cancels."""
    y = at_most(abs(x), 9.1)  # from here on the result rounds to 1
    t = y + y
    high, low = words("ln2", "float")
    n, biased = round_scaled(t, LOG2E, x.format.bias)
    r = fma(n, -low, fma(n, -high, t))
    s = pow2(biased)
    e = fma(fma(poly(r, _EXP_NARROW), r * r, r), s, s)
    outer = 1.0 - 2.0 / (e + 1.0)
    square = y * y
    inner = fma(poly(square, _TANH), square * y, y)
    return copysign(where(y < 0.55, inner, outer), x)


def _tanh_double(x: Num) -> Num:
    """(e^2x - 1) / (e^2x + 1)."""
    y = at_most(abs(x), 19.1)  # from here on the result rounds to 1
    m = _expm1_scaled(y + y, 0)
    return copysign(m / (m + 2.0), x)


def sinh(x: Num) -> Num:
    """(e^x - e^-x) / 2."""
    h = _half_expm1(x)
    t = at_most(h, 2.0**100)  # not infinity over infinity
    return copysign(h + t / fma(t, 2.0, 1.0), x)


def cosh(x: Num) -> Num:
    """(e^x + e^-x) / 2."""
    half = _half_expm1(x) + 0.5
    return half + 0.25 / half


def _half_expm1(x: Num) -> Num:
    """(e^|x| - 1) / 2; infinite only where cosh x is."""
    _, high = _LOG2_RANGE[x.format.elem]
    # Quartered: half of e^|x| can be finite where 2^(n - 1) is not.
    return _expm1_scaled(at_most(abs(x), (high + 0.75) * LN2), 2) * 2.0
