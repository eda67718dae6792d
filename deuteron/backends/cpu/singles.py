"""Nodes that are not sinks of a fused nest: scans, atomics, scalar loads, shape copies, debug ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from deuteron.backends.cpu.buffers import Buffer, row_major
from deuteron.backends.cpu.chunks import ZERO, Chunks, Coord, Index
from deuteron.backends.cpu.kernel_info import AssertSite, PrintSite
from deuteron.backends.cpu.levels import Placed
from deuteron.backends.cpu.nests import Nests
from deuteron.backends.cpu.registers import (
    narrow_float,
    register_elem,
    storage_elem,
    to_register,
    to_storage,
)
from deuteron.backends.cpu.steps import Assign, Group
from deuteron.backends.llvm.builder import I64, LType, Val
from deuteron.dtypes import DType, bfloat16
from deuteron.ir import Op, Scan, Value

_ORDER = {"relaxed": "monotonic", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
_FAILURE_ORDER = {"relaxed": "monotonic", "acquire": "acquire", "release": "monotonic"}


@dataclass(slots=True)
class Sites:
    """What the host needs to know of prints and asserts, by number."""

    prints: list[PrintSite] = field(default_factory=list[PrintSite])
    asserts: list[AssertSite] = field(default_factory=list[AssertSite])


class Singles:
    """Writes one such node at a time."""

    def __init__(self, nests: Nests, control: Val, pids: Callable[[], list[Val]]) -> None:
        self.nests = nests
        self.chunks: Chunks = nests.chunks
        self.b = nests.b
        self.levels = nests.levels
        self.control = control
        self.pids = pids
        self.sites = Sites()

    def write(self, op: Op) -> None:
        match op.name:
            case "load":
                index = Index((ZERO,) * op.result.type.rank)
                if op.result.type.shape:
                    self._copy(op.result, self._result_buffer(op.result))
                else:
                    self._scalar(op.result, self._here(lambda: self.chunks.memory.load(op, index)))
            case "store":
                value = self.chunks.get(op.operands[1], Index(()))
                self._here(lambda: self.chunks.memory.store(op, Index(()), value))
            case "atomic_rmw" | "atomic_cas":
                self._atomic(op)
            case "join":
                self._join(op)
            case "cat":
                self._cat(op)
            case "reshape":
                self._reshape(op)
            case "split":
                self._split_pair(op)
            case "print":
                self._print(op)
            case "assert":
                self._assert(op)
            case "assume":
                pass
            case _:
                raise AssertionError(f"`{op.name}` is no single op")

    def _here(self, write: Callable[[], object]) -> object:
        """Loads written by `write` stay at this place in the program."""
        before, self.chunks.pin = self.chunks.pin, self.levels.depth + 1
        with self.levels.scope():
            result = write()
        self.chunks.pin = before
        return result

    def _scalar(self, value: Value, placed: object) -> None:
        assert isinstance(placed, Placed)
        self.chunks.scalars[value] = Placed(placed.val, self.levels.depth)

    def _result_buffer(self, value: Value) -> Buffer:
        buffer = self.nests.tile(value)
        self.chunks.buffers[value] = buffer
        return buffer

    # -- copies into views ------------------------------------------------------------------
    def _copy(self, value: Value, buffer: Buffer) -> None:
        self._copies([(value, buffer)])

    def _copies(self, pairs: Sequence[tuple[Value, Buffer]]) -> None:
        """Put values of one shape into given places, in one nest."""
        if not pairs[0][0].type.shape:
            for value, buffer in pairs:
                stored = self.chunks.get(value, Index(())).val
                self.chunks.memory.write(buffer, value.type.element, Index(()), stored)
            return
        sinks: list[Assign] = []
        for value, buffer in pairs:
            home = Value(value.type, "view")
            self.chunks.buffers[home] = buffer
            sinks.append(Assign(value, home))
        shape = pairs[0][0].type.shape
        longer = [a for a, size in enumerate(shape) if size > 1]
        wanted = self.nests.plan.demand.preferred_axis(pairs[0][0])
        axis = wanted if wanted is not None else longer[-1] if longer else len(shape) - 1
        self.nests.write(Group(shape, list(sinks), axis))

    def _join(self, op: Op) -> None:
        buffer = self._result_buffer(op.result)
        shape, strides = op.operands[0].type.shape, buffer.strides[:-1]
        views = [buffer.strided(shape, strides, side) for side in range(2)]
        self._copies(list(zip(op.operands, views, strict=True)))

    def _split_pair(self, op: Op) -> None:
        """Two elements as two scalars."""
        for side, result in enumerate(op.results):
            pair = self.chunks.buffers[op.operands[0]]
            element = result.type.element
            one = pair.strided((), (), side)
            self._scalar(result, self._here(lambda o=one, e=element: self.chunks.memory.read(o, e, Index(()))))

    def _cat(self, op: Op) -> None:
        buffer = self._result_buffer(op.result)
        axis, start = op.attrs["axis"], 0
        for operand in op.operands:
            shape = operand.type.shape
            self._copy(operand, buffer.strided(shape, buffer.strides, start))
            start += shape[axis] * buffer.strides[axis]

    def _reshape(self, op: Op) -> None:
        source = op.operands[0]
        buffer = self._result_buffer(op.result)
        self._copy(source, buffer.strided(source.type.shape, row_major(source.type.shape)))

    # -- every element ----------------------------------------------------------------------
    def _each(self, shape: tuple[int, ...], body: Callable[[Index], None]) -> None:
        """One element at a time, in row-major order."""

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

    def _atomic(self, op: Op) -> None:
        used = bool(self.nests.plan.users.get(op.results[0])) or self._yielded(op.results[0])
        shape = op.results[0].type.shape
        buffer = self._result_buffer(op.results[0]) if shape and used else None

        def one(index: Index) -> None:
            old = self._guarded_atomic(op, index)
            if buffer is not None:
                self.chunks.memory.write(buffer, op.results[0].type.element, index, old)
            elif not shape:
                self.chunks.scalars[op.results[0]] = Placed(old, self.levels.depth)

        if shape:
            self._here(lambda: self._each(shape, one))
        else:
            one(Index(()))

    def _yielded(self, value: Value) -> bool:
        return any(value in block.yields for block in self.nests.plan.depth)

    def _guarded_atomic(self, op: Op, index: Index) -> Val:
        cas = op.name == "atomic_cas"
        values = [self.chunks.get(o, index).val for o in op.operands]
        element = op.operands[1].type.dtype
        if cas or len(values) < 3:
            return self._atomic_op(op, values, element)
        zero = self.b.const(0, LType(register_elem(element)))
        return self.levels.branch(
            values[2], lambda: [self._atomic_op(op, values, element)], lambda: [zero]
        )[0]

    def _atomic_op(self, op: Op, values: Sequence[Val], element: DType) -> Val:
        order = _ORDER[op.attrs.get("sem") or "acq_rel"]
        stored = [to_storage(self.b, v, element) for v in values[1 : 3 if op.name == "atomic_cas" else 2]]
        if op.name == "atomic_cas":
            return self._compare_exchange(values[0], stored, element, op)
        kind = _instruction(op.attrs["kind"], element)
        if element is bfloat16 and kind.startswith("f"):
            return self._bfloat_loop(values[0], values[1], op.attrs["kind"], order)
        size = element.storage_bytes
        text = f"atomicrmw {kind} {values[0]}, {stored[0]} {order}, align {size}"
        return to_register(self.b, self.b.emit(text, stored[0].type), element)

    def _compare_exchange(
        self, pointer: Val, stored: Sequence[Val], element: DType, op: Op
    ) -> Val:
        sem = op.attrs.get("sem") or "acq_rel"
        size = element.storage_bytes
        bits = LType(f"i{size * 8}")
        expected, new = (self.b.bitcast(v, bits.elem) for v in stored)
        orders = f"{_ORDER[sem]} {_FAILURE_ORDER.get(sem, 'acquire')}"
        text = f"cmpxchg {pointer}, {expected}, {new} {orders}, align {size}"
        pair = self.b.emit(text, LType("i1"))
        old = self.b.emit(f"extractvalue {{ {bits}, i1 }} {pair.text}, 0", bits)
        return to_register(self.b, self.b.bitcast(old, storage_elem(element)), element)

    def _bfloat_loop(self, pointer: Val, value: Val, kind: str, order: str) -> Val:
        """LLVM knows no atomic on 16 bits that adds as bfloat16: try until nobody came between."""
        i16 = LType("i16")
        first = self.b.emit(f"load atomic i16, {pointer} monotonic, align 2", i16)
        again, done = self.b.name("retry"), self.b.name("added")
        entry = self.b.code.block
        self.b.branch(again)
        self.b.label(again)
        seen = f"%{self.b.name('seen')}"
        old = Val(f"%{self.b.name('old')}", i16)
        self.b.do(f"{old.text} = phi i16 [ {first.text}, %{entry} ], [ {seen}, %{again} ]")
        wide = to_register(self.b, old, bfloat16)
        new = self.b.fadd(wide, value)
        if kind != "add":
            new = self.b.intrinsic("maxnum" if kind == "max" else "minnum", [wide, value])
        bits = to_storage(self.b, narrow_float(self.b, new, bfloat16), bfloat16)
        failure = "monotonic" if order in ("monotonic", "release") else "acquire"
        text = f"cmpxchg {pointer}, {old}, {bits} {order} {failure}, align 2"
        pair = self.b.emit(text, LType("i1"))
        self.b.do(f"{seen} = extractvalue {{ i16, i1 }} {pair.text}, 0")
        won = self.b.emit(f"extractvalue {{ i16, i1 }} {pair.text}, 1", LType("i1"))
        self.b.branch_if(won, done, again)
        self.b.label(done)
        return wide

    # -- scans ------------------------------------------------------------------------------
    def scan(self, node: Scan) -> None:
        for result in node.results:
            self._result_buffer(result)
        shape = node.operands[0].type.shape
        others = [a for a, size in enumerate(shape) if a != node.axis and size >= 4]
        if others:
            self._here(lambda: self._scan_across(node, others[-1]))
        else:
            self._here(lambda: self._scan_along(node))

    def _lanes(self, node: Scan, axis: int) -> int:
        size = node.operands[0].type.shape[axis]
        wide = any(o.type.dtype.bits == 64 for o in node.operands)
        return min(size & -size, self.nests.plan.target.lanes(64 if wide else 32))

    def _over(
        self, shape: tuple[int, ...], axes: Sequence[tuple[int, int]], index: Index,
        body: Callable[[Index], None],
    ) -> None:  # fmt: skip
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

    def _scan_across(self, node: Scan, axis: int) -> None:
        """Lanes run along another axis: each step of the scan is one combine."""
        shape = node.operands[0].type.shape
        lanes = self._lanes(node, axis)
        others = [(a, 1) for a in range(len(shape)) if a not in (axis, node.axis)]
        start = Index((ZERO,) * len(shape), axis if lanes > 1 else None, lanes if lanes > 1 else 0)

        def column(index: Index) -> None:
            def turn(i: Val, before: list[Val]) -> Sequence[Val]:
                coord = self._mirrored(i, shape[node.axis], 1, node.reverse)
                return self._scan_step(node, index.at(node.axis, coord), i, before)

            types = [LType(register_elem(o.type.element), index.lanes) for o in node.operands]
            initial = [self.b.const(0, t) for t in types]
            self.levels.counted(shape[node.axis], 1, initial, turn)

        self._over(shape, [*others, (axis, lanes)], start, column)

    def _scan_step(self, node: Scan, index: Index, turn: Val, before: list[Val]) -> list[Val]:
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

    def _scan_along(self, node: Scan) -> None:
        """Lanes run along the scanned axis: a prefix inside each chunk, then the carry."""
        shape, axis = node.operands[0].type.shape, node.axis
        lanes = self._lanes(node, axis)
        others = [(a, 1) for a in range(len(shape)) if a != axis]
        vector = lanes if lanes > 1 else 0
        start = Index((ZERO,) * len(shape), axis if vector else None, vector)

        def row(index: Index) -> None:
            def turn(i: Val, before: list[Val]) -> Sequence[Val]:
                coord = self._mirrored(i, shape[axis], lanes, node.reverse)
                place = index.at(axis, coord)
                inside = self._prefix(node, [self.chunks.vector(o, place).val for o in node.operands])
                carried = [self.b.splat(v, vector) if vector else v for v in before]
                after = self._unless_first(node, i, carried, inside)
                self._put(node, place, after)
                end = 0 if node.reverse else lanes - 1
                return [self.b.extract(v, end) if vector else v for v in after]

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

    # -- debugging --------------------------------------------------------------------------
    def _print(self, op: Op) -> None:
        pids = self._pid_block()
        prefix, as_hex = op.attrs.get("prefix", ""), bool(op.attrs.get("hex"))
        for number, operand in enumerate(op.operands or (None,)):
            site = len(self.sites.prints)
            dtype, shape = "int32", (0,)
            if operand is not None:
                dtype = "pointer" if operand.type.is_pointer else operand.type.dtype.name
                shape = operand.type.shape
            place = number if len(op.operands) > 1 else -1
            self.sites.prints.append(PrintSite(prefix, dtype, shape, as_hex, place))
            data, count = self._printable(operand)
            args = [self.b.const(site, I64), pids, data, self.b.const(count, I64)]
            self.b.call(None, "deuteron_print", args)

    def _printable(self, operand: Value | None) -> tuple[Val, int]:
        """A tile laid out row-major in scratch, and its length."""
        if operand is None:
            return self.chunks.scratch, 0
        if operand.type.shape:
            buffer = self.nests.arena.tile(operand.type)
            self._copy(operand, buffer)
        else:
            buffer = self.nests.arena.tile(operand.type.with_shape((1,)))
            value = self.chunks.get(operand, Index(())).val
            self.chunks.memory.write(buffer, operand.type.element, Index((ZERO,)), value)
        start = Index((ZERO,) * len(buffer.shape))
        return self.chunks.memory.buffer_address(buffer, start).val, operand.type.numel

    def _pid_block(self) -> Val:
        offset = self.nests.arena.bytes(24)
        base = self.b.gep("i8", self.chunks.scratch, offset)
        for axis, pid in enumerate(self.pids()):
            self.b.store(pid, self.b.gep("i64", base, axis), 8)
        return base

    def _assert(self, op: Op) -> None:
        message = str(op.attrs.get("message") or "")
        self.sites.asserts.append(AssertSite(message, op.loc.file, op.loc.line))
        number = len(self.sites.asserts)
        shape = op.operands[0].type.shape

        def check(index: Index) -> None:
            holds = self.chunks.get(op.operands[0], index).val
            if len(op.operands) > 1:
                mask = self.chunks.get(op.operands[1], index).val
                holds = self.b.or_(holds, self.b.xor(mask, self.b.const(1, mask.type)))
            self.levels.branch(holds, lambda: [], lambda: self._fail(number))

        if shape:
            self._here(lambda: self._each(shape, check))
        else:
            check(Index(()))

    def _fail(self, number: int) -> list[Val]:
        """Record the first failed assert of the launch, and by which program."""
        expected = self.b.const(0, I64)
        text = f"cmpxchg {self.control}, {expected}, i64 {number} acq_rel acquire, align 8"
        pair = self.b.emit(text, LType("i1"))
        won = self.b.emit(f"extractvalue {{ i64, i1 }} {pair.text}, 1", LType("i1"))

        def record() -> list[Val]:
            for axis, pid in enumerate(self.pids()):
                self.b.store(pid, self.b.gep("i64", self.control, 1 + axis), 8)
            return []

        self.levels.branch(won, record, lambda: [])
        return []


def _instruction(kind: str, element: DType) -> str:
    """LLVM's name of an atomic read-modify-write on that element type."""
    if element.is_floating() and kind in ("add", "max", "min"):
        return f"f{kind}"
    if kind in ("max", "min") and not element.is_int_signed():
        return f"u{kind}"
    return kind
