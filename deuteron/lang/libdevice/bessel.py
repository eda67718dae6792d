# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false
# Much below is kernels' code, whose parameters a Python type checker does not know.
"""Bessel functions.

Up to 8, J0 and J1 are series with their zeros taken out, so that they are right to the last places
there too, and Y0 and Y1 follow from them.  Beyond, all are sine waves whose phase and size are
Hankel's series (NIST Digital Library of Mathematical Functions, 10.17): the error is small against
the size of the wave, not against a value near a zero.  Higher orders come by recurrence, downward
(J. C. P. Miller's way) where upward would lose the function.  The modified ones are power series,
and exponentials times series beyond 8.
"""

from __future__ import annotations

from math import factorial

from deuteron.dtypes import float64, int32
from deuteron.lang.context import Context
from deuteron.lang.core import map_elementwise, where
from deuteron.lang.jit import jit
from deuteron.lang.libdevice.operands import call, exactly, floats, in_float64, named
from deuteron.lang.libdevice.series import (
    I0_LARGE,
    I1_LARGE,
    J0_SMALL,
    J1_SMALL,
    P0_LARGE,
    P1_LARGE,
    Q0_LARGE,
    Q1_LARGE,
    Y0_SMALL,
    Y1_SMALL,
    chebyshev,
)
from deuteron.lang.math import abs as magnitude
from deuteron.lang.math import cos, exp, log, maximum, minimum, sin
from deuteron.lang.math import sqrt as root
from deuteron.lang.semantic import casts
from deuteron.lang.semantic.shape import broadcast_together
from deuteron.lang.values import Operand, Tensor, constexpr
from deuteron.runtime.jit import JITFunction

_TWO_OVER_PI = constexpr(0.6366197723675814)
_SQRT_HALF = constexpr(0.7071067811865476)
# The first zeros, each as a float64 and what is left of it.
_J0_ZEROS = constexpr(
    (2.404825557695773, -1.176691651530894e-16, 5.520078110286311, 8.088597146146722e-17)
)
_J1_ZEROS = constexpr(
    (3.8317059702075125, -1.5269184090088067e-16, 7.015586669815619, -9.414165653410389e-17)
)
_I0_POWERS = constexpr(tuple(1 / factorial(k) ** 2 for k in range(26, -1, -1)))
_I1_POWERS = constexpr(tuple(1 / (factorial(k) * factorial(k + 1)) for k in range(26, -1, -1)))


# -- orders 0 and 1 ------------------------------------------------------------------------
@jit
def _without_zeros(x, zeros: constexpr):
    """(x^2 - a^2) (x^2 - b^2) / (x^2 + 16)^2, whose size hardly changes but for the zeros."""
    scale = 1 / (x * x + 16)
    first = ((x - zeros[0]) - zeros[1]) * (x + zeros[0]) * scale
    return first * (((x - zeros[2]) - zeros[3]) * (x + zeros[2]) * scale)


@jit
def _near(x, order: constexpr):
    """J and Y at 0 <= x <= 8; Y without its pole's part where x is 0."""
    t = x * x * 0.03125 - 1
    if order == 0:
        j = _without_zeros(x, _J0_ZEROS) * chebyshev(t, J0_SMALL)
        y = chebyshev(t, Y0_SMALL) + _TWO_OVER_PI * (log(x) * j)
    else:
        j = x * (_without_zeros(x, _J1_ZEROS) * chebyshev(t, J1_SMALL))
        y = x * chebyshev(t, Y1_SMALL) + _TWO_OVER_PI * (log(x) * j - 1 / x)
    return j, y


@jit
def _far(x, order: constexpr):
    """J and Y at x >= 8."""
    over = 8 / x
    t = 2 * over * over - 1
    sine, cosine = sin(x), cos(x)
    # The phase is less by a quarter half turn, and by half a one more for order 1.
    if order == 0:
        p, q = chebyshev(t, P0_LARGE), chebyshev(t, Q0_LARGE) * over
        cosine, sine = cosine + sine, sine - cosine
    else:
        p, q = chebyshev(t, P1_LARGE), chebyshev(t, Q1_LARGE) * over
        cosine, sine = sine - cosine, -(sine + cosine)
    size = root(_TWO_OVER_PI / x) * _SQRT_HALF
    return size * (p * cosine - q * sine), size * (p * sine + q * cosine)


@jit
def _both(x, order: constexpr):
    """J and Y at x >= 0."""
    near_j, near_y = _near(minimum(x, 8.0), order)
    far_j, far_y = _far(minimum(maximum(x, 8.0), 1e300), order)
    near = x <= 8
    # Both waves end at infinity.
    ends = x == float("inf")
    j, y = where(near, near_j, far_j), where(near, near_y, far_y)
    return where(ends, 0.0, j), where(ends, 0.0, y)


@jit
def _j0(x):
    j, _ = _both(magnitude(x), 0)
    return where(x != x, x, j)


@jit
def _j1(x):
    j, _ = _both(magnitude(x), 1)
    return where(x != x, x, where(x < 0, -j, j))


