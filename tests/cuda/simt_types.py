"""LLVM and PTX types for the simulator of kernels: values are raw bits, [threads, elements]."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
from numpy.typing import NDArray

from deuteron.dtypes import float8e4nv, float8e5

Bits = NDArray[np.uint64]
Floats = NDArray[np.float64]

_WIDTHS = {
    "half": 16,
    "bfloat": 16,
    "float": 32,
    "double": 64,
    "ptr": 64,
    "ptr addrspace(1)": 64,
    "ptr addrspace(3)": 32,
}
FLOATS = ("half", "bfloat", "float", "double")
# What PTX calls the types of matrix instructions.
PTX_FLOATS = {"f16": "half", "bf16": "bfloat", "f32": "float", "tf32": "tf32"}


@cache
def width(type: str) -> tuple[int, int]:
    """Bits of an element, and the number of elements."""
    if vector := re.fullmatch(r"<(\d+) x ([\w ()]+)>", type):
        return width(vector[2])[0], int(vector[1])
    return _WIDTHS.get(type) or int(type[1:]), 1


def element(type: str) -> str:
    """The element type of a vector, or the type itself."""
    vector = re.fullmatch(r"<\d+ x ([\w ()]+)>", type)
    return vector[1] if vector else type


def wrap(bits: Bits, type: str) -> Bits:
    """The bits that a type has."""
    count = width(type)[0]
    return bits if count == 64 else bits & np.uint64((1 << count) - 1)


def signed(bits: Bits, type: str) -> NDArray[np.int64]:
    """Integers, sign-extended."""
    shift = np.uint64(64 - width(type)[0])
    return (bits << shift).view(np.int64) >> np.int64(shift)


def to_floats(bits: Bits, type: str) -> Floats:
    """Bits of an LLVM float type (or tf32: what the hardware takes of a float) as numbers."""
    match element(type):
        case "half":
            return bits.astype(np.uint16).view(np.float16).astype(np.float64)
        case "bfloat":
            return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
        case "float":
            return bits.astype(np.uint32).view(np.float32).astype(np.float64)
        case "tf32":
            kept = bits.astype(np.uint32) & np.uint32(0xFFFFE000)
            return kept.view(np.float32).astype(np.float64)
        case "double":
            return bits.view(np.float64).copy()
        case other:
            raise AssertionError(f"no float type: {other}")


def from_floats(numbers: Floats, type: str) -> Bits:
    """The inverse of `to_floats`, rounding to nearest even."""
    with np.errstate(over="ignore", invalid="ignore"):
        match element(type):
            case "half":
                return numbers.astype(np.float16).view(np.uint16).astype(np.uint64)
            case "bfloat":
                return _to_bfloat(numbers)
            case "float":
                return numbers.astype(np.float32).view(np.uint32).astype(np.uint64)
            case "double":
                return np.ascontiguousarray(numbers, np.float64).view(np.uint64)
            case other:
                raise AssertionError(f"no float type: {other}")


def _to_bfloat(numbers: Floats) -> Bits:
    single = numbers.astype(np.float32)
    bits = single.view(np.uint32).astype(np.uint64)
    rounded = (bits + np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(single), np.uint64(0x7FFF), rounded)


@cache
def fp8_table(name: str) -> Floats:
    """The numbers of the 256 codes of an 8-bit float, by its PTX name."""
    dtype = {"e4m3": float8e4nv, "e5m2": float8e5}[name]
    mantissa, bias = (3, 7) if dtype is float8e4nv else (2, 15)
    codes = np.arange(256)
    exponents = (codes & 0x7F) >> mantissa
    fractions = codes & ((1 << mantissa) - 1)
    scale = np.exp2(np.maximum(exponents, 1) - bias - mantissa)
    numbers = (fractions + np.where(exponents > 0, 1 << mantissa, 0)) * scale
    if dtype is float8e4nv:
        numbers[(codes & 0x7F) == 0x7F] = np.nan
    else:
        special = exponents == 31
        numbers[special] = np.where(fractions[special] == 0, np.inf, np.nan)
    return np.where(codes & 0x80, -numbers, numbers)


def to_bytes(bits: Bits, type: str) -> NDArray[np.uint8]:
    """[threads, bytes] as in memory."""
    size = max(1, width(type)[0] // 8)
    wide = np.ascontiguousarray(bits, "<u8").view(np.uint8).reshape(*bits.shape, 8)
    return wide[..., :size].reshape(len(bits), -1)


def from_bytes(data: NDArray[np.uint8], type: str) -> Bits:
    """The inverse of `to_bytes`."""
    bits, count = width(type)
    padded = np.zeros((len(data), count, 8), np.uint8)
    padded[..., : max(1, bits // 8)] = data.reshape(len(data), count, max(1, bits // 8))
    return padded.view("<u8")[..., 0].astype(np.uint64)
