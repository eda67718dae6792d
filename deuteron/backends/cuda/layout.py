"""Layouts: which element of a tile each register of each thread of a block holds.

A layout is linear over GF(2): it gives the coordinates of the element as the XOR of one vector for
each set bit of the register, lane and warp numbers.  Everything that is done to tiles without
moving data (slices, permutations, reshapes) is done to the vectors.

Bits of the lane or the warp whose vectors depend on those before them *replicate*: several threads
hold the same element.  Registers never do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from deuteron.backends.cuda import gf2

Coord = tuple[int, ...]

LANE_BITS = 5


@dataclass(frozen=True)
class Layout:
    """A linear map from (register, lane, warp) onto the elements of a tile.

    `shape` has powers of two only.  `register`, `lane` and `warp` hold one vector of coordinates
    for each bit of the respective number.  Registers are injective; the map covers the tile.
    """

    shape: tuple[int, ...]
    register: tuple[Coord, ...]
    lane: tuple[Coord, ...]
    warp: tuple[Coord, ...]

    def __post_init__(self) -> None:
        assert all(size.bit_count() == 1 for size in self.shape), self.shape
        assert len(self.lane) == LANE_BITS
        vectors = (*self.register, *self.lane, *self.warp)
        assert all(len(v) == self.rank for v in vectors)
        assert all(0 <= c < s for v in vectors for c, s in zip(v, self.shape, strict=True))
        assert gf2.Span(self.flat(v) for v in self.register).dimension == len(self.register)
        assert 1 << gf2.Span(map(self.flat, vectors)).dimension == self.numel, "not onto"

    # -- sizes ------------------------------------------------------------------------------
    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        """Elements of the whole tile."""
        return math.prod(self.shape)

    @property
    def registers(self) -> int:
        """Elements that each thread holds."""
        return 1 << len(self.register)

    @property
    def num_warps(self) -> int:
        return 1 << len(self.warp)

    # -- coordinates ------------------------------------------------------------------------
    def at(self, register: int, lane: int, warp: int) -> Coord:
        """The element that a register of a thread holds."""
        flat = gf2.apply(self.flat_register, register)
        flat ^= gf2.apply(self.flat_lane, lane) ^ gf2.apply(self.flat_warp, warp)
        return self.unflat(flat)

    @cached_property
    def _register_coords(self) -> tuple[Coord, ...]:
        return tuple(self.unflat(flat) for flat in gf2.images(self.flat_register))

    def register_coords(self) -> tuple[Coord, ...]:
        """The element that each register of lane 0 of warp 0 holds.

        The element in any other thread is the XOR of it with what `at` gives for register 0.
        """
        return self._register_coords

    @cached_property
    def register_at(self) -> dict[Coord, int]:
        """The inverse of `register_coords`."""
        return {coord: register for register, coord in enumerate(self._register_coords)}

    def flat(self, coord: Coord) -> int:
        """The row-major number of an element."""
        return _flat(coord, self.shape)

    def unflat(self, flat: int) -> Coord:
        """The inverse of `flat`."""
        return _unflat(flat, self.shape)

    @cached_property
    def flat_register(self) -> tuple[int, ...]:
        """The vectors of the register bits as row-major numbers."""
        return tuple(map(self.flat, self.register))

    @cached_property
    def flat_lane(self) -> tuple[int, ...]:
        """The vectors of the lane bits as row-major numbers."""
        return tuple(map(self.flat, self.lane))

    @cached_property
    def flat_warp(self) -> tuple[int, ...]:
        """The vectors of the warp bits as row-major numbers."""
        return tuple(map(self.flat, self.warp))

    def run_length(self, axis: int) -> int:
        """How many registers, from each multiple of it on, hold neighbours along an axis.

        Their first element's coordinate is a multiple of it too.
        """
        bits = 0
        while bits < len(self.register) and self._walks(axis, bits):
            bits += 1
        return 1 << bits

    def _walks(self, axis: int, bit: int) -> bool:
        """Whether one bit of the coordinate along an axis is one bit of the register, and alone."""
        step = tuple(1 << bit if a == axis else 0 for a in range(self.rank))
        others = (*self.register[:bit], *self.register[bit + 1 :], *self.lane, *self.warp)
        return self.register[bit] == step and not any(v[axis] >> bit & 1 for v in others)

    # -- replication ------------------------------------------------------------------------
    @property
    def replicated_lanes(self) -> int:
        """The lane bits that replicate, as a mask."""
        return self._replicated[0]

    @property
    def replicated_warps(self) -> int:
        """The warp bits that replicate, as a mask."""
        return self._replicated[1]

    @property
    def replicates(self) -> bool:
        """Whether several threads hold the same element."""
        return any(self._replicated)

    def is_representative(self, lane: int, warp: int) -> bool:
        """Whether a thread is the one to store: of those that hold an element, exactly one is."""
        return not (lane & self.replicated_lanes or warp & self.replicated_warps)

    @cached_property
    def _replicated(self) -> tuple[int, int]:
        span = gf2.Span(self.flat_register)
        lanes = sum(1 << i for i, v in enumerate(self.flat_lane) if not span.add(v))
        warps = sum(1 << i for i, v in enumerate(self.flat_warp) if not span.add(v))
        return lanes, warps

    # -- transformations --------------------------------------------------------------------
    def slice(self, axis: int) -> Layout:
        """Without one axis: where a reduction along it leaves its result."""
        return _slice(self, axis)

    def unit(self, axis: int) -> Layout:
        """With size 1 along an axis: the layout of what is broadcast along it."""
        return _unit(self, axis)

    def insert(self, axis: int) -> Layout:
        """With a new axis of size 1."""

        def insert(v: Coord, entry: int) -> Coord:
            return (*v[:axis], entry, *v[axis:])

        return _mapped(self, insert(self.shape, 1), lambda v: insert(v, 0))

    def drop(self, axis: int) -> Layout:
        """Without an axis of size 1."""
        assert self.shape[axis] == 1
        return self.slice(axis)

    def permute(self, order: Sequence[int]) -> Layout:
        """Axis i of the result is axis `order[i]` of this."""
        shape = tuple(self.shape[a] for a in order)
        return _mapped(self, shape, lambda v: tuple(v[a] for a in order))

    def reshape(self, shape: Sequence[int]) -> Layout:
        """The same elements in row-major order, in another shape."""
        new = tuple(shape)
        assert math.prod(new) == self.numel
        return _mapped(self, new, lambda v: _unflat(self.flat(v), new))

    def half(self, axis: int) -> Layout:
        """Of each half of the tile along an axis, in the place of both: for concatenation."""
        size = self.shape[axis] // 2
        shape = _with(self.shape, axis, size)
        return _mapped(self, shape, lambda v: _with(v, axis, v[axis] & (size - 1)))

    def with_minor_pair(self) -> Layout:
        """With a new last axis of size 2 in the lowest bit of the register."""
        pair = (*(0 for _ in self.shape), 1)
        grown = _mapped(self, (*self.shape, 1), lambda v: (*v, 0))
        return Layout((*self.shape, 2), (pair, *grown.register), grown.lane, grown.warp)

    # -- text -------------------------------------------------------------------------------
    def to_text(self) -> str:
        """For people: shape, then the vectors of the bits, lowest first."""
        parts = [f"[{'×'.join(map(str, self.shape))}]"]
        for name, vectors in (
            ("register", self.register),
            ("lane", self.lane),
            ("warp", self.warp),
        ):
            shown = [f"({','.join(map(str, v))})" for v in vectors]
            parts.append(" ".join([name, *(shown or ["–"])]))
        return " ".join(parts)

    def __str__(self) -> str:
        return self.to_text()


@cache  # asked for again and again, for each register that is broadcast
def _slice(layout: Layout, axis: int) -> Layout:
    return _mapped(layout, _without(layout.shape, axis), lambda v: _without(v, axis))


@cache
def _unit(layout: Layout, axis: int) -> Layout:
    return _mapped(layout, _with(layout.shape, axis, 1), lambda v: _with(v, axis, 0))


def _mapped(layout: Layout, shape: tuple[int, ...], each: Callable[[Coord], Coord]) -> Layout:
    """The layout whose vectors are the images of a layout's vectors."""
    return _injective(
        shape,
        [each(v) for v in layout.register],
        [each(v) for v in layout.lane],
        [each(v) for v in layout.warp],
    )


