"""How the interpreter rounds, encodes and decodes, against torch's types and exact fractions."""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction

import numpy as np
import pytest
import torch

from deuteron import dtypes as T
from deuteron.backends.interp.values import (
    Array,
    bitcast,
    convert,
    decode,
    encode,
    held_dtype,
    round_to,
    storage_dtype,
    wrap_int,
)
from deuteron.dtypes import DType

TORCH = {
    T.bfloat16: torch.bfloat16,
    T.float16: torch.float16,
    T.float8e4nv: torch.float8_e4m3fn,
    T.float8e5: torch.float8_e5m2,
    T.float8e4b8: torch.float8_e4m3fnuz,
    T.float8e5b16: torch.float8_e5m2fnuz,
}
NARROW = tuple(TORCH)
FP8 = (T.float8e4nv, T.float8e5, T.float8e4b8, T.float8e5b16)

# The values of codes 0 to 127, from the definition: bias 15, three bits of mantissa.
E4B15 = [
    (1 + m / 8) * 2.0 ** (e - 15) if e else m / 8 * 2.0**-14 for e in range(16) for m in range(8)
]


def all_codes(dtype: DType) -> Array:
    codes = np.arange(1 << dtype.bits).astype(f"u{dtype.storage_bytes}")
    return codes.view(storage_dtype(dtype))


def torch_values(bits: Array, dtype: DType) -> Array:
    """What torch reads in these bits, as float64."""
    signed = torch.from_numpy(bits.view(f"i{bits.itemsize}").copy())
    return signed.view(TORCH[dtype]).to(torch.float64).numpy()


def magnitudes(dtype: DType) -> list[float]:
    """Every finite value from zero up, by torch."""
    values = torch_values(all_codes(dtype)[: 1 << (dtype.bits - 1)], dtype)
    return sorted(values[np.isfinite(values)].tolist())


def nearest(value: float, dtype: DType, table: list[float], *, toward_zero: bool = False) -> float:
    """Round by looking for the two neighbours in the table of all values of the dtype."""
    rounded = signed_nearest(value, dtype, table, toward_zero)
    no_negative_zero = dtype in (T.float8e4b8, T.float8e5b16)
    return abs(rounded) if no_negative_zero and rounded == 0 else rounded


def signed_nearest(value: float, dtype: DType, table: list[float], toward_zero: bool) -> float:
    saturates = dtype.is_fp8() or toward_zero
    if np.isnan(value):
        return value
    size = abs(value)
    if np.isinf(size):
        return float(np.copysign(table[-1] if dtype.is_fp8() else np.inf, value))
    beyond = 2 * table[-1] - table[-2]  # where infinity takes over, were there one more value
    table = [*table, beyond]
    place = min(bisect_left(table, size), len(table) - 1)
    if table[place] != size and place:
        below, above = Fraction(table[place - 1]), Fraction(table[place])
        down = Fraction(size) - below
        up = above - Fraction(size)
        odd_below = (place - 1) % 2  # codes alternate between even and odd mantissas
        if size < beyond and (toward_zero or down < up or (down == up and not odd_below)):
            place -= 1
    if table[place] < beyond:
        return float(np.copysign(table[place], value))
    return float(np.copysign(table[-2] if saturates else np.inf, value))


def same(expected: Array, got: Array) -> None:
    """Equal including the sign of zero; NaN equals NaN."""
    np.testing.assert_array_equal(got, expected)
    numbers = ~np.isnan(np.asarray(expected, np.float64))
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(expected[numbers]))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_every_code_decodes_as_in_torch_and_comes_back(dtype: DType) -> None:
    bits = all_codes(dtype)
    values = decode(bits, dtype)
    assert values.dtype == held_dtype(dtype)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        same(torch_values(bits, dtype), values.astype(np.float64))
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(encode(values, dtype)[numbers], bits[numbers])
    assert np.isnan(decode(encode(values, dtype), dtype)[~numbers]).all()


def rounding_inputs(dtype: DType, table: list[float]) -> Array:
    """Values, midpoints between neighbours, and the float64 next to each on both sides."""
    rng = np.random.default_rng(1)
    picked = np.array(table if len(table) < 300 else sorted(rng.choice(table, 300)))
    last = np.array([table[-1], 2 * table[-1] - table[-2], np.inf, np.nan, 1e300, 5e-324])
    ends = np.append(np.array(table), last[1])
    after = ends[np.searchsorted(ends, picked) + 1]
    middle = (picked + after) / 2
    exact = np.concatenate((picked, middle, last))
    with np.errstate(over="ignore"):
        around = (exact, np.nextafter(exact, np.inf), np.nextafter(exact, -np.inf))
    return np.concatenate((*around, *(-x for x in around)))


@pytest.mark.parametrize("toward_zero", [False, True])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_rounding_finds_the_nearest_value(dtype: DType, toward_zero: bool) -> None:
    table = magnitudes(dtype)
    inputs = rounding_inputs(dtype, table)
    expected = [nearest(x, dtype, table, toward_zero=toward_zero) for x in inputs.tolist()]
    with np.errstate(all="ignore"):
        got = round_to(inputs, dtype, toward_zero=toward_zero)
    same(np.array(expected), got.astype(np.float64))


