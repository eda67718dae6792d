"""Ops that are not sinks of a fused nest: scalar accesses, shape copies, prints and asserts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from deuteron.backends.cpu.atomics import write_atomic
from deuteron.backends.cpu.buffers import Buffer, row_major
from deuteron.backends.cpu.index import ZERO, Index
from deuteron.backends.cpu.kernel_info import AssertSite, PrintSite
from deuteron.backends.cpu.nests import Nests
from deuteron.backends.llvm.builder import I32, I64, Val
from deuteron.backends.llvm.control_block import emit_failure
from deuteron.backends.llvm.levels import Placed
from deuteron.backends.refusals import no_assembly
from deuteron.dtypes import int32
from deuteron.ir import Op, Value


@dataclass(slots=True)
class Sites:
    """What the host needs to know of prints and asserts, by number."""

    prints: list[PrintSite] = field(default_factory=list[PrintSite])
    asserts: list[AssertSite] = field(default_factory=list[AssertSite])


class Singles:
    """Writes one such op at a time.

    `control` points to the launch's control block; `pids` gives the program's ids (i64).
    """

    def __init__(self, nests: Nests, control: Val, pids: Callable[[], list[Val]]) -> None:
        self.nests = nests
        self.chunks = nests.chunks
        self.b = nests.b
        self.levels = nests.levels
        self.control = control
        self.pids = pids
        self.sites = Sites()

    def write(self, op: Op) -> None:
        """Write an op of the scalars and tiles known so far, and make its results known."""
        match op.name:
            case "load":
                self._load(op)
            case "store":
                value = self.chunks.get(op.operands[1], Index(()))
                with self.chunks.here():
                    self.chunks.memory.store(op, Index(()), value)
            case "atomic_rmw" | "atomic_cas":
                write_atomic(self.nests, op)
            case "join":
                self._join(op)
            case "cat":
                self._cat(op)
            case "reshape":
                self._reshape(op)
            case "split":
                self._split_pair(op)
            case "histogram":
                self._histogram(op)
            case "inline_asm":
                raise no_assembly(op)
            case "print":
                self._print(op)
            case "assert":
                self._assert(op)
            case "assume" | "barrier":
                pass
            case _:
                raise AssertionError(f"`{op.name}` is no single op")

    def _load(self, op: Op) -> None:
        if op.result.type.shape:
            buffer = self.nests.tile(op.result)
            self._copy(op.result, buffer)
            self.chunks.buffers[op.result] = buffer  # only now: the copy is to read memory
            return
        with self.chunks.here():
            loaded = self.chunks.memory.load(op, Index(())).val
        self.chunks.scalars[op.result] = Placed(loaded, self.levels.depth)

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
        shape = pairs[0][0].type.shape
        longer = [a for a, size in enumerate(shape) if size > 1]
        wanted = self.nests.plan.demand.preferred_axis(pairs[0][0])
        axis = wanted if wanted is not None else longer[-1] if longer else len(shape) - 1
        self.nests.copy(pairs, axis)

    def _join(self, op: Op) -> None:
        buffer = self.nests.new_buffer(op.result)
        shape, strides = op.operands[0].type.shape, buffer.strides[:-1]
        views = [buffer.strided(shape, strides, side) for side in range(2)]
        self._copies(list(zip(op.operands, views, strict=True)))

    def _split_pair(self, op: Op) -> None:
        """Two elements as two scalars."""
        pair = self.chunks.buffer_of(op.operands[0])
        for side, result in enumerate(op.results):
            one = pair.strided((), (), side)
            with self.chunks.here():
                read = self.chunks.memory.read(one, result.type.element, Index(())).val
            self.chunks.scalars[result] = Placed(read, self.levels.depth)

    def _cat(self, op: Op) -> None:
        buffer = self.nests.new_buffer(op.result)
        axis: int = op.attrs["axis"]
        start = 0
        for operand in op.operands:
            shape = operand.type.shape
            self._copy(operand, buffer.strided(shape, buffer.strides, start))
            start += shape[axis] * buffer.strides[axis]

    def _reshape(self, op: Op) -> None:
        source = op.operands[0]
        if not op.result.type.shape:
            with self.chunks.here():
                only = self.chunks.get(source, Index.origin(source.type.rank)).val
            self.chunks.scalars[op.result] = Placed(only, self.levels.depth)
            return
        # Without gaps, whatever pitch a dot would like.
        buffer = self.nests.arena.tile(op.result.type)
        self.chunks.buffers[op.result] = buffer
        self._copy(source, buffer.strided(source.type.shape, row_major(source.type.shape)))

    # -- counting ---------------------------------------------------------------------------
    def _histogram(self, op: Op) -> None:
        """Count value after value: two equal ones in a vector would meet in one place."""
        b, bins = self.b, int(op.attrs["bins"])
        buffer = self.nests.new_buffer(op.result)
        base = self.chunks.memory.buffer_address(buffer, Index((ZERO,))).val
        zero = b.const(0, I64)

        def clear(index: Index) -> None:
            self.chunks.memory.write(buffer, int32, index, b.const(0, I32))

        def count(index: Index) -> None:
            value = self.chunks.get(op.operands[0], index).val
            signed = op.operands[0].type.dtype.is_int_signed()
            if value.type.bits < 64:
                value = b.convert("sext" if signed else "zext", value, "i64")
            counted = b.icmp("ult", value, b.const(bins, I64))
            if len(op.operands) > 1:
                counted = b.and_(counted, self.chunks.get(op.operands[1], index).val)
            place = b.gep("i32", base, b.select(counted, value, zero))
            one = b.convert("zext", counted, "i32")
            b.store(b.add(b.load(I32, place, 4), one), place, 4)

        self.nests.each((bins,), clear)
        with self.chunks.here():
            self.nests.each(op.operands[0].type.shape, count)

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
            self.levels.branch(
                holds, list, lambda: emit_failure(self.levels, self.control, number, self.pids)
            )

        with self.chunks.here() if shape else nullcontext():
            self.nests.each(shape, check)
