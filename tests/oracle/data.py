"""Operands for the oracle's kernels: storage bits that meet the corners of each dtype.

A domain says which values an operand may take.  `slot` numbers the operands of an op: slots 0 and 1
begin with every pair of special values.
"""

from __future__ import annotations

import zlib

import numpy as np

from deuteron.backends.interp.values import Array, encode, round_to, storage_dtype
from deuteron.dtypes import BY_NAME, DType, int1, int_range

FLOAT_SPECIALS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1.5, np.inf, -np.inf, np.nan, 3.0, -7.0)
GREATEST = {"float64": 1.79e308, "float32": 3.4e38, "bfloat16": 3.38e38, "float16": 65504.0,
            "float8e5": 57344.0, "float8e4nv": 448.0, "float8e5b16": 57344.0,
            "float8e4b8": 240.0, "float8e4b15": 1.875}  # fmt: skip
LEAST = {"float64": 5e-324, "float32": 1.4e-45, "bfloat16": 9.2e-41, "float16": 6e-8,
         "float8e5": 1.6e-5, "float8e4nv": 2e-3, "float8e5b16": 8e-6, "float8e4b8": 1e-3,
         "float8e4b15": 8e-6}  # fmt: skip


def operand(dtype: DType, domain: str, count: int, slot: int = 0) -> Array:
    """`count` elements of storage bits, the same at every call."""
    rng = np.random.default_rng(zlib.crc32(f"{dtype}/{domain}/{slot}".encode()))
    if dtype.is_floating():
        values = _floats(dtype, domain, rng, max(count, 1024), slot)
        with np.errstate(all="ignore"):
            bits = encode(round_to(values, dtype), dtype)
    else:
        bits = _integers(dtype, domain, rng, max(count, 1024), slot)
    if count < 512:  # too few to hold all pairs: let chance choose
        return rng.permutation(bits)[:count].copy()
    return bits[:count].copy()


def _paired(specials: Array, rest: Array, slot: int) -> Array:
    """Lead with the specials, so that slots 0 and 1 meet in every combination."""
    n = len(specials)
    lead = {0: np.tile(specials, n), 1: np.repeat(specials, n)}.get(
        slot, np.tile(specials, n)[::-1]
    )
    return np.concatenate((lead, rest))[: max(len(rest), len(lead))]


def _floats(dtype: DType, domain: str, rng: np.random.Generator, count: int, slot: int) -> Array:
    greatest, least = GREATEST[dtype.name], LEAST[dtype.name]
    if domain.startswith("into:"):
        low, high = int_range(BY_NAME[domain.removeprefix("into:")])
        span = min(float(high), greatest)
        wide = rng.uniform(max(float(low), -greatest) * 0.99, span * 0.99, count)
        near = rng.uniform(max(float(low), -20.0), min(float(high), 20.0), count)
        return np.where(rng.random(count) < 0.5, wide, near)
    if domain == "small":  # sums and products of these are exact
        return rng.integers(-4, 5, count).astype(np.float64)
    if domain == "finite":
        return rng.uniform(-2.0, 2.0, count)
    if domain == "trig":  # periodic functions of doubles are defined below 2^47
        wide = rng.uniform(-1.0, 1.0, count) * np.exp2(rng.uniform(-20.0, 46.0, count))
        return _paired(np.array(FLOAT_SPECIALS), wide, slot)
    assert domain == "any", domain
    specials = np.array((*FLOAT_SPECIALS, greatest, -greatest, least, -least, least * 3))
    unit, near = rng.uniform(-1.0, 1.0, count), rng.uniform(-20.0, 20.0, count)
    wide = np.exp2(rng.uniform(np.log2(least), np.log2(greatest), count)) * np.sign(unit)
    return _paired(specials, np.choose(rng.integers(0, 3, count), (unit, near, wide)), slot)


def _integers(dtype: DType, domain: str, rng: np.random.Generator, count: int, slot: int) -> Array:
    stored = storage_dtype(dtype)
    low, high = int_range(dtype)
    if domain == "shift":
        return rng.integers(0, dtype.bits, count).astype(stored)
    if dtype == int1:
        values = rng.integers(0, 2, count).astype(stored)
        return np.ones_like(values) if domain == "divisor" else values
    if domain == "small":
        return rng.integers(max(low, -4), 5, count).astype(stored)
    specials = np.array(sorted({0, 1, 2, 3, 7, low, low + 1, high, high - 1, high // 2}), object)
    if low < 0:
        specials = np.concatenate((specials, np.array((-1, -2, -7), object)))
    near = rng.integers(max(low, -100), min(high, 100), count, endpoint=True).astype(stored)
    wide = rng.integers(low, high, count, dtype=stored, endpoint=True)
    values = _paired(specials.astype(stored), np.where(rng.random(count) < 0.5, near, wide), slot)
    if domain == "divisor":
        values[values == 0] = 1
    if domain == "dividend" and low < 0:  # its least value by -1 has no quotient
        values[values == low] = low + 1
    return values
