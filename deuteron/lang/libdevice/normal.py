# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false
# Much below is kernels' code, whose parameters a Python type checker does not know.
"""Half turns, and the error function and the normal distribution far out and backwards.

The scaled error function exp(x^2) erfc(x) carries the rest: as (1 + 2 x) times it, a series of
Chebyshev polynomials in (x - 15/4) / (x + 15/4) that holds on the whole half line (M. M. Shepherd
and J. G. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x", 1981).
"""

from __future__ import annotations

from deuteron.dtypes import int64
from deuteron.lang.core import where
from deuteron.lang.jit import jit
from deuteron.lang.libdevice.elementary import copysign, erfinv, rint
from deuteron.lang.libdevice.operands import in_float64
from deuteron.lang.libdevice.series import ERFCX, chebyshev
from deuteron.lang.loops import static_range
from deuteron.lang.math import abs as magnitude
from deuteron.lang.math import cos, exp, fma, log, maximum, minimum, sin
from deuteron.lang.math import sqrt as root
from deuteron.lang.values import constexpr

_PI = constexpr(3.141592653589793)
_SQRT_2 = constexpr(1.4142135623730951)
_SQRT_HALF = constexpr(0.7071067811865476)
_SQRT_PI = constexpr(1.772453850905516)


# -- half turns ----------------------------------------------------------------------------
@jit
def _quarter(x):
    """x half turns as a quarter 0 to 3 and an angle of at most 1/4 half turn, exactly."""
    x = where(magnitude(x) < 2.0**60, x, x * 0)
    turns = rint(x * 2)
    return turns.to(int64) & 3, (x - turns * 0.5) * _PI


@jit
def _sinpi(x):
    quarter, angle = _quarter(x)
    value = where((quarter & 1) == 1, cos(angle), sin(angle))
    value = where(quarter >= 2, -value, value)
    # Whole numbers give a zero of their own sign; what is no number stays so.
    return where(value == 0, copysign(value, x), value) + (x - x)


@jit
def _cospi(x):
    quarter, angle = _quarter(x)
    value = where((quarter & 1) == 1, sin(angle), cos(angle))
    value = where((quarter == 1) | (quarter == 2), -value, value)
    return value + (x - x)


# -- the error function --------------------------------------------------------------------
@jit
def _scaled_erfc(x):
    """Of x >= 0."""
    finite = minimum(x, 1e300)
    t = (finite - 3.75) / (finite + 3.75)
    return chebyshev(t, ERFCX) / (1 + 2 * x)


@jit
def _exp_of_square(x, sign: constexpr):
    """exp(sign * x * x): what rounding leaves out of the square counts too."""
    square = x * x
    rest = where(square < float("inf"), fma(x, x, -square), 0.0)
    value = exp(sign * square)
    return where(value < float("inf"), fma(value, sign * rest, value), value)


@jit
def _erfcx(x):
    positive = _scaled_erfc(magnitude(x))
    return where(x < 0, 2 * _exp_of_square(x, 1) - positive, positive)


@jit
def _erfcinv_of_small(y):
    """Of 0 < y < 1/2: Newton's method on log(erfc(x)) = log(erfcx(x)) - x^2, nearly a parabola."""
    wanted = log(y)
    # erfc(x) is about exp(-x^2) / (x sqrt(pi)) far out.
    size = root(-wanted)
    x = root(maximum(-wanted - log(size * _SQRT_PI + 0.5), 0.2))
    for _ in static_range(5):
        value = _scaled_erfc(x)
        gap = (log(value) - wanted) - x * x
        # The derivative of the left side is -2 / (sqrt(pi) erfcx(x)).
        x += gap * value * (_SQRT_PI / 2)
    return x


@jit
def _erfcinv(y):
    mirrored = minimum(y, 2 - y)
    small = (mirrored > 0) & (mirrored < 0.5)
    far = _erfcinv_of_small(where(small, mirrored, 0.25))
    far = where(y > 1, -far, far)
    return where(small, far, erfinv(1 - y))


# -- the normal distribution ---------------------------------------------------------------
@jit
def _normcdf(x):
    """exp(-x^2 / 2) erfcx(|x| / sqrt(2)) / 2 is the tail."""
    size = magnitude(x)
    square = x * x
    rest = where(square < float("inf"), fma(x, x, -square), 0.0) * 0.5
    value = exp(-0.5 * square)
    tail = 0.5 * fma(value, -rest, value) * _scaled_erfc(size * _SQRT_HALF)
    return where(x > 0, 1 - tail, tail)


@jit
def _normcdfinv(p):
    return -_SQRT_2 * _erfcinv(2 * p)


sinpi = in_float64("sinpi", "The sine of x half turns.", _sinpi)
cospi = in_float64("cospi", "The cosine of x half turns.", _cospi)
erfcx = in_float64("erfcx", "exp(x * x) * erfc(x), which stays a number far out.", _erfcx)
erfcinv = in_float64("erfcinv", "The x whose erfc is the operand.", _erfcinv)
normcdf = in_float64("normcdf", "The share of a normal distribution below x.", _normcdf)
normcdfinv = in_float64(
    "normcdfinv", "The x that a share of a normal distribution is below.", _normcdfinv
)
