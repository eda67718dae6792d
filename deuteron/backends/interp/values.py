"""How the interpreter holds values: one NumPy array for each, of the value's shape.

| dtype               | held as        | in memory |
| ------------------- | -------------- | --------- |
| int1                | bool           | uint8     |
| integers            | the same       | the same  |
| float16, 32, 64     | the same       | the same  |
| bfloat16            | float32        | uint16    |
| 8-bit floats        | float32        | uint8     |
| pointers            | int64 address  | –         |

A value held wider than its dtype is always already rounded to it, so that equal values are equal
arrays.  `round_to` is the one place where rounding is defined; `encode` and `decode` go between
held values and the bits in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from deuteron.dtypes import (
    FLOAT8,
    DType,
    Specials,
    bfloat16,
    float16,
    float32,
    float64,
    int1,
)
from deuteron.ir import Element, Pointer

Array = npt.NDArray[Any]
Held = np.dtype[Any]

_HELD_WIDER: dict[DType, Held] = {
    int1: np.dtype(np.bool_),
    **dict.fromkeys((bfloat16, *FLOAT8), np.dtype(np.float32)),
}
_STORED: dict[DType, Held] = {
    int1: np.dtype(np.uint8),
    bfloat16: np.dtype(np.uint16),
    **dict.fromkeys(FLOAT8, np.dtype(np.uint8)),
}


@dataclass(frozen=True, slots=True)
class _Format:
    """A binary float format: `least_exponent` is that of the smallest normal number."""

    mantissa_bits: int
    least_exponent: int
    greatest: float
    saturates: bool = False


# IEEE 754-2019 table 3.5; bfloat16; the 8-bit formats.
_FORMATS: dict[DType, _Format] = {
    float32: _Format(23, -126, float(np.finfo(np.float32).max)),
    float16: _Format(10, -14, 65504.0),
    bfloat16: _Format(7, -126, (2.0 - 2.0**-7) * 2.0**127),
    **{
        dtype: _Format(form.mantissa_bits, form.least_exponent, form.greatest, saturates=True)
        for dtype, form in FLOAT8.items()
    },
}


def held_dtype(element: Element) -> Held:
    """The NumPy dtype that values of this element type are held in."""
    if isinstance(element, Pointer):
        return np.dtype(np.int64)
    return _HELD_WIDER.get(element) or np.dtype(element.name)


def storage_dtype(dtype: DType) -> Held:
    """The NumPy dtype of this dtype's bits in memory."""
    return _STORED.get(dtype) or np.dtype(dtype.name)


def round_to(values: Array, dtype: DType, *, toward_zero: bool = False) -> Array:
    """Round floats of any width to a float dtype, once: to nearest even, or toward zero.

    Beyond the greatest finite number the result is infinite, or that number where the format
    saturates (fp8) or the rounding is toward zero.  NaN stays NaN.
    """
    if dtype == float64 or (dtype == float32 and values.dtype == np.float32):
        return values.astype(held_dtype(dtype), copy=False)
    form = _FORMATS[dtype]
    exact = values.astype(np.float64)
    exponent = np.frexp(exact)[1] - 1
    quantum = np.ldexp(1.0, np.maximum(exponent, form.least_exponent) - form.mantissa_bits)
    rounded = (np.trunc if toward_zero else np.rint)(exact / quantum) * quantum
    over = np.abs(rounded) > form.greatest
    if not form.saturates and toward_zero:
        over &= np.isfinite(exact)
    limit = form.greatest if form.saturates or toward_zero else np.inf
    rounded = np.where(over, np.copysign(limit, exact), rounded)
    specials = FLOAT8[dtype].specials if dtype in FLOAT8 else Specials.IEEE
    if specials is Specials.NEGATIVE_ZERO:
        rounded = rounded + 0.0
    nan = form.greatest if specials is Specials.NONE else np.nan
    return np.where(np.isnan(exact), nan, rounded).astype(held_dtype(dtype))


def wrap_int(value: int, dtype: DType) -> Array:
    """A Python integer as a held scalar of an integer dtype, modulo 2**bits."""
    low_bits = np.array(value & ((1 << dtype.bits) - 1), np.uint64)
    return low_bits.astype(held_dtype(dtype))


def constant(value: float, dtype: DType) -> Array:
    """A Python number as a held scalar."""
    if dtype.is_floating():
        return round_to(np.array(value, np.float64), dtype)
    return wrap_int(int(value), dtype)


def convert(values: Array, source: DType, to: DType, *, toward_zero: bool = False) -> Array:
    """The op `cast`: held values of `source` as held values of `to`.

    Floats go to integers by truncation (out of range, any value) and to int1 by `!= 0`.
    """
    held = held_dtype(to)
    if to == source:
        return values
    if to == int1:
        return np.asarray(values != 0)
    if to.is_int():
        return values.astype(held)
    if source.is_int() and to == float32:
        return values.astype(held)
    return round_to(values.astype(np.float64), to, toward_zero=toward_zero)


# -- bits -----------------------------------------------------------------------------------------
@cache
def _fp8_magnitudes(dtype: DType) -> Array:
    """The values of the codes 0…127 of an 8-bit format, in ascending order, NaN last."""
    form = FLOAT8[dtype]
    codes = np.arange(128)
    field = codes >> form.mantissa_bits
    fraction = (codes & ((1 << form.mantissa_bits) - 1)) / (1 << form.mantissa_bits)
    exponent = np.maximum(field, 1) - 1 + form.least_exponent
    table = np.ldexp(np.where(field > 0, 1.0, 0.0) + fraction, exponent)
    if form.specials is Specials.IEEE:
        table[0x7C:] = (np.inf, np.nan, np.nan, np.nan)
    elif form.specials is Specials.LAST:
        table[0x7F] = np.nan
    return table.astype(np.float32)


def decode(bits: Array, dtype: DType) -> Array:
    """Held values of elements as they stand in memory."""
    if dtype == int1:
        return np.asarray(bits != 0)
    if dtype == bfloat16:
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype.is_fp8():
        magnitude = _fp8_magnitudes(dtype)[bits & 0x7F]
        values = np.where(bits & 0x80, -magnitude, magnitude)
        if FLOAT8[dtype].specials is Specials.NEGATIVE_ZERO:
            values = np.where(bits == 0x80, np.float32(np.nan), values)
        return values
    return bits


def encode(values: Array, dtype: DType) -> Array:
    """The bits in memory of held values."""
    values = np.ascontiguousarray(values).reshape(values.shape)
    if dtype == int1:
        return values.view(np.uint8)
    if dtype == bfloat16:
        upper = (values.view(np.uint32) >> 16).astype(np.uint16)
        quiet = np.where(np.isnan(values), 0x40, 0).astype(np.uint16)
        return upper | quiet
    if dtype.is_fp8():
        magnitude = np.abs(values)
        table = _fp8_magnitudes(dtype)
        numbers = table[~np.isnan(table)]
        code = np.where(np.isnan(values), 0x7F, np.searchsorted(numbers, magnitude))
        code = code | np.where(np.signbit(values), 0x80, 0)
        if FLOAT8[dtype].specials is Specials.NEGATIVE_ZERO:
            code = np.where(np.isnan(values), 0x80, np.where(magnitude == 0, 0, code))
        return code.astype(np.uint8)
    return values


def bitcast(values: Array, source: DType, to: DType) -> Array:
    """The op `bitcast`: the same bits read as another dtype of that width."""
    return decode(np.asarray(encode(values, source)).view(storage_dtype(to)), to)
