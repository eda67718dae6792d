"""Layouts: what they say of elements against enumeration, and fragments against NVIDIA's manual."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deuteron.backends.cuda import gf2
from deuteron.backends.cuda.layout import (
    Coord,
    Layout,
    blocked,
    mma_accumulator,
    mma_operand,
    replicated,
    wgmma_accumulator,
    wgmma_operand_a,
)
from tests.cuda.random_layouts import layouts, shapes
from tests.cuda.simulator import Elements, elements

any_layout = st.tuples(shapes, st.integers(0, 2)).flatmap(lambda drawn: layouts(*drawn))


def _coords(layout: Layout) -> Iterator[tuple[int, int, int, Coord]]:
    """Register, lane, warp and element of everything a block holds."""
    held = elements(layout)
    for warp, lane, register in np.ndindex(*held.shape):
        flat = held[warp, lane, register]
        coord = tuple(int(c) for c in np.unravel_index(flat, layout.shape)) if layout.shape else ()
        yield register, lane, warp, coord


# -- what a layout says -----------------------------------------------------------------------
@settings(max_examples=60, deadline=None)
@given(any_layout)
def test_at_and_register_coords(layout: Layout) -> None:
    for register, lane, warp, coord in _coords(layout):
        assert layout.at(register, lane, warp) == coord
        if lane == warp == 0:
            assert layout.register_coords()[register] == coord
            assert layout.register_at[coord] == register
        assert layout.unflat(layout.flat(coord)) == coord
    assert len(layout.register_at) == layout.registers


@settings(max_examples=60, deadline=None)
@given(any_layout)
def test_each_element_has_one_representative(layout: Layout) -> None:
    owners = Counter(
        coord
        for register, lane, warp, coord in _coords(layout)
        if layout.is_representative(lane, warp)
    )
    assert owners == Counter(product(*map(range, layout.shape)))


@settings(max_examples=60, deadline=None)
@given(any_layout, st.data())
def test_run_length_is_the_longest_run(layout: Layout, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(layout.shape) - 1))
    held = list(_coords(layout))

    def runs(length: int) -> bool:
        """Every `length` registers hold aligned neighbours along the axis."""
        for start in range(0, len(held), length):
            first = held[start][3]
            expected = [(*first[:axis], first[axis] + i, *first[axis + 1 :]) for i in range(length)]
            if first[axis] % length or [h[3] for h in held[start : start + length]] != expected:
                return False
        return True

    lengths = [1 << bit for bit in range(len(layout.register) + 1)]
    assert layout.run_length(axis) == max(length for length in lengths if runs(length))


def test_swizzled_registers_do_not_run() -> None:
    lane = ((1, 1), (2, 0), (0, 0), (0, 0), (0, 0))
    assert Layout((4, 2), ((0, 1),), lane, ()).run_length(1) == 1
    assert Layout((4, 2), ((0, 1),), ((1, 0), *lane[1:]), ()).run_length(1) == 2


@pytest.mark.parametrize(
    ("shape", "register", "lane"),
    [
        ((3,), ((1,), (2,)), ((0,),) * 5),
        ((4,), ((1,), (1,)), ((2,), *((0,),) * 4)),
        ((4,), ((1,),), ((0,),) * 5),
        ((4,), ((4,),), ((1,), (2,), *((0,),) * 3)),
        ((4,), ((1,), (2,)), ((0,),) * 4),
    ],
    ids=["not a power of two", "registers repeat", "not onto", "outside", "four lane bits"],
)
def test_malformed_layouts_are_refused(
    shape: tuple[int, ...], register: tuple[Coord, ...], lane: tuple[Coord, ...]
) -> None:
    with pytest.raises(AssertionError):
        Layout(shape, register, lane, ())


# -- transformations --------------------------------------------------------------------------
def _assert_elements(after: Layout, before: Layout, expected: Elements) -> None:
    """Threads hold in `after` what `expected` says of (warp, lane, register of `before`).

    Registers of `before` that come to hold the same are one in `after`.
    """
    found = elements(after)
    for warp, lane in product(range(after.num_warps), range(32)):
        assert set(found[warp, lane]) == set(expected[warp, lane])
        assert len(set(found[warp, lane])) == after.registers
    firsts = {tuple(column): None for column in expected.reshape(-1, before.registers).T.tolist()}
    assert {tuple(c) for c in found.reshape(-1, after.registers).T.tolist()} == set(firsts)


@settings(max_examples=60, deadline=None)
@given(any_layout, st.data())
def test_slice_unit_and_half(layout: Layout, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(layout.shape) - 1))
    coords = np.array(np.unravel_index(elements(layout), layout.shape))
    size = layout.shape[axis]

    def numbers(entries: Elements, shape: tuple[int, ...]) -> Elements:
        flat = np.zeros(entries.shape[1:], np.int64)
        for entry, length in zip(entries, shape, strict=True):
            flat = flat * length + entry
        return flat

    without = (*layout.shape[:axis], *layout.shape[axis + 1 :])
    sliced = layout.slice(axis)
    assert sliced.shape == without
    _assert_elements(sliced, layout, numbers(np.delete(coords, axis, 0), without))
    assert layout.unit(axis) == sliced.insert(axis)
    assert layout.unit(axis).drop(axis) == sliced
    if size > 1:
        halved = coords.copy()
        halved[axis] %= size // 2
        half = layout.half(axis)
        assert half.shape == (*layout.shape[:axis], size // 2, *layout.shape[axis + 1 :])
        _assert_elements(half, layout, numbers(halved, half.shape))


@settings(max_examples=60, deadline=None)
@given(any_layout, st.data())
def test_permute_and_reshape(layout: Layout, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(layout.shape))))
    tile = np.arange(layout.numel).reshape(layout.shape)
    permuted = layout.permute(order)
    moved = np.empty(layout.numel, np.int64)
    moved[tile.transpose(order).ravel()] = np.arange(layout.numel)
    np.testing.assert_array_equal(elements(permuted), moved[elements(layout)])
    assert permuted.permute([order.index(i) for i in range(len(order))]) == layout
    flat = layout.reshape((layout.numel,))
    np.testing.assert_array_equal(elements(flat), elements(layout))
    assert flat.reshape(layout.shape) == layout


@settings(max_examples=60, deadline=None)
@given(any_layout)
def test_minor_pair(layout: Layout) -> None:
    pair = layout.with_minor_pair()
    held = elements(pair)
    np.testing.assert_array_equal(held[:, :, 0::2], 2 * elements(layout))
    np.testing.assert_array_equal(held[:, :, 1::2], 2 * elements(layout) + 1)
    assert pair.run_length(len(layout.shape)) == 2
    assert pair.slice(len(layout.shape)) == layout


def test_slice_of_a_vector_is_a_scalar_in_every_thread() -> None:
    scalar = blocked((64,), 2, (0,), 2).slice(0)
    assert (scalar.shape, scalar.registers, scalar.register_coords()) == ((), 1, ((),))
    assert (scalar.replicated_lanes, scalar.replicated_warps) == (31, 1)


# -- constructors -----------------------------------------------------------------------------
@settings(max_examples=100, deadline=None)
@given(shapes, st.integers(0, 3), st.integers(0, 4), st.data())
def test_blocked_gives_vectors_and_coalesced_lanes(
    shape: tuple[int, ...], warp_bits: int, vector_bits: int, data: st.DataObject
) -> None:
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    layout = blocked(shape, 1 << warp_bits, order, 1 << vector_bits)
    vector = min(1 << vector_bits, shape[order[0]])
    assert layout.run_length(order[0]) >= vector
    lanes = min(32, shape[order[0]] // vector)
    for lane in range(lanes):
        assert layout.at(0, lane, 0)[order[0]] == lane * vector
    threads = 32 << warp_bits
    busy = layout.numel // layout.registers
    assert busy == min(threads, layout.numel // vector) or vector < 1 << vector_bits


def test_blocked_keeps_rows_in_one_warp() -> None:
    layout = blocked((8, 1024), 4, (1, 0), 4)
    assert all(vector[1] == 0 for vector in layout.warp)
    assert layout.to_text() == (
        "[8×1024] register (0,1) (0,2) (0,128) (0,256) (0,512) (4,0) "
        "lane (0,4) (0,8) (0,16) (0,32) (0,64) warp (1,0) (2,0)"
    )


def test_replicated_holds_the_tile_in_row_major_order() -> None:
    held = elements(replicated((2, 4), 2))
    np.testing.assert_array_equal(held, np.broadcast_to(np.arange(8), (2, 32, 8)))


def _accumulator_coord(register: int, lane: int) -> Coord:
    """PTX ISA, "Matrix Fragments for mma.m16n8k16", C and D."""
    row = lane >> 2 if register < 2 else (lane >> 2) + 8
    return row, (lane & 3) * 2 + (register & 1)


def test_mma_accumulator_is_the_manuals() -> None:
    layout = mma_accumulator((16, 8), 1, 1, 1)
    for register, lane in product(range(4), range(32)):
        assert layout.at(register, lane, 0) == _accumulator_coord(register, lane)


@pytest.mark.parametrize(("bits", "k"), [(32, 8), (16, 16), (8, 32)])
def test_mma_operands_are_the_manuals(bits: int, k: int) -> None:
    """PTX ISA: m16n8k8 of tf32, m16n8k16 of f16 and bf16, m16n8k32 of 8-bit types."""
    per_word = 32 // bits
    a, b = mma_operand((16, k), 0, bits, 1, 1, 1), mma_operand((k, 8), 1, bits, 1, 1, 1)
    for lane in range(32):
        group, place = lane >> 2, lane & 3
        for i in range(4 * per_word):
            word, within = divmod(i, per_word)
            row = group + 8 * (word % 2)
            column = place * per_word + within + 4 * per_word * (word // 2)
            assert a.at(i, lane, 0) == (row, column)
        for i in range(2 * per_word):
            word, within = divmod(i, per_word)
            assert b.at(i, lane, 0) == (place * per_word + within + 4 * per_word * word, group)


def test_warps_of_mma_own_contiguous_parts_and_agree() -> None:
    accumulator = mma_accumulator((64, 64), 4, 2, 2)
    a = mma_operand((64, 32), 0, 16, 4, 2, 2)
    b = mma_operand((32, 64), 1, 16, 4, 2, 2)
    for warp in range(4):
        coords = [accumulator.at(r, lane, warp) for r in range(32) for lane in range(32)]
        rows, columns = {c[0] for c in coords}, {c[1] for c in coords}
        assert rows == set(range(32 * (warp % 2), 32 * (warp % 2) + 32))
        assert columns == set(range(32 * (warp // 2), 32 * (warp // 2) + 32))
        assert {a.at(r, n, warp)[0] for r in range(a.registers) for n in range(32)} == rows
        assert {b.at(r, n, warp)[1] for r in range(b.registers) for n in range(32)} == columns


def test_wgmma_accumulator_is_the_manuals() -> None:
    """PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16", D."""
    layout = wgmma_accumulator((128, 256), 8, 64)
    for warp, lane, register in product(range(8), range(0, 32, 3), range(128)):
        instruction, within = divmod(register, 32)
        row = 16 * (warp & 3) + (lane >> 2) + 8 * (within >> 1 & 1) + 64 * (warp >> 2)
        column = 8 * (within >> 2) + (lane & 3) * 2 + (within & 1) + 64 * instruction
        assert layout.at(register, lane, warp) == (row, column)


