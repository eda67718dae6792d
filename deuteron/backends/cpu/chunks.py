"""Chunks: a tile op written for one native-width vector of its elements at a time.

A tile is never held whole in registers.  Whoever needs elements of a value asks for a *chunk*: the
elements at one coordinate, or at `lanes` neighbouring coordinates along one axis.  The answer is
written by asking the operands for theirs, so any chain of elementwise ops, broadcasts, aranges and
masks becomes straight-line vector code inside whatever loop asked.  A chunk that does not vary
along the axis is a scalar.  `Levels` puts each piece of it at the outermost loop it can stand at
and remembers it there.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from deuteron.backends.cpu.buffers import Buffer
from deuteron.backends.cpu.gathers import read_gathered
from deuteron.backends.cpu.index import Coord, Index, permuted, reshaped, without_axis
from deuteron.backends.cpu.memory import Memory
from deuteron.backends.llvm.builder import I32, I64, Builder, LType, Val
from deuteron.backends.llvm.elementwise import emit_op
from deuteron.backends.llvm.levels import Levels, Placed
from deuteron.backends.llvm.registers import register_elem
from deuteron.dtypes import float32
from deuteron.errors import InternalError
from deuteron.ir import Block, Op, Value
from deuteron.ir.axis_info import AxisFacts

ONE_TRUE = Val("true", LType("i1"))


class Chunks:
    """Writes chunks of the values of one function."""

    def __init__(self, b: Builder, levels: Levels, facts: AxisFacts, scratch: Val) -> None:
        self.b = b
        self.levels = levels
        self.facts = facts
        self.scratch = scratch
        self.scalars: dict[Value, Placed] = {}
        self.buffers: dict[Value, Buffer] = {}
        # Masks that hold throughout the copy of a loop nest now being written.
        self.held_masks: set[Value] = set()
        # Loads stand at this level or deeper: memory may change outside of it.
        self.pin = 0
        self.memory = Memory(self)

    @contextmanager
    def assuming(self, scalars: dict[Value, Placed]) -> Generator[None]:
        """Answer as if some scalars had other values; nothing is remembered in or out."""
        before = self.scalars
        self.scalars = before | scalars
        with self.levels.apart():
            yield
        self.scalars = before

    @contextmanager
    def pinned(self) -> Generator[None]:
        """Loads asked for meanwhile stand at the present level or deeper."""
        before, self.pin = self.pin, self.levels.depth
        yield
        self.pin = before

    @contextmanager
    def here(self) -> Generator[None]:
        """Loads asked for meanwhile are written at this place in the program, and forgotten."""
        with self.levels.scope(), self.pinned():
            yield

    @contextmanager
    def holding(self, masks: set[Value]) -> Generator[None]:
        """Answer as if some masks held everywhere."""
        before, self.held_masks = self.held_masks, self.held_masks | masks
        yield
        self.held_masks = before

    # -- values -----------------------------------------------------------------------------
    def get(self, value: Value, index: Index) -> Placed:
        """The chunk of a value at a place: a vector, or a scalar where lanes do not differ."""
        if value in self.held_masks:
            return Placed(ONE_TRUE, self.pin)
        if not value.type.shape:
            return self.scalar(value)
        index = index.fit(value.type.shape)
        key = (value, index)
        placed = self.levels.recall(key)
        if placed is None:
            placed = self.levels.remember(key, self._make(value, index))
        return placed

    def scalar(self, value: Value) -> Placed:
        """A value of shape (), computed here where it is not known yet."""
        placed = self.scalars.get(value)
        if placed is not None:
            return placed
        key = (value,)
        placed = self.levels.recall(key)
        if placed is None:
            op = value.op
            if op is None:
                raise InternalError(f"scalar {value.name or value.type} was not computed")
            placed = self.levels.remember(key, self._elementwise(op, Index(())))
        return placed

    def vector(self, value: Value, index: Index) -> Placed:
        """As `get`, always with `index.lanes` lanes."""
        return self.widen(self.get(value, index), index.lanes)

    def raw(self, value: Value, index: Index) -> Placed:
        """The chunk of a load that `Demand.raw_load` found, as it lies in memory."""
        op = value.op
        assert op is not None
        if op.name == "permute":
            return self.raw(op.operands[0], permuted(index, op.attrs["order"]))
        return self.memory.load(op, index, raw=True)

    def widen(self, placed: Placed, lanes: int) -> Placed:
        """A scalar in `lanes` lanes; a vector, or anything when `lanes` is 0, as it is."""
        if placed.val.type.lanes or not lanes:
            return placed
        key = ("splat", placed.val, lanes)
        known = self.levels.recall(key)
        if known is None:
            with self.levels.at(placed.level):
                known = Placed(self.b.splat(placed.val, lanes), placed.level)
            self.levels.remember(key, known)
        return known

    def coordinate(self, coord: Coord) -> Placed:
        """A position as an i64."""
        if not coord.base:
            return Placed(self.b.const(coord.offset, I64))
        base = Placed(Val(coord.base, I64), coord.level)
        if not coord.offset:
            return base
        key = ("coord", coord)
        known = self.levels.recall(key)
        if known is None:
            with self.levels.at(coord.level):
                val = self.b.emit(f"add nuw nsw i64 {coord.base}, {coord.offset}", I64)
            known = self.levels.remember(key, Placed(val, coord.level))
        return known

    # -- how each is made -------------------------------------------------------------------
    def _make(self, value: Value, index: Index) -> Placed:
        buffer = self.buffers.get(value)
        if buffer is not None:
            return self.memory.read(buffer, value.type.element, index)
        op = value.op
        if op is None:
            raise InternalError(f"tile {value.name or value.type} has no buffer")
        match op.name:
            case "load":
                return self.memory.load(op, index)
            case "splat":
                return self.scalar(op.operands[0])
            case "arange":
                return self._arange(op, index)
            case "broadcast":
                return self.get(op.operands[0], index)
            case "expand_dims":
                return self.get(op.operands[0], without_axis(index, op.attrs["axis"]))
            case "permute":
                return self.get(op.operands[0], permuted(index, op.attrs["order"]))
            case "split":
                return self.memory.read(self.buffer_of(value), value.type.element, index)
            case "gather":
                return read_gathered(self, op, self.buffer_of(op.operands[0]), index)
            case "reshape":
                return self.get(op.operands[0], reshaped(op, index))
            case _:
                return self._elementwise(op, index)

    def _arange(self, op: Op, index: Index) -> Placed:
        coord, start = index.coords[0], op.attrs["start"]
        place = self.coordinate(coord.plus(start))
        with self.levels.at(place.level):
            first = place.val
            if first.text.startswith("%"):
                first = self.b.emit(f"trunc nuw nsw i64 {first.text} to i32", I32)
            else:
                first = Val(first.text, I32)
        if index.axis is None:
            return Placed(first, place.level)
        splat = self.widen(Placed(first, place.level), index.lanes)
        lanes = self.b.vector(range(index.lanes), "i32")
        if not coord.base:
            at = coord.offset + start
            return Placed(self.b.vector(range(at, at + index.lanes), "i32"))
        with self.levels.at(place.level):
            val = self.b.emit(f"add nuw nsw {splat.val}, {lanes.text}", lanes.type)
        return Placed(val, place.level)

    def buffer_of(self, value: Value) -> Buffer:
        """Where a kept tile lies; half of a split is every other element of its operand."""
        op = value.op
        if op is None or op.name != "split":
            return self.buffers[value]
        whole = self.buffer_of(op.operands[0])
        return whole.strided(value.type.shape, whole.strides[:-1], value.index)

    def _elementwise(self, op: Op, index: Index) -> Placed:
        if op.name == "const":
            elem = register_elem(op.result.type.element)
            return Placed(self.b.const(op.attrs["value"], LType(elem)))
        args = [self.get(o, index) for o in op.operands]
        return self.apply(op, args)

    def apply(self, op: Op, args: Sequence[Placed]) -> Placed:
        """One elementwise op on chunks, at the outermost level that knows them all."""
        lanes = max((a.val.type.lanes for a in args), default=0)
        by_scalar = op.name == "div" and lanes and not args[1].val.type.lanes
        if by_scalar and op.result.type.dtype is float32 and not op.attrs.get("ieee"):
            return self._divide_by_scalar(*args)
        if lanes and op.name != "addptr":
            args = [self.widen(a, lanes) for a in args]
        level = max((a.level for a in args), default=0)
        with self.levels.at(level):
            return Placed(emit_op(self.b, op, [a.val for a in args]), level)

    def _divide_by_scalar(self, x: Placed, divisor: Placed) -> Placed:
        """x / d for one d: by its reciprocal and one correction step, a sixth of the time.

        Correctly rounded unless the dividend or the quotient is next to the subnormal numbers, or
        one of them (Markstein, "Computation of elementary functions on the IBM RISC System/6000
        processor", 1990).  Both are scaled first where the reciprocal of d would not be normal.
        """
        b, lanes = self.b, x.val.type.lanes
        if self.levels.recall(("reciprocal", divisor.val)) is None:
            with self.levels.at(divisor.level):
                scale = self._reciprocal_scale(divisor.val)
                scaled = b.fmul(divisor.val, scale)
                reciprocal = b.fdiv(b.const(1.0, scaled.type), scaled)
                parts = {"scale": scale, "minus_d": b.fneg(scaled), "reciprocal": reciprocal}
            for name, val in parts.items():
                wide = self.widen(Placed(val, divisor.level), lanes)
                self.levels.remember((name, divisor.val), wide)
        found = [self.levels.recall((n, divisor.val)) for n in ("scale", "minus_d", "reciprocal")]
        scale, minus_d, reciprocal = (p.val for p in found if p is not None)
        level = max(x.level, divisor.level)
        with self.levels.at(level):
            scaled_x = b.fmul(x.val, scale)
            quotient = b.fmul(scaled_x, reciprocal)
            remainder = b.fma(quotient, minus_d, scaled_x)
            better = b.fma(remainder, reciprocal, quotient)
            # Infinities and zeros leave no remainder to correct by: the first product is right.
            invalid = b.fcmp("uno", better, better)
            return Placed(b.select(invalid, quotient, better), level)

    def _reciprocal_scale(self, divisor: Val) -> Val:
        """A power of two that brings a divisor near the ends of the range away from them."""
        b = self.b
        magnitude = b.fabs(divisor)
        small = b.fcmp("olt", magnitude, b.const(2.0**-100, divisor.type))
        large = b.fcmp("ogt", magnitude, b.const(2.0**100, divisor.type))
        up = b.select(small, b.const(2.0**64, divisor.type), b.const(1.0, divisor.type))
        return b.select(large, b.const(2.0**-64, divisor.type), up)

    # -- combine blocks ---------------------------------------------------------------------
    def combine(self, block: Block, args: Sequence[Val]) -> list[Val]:
        """A reduce's or scan's combine block on scalars or vectors, written here and now."""
        lanes = args[0].type.lanes
        known = dict(zip(block.args, args, strict=True))
        for node in block.nodes:
            assert isinstance(node, Op), "the verifier admits only ops here"
            if node.name == "const":
                elem = register_elem(node.result.type.element)
                known[node.result] = self.b.const(node.attrs["value"], LType(elem, lanes))
            else:
                operands = [known[o] for o in node.operands]
                known[node.result] = emit_op(self.b, node, operands)
        return [known[y] for y in block.yields]
