"""Functions of one or two floats, in float64: what the op table calls `FLOAT_UNARY` and `_BINARY`.

Their results are rounded once to the op's dtype, so that float32 and narrower come out correctly
rounded but for rare ties.  NumPy has most of them, Python's `math` the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from deuteron.backends.interp.values import Array

Unary = Callable[[Array], Array]
Binary = Callable[[Array, Array], Array]


def _each(function: Callable[[float], float]) -> Unary:
    """Apply a function of Python floats to every element."""
    vectorized = np.vectorize(function, otypes=[np.float64])

    def apply(x: Array) -> Array:
        return np.asarray(vectorized(x))

    return apply


def _lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # a pole, or beyond the greatest float
        return math.inf


def _tgamma(x: float) -> float:
    if x == 0.0:
        return math.copysign(math.inf, x)
    try:
        return math.gamma(x)
    except ValueError:  # a pole of either sign, or minus infinity
        return math.nan
    except OverflowError:  # far out, or next to the pole at zero
        return math.copysign(math.inf, x)


def _erfinv(x: float) -> float:
    """The inverse of erf, by Halley's iteration on Winitzki's approximation (2008)."""
    if abs(x) >= 1.0 or math.isnan(x):
        return math.copysign(math.inf, x) if abs(x) == 1.0 else math.nan
    if x == 0.0:
        return x
    magnitude = abs(x)
    log_tail = math.log1p(-magnitude * magnitude)
    half = 2.0 / (math.pi * 0.147) + log_tail / 2.0
    y = math.sqrt(math.sqrt(half * half - log_tail / 0.147) - half)
    for _ in range(4):
        # Near one, erfc keeps the digits that erf has lost.
        if magnitude < 0.5:
            error = math.erf(y) - magnitude
        else:
            error = (1.0 - magnitude) - math.erfc(y)
        step = error / (2.0 / math.sqrt(math.pi) * math.exp(-y * y))
        y -= step / (1.0 + y * step)
    return math.copysign(y, x)


def _round_half_away(x: Array) -> Array:
    whole = np.trunc(x)
    away = np.abs(x - whole) >= 0.5
    return np.copysign(np.abs(whole) + away, x)


def _exp10(x: Array) -> Array:
    return np.power(10.0, x)


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


UNARY: dict[str, Unary] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": _exp10,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sqrt": np.sqrt,
    "rsqrt": _rsqrt,
    "cbrt": np.cbrt,
    "erf": _each(math.erf),
    "erfc": _each(math.erfc),
    "erfinv": _each(_erfinv),
    "lgamma": _each(_lgamma),
    "tgamma": _each(_tgamma),
    "ceil": np.ceil,
    "floor": np.floor,
    "trunc": np.trunc,
    "rint": np.rint,
    "round": _round_half_away,
}

BINARY: dict[str, Binary] = {
    "pow": np.power,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "fmod": np.fmod,
    "copysign": np.copysign,
}
