"""Where the elements of a tile lie in shared memory while it changes its layout.

The byte offset of an element is linear over GF(2) in its number, as layouts are; a *placement* is a
basis of the space of elements, one vector for each bit of the offset.  From the lowest bit on:

1. the elements that one access of a thread moves (up to 16 bytes);
2. the rest of the columns: a row is one word of every bank, 128 bytes;
3. the rows.

Accesses of one instruction conflict when they differ in 3 only.  So the span of 3 must have nothing
in common with that of the lanes that are served together, neither when storing nor when loading.
Where the lanes of the two sides differ, sums of one of each serve as rows, which is what is known
as swizzling.  It needs no padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deuteron.backends.cuda import gf2
from deuteron.backends.cuda.layout import LANE_BITS

ROW_BYTES = 128
BANK_BYTES = 4
ACCESS_BYTES = 16
# What an instruction costs besides its trips to memory, and two barriers, in trips.
INSTRUCTION_COST = 0.5
BARRIERS_COST = 16.0


@dataclass(frozen=True, slots=True)
class Accessor:
    """Who stores, or who loads: vectors of element numbers for the register, lane and warp bits.

    Thread bits that take no part have a zero vector; those of lanes are not in `active_lanes`.
    """

    registers: tuple[int, ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...]
    active_lanes: int

    @property
    def threads(self) -> tuple[int, ...]:
        return (*self.lanes, *self.warps)

    def served_together(self, access_bytes: int) -> tuple[int, ...]:
        """The vectors of the lane bits that differ within one trip to all banks."""
        return self.lanes[: _lane_bits(access_bytes)]

    def groups(self, access_bytes: int) -> int:
        """Into how many groups of lanes served together an access divides a warp."""
        return 1 << (self.active_lanes >> _lane_bits(access_bytes)).bit_count()


def _lane_bits(access_bytes: int) -> int:
    words = max(1, access_bytes // BANK_BYTES)
    return LANE_BITS - (words.bit_length() - 1)


def conflict(lane_offsets: Sequence[int], access_bytes: int) -> int:
    """How many trips lanes that may be served together need, by the columns of their offsets."""
    unit = max(BANK_BYTES, access_bytes)
    units = [offset // unit for offset in lane_offsets]
    banks = [number % (ROW_BYTES // unit) for number in units]
    return 1 << (gf2.Span(units).dimension - gf2.Span(banks).dimension)


class Space:
    """The elements that are in shared memory at once, and the ways to place them.

    A tile of more than `limit` bytes is divided, as far as threads keep to their part of it.
    `between_rounds` are the vectors that lead from part to part.
    """

    def __init__(
        self, storing: Accessor, loading: Accessor, numel: int, element_bytes: int, limit: int
    ) -> None:
        self.storing, self.loading = storing, loading
        self.element_bytes = element_bytes
        bits = numel.bit_length() - 1
        threads = gf2.Span((*storing.threads, *loading.threads))
        allowed = max(1, limit // element_bytes).bit_length() - 1
        self.dimension = max(min(bits, allowed), threads.dimension)
        # A part has all that threads alone tell apart, then what makes accesses wide on both sides.
        common = gf2.intersection(storing.registers, loading.registers)
        units = [1 << bit for bit in range(bits)]
        whole = gf2.Span((*threads.basis, *common, *storing.registers, *loading.registers, *units))
        self.basis = whole.basis[: self.dimension]
        self.between_rounds = whole.basis[self.dimension :]
        self.store_registers = gf2.intersection(storing.registers, self.basis)
        self.load_registers = gf2.intersection(loading.registers, self.basis)
        both = gf2.intersection(self.store_registers, self.load_registers)
        self.common = [vector for vector in both if threads.add(vector)]

    def candidates(self) -> list[tuple[float, int, int]]:
        """What widths of stores and loads cost at best, cheapest first; widths in offset bits."""
        most = (ACCESS_BYTES // self.element_bytes).bit_length() - 1
        store_most = min(most, len(self.store_registers))
        load_most = min(most, len(self.load_registers))
        return sorted(
            (self._cost_without_conflicts(stores, loads), stores, loads)
            for stores in range(store_most + 1)
            for loads in range(load_most + 1)
            if min(stores, loads) <= len(self.common)
        )

    def _cost_without_conflicts(self, stores: int, loads: int) -> float:
        cost = BARRIERS_COST * (1 << len(self.between_rounds))
        for side, width in ((self.storing, stores), (self.loading, loads)):
            accesses = 1 << (len(side.registers) - width)
            trips = side.groups(self.element_bytes << width)
            cost += accesses * (trips + INSTRUCTION_COST)
        return cost

    def placement(self, stores: int, loads: int) -> list[int] | None:
        """A basis for accesses of these widths; None when threads allow none so wide.

        After the vectors of the offset's bits come those between rounds.
        """
        sides = (self.storing, self.store_registers, self.loading)
        if loads > stores:
            sides = (self.loading, self.load_registers, self.storing)
        wide, registers, narrow = sides
        most, least = max(stores, loads), min(stores, loads)
        wide_lanes = wide.served_together(self.element_bytes << most)
        narrow_lanes = narrow.served_together(self.element_bytes << least)
        both = self.common[:least]
        project = self._projection(both)
        # What only the wide side moves at once: best where the other side's lanes differ.
        apart = gf2.Span((*both, *wide.threads))
        crossing = gf2.intersection(registers, narrow_lanes)
        extra = [v for v in map(project, (*crossing, *registers)) if apart.add(v)]
        extra = extra[: most - least]
        if len(extra) < most - least:
            return None
        others = map(project, (*narrow_lanes, *narrow.threads, *self.basis))
        rest = _extend((*both, *extra), (*wide.threads, *others))
        narrow_lanes = tuple(gf2.intersection(narrow_lanes, rest))
        banks = (ROW_BYTES // self.element_bytes).bit_length() - 1
        rows = _rows(rest, wide_lanes, narrow_lanes)[: max(0, self.dimension - banks)]
        columns = _extend(rows, (*wide_lanes, *narrow_lanes, *rest))
        return [*both, *extra, *columns, *rows, *self.between_rounds]

    def _projection(self, along: Sequence[int]) -> Callable[[int], int]:
        """The projection along some vectors to a space in which all threads move."""
        basis = gf2.Span((*along, *self.storing.threads, *self.loading.threads, *self.basis))

        def project(vector: int) -> int:
            solution = basis.solve(vector)
            assert solution is not None
            return vector ^ gf2.apply(along, solution & ((1 << len(along)) - 1))

        return project


def _rows(rest: Sequence[int], wide: Sequence[int], narrow: Sequence[int]) -> list[int]:
    """A basis of `rest`; the more of its vectors are rows, the more conflicts there are.

    First those that are in neither of the two sides' spans, nor sums of vectors of one.
    """
    common = gf2.intersection(wide, narrow)
    only_wide, only_narrow = _extend(common, wide), _extend(common, narrow)
    neither = _extend((*wide, *narrow), rest)
    sums = [a ^ b for a, b in zip(only_wide, only_narrow, strict=False)]
    paired = len(sums)
    return [
        *neither,
        *sums,
        *only_narrow[paired:],
        *only_wide[paired:],
        *only_wide[:paired],
        *common,
    ]


def _extend(vectors: Sequence[int], more: Sequence[int]) -> list[int]:
    """Those of `more` that depend neither on `vectors` nor on each other."""
    span = gf2.Span(vectors)
    return [vector for vector in more if span.add(vector)]
