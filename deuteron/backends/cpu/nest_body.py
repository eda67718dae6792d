"""The body of a loop nest: computes the chunks of one turn and puts them where the sinks want."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from deuteron.backends.cpu.buffers import Buffer
from deuteron.backends.cpu.chunks import Chunks
from deuteron.backends.cpu.dot_pack import (
    emit_store_b,
    emit_store_b_transposed,
    to_scratch,
    transpose,
)
from deuteron.backends.cpu.folds import Accumulators
from deuteron.backends.cpu.index import ZERO, Coord, Index, without_axis
from deuteron.backends.cpu.steps import Assign, Fold, Group, Keep, Pack, Sink, Store
from deuteron.backends.llvm.builder import Builder, LType, Val
from deuteron.backends.llvm.levels import Placed
from deuteron.backends.llvm.registers import to_storage
from deuteron.ir import Value

# A packed operand: the value, and `Pack.layout`.
PackKey = tuple[Value, tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class NestBody:
    """The innermost code of a nest: first every chunk is computed, then they are put away.

    A turn takes `unroll` chunks of `lanes` elements side by side.  `packs` and `targets` tell where
    packed operands and the sinks' results go; `raw` moves 16-bit elements as they lie in memory;
    `nontemporal` stores past the caches.  With `aside`, an offset in the scratch memory, chunks of
    a block of rows are computed one by one in a loop and wait there to be turned around together:
    code for all of them side by side would be long.
    """

    chunks: Chunks
    group: Group
    packs: Mapping[PackKey, Buffer]
    targets: Mapping[Sink, Mapping[Value, Buffer]]
    lanes: int
    unroll: int
    raw: bool
    nontemporal: bool
    aside: int | None = None

    @property
    def b(self) -> Builder:
        return self.chunks.b

    def _places(self, index: Index) -> list[Index]:
        if self.group.rows is not None:
            axis, count = self.group.rows
            coord = index.coords[axis]
            if not coord.base:
                count = min(count, self.group.shape[axis] - coord.offset)
            return [index.moved(axis, r) for r in range(count)]
        return [index.moved(self.group.axis, u * self.lanes) for u in range(self.unroll)]

    def plain(self, index: Index) -> list[Val]:
        """One turn of a nest without reductions."""
        self._turn(index)
        return []

    def _turn(self, index: Index) -> None:
        places = self._places(index)
        sinks = [s for s in self.group.sinks if not isinstance(s, Fold)]
        if self.aside is None:
            values = [[self._compute(s, p) for p in places] for s in sinks]
        else:
            values = [self._compute_aside(s, places) for s in sinks]
        for sink, chunks in zip(sinks, values, strict=True):
            self._commit(sink, places, chunks)

    def _compute(self, sink: Sink, index: Index) -> Placed:
        match sink:
            case Store():
                for operand in sink.op.operands[2:]:
                    self.chunks.get(operand, index)
                return self.chunks.get(sink.op.operands[1], index)
            case Pack() if self.raw:
                return self.chunks.raw(sink.value, index)
            case Keep() | Assign() | Pack():
                return self.chunks.vector(sink.value, index)
            case Fold():
                raise AssertionError("folds are computed by their accumulators")

    def _compute_aside(self, sink: Sink, places: Sequence[Index]) -> list[Placed]:
        """The chunks of a block of rows, computed in a loop."""
        assert self.group.rows is not None
        assert self.aside is not None
        axis, _ = self.group.rows
        levels, first = self.chunks.levels, places[0].coords[axis]
        memory = self.b.gep("i8", self.chunks.scratch, self.aside)
        found: list[LType] = []

        def row(i: Val, _: list[Val]) -> list[Val]:
            at = i if not first.base else self.b.add(Val(first.base, i.type), i)
            place = places[0].at(axis, Coord(at.text, first.offset, levels.depth))
            chunk = self._compute(sink, place).val
            found.append(chunk.type)
            size = _bytes_of(chunk.type)
            self.b.store(chunk, self.b.strided(memory, i, size), size)
            return []

        levels.counted(len(places), 1, [], row)
        (type,) = found
        size = _bytes_of(type)
        chunks = (self.b.gep("i8", memory, r * size) for r in range(len(places)))
        return [Placed(self.b.load(type, at, size), levels.depth) for at in chunks]

    def _commit(self, sink: Sink, places: Sequence[Index], values: Sequence[Placed]) -> None:
        match sink:
            case Store():
                for index, value in zip(places, values, strict=True):
                    self.chunks.memory.store(sink.op, index, value, nontemporal=self.nontemporal)
            case Keep():
                self._put(self.targets[sink][sink.value], sink.value, places, values)
            case Assign():
                self._put(self.chunks.buffers[sink.home], sink.value, places, values)
            case Pack():
                self._pack(sink, places, [v.val for v in values])
            case Fold():
                pass

    def _put(
        self, buffer: Buffer, value: Value, places: Sequence[Index], values: Sequence[Placed]
    ) -> None:
        stored = [to_storage(self.b, v.val, value.type.element) for v in values]
        self._put_stored(buffer, places, stored)

    def _put_stored(self, buffer: Buffer, places: Sequence[Index], stored: Sequence[Val]) -> None:
        if self.group.rows is None or not stored[0].type.lanes:
            for index, chunk in zip(places, stored, strict=True):
                self.chunks.memory.write_stored(buffer, index, chunk)
            return
        # Chunks run along one axis and lie side by side along the buffer's: turn them around.
        first, (row_axis, count) = places[0], self.group.rows
        assert first.axis is not None
        for lane, row in enumerate(transpose(self.b, stored)):
            at = replace(first.moved(first.axis, lane), axis=row_axis, lanes=count)
            self.chunks.memory.write_stored(buffer, at, row)

    def _pack(self, sink: Pack, places: Sequence[Index], values: Sequence[Val]) -> None:
        plan = sink.plan
        buffer = self.packs[sink.value, sink.layout]
        if sink.side == "a":
            stored = [to_scratch(self.b, v, plan.a_dtype, plan.a_elem, plan.a_bias) for v in values]
            self._put_stored(buffer, places, stored)
            return
        address = self._batch_address(buffer, places[0])
        wide = [v if v.type.lanes else self.b.splat(v, 1) for v in values]
        k_axis, n_axis = len(sink.shape) - 2, len(sink.shape) - 1
        if self.group.axis == k_axis and self.lanes > 1:
            columns = len(wide) if self.group.rows is not None else 1
            for at in range(0, len(wide), columns):
                k, n = (self._position(places[at].coords[a]) for a in (k_axis, n_axis))
                emit_store_b_transposed(self.b, plan, address, k, n, wide[at : at + columns])
            return
        rows = plan.pack if self.group.rows is not None else 1
        for at in range(0, len(wide), rows):
            k, n = (self._position(places[at].coords[a]) for a in (k_axis, n_axis))
            emit_store_b(self.b, plan, address, k, n, wide[at : at + rows])

    def _batch_address(self, buffer: Buffer, index: Index) -> Val:
        coords = (*index.coords[:-2], ZERO, ZERO)
        return self.chunks.memory.buffer_address(buffer, Index(coords)).val

    def _position(self, coord: Coord) -> Val | int:
        return self.chunks.coordinate(coord).val if coord.base else coord.offset

    # -- folds ------------------------------------------------------------------------------
    def fold(self, index: Index, axis: int, step: int) -> list[Val]:
        """The innermost loop, along the folded axis, and what is done with its results."""
        folds = [s for s in self.group.sinks if isinstance(s, Fold)]
        accumulators = [Accumulators(self.chunks, s.node) for s in folds]
        trips = self.group.shape[axis] // step
        columns = len(self._places(index))

        def turn(i: Val | None, carried: Sequence[Val]) -> list[Val]:
            coord = Coord(i.text, 0, self.chunks.levels.depth) if i is not None else ZERO
            here = index.at(axis, coord)
            taken = iter(carried)
            after: list[Val] = []
            places = self._places(here)
            for accumulator in accumulators:
                for place in places:
                    width = accumulator.width if i is not None else 0
                    after += accumulator.step(place, list(islice(taken, width)), i)
            self._turn(here)
            return after

        if trips == 1:
            final = turn(None, [])
        else:
            initial = [
                v for a in accumulators for _ in range(columns) for v in a.initial(index.lanes)
            ]
            final = self.chunks.levels.counted(trips, step, initial, turn)
        return self._finish(index, axis, accumulators, columns, final)

    def _finish(
        self,
        index: Index,
        axis: int,
        accumulators: Sequence[Accumulators],
        columns: int,
        final: Sequence[Val],
    ) -> list[Val]:
        scalars: list[Val] = []
        taken = iter(final)
        folds = [s for s in self.group.sinks if isinstance(s, Fold)]
        for sink, accumulator in zip(folds, accumulators, strict=True):
            sets = [list(islice(taken, accumulator.width)) for _ in range(columns)]
            if axis == self.group.axis:
                results = accumulator.merge(sets)
                scalars += self._put_results(sink, without_axis(index.scalar(), axis), results)
                continue
            for place, values in zip(self._places(index), sets, strict=True):
                scalars += self._put_results(sink, without_axis(place, axis), values)
        return scalars

    def _put_results(self, sink: Fold, index: Index, values: Sequence[Val]) -> list[Val]:
        if not index.coords:
            return list(values)
        for result, value in zip(sink.node.results, values, strict=True):
            stored = to_storage(self.b, value, result.type.element)
            self.chunks.memory.write_stored(self.targets[sink][result], index, stored)
        return []


def _bytes_of(type: LType) -> int:
    return type.bits // 8 * max(type.lanes, 1)
