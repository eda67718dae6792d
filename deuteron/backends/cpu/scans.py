"""Scans: prefix folds along an axis, vectorised across it where another axis is long enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deuteron.backends.cpu.index import Coord, Index
from deuteron.backends.cpu.nests import Nests
from deuteron.backends.llvm.builder import I64, LType, Val
from deuteron.backends.llvm.registers import register_elem
from deuteron.ir import Scan


class Scans:
    """Writes scans, one at a time."""

    def __init__(self, nests: Nests) -> None:
        self.nests = nests
        self.chunks = nests.chunks
        self.b = nests.b
        self.levels = nests.levels

    def write(self, node: Scan) -> None:
        """Write a scan; its results are in buffers afterwards."""
        for result in node.results:
            self.nests.new_buffer(result)
        shape = node.operands[0].type.shape
        others = [a for a, size in enumerate(shape) if a != node.axis and size >= 4]
        with self.chunks.here():
            if others:
                self._across(node, others[-1])
            else:
                self._along(node)

    def _lanes(self, node: Scan, axis: int) -> int:
        size = node.operands[0].type.shape[axis]
        wide = any(o.type.dtype.bits == 64 for o in node.operands)
        return min(size & -size, self.nests.plan.target.lanes(64 if wide else 32))

    def _over(
        self,
        shape: tuple[int, ...],
        axes: Sequence[tuple[int, int]],
        index: Index,
        body: Callable[[Index], None],
    ) -> None:
        """Loops over some axes by given steps."""
        if not axes:
            body(index)
            return
        (axis, step), *rest = axes
        trips = shape[axis] // step
        if trips == 1:
            self._over(shape, rest, index, body)
            return

        def turn(i: Val, _: list[Val]) -> list[Val]:
            place = index.at(axis, Coord(i.text, 0, self.levels.depth))
            self._over(shape, rest, place, body)
            return []

        self.levels.counted(trips, step, [], turn)

    def _mirrored(self, turn: Val, size: int, step: int, reverse: bool) -> Coord:
        """The position of a turn of the scanning loop, from the end when reversed."""
        if reverse:
            turn = self.b.sub(self.b.const(size - step, I64), turn)
        return Coord(turn.text, 0, self.levels.depth)

    def _put(self, node: Scan, index: Index, values: Sequence[Val]) -> None:
        for result, value in zip(node.results, values, strict=True):
            buffer = self.chunks.buffers[result]
            self.chunks.memory.write(buffer, result.type.element, index, value)

    def _across(self, node: Scan, axis: int) -> None:
        """Lanes run along another axis: each step of the scan is one combine."""
        shape = node.operands[0].type.shape
        lanes = self._lanes(node, axis)
        others = [(a, 1) for a in range(len(shape)) if a not in (axis, node.axis)]
        start = Index.origin(len(shape), axis, lanes)

        def column(index: Index) -> None:
            def turn(i: Val, before: list[Val]) -> Sequence[Val]:
                coord = self._mirrored(i, shape[node.axis], 1, node.reverse)
                return self._step(node, index.at(node.axis, coord), i, before)

            types = [LType(register_elem(o.type.element), index.lanes) for o in node.operands]
            initial = [self.b.const(0, t) for t in types]
            self.levels.counted(shape[node.axis], 1, initial, turn)

        self._over(shape, [*others, (axis, lanes)], start, column)

    def _step(self, node: Scan, index: Index, turn: Val, before: list[Val]) -> list[Val]:
        new = [self.chunks.vector(o, index).val for o in node.operands]
        after = self._unless_first(node, turn, before, new)
        self._put(node, index, after)
        return after

    def _unless_first(
        self, node: Scan, turn: Val, before: Sequence[Val], new: Sequence[Val]
    ) -> list[Val]:
        folded = self.chunks.combine(node.combine, [*before, *new])
        first = self.b.icmp("eq", turn, self.b.const(0, turn.type))
        return [self.b.select(first, n, f) for n, f in zip(new, folded, strict=True)]

    def _along(self, node: Scan) -> None:
        """Lanes run along the scanned axis: a prefix inside each chunk, then the carry."""
        shape, axis = node.operands[0].type.shape, node.axis
        lanes = self._lanes(node, axis)
        others = [(a, 1) for a in range(len(shape)) if a != axis]
        start = Index.origin(len(shape), axis, lanes)

        def row(index: Index) -> None:
            def turn(i: Val, before: list[Val]) -> Sequence[Val]:
                coord = self._mirrored(i, shape[axis], lanes, node.reverse)
                place = index.at(axis, coord)
                values = [self.chunks.vector(o, place).val for o in node.operands]
                inside = self._prefix(node, values)
                carried = [self.b.splat(v, lanes) if lanes > 1 else v for v in before]
                after = self._unless_first(node, i, carried, inside)
                self._put(node, place, after)
                end = 0 if node.reverse else lanes - 1
                return [self.b.extract(v, end) if lanes > 1 else v for v in after]

            types = [LType(register_elem(o.type.element)) for o in node.operands]
            initial = [self.b.const(0, t) for t in types]
            self.levels.counted(shape[axis] // lanes, lanes, initial, turn)

        self._over(shape, others, start, row)

    def _prefix(self, node: Scan, values: list[Val]) -> list[Val]:
        """The scan of the lanes of one chunk, by doubling distances."""
        lanes = values[0].type.lanes
        distance = 1
        while distance < lanes:
            if node.reverse:
                picks = [min(lane + distance, lanes - 1) for lane in range(lanes)]
                valid = [lane + distance < lanes for lane in range(lanes)]
            else:
                picks = [max(lane - distance, 0) for lane in range(lanes)]
                valid = [lane >= distance for lane in range(lanes)]
            moved = [self.b.shuffle(v, None, picks) for v in values]
            folded = self.chunks.combine(node.combine, [*moved, *values])
            mask = self.b.vector([int(v) for v in valid], "i1")
            values = [self.b.select(mask, f, v) for f, v in zip(folded, values, strict=True)]
            distance *= 2
        return values
