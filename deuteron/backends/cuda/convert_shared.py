"""Conversions through shared memory: who stores which registers where, and who loads them.

The widths of stores and loads are tried in pairs, each with the best placement for it, and the
cheapest is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deuteron.backends.cuda import gf2
from deuteron.backends.cuda.convert_placement import (
    BARRIERS_COST,
    INSTRUCTION_COST,
    Accessor,
    Space,
    conflict,
)
from deuteron.backends.cuda.layout import LANE_BITS, Layout

SCRATCH_LIMIT = 64 * 1024


@dataclass(frozen=True, slots=True)
class Move:
    """One access: the registers of neighbouring elements, and their offset in thread 0."""

    registers: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Side:
    """All stores, or all loads: by round, what each thread does.

    An access is at byte `offset ^ f(thread)`; `thread` has the columns of the linear map f.
    `trips` counts, over all rounds of a warp, how often all banks are visited.
    """

    thread: tuple[int, ...]
    rounds: tuple[tuple[Move, ...], ...]
    trips: int

    @property
    def thread_bits(self) -> int:
        """The bits of offsets that differ between threads, as a mask."""
        bits = 0
        for vector in self.thread:
            bits |= vector
        return bits

    @property
    def cost(self) -> float:
        """In trips."""
        return self.trips + INSTRUCTION_COST * sum(map(len, self.rounds))


@dataclass(frozen=True, slots=True)
class Shared:
    """A way through `size` bytes of shared memory, in one or more rounds.

    Threads whose number has a bit of `redundant` set store nothing: others hold the same elements.
    """

    element_bits: int
    size: int
    redundant: int
    stores: Side
    loads: Side

    @property
    def cost(self) -> float:
        """In trips to shared memory, which take as long as shuffles."""
        return self.stores.cost + self.loads.cost + BARRIERS_COST * len(self.stores.rounds)


def plan_shared(
    source: Layout, target: Layout, element_bits: int, limit: int = SCRATCH_LIMIT
) -> Shared:
    """The cheapest way found.

    It needs the tile's bytes of shared memory, or `limit` when it is divided into rounds; more than
    that only if threads of either layout reach over too much of the tile.
    """
    lanes, warps = source.replicated_lanes, source.replicated_warps
    all_lanes = (1 << LANE_BITS) - 1
    storing = Accessor(
        source.flat_register,
        _without(source.flat_lane, lanes),
        _without(source.flat_warp, warps),
        all_lanes & ~lanes,
    )
    loading = Accessor(target.flat_register, target.flat_lane, target.flat_warp, all_lanes)
    space = Space(storing, loading, source.numel, element_bits // 8, limit)
    best: Shared | None = None
    for cost_at_best, store_width, load_width in space.candidates():
        if best is not None and best.cost <= cost_at_best:
            break
        basis = space.placement(store_width, load_width)
        if basis is None:
            continue
        plan = Shared(
            element_bits,
            element_bits // 8 << space.dimension,
            lanes | warps << LANE_BITS,
            _side(space, basis, storing, store_width),
            _side(space, basis, loading, load_width),
        )
        if best is None or plan.cost < best.cost:
            best = plan
    assert best is not None, "single elements can always be moved"
    return best


def _without(vectors: Sequence[int], mask: int) -> tuple[int, ...]:
    return tuple(0 if mask >> bit & 1 else vector for bit, vector in enumerate(vectors))


def _side(space: Space, basis: Sequence[int], accessor: Accessor, width: int) -> Side:
    """The accesses of one side to a placement."""
    coordinates = gf2.Span(basis)
    in_round = (1 << space.dimension) - 1

    def place(element: int) -> tuple[int, int]:
        """The round and the byte offset."""
        found = coordinates.solve(element)
        assert found is not None
        return found >> space.dimension, (found & in_round) * space.element_bytes

    access_bytes = space.element_bytes << width
    thread = tuple(place(vector)[1] for vector in accessor.threads)
    assert all(offset % access_bytes == 0 for offset in thread)
    rounds: list[dict[int, dict[int, int]]] = [{} for _ in range(1 << len(space.between_rounds))]
    for register, element in enumerate(gf2.images(accessor.registers)):
        number, offset = place(element)
        within = offset % access_bytes
        rounds[number].setdefault(offset - within, {})[within] = register
    moves = tuple(
        tuple(
            Move(tuple(register for _, register in sorted(registers.items())), offset)
            for offset, registers in accesses.items()
        )
        for accesses in rounds
    )
    served = [place(vector)[1] for vector in accessor.served_together(access_bytes)]
    trips = accessor.groups(access_bytes) * conflict(served, access_bytes)
    return Side(thread, moves, trips * sum(map(len, moves)))
