"""Layouts of dots against the PTX ISA's fragments, and the form of tiles in shared memory."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deuteron.backends.cuda.dot_plan import fma_accumulator
from deuteron.backends.cuda.layout import (
    mma_accumulator,
    mma_operand,
    wgmma_accumulator,
    wgmma_operand_a,
)
from deuteron.backends.cuda.tile_format import TileFormat
from tests.cuda.simt_matrix import a_places, b_places, d_places


def fragment(layout, registers, warp):
    """Where the first registers of each lane of a warp lie: [axis, 32, registers]."""
    return np.array(
        [[layout.at(r, lane, warp) for r in range(registers)] for lane in range(32)]
    ).transpose(2, 0, 1)


@pytest.mark.parametrize("warp", range(4))
def test_mma_accumulators_are_the_instructions(warp):
    layout = mma_accumulator((64, 32), 4, 2, 2)
    rows, columns = fragment(layout, 4, warp)
    expected = d_places(8)
    np.testing.assert_array_equal(rows, expected[0] + 32 * (warp % 2))
    np.testing.assert_array_equal(columns, expected[1] + 16 * (warp // 2))


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("warp", range(4))
def test_mma_operands_are_the_instructions(bits, warp):
    k = 512 // bits
    a = mma_operand((64, k), 0, bits, 4, 2, 2)
    rows, columns = fragment(a, 128 // bits, warp)
    expected = a_places(bits)
    np.testing.assert_array_equal(rows, expected[0] + 32 * (warp % 2))
    np.testing.assert_array_equal(columns, expected[1])
    b = mma_operand((k, 32), 1, bits, 4, 2, 2)
    rows, columns = fragment(b, 64 // bits, warp)
    expected = b_places(bits)
    np.testing.assert_array_equal(rows, expected[0])
    np.testing.assert_array_equal(columns, expected[1] + 16 * (warp // 2))


@pytest.mark.parametrize("columns", [8, 32, 256])
@pytest.mark.parametrize("warp", range(8))
def test_wgmma_accumulators_are_the_instructions(columns, warp):
    layout = wgmma_accumulator((128, columns), 8, columns)
    rows, found = fragment(layout, columns // 2, warp)
    expected = d_places(columns)
    np.testing.assert_array_equal(rows, expected[0] + 16 * warp)
    np.testing.assert_array_equal(found, expected[1])


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("warp", range(4))
def test_wgmma_operands_are_the_instructions(bits, warp):
    layout = wgmma_operand_a((64, 512 // bits), 4, bits)
    rows, columns = fragment(layout, 128 // bits, warp)
    expected = a_places(bits)
    np.testing.assert_array_equal(rows, expected[0] + 16 * warp)
    np.testing.assert_array_equal(columns, expected[1])


@pytest.mark.parametrize("num_warps", [1, 4])
@pytest.mark.parametrize("make", [mma_accumulator, wgmma_accumulator])
def test_a_result_of_16_bits_is_the_next_operand(make, num_warps):
    if make is wgmma_accumulator:
        result = wgmma_accumulator((64 * num_warps, 64), 4 * num_warps, 64)
        operand = wgmma_operand_a((64 * num_warps, 64), 4 * num_warps, 16)
    else:
        result = mma_accumulator((64, 64), num_warps, num_warps, 1)
        operand = mma_operand((64, 64), 0, 16, num_warps, num_warps, 1)
    assert (result.lane, result.warp) == (operand.lane, operand.warp)
    assert set(result.register) == set(operand.register)


@settings(deadline=None, max_examples=50)
@given(
    shape=st.tuples(*[st.sampled_from([1, 2, 8, 32, 128])] * 2),
    warps=st.sampled_from([1, 2, 8]),
    vectors=st.tuples(*[st.sampled_from([1, 2, 4])] * 2),
)
def test_fma_accumulators_cover_the_tile(shape, warps, vectors):
    layout = fma_accumulator(shape, warps, *vectors)
    threads = itertools.product(range(layout.registers), range(32), range(warps))
    assert {layout.at(*t) for t in threads} == set(np.ndindex(shape))


FORMATS = st.builds(
    lambda shape, size, order: TileFormat(shape, size, order),
    st.tuples(*[st.sampled_from([1, 2, 8, 16, 32, 128])] * 2),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([(0, 1), (1, 0)]),
)


@settings(deadline=None, max_examples=50)
@given(FORMATS)
def test_offsets_are_a_linear_map_onto_the_tile(format):
    coords = list(np.ndindex(format.shape))
    offsets = {coord: format.offset(coord) for coord in coords}
    assert sorted(offsets.values()) == list(range(0, format.size_bytes, format.element_bytes))
    for left, right in itertools.pairwise(coords[:: max(1, len(coords) // 50)]):
        both = tuple(x ^ y for x, y in zip(left, right, strict=True))
        assert offsets[both] == offsets[left] ^ offsets[right]


@settings(deadline=None, max_examples=50)
@given(FORMATS)
def test_neighbours_of_16_bytes_stay_together(format):
    per_piece = 16 // format.element_bytes
    axis = format.contiguous
    for coord in itertools.islice(np.ndindex(format.shape), 0, None, 7):
        start = coord[axis] // per_piece * per_piece
        first = tuple(start if a == axis else c for a, c in enumerate(coord))
        assert format.offset(coord) - format.offset(first) == (
            (coord[axis] - start) * format.element_bytes
        )


@settings(deadline=None, max_examples=50)
@given(FORMATS)
def test_a_transposed_tile_is_the_same_memory(format):
    flipped = format.permute((1, 0))
    for row, column in itertools.islice(np.ndindex(format.shape), 0, None, 5):
        assert flipped.offset((column, row)) == format.offset((row, column))


@pytest.mark.parametrize("columns", [8, 16, 32, 64, 128])
def test_eight_rows_of_a_matrix_lie_in_different_banks(columns):
    format = TileFormat((32, columns), 2, (1, 0))
    for row, column in itertools.product(range(0, 32, 8), range(0, columns, 8)):
        banks = {format.offset((row + i, column)) // 16 % 8 for i in range(8)}
        assert len(banks) == 8


def test_batches_follow_one_another():
    format = TileFormat((2, 8, 64), 2, (2, 1, 0))
    assert format.offset((1, 0, 0)) == 8 * 128
    assert format.size_bytes == math.prod(format.shape) * 2
