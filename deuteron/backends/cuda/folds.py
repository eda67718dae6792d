"""Reductions and scans over the registers, lanes and warps that share an axis.

Both go bit by bit through the coordinates of the axis.  A bit that numbers registers costs nothing
but the combining itself, one that numbers lanes a shuffle, one that numbers warps a trip through
shared memory.  They rely on each basis vector of a layout lying on one axis, as all of ours do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, product

from deuteron.backends.cuda.layout import LANE_BITS, Coord, Layout
from deuteron.backends.cuda.linear_code import emit_linear
from deuteron.backends.cuda.target import WARP_SIZE
from deuteron.backends.cuda.tiles import Tile, Tiles, keep, kept
from deuteron.backends.llvm.builder import I32, Val
from deuteron.ir import Op, Reduce, Scan
from deuteron.ir.nodes import Block
from deuteron.ir.optable import OPS

# Parts of what a thread holds that are folded side by side.
_CHAINS = 4
# From so many warps on, a warp's lanes fold what the warps made; before, each lane does.
_SHUFFLED_WARPS = 8

# One Val per operand of the reduction.
Element = list[Val]


def emit_reduce(tiles: Tiles, node: Reduce) -> list[Tile]:
    """The results of a reduction, one tile (or scalar) an operand."""
    source = tiles.assignment.common_home(node.operands)
    parts = _within_thread(tiles, node, source)
    lanes = [bit for bit, v in enumerate(source.lane) if v[node.axis]]
    for bit in lanes:
        parts = {c: _across_lanes(tiles, node.combine, part, bit) for c, part in parts.items()}
    if any(v[node.axis] for v in source.warp):
        parts = _across_warps(tiles, node, source, parts)
    if len(source.shape) == 1:
        return [Tile(None, [val]) for val in parts[()]]
    target = source.slice(node.axis)
    coords = target.register_coords()
    return [Tile(target, [parts[c][i] for c in coords]) for i in range(len(node.operands))]


def _without(coord: Coord, axis: int) -> Coord:
    return (*coord[:axis], *coord[axis + 1 :])


def _within_thread(tiles: Tiles, node: Reduce, source: Layout) -> dict[Coord, Element]:
    """Fold what each thread holds; keyed by the coordinates that are left."""
    operands = [tiles.registers(o, source) for o in node.operands]
    groups: dict[Coord, list[Element]] = {}
    for number, coord in enumerate(source.register_coords()):
        element = [registers[number] for registers in operands]
        groups.setdefault(_without(coord, node.axis), []).append(element)
    return {c: _in_chains(tiles, node.combine, elements) for c, elements in groups.items()}


def _in_chains(tiles: Tiles, combine: Block, elements: list[Element]) -> Element:
    """Fold a few parts one by one, then their results.

    Products can join a chain of sums, and enough chains hide each other's latency.
    """
    size = max(1, len(elements) // _CHAINS)
    ends: list[Element] = []
    for start in range(0, len(elements), size):
        first, *rest = elements[start : start + size]
        for element in rest:
            first = tiles.combine(combine, [*first, *element])
        ends.append(first)
    return _tree(tiles, combine, ends)


def _tree(tiles: Tiles, combine: Block, elements: list[Element]) -> Element:
    """Fold in pairs, then pairs of pairs: short chains, and little rounding."""
    while len(elements) > 1:
        pairs = zip(elements[::2], elements[1::2], strict=True)
        elements = [tiles.combine(combine, [*left, *right]) for left, right in pairs]
    return elements[0]


def _is_symmetric(combine: Block) -> bool:
    """True when swapped operands give the same bits."""
    nodes = combine.nodes
    return len(nodes) == 1 and isinstance(nodes[0], Op) and OPS[nodes[0].name].commutative


def _across_lanes(tiles: Tiles, combine: Block, part: Element, bit: int) -> Element:
    """Fold with the lane that differs in one bit; both lanes get the same."""
    others = [tiles.cta.shuffle_xor(val, 1 << bit) for val in part]
    if _is_symmetric(combine):
        return tiles.combine(combine, [*part, *others])
    b = tiles.b
    high = b.icmp("ne", b.and_(tiles.cta.lane, b.const(1 << bit, I32)), b.const(0, I32))
    left = [b.select(high, other, own) for own, other in zip(part, others, strict=True)]
    right = [b.select(high, own, other) for own, other in zip(part, others, strict=True)]
    return tiles.combine(combine, [*left, *right])


def _across_warps(
    tiles: Tiles, node: Reduce, source: Layout, parts: dict[Coord, Element]
) -> dict[Coord, Element]:
    """Fold with the warps that differ along the axis; all read all of them, in one order."""
    b, cta = tiles.b, tiles.cta
    exchange = _Exchange(tiles, source, node.axis, parts)
    exchange.write(parts)
    cta.barrier()
    bits = [1 << bit for bit, v in enumerate(source.warp) if v[node.axis]]
    mask = sum(bits)
    if 1 << len(bits) >= _SHUFFLED_WARPS and exchange.lanes == 1:
        return _by_lanes(tiles, node, exchange, parts, bits)
    first = b.and_(cta.warp, b.const(~mask, I32))
    warps = [
        b.or_(first, b.const(sum(picked), I32)) for picked in product(*((0, bit) for bit in bits))
    ]
    folded: dict[Coord, Element] = {}
    for coord in parts:
        elements = [exchange.read(coord, warp) for warp in warps]
        folded[coord] = _tree(tiles, node.combine, elements)
    return folded


def _by_lanes(
    tiles: Tiles,
    node: Reduce,
    exchange: _Exchange,
    parts: dict[Coord, Element],
    bits: Sequence[int],
) -> dict[Coord, Element]:
    """Each lane reads one warp's part, and the lanes of a warp fold them."""
    b = tiles.b
    others = b.and_(tiles.cta.warp, b.const(~sum(bits), I32))
    warp = b.or_(others, emit_linear(b, tiles.cta.lane, bits))
    folded: dict[Coord, Element] = {}
    for coord in parts:
        part = exchange.read(coord, warp)
        for bit in range(len(bits)):
            part = _across_lanes(tiles, node.combine, part, bit)
        folded[coord] = part
    return folded


