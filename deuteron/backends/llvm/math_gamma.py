"""Gamma functions: lgamma, tgamma.  Float arguments are evaluated in double.

All polynomials are minimax fits (Remez).
"""

from __future__ import annotations

import math

from deuteron.backends.llvm.math_core import (
    Num,
    Pair,
    at_most,
    fma,
    poly,
    round_even,
    through_double,
    two_product,
    two_sum,
    where,
)
from deuteron.backends.llvm.math_exp import exp_sum
from deuteron.backends.llvm.math_log import log, log_sum, log_with_rest

# log Γ(x) / ((x - 1) (x - 2)) in x - 2, 1 <= x <= 3; relative error 2^-54.9.
_LGAMMA = (
    0.42278433509846713, -0.1003173016743542, 0.03296500062115719, -0.012384192193337017,
    0.00499864116461749, -0.0021081308352034578, 0.0009153769241995181, -0.00040570737659024125,
    0.00018255261383623292, -8.309532241302417e-05, 3.816908620904779e-05,
    -1.7660536885111605e-05, 8.221194945797501e-06, -3.851676371906832e-06,
    1.8115019326155278e-06, -8.416694801179135e-07, 3.956767888763717e-07,
    -2.117920361149154e-07, 1.0449800106753434e-07, -1.895624312074764e-08,
    5.6408176778120725e-09, -2.9821670777472366e-08, 1.6354693142871408e-08,
    7.597222119997988e-09, -4.36812592498807e-09, -3.0534171249474834e-09,
    1.5832128892627697e-09,
)  # fmt: skip

# x (log Γ(x) - (x - 1/2) log x + x - log(2π) / 2), the rest of Stirling's formula, in 1 / x²,
# x >= 3; error 2^-57.6.
_STIRLING = (
    0.08333333333333333, -0.002777777777765602, 0.0007936507883381503, -0.000595237181667188,
    0.0008416687157948811, -0.0019130840486598134, 0.006252848024288206, -0.025672447212149035,
    0.10946376052717215, -0.39285709513677675, 0.9557680779864842, -1.1205944590175667,
)  # fmt: skip

# (sin πt / πt - 1) / t² in t², |t| <= 1/2; relative error of the sine 2^-61.3.
_SIN_PI = (
    -1.6449340668482264, 0.8117424252833462, -0.1907518241216754, 0.026147847807945445,
    -0.002346080913324872, 0.00014842791677694876, -6.9722678861391285e-06, 2.451839281369505e-07,
)  # fmt: skip

_HALF_LOG_2PI = 0.9189385332046728


def lgamma(x: Num) -> Num:
    """log |Γ(x)|.

    Near the zeros at negative x the error is small beside 1, not beside the result.
    """
    return through_double(_lgamma)(x)


def tgamma(x: Num) -> Num:
    """Γ(x); NaN at the negative integers."""
    return through_double(_tgamma)(x)


def _lgamma(x: Num) -> Num:
    a = abs(x)
    log_a, log_rest = log_with_rest(a)
    # log Γ(1 + u), from which 1 > a = u lacks log a.
    below = a < 1.0
    u = where(below, a, a - 1.0)
    v = u - 1.0
    near = u * v * poly(v, _LGAMMA) + 0.0  # log Γ(1) is 0, not -0
    rest = _stirling_rest(a) + (_HALF_LOG_2PI - 0.5)
    far = fma(a - 0.5, log_a - 1.0, fma(a - 0.5, log_rest, rest))
    positive = where(a < 3.0, where(below, near - log_a, near), far)
    # log Γ(-a) = -log(sin(πa) / π) - log Γ(1 + a)
    sine, _ = _sin_pi(a)
    negative = -log(abs(sine)) - where(below, near, positive + log_a)
    result = where(x < 0.0, where(sine.eq(0.0), math.inf, negative), positive)
    return where(a < math.inf, result, a)


def _tgamma(x: Num) -> Num:
    a = abs(x)
    # Stirling's formula holds from 3 on, so Γ(a) = Γ(t) / (a (a + 1) (a + 2)) for small a.
    small = a < 3.0
    t = where(small, a + 3.0, at_most(a, 200.0))
    t_low = where(small, a - (t - 3.0), 0.0)
    exponent, tail = _log_gamma_sum(t, t_low)
    negative = x < 0.0
    power = exp_sum(where(negative, -exponent, exponent), where(negative, -tail, tail))
    # Γ(-a) = -1 / (a Γ(a) sin(πa) / π)
    sine, odd = _sin_pi(a)
    sine = where(odd, sine, -sine)
    rest = where(small, (a + 1.0) * (a + 2.0), 1.0)
    over = where(negative, power * rest, power)
    under = where(negative, where(small, sine, sine * a), where(small, a * rest, 1.0))
    pole = negative & sine.eq(0.0)
    return where(pole, math.nan, where(x.eq(0.0), 1.0 / x, over / under))


def _log_gamma_sum(t: Num, t_low: Num) -> Pair:
    """log Γ(t + t_low) as a sum, for t >= 3, by Stirling's formula."""
    log_high, log_low = log_sum(t)
    product, product_low = two_product(t - 0.5, log_high)
    product_low = fma(t - 0.5, log_low, product_low)
    first, first_low = two_sum(product, -t)
    total, total_low = two_sum(first, _stirling_rest(t) + _HALF_LOG_2PI)
    # The derivative of log Γ(t) is near log t - 1 / 2t.
    slope = log_high - 0.5 / t
    return total, fma(slope, t_low, product_low + first_low + total_low)


def _stirling_rest(a: Num) -> Num:
    """log Γ(a) - ((a - 1/2) log a - a + log(2π) / 2) for a >= 3."""
    inverse = 1.0 / a
    return poly(inverse * inverse, _STIRLING) * inverse


def _sin_pi(a: Num) -> Pair:
    """(sin(πt) / π, whether n is odd) for a = n + t with |t| <= 1/2."""
    n = round_even(a)
    t = a - n
    half = n * 0.5
    square = t * t
    return fma(poly(square, _SIN_PI), square * t, t), round_even(half).ne(half)
