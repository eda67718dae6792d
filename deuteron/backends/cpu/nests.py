"""Writes a group of sinks as one loop nest over native-width chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from deuteron.backends.cpu.buffers import Arena, Buffer, row_major
from deuteron.backends.cpu.chunks import Chunks, Coord, Index, without_axis
from deuteron.backends.cpu.dot_pack import (
    emit_clear_padding,
    emit_store_b,
    emit_store_b_transposed,
    to_scratch,
    transpose,
)
from deuteron.backends.cpu.dot_plan import elem_bytes
from deuteron.backends.cpu.folds import Accumulators
from deuteron.backends.cpu.levels import Placed
from deuteron.backends.cpu.masks import Extent, held_masks, is_linear
from deuteron.backends.cpu.planner import Plan
from deuteron.backends.cpu.registers import to_storage
from deuteron.backends.cpu.steps import Assign, Fold, Group, Keep, Pack, Sink, Store
from deuteron.backends.llvm.builder import I64, Val
from deuteron.ir import Op, Value

PackKey = tuple[Value, str, int]
# Below these costs of one chunk of all sinks, four or two chunks are written side by side.
COST_OF_FOUR = 24
COST_OF_TWO = 90
# A nest that costs more than this is not written again without masks: they are little beside it.
WORTH_COPYING = 100
# A stream of stores at least this long goes past the caches.
NONTEMPORAL_BYTES = 4 << 20


class Nests:
    """Writes groups.  `packs` tells where each packed operand of a dot lies."""

    def __init__(self, plan: Plan, chunks: Chunks, arena: Arena) -> None:
        self.plan = plan
        self.chunks = chunks
        self.arena = arena
        self.b = chunks.b
        self.levels = chunks.levels
        self.packs: dict[PackKey, Buffer] = {}
        self.programs: Val | None = None

    # -- a group ----------------------------------------------------------------------------
    def write(self, group: Group) -> None:
        """Write the nest, then make what it gives known."""
        for sink in group.sinks:
            self._allocate(sink)
        wanted = [s for s in group.sinks if not self._in_place_already(s)]
        if not wanted:
            return
        group = replace(group, sinks=wanted)
        before = self.chunks.pin
        with self.levels.scope():
            self.chunks.pin = self.levels.depth
            scalars = self._versions(group)
        self.chunks.pin = before
        self._publish(group, scalars)

    def _allocate(self, sink: Sink) -> None:
        match sink:
            case Assign():
                if sink.home not in self.chunks.buffers:
                    self.chunks.buffers[sink.home] = self.tile(sink.home)
            case Pack():
                buffer = self._pack_buffer(sink)
                self.packs[pack_key(sink.value, sink.side, sink.plan.nr)] = buffer
                self._clear_padding(sink, buffer)
            case Keep() | Fold() | Store():
                pass

    def _in_place_already(self, sink: Sink) -> bool:
        """Whether a value to be put somewhere was computed there."""
        if not isinstance(sink, Assign):
            return False
        return self.chunks.buffers.get(sink.value) == self.chunks.buffers[sink.home]

    def tile(self, value: Value) -> Buffer:
        """A fresh buffer for a value."""
        return self.arena.tile(value.type, pitch=self.plan.pitch.get(value))

    def _pack_buffer(self, sink: Pack) -> Buffer:
        plan, batch = sink.plan, sink.shape[:-2]
        if sink.side == "a":
            pitch = plan.lda
            shape = (*batch, plan.m, plan.k)
            strides = row_major((*batch, plan.m, pitch))
            count, elem = plan.m * pitch, plan.a_elem
        else:
            count, elem = plan.panels * plan.panel_elements, plan.b_elem
            shape, strides = (*batch, plan.k, plan.n), row_major((*batch, 1, count))
        total = count * elem_bytes(elem) * (batch[0] if batch else 1)
        return Buffer(self.arena.bytes(total), elem, shape, strides)

    def _clear_padding(self, sink: Pack, buffer: Buffer) -> None:
        """Zero what the microkernel reads of the operand but the nest does not write."""
        plan = sink.plan
        if sink.side == "a":
            plan = replace(plan, n=plan.n_padded)
        else:
            plan = replace(plan, k=plan.k_padded)
        if plan.k == plan.k_padded and plan.n == plan.n_padded:
            return

        def clear(i: Val | None) -> None:
            coords = (Coord(i.text, 0, self.levels.depth), Coord(), Coord()) if i else (Coord(),) * 2
            address = self.chunks.memory.buffer_address(buffer, Index(coords)).val
            emit_clear_padding(self.b, plan, address, address)

        self.over_batch(sink.shape, clear)

    def over_batch(self, shape: tuple[int, ...], body: Callable[[Val | None], None]) -> None:
        """Once for each element of the batch axis of a 3-D operand."""
        if len(shape) == 2 or shape[0] == 1:
            body(self.b.const(0, I64) if len(shape) == 3 else None)
            return

        def turn(i: Val, _: list[Val]) -> list[Val]:
            body(i)
            return []

        self.levels.counted(shape[0], 1, [], turn)

    def _publish(self, group: Group, scalars: Sequence[Val]) -> None:
        given = iter(scalars)
        for sink in group.sinks:
            if isinstance(sink, Fold) and not sink.node.results[0].type.shape:
                for result in sink.node.results:
                    self.chunks.scalars[result] = Placed(next(given), self.levels.depth)
            for value, buffer in self._targets.pop(sink, {}).items():
                self.chunks.buffers[value] = buffer

    # -- versions ---------------------------------------------------------------------------
    def _versions(self, group: Group) -> list[Val]:
        """The nest, and where its masks may hold throughout, a copy without them before it."""
        self._targets: dict[Sink, dict[Value, Buffer]] = {s: self._own_buffers(s) for s in group.sinks}
        if group.rows is not None or self._cost(group) > WORTH_COPYING:
            return self._nest(group)
        extents = held_masks(self.plan.demand, group)
        streams = self._streams(group)
        if not extents and not streams:
            return self._nest(group)
        holds = self._all_hold(extents)
        masks = {e.mask for e in extents}
        if holds is not None and holds.text == "false":
            return self._nest(group)
        if holds is None:
            return self._without_masks(group, masks, streams)
        return self.levels.branch(
            holds,
            lambda: self._pinned(lambda: self._without_masks(group, masks, streams)),
            lambda: self._pinned(lambda: self._nest(group)),
        )

    def _pinned(self, write: Callable[[], list[Val]]) -> list[Val]:
        before, self.chunks.pin = self.chunks.pin, self.levels.depth
        values = write()
        self.chunks.pin = before
        return values

    def _without_masks(self, group: Group, masks: set[Value], streams: list[Store]) -> list[Val]:
        def write(nontemporal: bool) -> list[Val]:
            before = set(self.chunks.held_masks)
            self.chunks.held_masks |= masks
            values = self._nest(group, nontemporal=nontemporal)
            self.chunks.held_masks = before
            return values

        if not streams:
            return write(False)
        return self.levels.branch(
            self._streamable(group, streams),
            lambda: self._pinned(lambda: write(True)),
            lambda: self._pinned(lambda: write(False)),
        )

    def _all_hold(self, extents: Sequence[Extent]) -> Val | None:
        """Whether every mask holds over the whole tile, from its extreme elements alone."""
        result: Val | None = None
        for extent in extents:
            for term, corner in extent.corners:
                coords = tuple(Coord("", at) for at in corner)
                holds = self.chunks.get(term, Index(coords)).val
                if holds.text == "true":
                    continue
                result = holds if result is None else self.b.and_(result, holds)
        return result

    def _streams(self, group: Group) -> list[Store]:
        """The stores of a group that may go past the caches: contiguous, of nothing read again."""
        stores = [s for s in group.sinks if isinstance(s, Store)]
        whole = self.plan.blocks[self.plan.function.body]
        top = [s for step in whole.steps if isinstance(step, Group) for s in step.sinks]
        if len(stores) != len(group.sinks) or stores[0] not in top:
            return []
        loads = [n for n in self.plan.order if isinstance(n, Op) and n.name == "load"]
        for store in stores:
            info = self.plan.facts.of(store.op.operands[0])
            whole_axis = info.contiguity[group.axis] >= group.shape[group.axis]
            if not whole_axis or not is_linear(store.op.operands[0]):
                return []
            if any(self.plan.may_alias(load, store.op) for load in loads):
                return []
        return stores

    def _streamable(self, group: Group, stores: Sequence[Store]) -> Val:
        """At run time: the grid's output is long, and chunks start on whole vectors."""
        assert self.programs is not None
        bytes_each = sum(
            s.op.operands[0].type.numel * s.op.operands[0].type.pointee.storage_bytes for s in stores
        )
        least = self.b.const(NONTEMPORAL_BYTES // max(1, bytes_each), I64)
        result = self.b.icmp("uge", self.programs, least)
        for store in stores:
            pointer = store.op.operands[0]
            size = pointer.type.pointee.storage_bytes * self._lanes(group)
            low = self.b.and_(self._address_bits(group, pointer), self.b.const(size - 1, I64))
            result = self.b.and_(result, self.b.icmp("eq", low, self.b.const(0, I64)))
        return result

    def _address_bits(self, group: Group, pointer: Value) -> Val:
        """Every bit that is set in some chunk's address: of the first one, and of the strides."""
        start = Index(tuple(Coord() for _ in group.shape))

        def address(index: Index) -> Val:
            return self.b.convert("ptrtoint", self.chunks.get(pointer, index).val, "i64")

        first = bits = address(start)
        for axis, size in enumerate(group.shape):
            if axis != group.axis and size > 1:
                stride = self.b.sub(address(start.moved(axis, 1)), first)
                bits = self.b.or_(bits, stride)
        return bits

    # -- the nest ---------------------------------------------------------------------------
    def _lanes(self, group: Group) -> int:
        size = group.shape[group.axis]
        if self.is_raw(group):
            return min(size & -size, self.plan.target.lanes(16))
        bits = max((v.type.dtype.bits for s in group.sinks for v in _data(s)), default=32)
        native = self.plan.target.lanes(64 if bits == 64 else 32)
        return min(size & -size, native)

    def is_raw(self, group: Group) -> bool:
        """Whether all a group does is move 16-bit elements from memory into packed operands."""
        if len(group.sinks) != 1 or not isinstance(group.sinks[0], Pack):
            return False
        pack = group.sinks[0]
        elem = pack.plan.a_elem if pack.side == "a" else pack.plan.b_elem
        size = group.shape[group.axis]
        lanes = min(size & -size, self.plan.target.lanes(16))
        along_k = pack.side == "a" or group.axis == len(group.shape) - 2
        fits = lanes % pack.plan.pack == 0 if along_k else pack.plan.nr % lanes == 0
        raw = self.plan.demand.raw_load(pack.value, group.axis, lanes)
        return elem == "i16" and lanes > 1 and fits and raw

    def _cost(self, group: Group) -> int:
        """Of one chunk of all sinks, in vector additions."""
        values = [v for s in group.sinks for v in s.inputs if v.type.shape]
        return sum(self.plan.demand.cost(v) for v in values)

    def _unroll(self, group: Group, lanes: int) -> int:
        if group.rows is not None:
            return 1
        cost = self._cost(group)
        wanted = 4 if cost <= COST_OF_FOUR else 2 if cost <= COST_OF_TWO else 1
        trips = group.shape[group.axis] // lanes
        while trips % wanted:
            wanted //= 2
        return wanted

    def _nest(self, group: Group, *, nontemporal: bool = False) -> list[Val]:
        lanes = self._lanes(group)
        unroll = self._unroll(group, lanes)
        folded = group.folded
        inner = {group.axis, folded} | ({group.rows[0]} if group.rows else set())
        loops = [(axis, 1) for axis in range(len(group.shape)) if axis not in inner]
        if group.rows:
            loops.append(group.rows)
        loops.append((group.axis, lanes * unroll))
        vector = lanes if lanes > 1 else 0
        start = Index(tuple(Coord() for _ in group.shape), group.axis if vector else None, vector)
        writer = _Body(self, group, unroll, lanes, nontemporal)
        if folded is None:
            return self._loop(group, loops, start, writer.plain)
        if folded == group.axis:
            (axis, step) = loops.pop()
            return self._loop(group, loops, start, lambda index: writer.fold(index, axis, step))
        return self._loop(group, loops, start, lambda index: writer.fold(index, folded, 1))

    def _loop(
        self,
        group: Group,
        loops: Sequence[tuple[int, int]],
        index: Index,
        body: Callable[[Index], list[Val]],
    ) -> list[Val]:
        """Nested loops without carried values; scalars given come from a nest without loops."""
        if not loops:
            return body(index)
        (axis, step), *rest = loops
        trips = group.shape[axis] // step
        if trips == 1 and step == group.shape[axis]:
            return self._loop(group, rest, index, body)

        def turn(i: Val, _: list[Val]) -> list[Val]:
            self._loop(group, rest, index.at(axis, Coord(i.text, 0, self.levels.depth)), body)
            return []

        if trips:
            self.levels.counted(trips, step, [], turn)
        if trips * step < group.shape[axis]:
            # The rows of B that end K, fewer than are packed together.
            self._loop(group, rest, index.at(axis, Coord("", trips * step)), body)
        return []

    def _own_buffers(self, sink: Sink) -> dict[Value, Buffer]:
        """The buffers a sink fills and which become known after the nest."""
        match sink:
            case Keep():
                if sink.in_place is not None:
                    return {sink.value: self.chunks.buffers[sink.in_place]}
                return {sink.value: self.tile(sink.value)}
            case Fold():
                return {r: self.tile(r) for r in sink.node.results if r.type.shape}
            case Store() | Assign() | Pack():
                return {}

    def target(self, sink: Sink, value: Value) -> Buffer:
        return self._targets[sink][value]


class _Body:
    """The innermost code of a nest: first every chunk is computed, then they are put away."""

    def __init__(
        self, nests: Nests, group: Group, unroll: int, lanes: int, nontemporal: bool
    ) -> None:
        self.n = nests
        self.group = group
        self.unroll = unroll
        self.lanes = lanes
        self.nontemporal = nontemporal
        self.raw = nests.is_raw(group)
        self.chunks = nests.chunks
        self.b = nests.b

    def _places(self, index: Index) -> list[Index]:
        if self.group.rows is not None:
            axis, count = self.group.rows
            coord = index.coords[axis]
            if not coord.base:
                count = min(count, self.group.shape[axis] - coord.offset)
            return [index.moved(axis, r) for r in range(count)]
        return [index.moved(self.group.axis, u * self.lanes) for u in range(self.unroll)]

    def plain(self, index: Index) -> list[Val]:
        self._turn(index)
        return []

    def _turn(self, index: Index) -> None:
        places = self._places(index)
        sinks = [s for s in self.group.sinks if not isinstance(s, Fold)]
        values = [[self._compute(s, p) for p in places] for s in sinks]
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

    def _commit(self, sink: Sink, places: Sequence[Index], values: Sequence[Placed]) -> None:
        match sink:
            case Store():
                for index, value in zip(places, values, strict=True):
                    self.chunks.memory.store(sink.op, index, value, nontemporal=self.nontemporal)
            case Keep():
                self._put(self.n.target(sink, sink.value), sink.value, places, values)
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
        buffer = self.n.packs[pack_key(sink.value, sink.side, plan.nr)]
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
        coords = (*index.coords[:-2], Coord(), Coord())
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
            coord = Coord(i.text, 0, self.chunks.levels.depth) if i is not None else Coord()
            here = index.at(axis, coord)
            taken = iter(carried)
            after: list[Val] = []
            places = self._places(here)
            for accumulator in accumulators:
                for place in places:
                    before = [next(taken) for _ in range(accumulator.width)] if i is not None else []
                    after += accumulator.step(place, before, i)
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
            sets = [[next(taken) for _ in range(accumulator.width)] for _ in range(columns)]
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
            self.chunks.memory.write_stored(self.n.target(sink, result), index, stored)
        return []


def pack_key(value: Value, side: str, nr: int) -> PackKey:
    return (value, side, nr if side == "b" else 0)


def _data(sink: Sink) -> list[Value]:
    """The values whose width decides how many lanes a chunk has."""
    match sink:
        case Store():
            values = [sink.op.operands[1]]
        case Keep() | Assign() | Pack():
            values = [sink.value]
        case Fold():
            values = list(sink.node.operands)
    return [v for v in values if not v.type.is_pointer]


