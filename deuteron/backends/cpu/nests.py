"""Writes a group of sinks as one loop nest over native-width chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from deuteron.backends.cpu.buffers import Arena, Buffer, row_major
from deuteron.backends.cpu.chunks import Chunks
from deuteron.backends.cpu.demand import GATHER_COST
from deuteron.backends.cpu.dot_pack import emit_clear_padding
from deuteron.backends.cpu.index import ZERO, Coord, Index
from deuteron.backends.cpu.masks import Extent, held_masks, is_linear
from deuteron.backends.cpu.nest_body import NestBody, PackKey
from deuteron.backends.cpu.planner import Plan
from deuteron.backends.cpu.steps import Assign, Fold, Group, Keep, Pack, Sink, Store
from deuteron.backends.cpu.tile_store import KeptTile, TileStore
from deuteron.backends.llvm.builder import I64, Val
from deuteron.backends.llvm.levels import Placed
from deuteron.backends.llvm.registers import elem_bytes
from deuteron.dtypes import FLOAT8, int1
from deuteron.ir import Op, Value

# Below these costs of one chunk of all sinks, four or two chunks are written side by side.
COST_OF_FOUR = 24
COST_OF_TWO = 90
# A block of more rows than this is computed row by row where one row takes much code.
ROWS_SIDE_BY_SIDE = 2
SHORT_CODE = 12
FLOAT8_CODE = 12  # of a cast from one of the 8-bit floats
# A nest that costs more than this is not written again without masks: they are little beside it.
WORTH_COPYING = 100
# A stream of stores at least this long goes past the caches.
NONTEMPORAL_BYTES = 4 << 20


class Nests:
    """Writes groups.

    `programs` is the number of programs of the grid (an i64); `packs` tells where each packed
    operand of a dot lies.
    """

    def __init__(
        self, plan: Plan, chunks: Chunks, arena: Arena, store: TileStore, programs: Val
    ) -> None:
        self.plan = plan
        self.chunks = chunks
        self.arena = arena
        self.store = store
        self.b = chunks.b
        self.levels = chunks.levels
        self.programs = programs
        self.packs: dict[PackKey, Buffer] = {}
        self.kept: dict[PackKey, KeptTile] = {}
        # Where the sinks of the group now being written put their results.
        self._targets: dict[Sink, dict[Value, Buffer]] = {}

    # -- a group ----------------------------------------------------------------------------
    def write(self, group: Group) -> None:
        """Write the nest, then make what it gives known."""
        if group.kept_pack is not None:
            self._write_kept(group, group.kept_pack)
            return
        for sink in group.sinks:
            self._allocate(sink)
        wanted = [s for s in group.sinks if not self._in_place_already(s)]
        if not wanted:
            return
        group = replace(group, sinks=wanted)
        with self.chunks.here():
            scalars = self._versions(group)
        self._publish(group, scalars)

    def _write_kept(self, group: Group, pack: Pack) -> None:
        """Pack an operand unless the tile store has the tile."""
        spare = self._pack_buffer(pack)
        origin = Index.origin(len(pack.shape))
        spare_at = self.chunks.memory.buffer_address(spare, origin).val
        keys = [self.chunks.scalar(key).val for key in pack.keys]
        found = self.store.find(pack, keys, spare_at)
        buffer = replace(spare, offset=0, base=Placed(found.place, self.levels.depth))
        self.packs[pack.value, pack.layout] = buffer
        self.kept[pack.value, pack.layout] = found

        def fill() -> list[Val]:
            with self.chunks.here():
                self._clear_padding(pack, buffer)
                return self._versions(group)

        self.levels.branch(found.missing, fill, list[Val])

    def _allocate(self, sink: Sink) -> None:
        match sink:
            case Assign():
                if sink.home not in self.chunks.buffers:
                    self.chunks.buffers[sink.home] = self.tile(sink.home)
            case Pack():
                buffer = self._pack_buffer(sink)
                self.packs[sink.value, sink.layout] = buffer
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

    def new_buffer(self, value: Value) -> Buffer:
        """A fresh buffer that holds a value from now on."""
        buffer = self.chunks.buffers[value] = self.tile(value)
        return buffer

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

        def clear(batch: tuple[Coord, ...]) -> None:
            start = Index((*batch, ZERO, ZERO))
            address = self.chunks.memory.buffer_address(buffer, start).val
            emit_clear_padding(self.b, plan, address, address)

        self.over_batch(sink.shape, clear)

    def over_batch(self, shape: tuple[int, ...], body: Callable[[tuple[Coord, ...]], None]) -> None:
        """Once for each matrix of a dot's operand, given its place along the batch axis, if any."""
        if len(shape) == 2 or shape[0] == 1:
            body((ZERO,) * (len(shape) - 2))
            return

        def turn(i: Val, _: list[Val]) -> list[Val]:
            body((Coord(i.text, 0, self.levels.depth),))
            return []

        self.levels.counted(shape[0], 1, [], turn)

    def each(self, shape: tuple[int, ...], body: Callable[[Index], None]) -> None:
        """Once for each element of a tile, in row-major order."""

        def nest(axis: int, coords: tuple[Coord, ...]) -> None:
            if axis == len(shape):
                body(Index(coords))
                return
            if shape[axis] == 1:
                nest(axis + 1, (*coords, ZERO))
                return

            def turn(i: Val, _: list[Val]) -> list[Val]:
                nest(axis + 1, (*coords, Coord(i.text, 0, self.levels.depth)))
                return []

            self.levels.counted(shape[axis], 1, [], turn)

        nest(0, ())

    def copy(self, pairs: Sequence[tuple[Value, Buffer]], axis: int) -> None:
        """Put tiles of one shape into given buffers, in one nest with lanes along an axis."""
        sinks: list[Sink] = []
        for value, buffer in pairs:
            home = Value(value.type, "copy")
            self.chunks.buffers[home] = buffer
            sinks.append(Assign(value, home))
        self.write(Group(pairs[0][0].type.shape, sinks, axis))

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
        self._targets = {s: self._own_buffers(s) for s in group.sinks}
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
        with self.chunks.pinned():
            return write()

    def _without_masks(self, group: Group, masks: set[Value], streams: list[Store]) -> list[Val]:
        def write(nontemporal: bool) -> list[Val]:
            with self.chunks.holding(masks):
                return self._nest(group, nontemporal=nontemporal)

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
        if not self.plan.target.stores_past_caches:
            return []
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
        types = [s.op.operands[0].type for s in stores]
        bytes_each = sum(t.numel * t.pointee.storage_bytes for t in types)
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
        start = Index.origin(len(group.shape))

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
        if self._is_raw(group):
            return min(size & -size, self.plan.target.lanes(16))
        bits = max((v.type.dtype.bits for s in group.sinks for v in _data(s)), default=32)
        native = self.plan.target.lanes(64 if bits == 64 else 32)
        return min(size & -size, native)

    def _is_raw(self, group: Group) -> bool:
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
        inner = {group.axis, folded, group.rows[0] if group.rows else None}
        loops = [(axis, 1) for axis in range(len(group.shape)) if axis not in inner]
        if group.rows:
            loops.append(group.rows)
        loops.append((group.axis, lanes * unroll))
        start = Index.origin(len(group.shape), group.axis, lanes)
        raw = self._is_raw(group)
        aside = self._aside(group, lanes)
        writer = NestBody(
            self.chunks, group, self.packs, self._targets, lanes, unroll, raw, nontemporal, aside
        )
        if folded is None:
            return self._loop(group, loops, start, writer.plain)
        if folded == group.axis:
            (axis, step) = loops.pop()
            return self._loop(group, loops, start, lambda index: writer.fold(index, axis, step))
        return self._loop(group, loops, start, lambda index: writer.fold(index, folded, 1))

    def _aside(self, group: Group, lanes: int) -> int | None:
        """Room for the chunks of a block of rows, where the code to compute one is long."""
        if group.rows is None or lanes == 1 or group.rows[1] <= ROWS_SIDE_BY_SIDE:
            return None
        axis, count = group.rows
        dtypes = [v.type.dtype for s in group.sinks for v in _data(s)]
        plain = not any(isinstance(s, Fold) for s in group.sinks) and int1 not in dtypes
        if not plain or group.shape[axis] % count or self._length(group) <= SHORT_CODE:
            return None
        return self.arena.bytes(count * lanes * max(4, *(d.storage_bytes for d in dtypes)))

    def _length(self, group: Group) -> int:
        """Of the code for one chunk that runs across rows, as a cost in vector additions."""
        demand = self.plan.demand
        length = self._cost(group)
        for value in (v for s in group.sinks for v in s.inputs if v.type.shape):
            casts = (p.op for p in demand.virtual_parts(value) if p.is_op("cast") and p.op)
            length += sum(FLOAT8_CODE for op in casts if op.operands[0].type.dtype in FLOAT8)
            real = (s for s in demand.sources(value) if s.type.shape and not s.is_op("load"))
            length += sum(GATHER_COST for _ in real)
        return length

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
