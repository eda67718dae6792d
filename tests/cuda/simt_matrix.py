"""What the matrix instructions do, from the PTX ISA: fragments, ldmatrix, wgmma's descriptors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.cuda.simt_types import PTX_FLOATS, Bits, Floats, fp8_table, from_floats, to_floats

_ADDRESS_UNIT = 16
_SWIZZLE_BITS = {1: 0x70, 2: 0x30, 3: 0x10}
_SWIZZLE_WIDTH = {1: 128, 2: 64, 3: 32}
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}


def numbers(bits: Bits, name: str) -> Floats:
    """Elements of a PTX type as numbers; integers too, which are small enough to be exact."""
    if name in ("e4m3", "e5m2"):
        return fp8_table(name)[bits.astype(np.int64)]
    if name == "s8":
        return bits.astype(np.uint8).view(np.int8).astype(np.float64)
    if name == "u8":
        return bits.astype(np.float64)
    if name == "s32":
        return bits.astype(np.uint32).view(np.int32).astype(np.float64)
    return to_floats(bits, PTX_FLOATS[name])


def accumulated(values: Floats, name: str) -> Bits:
    """Sums as bits of the accumulator's type."""
    if name == "s32":
        return values.astype(np.int64).astype(np.uint64) & np.uint64(0xFFFFFFFF)
    return from_floats(values, PTX_FLOATS[name])


def elements(words: Sequence[Bits], bits: int) -> Bits:
    """[threads, elements] of words of 32 bits, lowest first."""
    stacked = np.concatenate(words, axis=1)
    shifts = np.arange(0, 32, bits, dtype=np.uint64)
    mask = np.uint64((1 << bits) - 1)
    return ((stacked[:, :, None] >> shifts) & mask).reshape(len(stacked), -1)


def words(values: Bits, bits: int) -> list[Bits]:
    """The inverse of `elements`."""
    per_word = 32 // bits
    shifts = np.arange(0, 32, bits, dtype=np.uint64)
    packed = (values.reshape(len(values), -1, per_word) << shifts).sum(axis=2, dtype=np.uint64)
    return [packed[:, [i]] for i in range(packed.shape[1])]


def _lanes() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """groupID and threadID_in_group of the PTX ISA."""
    lane = np.arange(32)
    return lane >> 2, lane & 3


def a_places(bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and column of each element of an A fragment of 16 rows: [32, elements]."""
    per_word = 32 // bits
    group, place = _lanes()
    index = np.arange(4 * per_word)
    word, inner = index // per_word, index % per_word
    rows = group[:, None] + 8 * (word & 1)
    columns = place[:, None] * per_word + inner + 4 * per_word * (word >> 1)
    return rows, columns


def b_places(bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row (K) and column of each element of a B fragment of 8 columns."""
    per_word = 32 // bits
    group, place = _lanes()
    index = np.arange(2 * per_word)
    rows = place[:, None] * per_word + index % per_word + 4 * per_word * (index // per_word)
    return rows, np.broadcast_to(group[:, None], rows.shape)


def d_places(columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and column of each accumulator of 16 rows."""
    group, place = _lanes()
    index = np.arange(columns // 2)
    rows = group[:, None] + 8 * (index >> 1 & 1)
    return rows, place[:, None] * 2 + (index & 1) + 8 * (index >> 2)


def mma(k: int, types: Sequence[str], a: Bits, b: Bits, c: Floats) -> Floats:
    """One warp's m16n8: fragments [32, elements] to accumulators [32, 4]."""
    a_name, b_name = types
    left, right, total = np.zeros((16, k)), np.zeros((k, 8)), np.zeros((16, 8))
    left[a_places(BITS[a_name])] = numbers(a, a_name)
    right[b_places(BITS[b_name])] = numbers(b, b_name)
    total[d_places(8)] = c
    return (total + left @ right)[d_places(8)]


def ldmatrix(rows: NDArray[np.uint8], *, trans: bool) -> Bits:
    """Rows [matrices, 8, 16 bytes] to words [32, matrices]."""
    halves = np.ascontiguousarray(rows).view("<u2").astype(np.uint64)
    group, place = _lanes()
    if trans:
        halves = halves.swapaxes(1, 2)
    low, high = halves[:, group, 2 * place], halves[:, group, 2 * place + 1]
    return (low | high << np.uint64(16)).T


def described(
    descriptor: int, outer: int, k: int, size: int, *, transposed: bool
) -> NDArray[np.int64]:
    """Shared addresses of the elements [outer, k] that a matrix descriptor stands for.

    `outer` counts rows of A or columns of B, `size` bytes of an element.  The canonical layouts
    repeat a swizzle atom of 8 rows: along M or N by the stride and along K contiguously, or, when
    transposed, along K by the stride and along M or N by the leading dimension.
    """
    start = (descriptor & 0x3FFF) * _ADDRESS_UNIT
    leading = (descriptor >> 16 & 0x3FFF) * _ADDRESS_UNIT
    stride = (descriptor >> 32 & 0x3FFF) * _ADDRESS_UNIT
    assert descriptor >> 49 & 7 == 0, "a base offset"
    kind = descriptor >> 62
    row_bytes = _SWIZZLE_WIDTH[kind]
    i, j = np.arange(outer)[:, None], np.arange(k)[None, :]
    if transposed:
        assert size == 2, "transposed operands have 16 bits"
        chunk, within = np.divmod(i * size, row_bytes)
        linear = start + within + chunk * leading + j % 8 * row_bytes + j // 8 * stride
    else:
        within = j * size
        assert within.max() < row_bytes
        linear = start + within + i % 8 * row_bytes + i // 8 * stride
    return linear ^ (linear >> 3 & _SWIZZLE_BITS[kind])