@jit
def _real_y(x, y):
    """Y at any x: there is none left of 0."""
    return where(x > 0, y, where(x == 0, -float("inf"), float("nan")))


@jit
def _y0(x):
    _, y = _both(magnitude(x), 0)
    return _real_y(x, y)


@jit
def _y1(x):
    _, y = _both(magnitude(x), 1)
    return _real_y(x, y)


# -- higher orders -------------------------------------------------------------------------
@jit
def _upward(n, x, first, second):
    """The value of order n >= 1 from those of orders 0 and 1."""
    k = 1
    while (k < n) & (magnitude(second) < float("inf")):
        first, second = second, 2 * k / x * second - first
        k += 1
    return second


@jit
def _leading_term(n, x):
    """(x / 2)^n / n!, all there is of J at a small x."""
    term = x * 0 + 1
    for k in range(1, n + 1):
        term *= 0.5 * x / k
    return term


@jit
def _downward(n, x):
    """J of order n > x, from far above it, where any start will do, and scaled at the end."""
    k = (n + root(160.0 * n.to(float64)).to(int32)) // 2 * 2
    above = x * 0
    value = above + 1
    total, wanted = above, above
    while k > 0:
        above, value = value, 2 * k / x * value - above
        if magnitude(value) > 2.0**500:
            above, value = above * 2.0**-500, value * 2.0**-500
            total, wanted = total * 2.0**-500, wanted * 2.0**-500
        if k % 2 == 1:
            total += value
        if k == n:
            wanted = above
        k -= 1
    # J0 + 2 J2 + 2 J4 + ... = 1
    return wanted / (2 * total - value)


@jit
def _jn_of_one(n, x, j0, j1):
    if n == 0:
        result = j0
    elif n == 1:
        result = j1
    elif x > n:
        result = _upward(n, x, j0, j1)
    elif x * x < 1e-16 * n:
        result = _leading_term(n, x)
    else:
        result = _downward(n, x)
    return result


@jit
def _yn_of_one(n, x, y0, y1):
    return y0 if n == 0 else _upward(n, x, y0, y1)


@jit
def _jn(n, x):
    size = magnitude(x)
    usual = size < float("inf")
    value = map_elementwise(
        _jn_of_one, maximum(n, 0), where(usual, size, 0.0), _j0(size), _j1(size)
    )
    value = where(usual, value, 0.0)
    value = where((x < 0) & ((n & 1) == 1), -value, value)
    return where((x != x) | (n < 0), float("nan"), value)


@jit
def _yn(n, x):
    usual = (x > 0) & (x < float("inf"))
    value = map_elementwise(_yn_of_one, maximum(n, 0), where(usual, x, 1.0), _y0(x), _y1(x))
    value = _real_y(x, where(usual, value, 0.0))
    return where(n < 0, float("nan"), value)


def _of_order(name: str, doc: str, function: JITFunction):
    def compute(ctx: Context, n: Operand, x: Operand) -> Tensor:
        (value,) = floats(ctx, name, x)
        order, wide = broadcast_together(
            ctx, exactly(ctx, name, n, int32), casts.cast(ctx, value, float64)
        )
        return casts.cast(ctx, call(ctx, function, order, wide), value.number)

    return named(name, doc, compute)


# -- modified ------------------------------------------------------------------------------
@jit
def _power_series(y, coefficients: constexpr):
    total = y * 0 + coefficients[0]
    for c in coefficients[1:]:
        total = total * y + c
    return total


@jit
def _modified(x, powers: constexpr, series: constexpr):
    """I0 at x >= 0, or I1 without the factor x / 2 of its power series up to 8."""
    near = minimum(x, 8.0)
    far = minimum(maximum(x, 8.0), 1e4)
    # In halves, as the exponential overflows before the function does.
    half = exp(0.5 * far)
    return _power_series(0.25 * near * near, powers), half * (
        chebyshev(16 / far - 1, series) / root(far)
    ) * half


@jit
def _i0(x):
    size = magnitude(x)
    near, far = _modified(size, _I0_POWERS, I0_LARGE)
    return where(x != x, x, where(size <= 8, near, far))


@jit
def _i1(x):
    size = magnitude(x)
    near, far = _modified(size, _I1_POWERS, I1_LARGE)
    value = where(size <= 8, 0.5 * size * near, far)
    return where(x != x, x, where(x < 0, -value, value))


j0 = in_float64("j0", "The Bessel function of the first kind, order 0.", _j0)
j1 = in_float64("j1", "The Bessel function of the first kind, order 1.", _j1)
y0 = in_float64("y0", "The Bessel function of the second kind, order 0.", _y0)
y1 = in_float64("y1", "The Bessel function of the second kind, order 1.", _y1)
jn = _of_order("jn", "The Bessel function of the first kind, order n >= 0; takes n steps.", _jn)
yn = _of_order("yn", "The Bessel function of the second kind, order n >= 0; takes n steps.", _yn)
cyl_bessel_i0 = in_float64("cyl_bessel_i0", "The modified Bessel function, order 0.", _i0)
cyl_bessel_i1 = in_float64("cyl_bessel_i1", "The modified Bessel function, order 1.", _i1)
