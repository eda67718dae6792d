"""Arithmetic on held values: functions of a dtype and arrays that broadcast.

Integers wrap.  float16 and bfloat16 are computed in float32 and rounded after every operation,
which for + − × ÷ and square root is the same as rounding once.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from deuteron.backends.interp.values import Array, held_dtype, round_to
from deuteron.dtypes import DType, float64, int1
from deuteron.ir import Element, Pointer

NumPyBinary = Callable[[Array, Array], Array]


def arithmetic(function: NumPyBinary, dtype: DType, a: Array, b: Array) -> Array:
    """Addition, subtraction, multiplication or (of floats) division."""
    if dtype.is_floating():
        wide = np.float64 if dtype == float64 else np.float32
        return round_to(np.asarray(function(a.astype(wide), b.astype(wide))), dtype)
    return _on_integers(function, dtype, a, b)


def _on_integers(function: NumPyBinary, dtype: DType, a: Array, b: Array) -> Array:
    if dtype == int1:  # NumPy's + on bools is a logical or; one bit wraps
        return np.asarray(function(a.astype(np.uint8), b.astype(np.uint8)) & 1 != 0)
    return np.asarray(function(a, b))


def minimum(dtype: DType, a: Array, b: Array, propagate_nan: bool) -> Array:
    """The lesser; a NaN wins when propagated, else it loses."""
    return np.asarray((np.minimum if propagate_nan else np.fmin)(a, b))


def maximum(dtype: DType, a: Array, b: Array, propagate_nan: bool) -> Array:
    """The greater; a NaN wins when propagated, else it loses."""
    return np.asarray((np.maximum if propagate_nan else np.fmax)(a, b))


# -- integers -------------------------------------------------------------------------------------
def _divisor(b: Array) -> Array:
    """The divisor with zeros, whose quotients may be anything, replaced by ones."""
    return np.where(b == 0, b.dtype.type(1), b)


def remainder(a: Array, b: Array) -> Array:
    """C's `%`: of the dividend's sign; 0 where the divisor is 0."""
    return np.where(b == 0, a.dtype.type(0), np.fmod(a, _divisor(b)))


def quotient(a: Array, b: Array) -> Array:
    """C's `/`: toward zero; 0 where the divisor is 0."""
    divisor = _divisor(b)
    exact = np.subtract(a, np.fmod(a, divisor)) // divisor
    return np.where(b == 0, a.dtype.type(0), exact)


def high_product(a: Array, b: Array) -> Array:
    """The upper half of the unsigned product, twice as wide."""
    bits = a.dtype.itemsize * 8
    unsigned = np.dtype(f"uint{bits}")
    exact = a.view(unsigned).astype(object) * b.view(unsigned).astype(object)
    return np.asarray(exact >> bits).astype(unsigned).view(a.dtype)


INTEGER_BINARY: dict[str, NumPyBinary] = {
    "idiv": quotient,
    "irem": remainder,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,  # by the width or more, NumPy gives 0 (or the sign, shifting right)
    "shr": np.right_shift,
    "umulhi": high_product,
}


def integer_binary(name: str, dtype: DType, a: Array, b: Array) -> Array:
    """One of `INTEGER_BINARY`; int1 is a one-bit unsigned integer."""
    if dtype == int1 and name == "umulhi":
        return np.zeros(np.broadcast_shapes(a.shape, b.shape), np.bool_)
    return _on_integers(INTEGER_BINARY[name], dtype, a, b)


# -- comparison -----------------------------------------------------------------------------------
COMPARISONS: dict[str, NumPyBinary] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


def compare(name: str, element: Element, a: Array, b: Array) -> Array:
    """False when a NaN takes part, but for `ne`; addresses compare as unsigned."""
    if isinstance(element, Pointer):
        a, b = a.view(np.uint64), b.view(np.uint64)
    return np.asarray(COMPARISONS[name](a, b))


# -- one operand ----------------------------------------------------------------------------------
def negate(dtype: DType, a: Array) -> Array:
    """The additive inverse, modulo 2**bits for integers; minus zero and NaN change sign."""
    return a if dtype == int1 else np.asarray(np.negative(a))


def fused_multiply_add(dtype: DType, a: Array, b: Array, c: Array) -> Array:
    """a × b + c with one rounding."""
    if dtype == float64:
        return np.asarray(_fma64(a, b, c))
    product = a.astype(np.float64) * b.astype(np.float64)  # exact: twice 24 bits
    total = _add_to_odd(product, c.astype(np.float64))
    return round_to(total, dtype).astype(held_dtype(dtype))


def _add_to_odd(a: Array, b: Array) -> Array:
    """a + b rounded to odd: a later rounding to fewer bits is then as if it were the only one.

    Boldo and Melquiond, "Emulation of FMA and correctly rounded sums" (2008).
    """
    total = np.asarray(a + b)
    from_b = total - a
    error = (a - (total - from_b)) + (b - from_b)  # Knuth's TwoSum: a + b = total + error
    inexact = np.isfinite(total) & (error != 0)
    even = total.view(np.uint64) & np.uint64(1) == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where(inexact & even, np.nextafter(total, toward), total)


def _exact_fma(a: float, b: float, c: float) -> float:
    if np.isfinite(a) and np.isfinite(b) and not np.isfinite(c):
        return c  # even where a * b alone is beyond the greatest double
    plain = a * b + c
    if not (np.isfinite(a) and np.isfinite(b)):
        return plain
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return plain
    sign = 1.0 if exact > 0 else -1.0
    try:
        return sign * float(abs(exact))
    except OverflowError:
        return sign * float("inf")


_fma64 = np.vectorize(_exact_fma, otypes=[np.float64])


# -- matrix product -------------------------------------------------------------------------------
def matrix_product(a: Array, b: Array, acc: Array, dtype: DType) -> Array:
    """acc + a @ b over the last two axes: in float64 and rounded once, or exact for integers."""
    wide = np.float64 if dtype.is_floating() else np.int64
    total = acc.astype(wide) + a.astype(wide) @ b.astype(wide)
    return round_to(total, dtype) if dtype.is_floating() else total.astype(held_dtype(dtype))