def blocked(shape: Sequence[int], num_warps: int, order: Sequence[int], vector: int = 1) -> Layout:
    """A layout for memory accesses.

    Each thread holds `vector` neighbours along axis `order[0]`.  The lanes of a warp follow along
    `order[0]`, then `order[1]` and so on; the warps along the slowest axis first, so that rows lie
    in one warp when there are enough; what remains of the tile is in registers.
    """
    bits = _FreeBits(shape)
    register = bits.low(order[0], _log2(vector))
    lane = bits.along(order, LANE_BITS)
    warp = bits.along(tuple(reversed(order)), _log2(num_warps))
    return _injective(bits.shape, register + bits.rest(order), lane, warp)


def replicated(shape: Sequence[int], num_warps: int) -> Layout:
    """All elements in every thread, in row-major order."""
    bits = _FreeBits(shape)
    zeros = (bits.zero,) * LANE_BITS, (bits.zero,) * _log2(num_warps)
    return Layout(bits.shape, tuple(bits.rest()), *zeros)


def mma_accumulator(shape: Sequence[int], num_warps: int, warps_m: int, warps_n: int) -> Layout:
    """The accumulators of mma.sync m16n8 (PTX ISA, "Matrix Fragments for mma.m16n8k16").

    Each warp owns a contiguous part, number `warp % warps_m` along M and `warp // warps_m` along N.
    Like all layouts of dots it takes (M, N) or (batch, M, N), the batch in registers.
    """
    assert warps_m * warps_n == num_warps
    bits = _FreeBits(shape)
    m, n = bits.rank - 2, bits.rank - 1
    register = bits.low(n, 1)
    lane = bits.low(n, 2) + bits.low(m, 3)
    register += bits.low(m, 1)
    warp = bits.high(m, _log2(warps_m)) + bits.high(n, _log2(warps_n))
    return _injective(bits.shape, register + bits.rest(), lane, warp)