def test_wgmma_operand_a_is_the_manuals_and_goes_with_the_accumulator() -> None:
    layout = wgmma_operand_a((128, 32), 8, 16)
    for warp, lane, register in product(range(8), range(32), range(16)):
        row = 16 * (warp & 3) + (lane >> 2) + 8 * (register >> 1 & 1) + 64 * (warp >> 2)
        column = (lane & 3) * 2 + (register & 1) + 8 * (register >> 2)
        assert layout.at(register, lane, warp) == (row, column)
    # With one strip of 64 rows, warpgroups share out N, and each has all of A.
    assert wgmma_accumulator((64, 128), 8, 64).warp[2] == (0, 64)
    assert wgmma_operand_a((64, 32), 8, 16).replicated_warps == 4


def test_batches_are_in_registers() -> None:
    for layout in (
        mma_accumulator((4, 32, 32), 4, 2, 2),
        mma_operand((4, 32, 32), 0, 16, 4, 2, 2),
        mma_operand((4, 32, 32), 1, 16, 4, 2, 2),
        wgmma_accumulator((4, 64, 32), 4, 32),
        wgmma_operand_a((4, 64, 32), 4, 16),
    ):
        assert not any(vector[0] for vector in (*layout.lane, *layout.warp))
        assert layout.register[-2:] == ((1, 0, 0), (2, 0, 0))