@pytest.mark.parametrize("dtype", [T.bfloat16, T.float16], ids=str)
def test_rounding_random_floats_as_torch_does(dtype: DType) -> None:
    bits = np.random.default_rng(2).integers(0, 1 << 32, 100_000, dtype=np.uint32)
    values = bits.view(np.float32)
    expected = torch.from_numpy(values.copy()).to(TORCH[dtype]).to(torch.float64).numpy()
    with np.errstate(all="ignore"):
        got = round_to(values, dtype)
    same(expected, got.astype(np.float64))


@pytest.mark.parametrize("dtype", FP8, ids=str)
def test_fp8_saturates(dtype: DType) -> None:
    greatest = magnitudes(dtype)[-1]
    inputs = np.array([greatest * 4, -greatest * 4, np.inf, -np.inf, np.nan], np.float32)
    with np.errstate(all="ignore"):
        got = round_to(inputs, dtype)
    same(np.array([greatest, -greatest, greatest, -greatest, np.nan]), got.astype(np.float64))


def test_e4b15_holds_numbers_only() -> None:
    codes = all_codes(T.float8e4b15)
    values = np.array([*E4B15, *(-x for x in E4B15)])
    same(values, decode(codes, T.float8e4b15).astype(np.float64))
    np.testing.assert_array_equal(encode(decode(codes, T.float8e4b15), T.float8e4b15), codes)
    inputs = rounding_inputs(T.float8e4b15, E4B15)
    inputs = inputs[~np.isnan(inputs)]
    expected = [nearest(x, T.float8e4b15, E4B15) for x in inputs.tolist()]
    with np.errstate(all="ignore"):
        same(np.array(expected), round_to(inputs, T.float8e4b15).astype(np.float64))
    assert round_to(np.array(np.nan), T.float8e4b15) == 1.875


def test_float32_toward_zero() -> None:
    inputs = np.array([1 + 2.0**-24, -1 - 2.0**-23 - 2.0**-30, 1e39, 2.0**-150, 16777219.0])
    got = round_to(inputs, T.float32, toward_zero=True)
    expected = [1.0, -1 - 2.0**-23, float(np.finfo(np.float32).max), 0.0, 16777218.0]
    same(np.array(expected), got.astype(np.float64))


def sources(dtype: DType) -> list[float]:
    """Values of a dtype that are interesting to cast."""
    if dtype.is_int():
        low, high = T.int_range(dtype)
        return sorted({0, 1, low, high, high // 2, high // 3, min(high, 77), max(low, -78)})
    values = [0.0, -0.0, 1.0, -1.5, 2.5, 0.3, -77.7, 100.0, 1e-3, 6e4, 1e30, np.inf, np.nan]
    with np.errstate(all="ignore"):
        return round_to(np.array(values), dtype).astype(np.float64).tolist()


def expected_cast(value: float, to: DType) -> float | None:
    """What a value becomes in exact arithmetic, or None when it may become anything."""
    if to == T.int1:
        return value != 0
    if to.is_int():
        if not np.isfinite(value):
            return None
        whole = int(value)
        low, high = T.int_range(to)
        if low <= whole <= high:
            return whole
        return None if isinstance(value, float) else low + (whole - low) % (1 << to.bits)
    if to in TORCH:
        return nearest(float(value), to, magnitudes(to))
    if to == T.float8e4b15:
        return 1.875 if np.isnan(value) else nearest(float(value), to, E4B15)
    with np.errstate(over="ignore"):
        return float(held_dtype(to).type(value))


@pytest.mark.parametrize("to", T.ALL, ids=str)
@pytest.mark.parametrize("source", T.ALL, ids=str)
def test_cast_between_every_pair(source: DType, to: DType) -> None:
    values = sources(source)
    held = np.array(values, held_dtype(source))
    with np.errstate(all="ignore"):
        got = convert(held, source, to)
    assert got.dtype == held_dtype(to)
    for value, result in zip(values, got.tolist(), strict=True):
        expected = value if source == to else expected_cast(value, to)
        if expected is not None:
            same(np.array([expected]), np.array([result]))


def test_bitcast_keeps_bits() -> None:
    bits = np.array([0x3F80, 0xC000, 0x0001, 0x7F80], np.uint16)
    same(np.array([1.0, -2.0, 2.0**-133, np.inf]), bitcast(bits, T.uint16, T.bfloat16))
    back = bitcast(bitcast(bits, T.uint16, T.bfloat16), T.bfloat16, T.int16)
    np.testing.assert_array_equal(back.view(np.uint16), bits)
    assert bitcast(np.array(1.0, np.float32), T.float32, T.int32) == 0x3F800000
    assert bitcast(np.array(0x38, np.int8), T.int8, T.float8e4nv) == 1.0


def test_python_integers_wrap() -> None:
    assert wrap_int(-1, T.uint8) == 255
    assert wrap_int(200, T.int8) == -56
    assert wrap_int(1 << 63, T.int64) == -(1 << 63)
    assert wrap_int(3, T.int1).dtype == np.bool_