def mma_operand(
    shape: Sequence[int],
    index: int,
    element_bits: int,
    num_warps: int,
    warps_m: int,
    warps_n: int,
) -> Layout:
    """The operands of mma.sync m16n8 with 256 bits along K: A (M, K) is 0, B (K, N) is 1.

    Lowest in the register number are the elements of one 32-bit register, along K.  Warps are as in
    `mma_accumulator`.
    """
    assert warps_m * warps_n == num_warps
    bits = _FreeBits(shape)
    zero = bits.zero
    k, outer = (bits.rank - 1, bits.rank - 2) if index == 0 else (bits.rank - 2, bits.rank - 1)
    register, lane = _operand_fragment(bits, k, outer, element_bits, tall=index == 0)
    if index == 0:
        warp = bits.high(outer, _log2(warps_m)) + [zero] * _log2(warps_n)
    else:
        warp = [zero] * _log2(warps_m) + bits.high(outer, _log2(warps_n))
    return _injective(bits.shape, register + bits.rest((k, outer, 0)), lane, warp)


def wgmma_accumulator(shape: Sequence[int], num_warps: int, instr_n: int) -> Layout:
    """The accumulators of wgmma m64, `instr_n` columns an instruction (PTX ISA, wgmma fragments).

    The registers of one instruction are neighbours.  Warpgroups share out M, then N.
    """
    bits = _FreeBits(shape)
    m, n = bits.rank - 2, bits.rank - 1
    register = bits.low(n, 1)
    lane = bits.low(n, 2) + bits.low(m, 3)
    register += bits.low(m, 1)
    warp = bits.low(m, 2) + bits.high(m, _log2(num_warps // 4), n)
    register += bits.low(n, _log2(instr_n // 8))
    return _injective(bits.shape, register + bits.rest(), lane, warp)


def wgmma_operand_a(shape: Sequence[int], num_warps: int, element_bits: int) -> Layout:
    """The operand A (M, K) of wgmma m64 when it is in registers, to go with `wgmma_accumulator`."""
    bits = _FreeBits(shape)
    m, k = bits.rank - 2, bits.rank - 1
    register, lane = _operand_fragment(bits, k, m, element_bits, tall=True)
    warp = bits.low(m, 2) + bits.high(m, _log2(num_warps // 4))
    return _injective(bits.shape, register + bits.rest(), lane, warp)


def _operand_fragment(
    bits: _FreeBits, k: int, outer: int, element_bits: int, *, tall: bool
) -> tuple[list[Coord], list[Coord]]:
    """Register and lane vectors of an operand fragment: 8 rows outside K, or 16 when `tall`."""
    register = bits.low(k, _log2(32 // element_bits))
    lane = bits.low(k, 2) + bits.low(outer, 3)
    if tall:
        register += bits.low(outer, 1)
    return register + bits.low(k, 1), lane


class _FreeBits:
    """The bits of a tile's coordinates that a layout under construction has not placed yet."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self.rank = len(self.shape)
        self.zero: Coord = (0,) * self.rank
        self._free = [list(range(_log2(size))) for size in self.shape]

    def low(self, axis: int, count: int) -> list[Coord]:
        """The lowest free bits of an axis, filled up with zero vectors."""
        taken, self._free[axis] = self._free[axis][:count], self._free[axis][count:]
        return self._vectors(axis, taken, count)

    def high(self, axis: int, count: int, then: int | None = None) -> list[Coord]:
        """The highest free bits of an axis, rising; too few are filled up from axis `then`."""
        free = self._free[axis]
        kept = max(0, len(free) - count)
        taken, self._free[axis] = free[kept:], free[:kept]
        missing = count - len(taken)
        if then is None or not missing:
            return self._vectors(axis, taken, count)
        return self._vectors(axis, taken, len(taken)) + self.high(then, missing)

    def along(self, order: Sequence[int], count: int) -> list[Coord]:
        """The lowest free bits of the first axis, then of the second and so on."""
        found: list[Coord] = []
        for axis in order:
            found += self.low(axis, min(len(self._free[axis]), count - len(found)))
        return found + [self.zero] * (count - len(found))

    def rest(self, order: Sequence[int] | None = None) -> list[Coord]:
        """All that are left, axis by axis; the last axis first unless an order is given."""
        axes = reversed(range(self.rank)) if order is None else order
        return [v for axis in axes for v in self.low(axis, len(self._free[axis]))]

    def _vectors(self, axis: int, taken: Sequence[int], count: int) -> list[Coord]:
        found = [_with(self.zero, axis, 1 << bit) for bit in taken]
        return found + [self.zero] * (count - len(found))


def _injective(
    shape: tuple[int, ...], register: Sequence[Coord], lane: Sequence[Coord], warp: Sequence[Coord]
) -> Layout:
    """A layout without the register bits that repeat what those before give."""
    span = gf2.Span()
    kept = tuple(v for v in register if span.add(_flat(v, shape)))
    return Layout(shape, kept, tuple(lane), tuple(warp))


def _flat(coord: Coord, shape: tuple[int, ...]) -> int:
    flat = 0
    for entry, size in zip(coord, shape, strict=True):
        flat = flat * size + entry
    return flat


def _unflat(flat: int, shape: tuple[int, ...]) -> Coord:
    coord: list[int] = []
    for size in reversed(shape):
        coord.append(flat % size)
        flat //= size
    return tuple(reversed(coord))


def _without(v: Coord, axis: int) -> Coord:
    return (*v[:axis], *v[axis + 1 :])


def _with(v: Coord, axis: int, entry: int) -> Coord:
    return (*v[:axis], entry, *v[axis + 1 :])


def _log2(value: int) -> int:
    assert value.bit_count() == 1, value
    return value.bit_length() - 1
