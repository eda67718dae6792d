"""Ops that move elements to places known only when they run: `gather` and `histogram`.

A gather whose index is its own place XOR a constant, as in sorting networks, moves each element by
a fixed number of registers, lanes and warps.  If the axis lies within warps, lanes ask each other.
All else is written to shared memory, and read from there by index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deuteron.backends.cuda import gf2
from deuteron.backends.cuda.known_lines import distance, gather_wants_index
from deuteron.backends.cuda.layout import LANE_BITS, Coord, Layout
from deuteron.backends.cuda.linear_code import emit_linear, emit_odd
from deuteron.backends.cuda.target import WARP_SIZE
from deuteron.backends.cuda.tiles import Tile, Tiles, keep, kept
from deuteron.backends.llvm.builder import I32, I64, Val
from deuteron.ir import Op, Value

# Shuffles for one element, at most: shared memory takes a barrier, a store and a load.
_MOST_SHUFFLES = 4
_ACCESS_BYTES = 16


def emit_gather(tiles: Tiles, op: Op) -> Tile:
    """A gather, at the home of its result."""
    source, index = op.operands
    axis: int = op.attrs["axis"]
    layout = tiles.assignment.homes[op.result]
    home = tiles.assignment.common_home((source,))
    values = tiles.registers(source, home)
    if not gather_wants_index(op):
        apart = distance(index, axis)
        assert apart is not None
        return Tile(layout, _moved(tiles, layout, axis, apart, values))
    places = _places(tiles, index, layout, home.shape[axis])
    if layout == home and (lanes := _LaneAxis.of(layout, axis)) is not None:
        return Tile(layout, _by_shuffles(tiles, lanes, places, values))
    return Tile(layout, _through_memory(tiles, home, values, axis, layout, places))


def _places(tiles: Tiles, index: Value, layout: Layout, size: int) -> list[Val]:
    """The places along the axis as i32, within the axis whatever the index is."""
    b = tiles.b
    last = b.const(size - 1, I32)
    bits = index.type.dtype.bits
    found: list[Val] = []
    for place in tiles.registers(index, layout):
        if bits != I32.bits:
            place = b.convert("trunc" if bits > I32.bits else "zext", place, I32.elem)
        found.append(b.and_(place, last))
    return found


# -- moves by a constant --------------------------------------------------------------------
def _moved(tiles: Tiles, layout: Layout, axis: int, apart: int, values: Sequence[Val]) -> list[Val]:
    """Each element from the place along the axis that is its own XOR `apart`."""
    vector = layout.flat(tuple(apart if a == axis else 0 for a in range(layout.rank)))
    columns = (*layout.flat_register, *layout.flat_lane, *layout.flat_warp)
    bits = gf2.Span(columns).solve(vector)
    assert bits is not None
    count = len(layout.register)
    register = bits & ((1 << count) - 1)
    lane = bits >> count & (WARP_SIZE - 1)
    warp = bits >> count + LANE_BITS
    turned = [values[number ^ register] for number in range(len(values))]
    if warp:
        return _across_warps(tiles, turned, lane | warp << LANE_BITS)
    return [tiles.cta.shuffle_xor(val, lane) for val in turned] if lane else turned


def _across_warps(tiles: Tiles, values: Sequence[Val], mask: int) -> list[Val]:
    """What the thread has whose number differs by a mask; neighbours are in different banks."""
    b, cta = tiles.b, tiles.cta
    size = max(1, values[0].type.bits // 8)
    threads = WARP_SIZE * cta.num_warps
    base = cta.scratch(size * threads * len(values))

    def cell(thread: Val, number: int) -> Val:
        place = b.add(base, b.mul(thread, b.const(size, I32)))
        return cta.shared(place, number * threads * size)

    for number, val in enumerate(values):
        keep(tiles, val, cell(cta.thread, number))
    cta.barrier()
    other = b.xor(cta.thread, b.const(mask, I32))
    return [kept(tiles, cell(other, number), val.type) for number, val in enumerate(values)]


# -- within a warp --------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _LaneAxis:
    """An axis within each warp: which register or lane bit each bit of its coordinate is."""

    layout: Layout
    axis: int
    register_bits: tuple[tuple[int, int], ...]  # bit of the coordinate, bit of the register
    lane_bits: tuple[tuple[int, int], ...]  # bit of the coordinate, bit of the lane

    @staticmethod
    def of(layout: Layout, axis: int) -> _LaneAxis | None:
        if any(vector[axis] for vector in layout.warp):
            return None
        found: list[tuple[tuple[int, int], ...]] = []
        for vectors in (layout.register, layout.lane):
            along = [(v[axis], number) for number, v in enumerate(vectors) if v[axis]]
            if any(entry.bit_count() > 1 for entry, _ in along):
                return None
            found.append(tuple((entry.bit_length() - 1, number) for entry, number in along))
        lanes = _LaneAxis(layout, axis, found[0], found[1])
        each_once = 1 << len(found[0]) + len(found[1]) == layout.shape[axis]
        return lanes if each_once and 1 << len(found[0]) <= _MOST_SHUFFLES else None


def _by_shuffles(
    tiles: Tiles, lanes: _LaneAxis, places: Sequence[Val], values: Sequence[Val]
) -> list[Val]:
    """Every lane asks the one that holds its element, for each register it may be in."""
    b = tiles.b
    to_lane = [0] * (lanes.layout.shape[lanes.axis].bit_length() - 1)
    for bit, number in lanes.lane_bits:
        to_lane[bit] = 1 << number
    own = b.and_(tiles.cta.lane, b.const(~sum(to_lane), I32))
    cleared = ~sum(1 << number for _, number in lanes.register_bits)
    moved: list[Val] = []
    for register, place in enumerate(places):
        lane = b.or_(own, emit_linear(b, place, to_lane))
        found = [
            tiles.cta.shuffle_index(values[register & cleared | picked], lane)
            for picked in gf2.images([1 << number for _, number in lanes.register_bits])
        ]
        for bit, _ in reversed(lanes.register_bits):
            half = len(found) // 2
            upper = emit_odd(b, place, 1 << bit)
            found = [
                b.select(upper, high, low)
                for low, high in zip(found[:half], found[half:], strict=True)
            ]
        moved.append(found[0])
    return moved


# -- through shared memory ------------------------------------------------------------------
def _through_memory(
    tiles: Tiles,
    home: Layout,
    values: Sequence[Val],
    axis: int,
    layout: Layout,
    places: Sequence[Val],
) -> list[Val]:
    b, cta = tiles.b, tiles.cta
    size = max(1, values[0].type.bits // 8)
    base = cta.scratch(home.numel * size)
    tiles.on_representatives(home, lambda: _write_all(tiles, home, values, base))
    cta.barrier()

    def beside(vector: Coord) -> int:
        """Where in the source the elements of a line of the result begin."""
        return home.flat((*vector[:axis], 0, *vector[axis + 1 :]))

    thread = tiles.thread_image(tuple(map(beside, (*layout.lane, *layout.warp))))
    step = home.flat(tuple(int(a == axis) for a in range(home.rank)))
    found: list[Val] = []
    for coord, place in zip(layout.register_coords(), places, strict=True):
        line = b.xor(thread, b.const(beside(coord), I32))
        element = b.add(line, b.mul(place, b.const(step, I32)))
        cell = cta.shared(b.add(base, b.mul(element, b.const(size, I32))))
        found.append(kept(tiles, cell, values[0].type))
    return found


def _write_all(tiles: Tiles, home: Layout, values: Sequence[Val], base: Val) -> None:
    """Write a tile row-major to shared memory, several neighbours at once."""
    b = tiles.b
    size = max(1, values[0].type.bits // 8)
    run = min(home.run_length(home.rank - 1), _ACCESS_BYTES // size)
    for first in range(0, len(values), run):
        number = tiles.linear(home, home.register_coords()[first])
        cell = tiles.cta.shared(b.add(base, b.mul(number, b.const(size, I32))))
        keep(tiles, b.vector_of(values[first : first + run]), cell, size * run)


# -- histograms -----------------------------------------------------------------------------
def emit_histogram(tiles: Tiles, op: Op) -> Tile:
    """How often each of 0 … bins - 1 is among the values: counted in shared memory."""
    b, cta = tiles.b, tiles.cta
    layout = tiles.assignment.homes[op.result]
    (bins,) = layout.shape
    base = cta.scratch(bins * 4)
    places = [
        cta.shared(b.add(base, b.shl(tiles.coordinate(layout, 0, coord), b.const(2, I32))))
        for coord in layout.register_coords()
    ]

    def clear() -> None:
        for place in places:
            b.store(b.const(0, I32), place, 4)

    tiles.on_representatives(layout, clear)
    cta.barrier()
    _count(tiles, op, bins, base)
    cta.barrier()
    return Tile(layout, [b.load(I32, place, 4) for place in places])


def _count(tiles: Tiles, op: Op, bins: int, base: Val) -> None:
    """Add each value that is counted to its bin, once."""
    b, cta = tiles.b, tiles.cta
    home = tiles.assignment.common_home(op.operands)
    dtype = op.operands[0].type.dtype
    own = tiles.representative(home)
    values, *masks = (tiles.registers(operand, home) for operand in op.operands)
    start = cta.shared_address(base)
    for number, value in enumerate(values):
        if dtype.bits < I64.bits:
            value = b.convert("sext" if dtype.is_int_signed() else "zext", value, I64.elem)
        counted = b.icmp("ult", value, b.const(bins, I64))
        for condition in (*(mask[number] for mask in masks), *([own] if own else [])):
            counted = b.and_(counted, condition)
        place = b.add(start, b.shl(b.convert("trunc", value, I32.elem), b.const(2, I32)))
        one = b.const(1, I32)
        cta.asm("@$2 red.shared.add.u32 [$0], $1;", "r,r,b", [place, one, counted])