def test_small_tiles_replicate() -> None:
    layout = mma_accumulator((8, 8), 4, 2, 2)
    assert layout.registers == 2
    assert (layout.replicated_lanes, layout.replicated_warps) == (0, 3)
    assert blocked((4,), 2, (0,), 8).registers == 4


# -- linear algebra ---------------------------------------------------------------------------
vectors = st.lists(st.integers(0, 63), max_size=6)


@given(vectors, vectors)
def test_intersection_is_what_both_span(left: list[int], right: list[int]) -> None:
    common = gf2.intersection(left, right)
    assert set(gf2.images(common)) == set(gf2.images(left)) & set(gf2.images(right))
    assert gf2.Span(common).dimension == len(common)


@given(vectors, st.integers(0, 63))
def test_solve_gives_independent_vectors(columns: list[int], wanted: int) -> None:
    span = gf2.Span(columns)
    solution = span.solve(wanted)
    assert (solution is not None) == (wanted in gf2.images(columns)) == (wanted in span)
    if solution is not None:
        assert gf2.apply(columns, solution) == wanted
        used = [c for bit, c in enumerate(columns) if solution >> bit & 1]
        assert all(column in span.basis for column in used)


@given(vectors)
def test_functionals_add_up_to_the_map(columns: list[int]) -> None:
    terms = gf2.functionals(columns)
    assert len(terms) == gf2.Span(columns).dimension
    for index, image in enumerate(gf2.images(columns)):
        assert image == gf2.apply(columns, index)
        odd = [vector for mask, vector in terms if (index & mask).bit_count() % 2]
        assert image == gf2.apply(odd, (1 << len(odd)) - 1)