class _Exchange:
    """Partial results in shared memory: by operand, coordinate, lane (those that differ), warp."""

    def __init__(
        self, tiles: Tiles, source: Layout, axis: int, parts: dict[Coord, Element]
    ) -> None:
        self.tiles = tiles
        self.order = {coord: number for number, coord in enumerate(parts)}
        kept = [bit for bit, v in enumerate(source.lane) if not v[axis] and any(v)]
        self.same_lanes = 31 & ~sum(1 << bit for bit in kept)
        self.lanes = 1 << len(kept)
        # The lane's number among the lanes that hold different elements.
        columns = [1 << kept.index(bit) if bit in kept else 0 for bit in range(LANE_BITS)]
        self.lane = emit_linear(tiles.b, tiles.cta.lane, columns)
        first = next(iter(parts.values()))
        self.types = [val.type for val in first]
        self.sizes = [max(1, type.bits // 8) for type in self.types]
        count = len(parts) * self.lanes * tiles.cta.num_warps
        starts = [0]
        for size in self.sizes:
            starts.append(-(-(starts[-1] + size * count) // 16) * 16)
        self.starts = starts
        self.offset = tiles.cta.scratch(starts[-1])

    def _place(self, operand: int, coord: Coord, warp: Val) -> Val:
        b = self.tiles.b
        cell = b.add(b.mul(warp, b.const(self.lanes, I32)), self.lane)
        block = self.order[coord] * self.lanes * self.tiles.cta.num_warps
        start = self.starts[operand] + block * self.sizes[operand]
        place = b.add(self.offset, b.mul(cell, b.const(self.sizes[operand], I32)))
        return self.tiles.cta.shared(place, start)

    def write(self, parts: dict[Coord, Element]) -> None:
        tiles = self.tiles
        b = tiles.b

        def store() -> list[Val]:
            for coord, part in parts.items():
                for operand, val in enumerate(part):
                    place = self._place(operand, coord, tiles.cta.warp)
                    keep(tiles, val, place)
            return []

        if not self.same_lanes:
            store()
            return
        others = b.and_(tiles.cta.lane, b.const(self.same_lanes, I32))
        tiles.levels.branch(b.icmp("eq", others, b.const(0, I32)), store, list)

    def read(self, coord: Coord, warp: Val) -> Element:
        return [
            kept(self.tiles, self._place(operand, coord, warp), type)
            for operand, type in enumerate(self.types)
        ]


# -- scans ----------------------------------------------------------------------------------
def emit_scan(tiles: Tiles, node: Scan) -> list[Tile]:
    """The results of a scan.

    After the step for bit k every element holds the fold of what precedes it in its aligned block
    of 2^(k+1): the upper half of a block takes in the last element of the lower half, which is the
    fold of all of it.  In reverse, the lower half takes in the first element of the upper.
    """
    layout = tiles.assignment.common_home(node.operands)
    registers = [tiles.registers(o, layout) for o in node.operands]
    elements = [list(element) for element in zip(*registers, strict=True)]
    step = 1
    while step < layout.shape[node.axis]:
        elements = _scan_step(tiles, node, layout, elements, step)
        step *= 2
    columns = zip(*elements, strict=True)
    return [Tile(layout, list(column)) for column in columns]


def _scan_step(
    tiles: Tiles, node: Scan, layout: Layout, elements: list[Element], step: int
) -> list[Element]:
    axis, coords = node.axis, layout.register_coords()
    taken = _Halves(tiles, layout, axis, step, node.reverse).ends(elements)
    if any(vector[axis] == step for vector in layout.register):
        return [
            tiles.combine(node.combine, [*end, *own])
            if bool(coord[axis] & step) != node.reverse
            else own
            for own, end, coord in zip(elements, taken, coords, strict=True)
        ]
    b = tiles.b
    bit = b.and_(tiles.base(layout, axis), b.const(step, I32))
    takes = b.icmp("eq" if node.reverse else "ne", bit, b.const(0, I32))
    stepped: list[Element] = []
    for own, end in zip(elements, taken, strict=True):
        combined = tiles.combine(node.combine, [*end, *own])
        stepped.append([b.select(takes, c, o) for c, o in zip(combined, own, strict=True)])
    return stepped


@dataclass(frozen=True, slots=True)
class _Halves:
    """Finds, for each element, the element that ends the other half of its block of 2 × step."""

    tiles: Tiles
    layout: Layout
    axis: int
    step: int
    reverse: bool

    def ends(self, elements: list[Element]) -> list[Element]:
        """The end of the half to take in, for every register."""
        registers = [self._register(coord) for coord in self.layout.register_coords()]
        within = {number: elements[number] for number in registers}
        if any(0 < v[self.axis] <= self.step for v in self.layout.warp):
            within = self._from_warps(within)
        elif any(0 < v[self.axis] <= self.step for v in self.layout.lane):
            lane = self._thread_index(self.tiles.cta.lane, self.layout.lane)
            within = {
                number: [self.tiles.cta.shuffle_index(val, lane) for val in element]
                for number, element in within.items()
            }
        return [within[number] for number in registers]

    def _moved(self, index: int) -> int:
        """Where along the axis the half to take in ends, for the element at `index`."""
        start = index & ~(2 * self.step - 1)
        return start | (self.step if self.reverse else self.step - 1)

    def _register(self, coord: Coord) -> int:
        """The number of the register that holds the end (in whatever thread)."""
        own = 0
        for vector in self.layout.register:
            own |= vector[self.axis]
        place = self._moved(coord[self.axis]) & own
        return self.layout.register_at[(*coord[: self.axis], place, *coord[self.axis + 1 :])]

    def _thread_index(self, index: Val, vectors: Sequence[Coord]) -> Val:
        """The lane (or warp) that holds the end, from the own one."""
        set_bits = cleared = 0
        for bit, vector in enumerate(vectors):
            if 0 < vector[self.axis] <= self.step:
                cleared |= 1 << bit
                if self._moved(0) & vector[self.axis]:
                    set_bits |= 1 << bit
        b = self.tiles.b
        return b.or_(b.and_(index, b.const(~cleared, I32)), b.const(set_bits, I32))

    def _from_warps(self, within: dict[int, Element]) -> dict[int, Element]:
        """The ends, where other warps have them."""
        cta, b = self.tiles.cta, self.tiles.b
        threads = WARP_SIZE * cta.num_warps
        types = [val.type for val in next(iter(within.values()))]
        sizes = [max(1, type.bits // 8) for type in types]
        starts = [0, *accumulate(threads * len(within) * max(size, 4) for size in sizes)]
        offset = cta.scratch(starts[-1])

        def place(operand: int, number: int, thread: Val) -> Val:
            at = b.add(offset, b.mul(thread, b.const(sizes[operand], I32)))
            return cta.shared(at, starts[operand] + number * threads * sizes[operand])

        for number, element in enumerate(within.values()):
            for operand, val in enumerate(element):
                keep(self.tiles, val, place(operand, number, cta.thread))
        cta.barrier()
        warp = self._thread_index(cta.warp, self.layout.warp)
        lane = self._thread_index(cta.lane, self.layout.lane)
        thread = b.add(b.shl(warp, b.const(5, I32)), lane)
        return {
            register: [
                kept(self.tiles, place(operand, number, thread), type)
                for operand, type in enumerate(types)
            ]
            for number, register in enumerate(within)
        }
