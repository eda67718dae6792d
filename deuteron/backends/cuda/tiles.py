"""What is known while a kernel is written: scalars, and tiles in the layouts they exist in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

from deuteron.backends.cuda import convert
from deuteron.backends.cuda.assign import Assignment
from deuteron.backends.cuda.cta import Cta
from deuteron.backends.cuda.elementwise import emit_op
from deuteron.backends.cuda.layout import Coord, Layout, replicated
from deuteron.backends.cuda.linear_code import emit_linear
from deuteron.backends.llvm.builder import I32, Builder, LType, Val
from deuteron.backends.llvm.levels import Levels, Placed
from deuteron.backends.llvm.registers import register_elem, to_register, to_storage
from deuteron.dtypes import bfloat16
from deuteron.ir import Op, Value
from deuteron.ir.nodes import Block


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile's elements that one thread holds, or the one value of a scalar (`layout` None)."""

    layout: Layout | None
    registers: Sequence[Val]


class Deferred(Sequence[Val]):
    """Registers that are written when they are first asked for, at the place where this was made.

    An access of neighbours asks for the first one's address and mask only.
    """

    def __init__(self, b: Builder, count: int, write: Callable[[int], Val]) -> None:
        self._b = b
        self._write = write
        self._place = b.reserve()
        self._known: list[Val | None] = [None] * count

    def __len__(self) -> int:
        return len(self._known)

    @overload
    def __getitem__(self, index: int) -> Val: ...

    @overload
    def __getitem__(self, index: slice) -> list[Val]: ...

    def __getitem__(self, index: int | slice) -> Val | list[Val]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        found = self._known[index]
        if found is None:
            with self._b.at(self._place):
                found = self._known[index] = self._write(index)
        return found


class Tiles:
    """The values of one kernel."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.cta = Cta(assignment.target, assignment.num_warps)
        self.b = self.cta.b
        self.b.fuses_products = assignment.function.attrs.get("enable_fp_fusion", True)
        self.levels = Levels(self.b)
        self._images = self.b.reserve()
        self.scalars: dict[Value, Val] = {}
        self._tiles: dict[tuple[Value, Layout], Sequence[Val]] = {}
        self._described: dict[Value, Layout] = {}

    # -- known values -----------------------------------------------------------------------
    def scalar(self, value: Value) -> Val:
        """A scalar; it is the same in every thread."""
        return self.scalars[value]

    def registers(self, value: Value, layout: Layout) -> Sequence[Val]:
        """A tile's registers in a layout it was assigned to; a scalar's value in each register."""
        if not value.type.shape:
            return [self.scalars[value]] * layout.registers
        return self._tiles[value, layout]

    def put(self, value: Value, tile: Tile) -> None:
        """Make a result known, converted to whatever layouts it is wanted in."""
        if tile.layout is None:
            self.scalars[value] = tile.registers[0]
            return
        self._described.setdefault(value, tile.layout)
        self._tiles[value, tile.layout] = tile.registers
        for wanted in self.assignment.converted_to(value):
            if wanted != tile.layout:
                self._tiles[value, wanted] = self._converted(value, tile, tile.layout, wanted)

    def _converted(self, value: Value, tile: Tile, source: Layout, target: Layout) -> Sequence[Val]:
        """The same elements in another layout; bfloat16 moves as its 16 bits."""
        registers, element = tile.registers, value.type.element
        if element is bfloat16:
            registers = [to_storage(self.b, register, element) for register in registers]
        plan = convert.plan(source, target, max(8, registers[0].type.bits))
        moved = convert.emit(self.cta, plan, registers)
        if element is bfloat16:
            return [to_register(self.b, register, element) for register in moved]
        return moved

    def zero(self, value: Value) -> Val:
        """The constant 0 of a value's element type."""
        elem = register_elem(value.type.element)
        return Val("null", LType(elem)) if elem == "ptr" else self.b.const(0, LType(elem))

    def describe(self) -> str:
        """The layout of each tile, one a line, for people."""
        lines = [f"%{v.name or '?'}: {v.type}  {layout}" for v, layout in self._described.items()]
        return "\n".join(lines)

    # -- who holds what ---------------------------------------------------------------------
    def thread_image(self, vectors: tuple[int, ...]) -> Val:
        """The image (i32) of the calling thread's number under the linear map with these columns.

        Written once, before everything else.
        """
        key = ("thread image", *vectors)
        placed = self.levels.recall(key)
        if placed is None:
            with self.b.at(self._images):
                image = emit_linear(self.b, self.cta.thread, vectors)
            placed = self.levels.remember(key, Placed(image))
        return placed.val

    def base(self, layout: Layout, axis: int) -> Val:
        """The coordinate (i32) along an axis of the calling thread's register 0."""
        return self.thread_image(tuple(v[axis] for v in (*layout.lane, *layout.warp)))

    def coordinate(self, layout: Layout, axis: int, offset: Coord) -> Val:
        """The coordinate (i32) along an axis of the calling thread's register at `offset`."""
        base = self.base(layout, axis)
        if not offset[axis]:
            return base
        step = self.b.const(offset[axis], I32)
        if _apart(layout, axis):
            return self.b.emit(f"add nuw nsw {base}, {step.text}", I32)
        return self.b.xor(base, step)

    def linear(self, layout: Layout, offset: Coord) -> Val:
        """The row-major number (i32) of the element in the thread's register at `offset`."""
        thread = self.thread_image((*layout.flat_lane, *layout.flat_warp))
        return self.b.xor(thread, self.b.const(layout.flat(offset), I32))

    def representative(self, layout: Layout | None) -> Val | None:
        """True in the threads that act for all that hold the same elements; None when all do."""
        if layout is None:
            return self.cta.on_one_thread()
        b = self.b
        lanes, warps = layout.replicated_lanes, layout.replicated_warps
        if not layout.replicates:
            return None
        redundant = b.or_(
            b.and_(self.cta.lane, b.const(lanes, I32)), b.and_(self.cta.warp, b.const(warps, I32))
        )
        return b.icmp("eq", redundant, b.const(0, I32))

    def on_representatives(self, layout: Layout | None, write: Callable[[], None]) -> None:
        """Write what only these threads do."""
        own = self.representative(layout)
        if own is None:
            write()
        else:
            self.on_condition(own, write)

    def on_condition(self, condition: Val, write: Callable[[], None]) -> None:
        """Write what only those threads do where a condition holds."""

        def side() -> list[Val]:
            write()
            return []

        self.levels.branch(condition, side, list)

    def program_ids(self) -> list[Val]:
        """The three program ids, as i64."""
        return [self.b.convert("zext", self.cta.program_id(axis), "i64") for axis in range(3)]

    # -- small computations -----------------------------------------------------------------
    def combine(self, block: Block, args: Sequence[Val]) -> list[Val]:
        """What a combine block of a reduction or scan makes of scalars."""
        known = dict(zip(block.args, args, strict=True))
        for node in block.nodes:
            assert isinstance(node, Op)
            if node.name == "const":
                elem = LType(register_elem(node.attrs["dtype"]))
                known[node.result] = self.b.const(node.attrs["value"], elem)
            else:
                operands = [known[o] if o in known else self.scalars[o] for o in node.operands]
                known[node.result] = emit_op(self.b, node, operands)
        return [known[v] if v in known else self.scalars[v] for v in block.yields]

    def everywhere(self, value: Val, source: Val) -> Val:
        """A value that one thread (where `source` holds) has, in every thread of the block."""
        place = self.cta.shared(self.cta.scratch(max(1, value.type.bits // 8)))
        self.on_condition(source, lambda: keep(self, value, place))
        self.cta.barrier()
        return kept(self, place, value.type)

    def only_element(self, op: Op, result: Value) -> Val:
        """A scalar that is an element of the tile an op takes."""
        operand = op.operands[0]
        if not operand.type.shape:
            return self.scalars[operand]
        layout = replicated(operand.type.shape, self.cta.num_warps)
        place = (*(0 for _ in operand.type.shape[1:]), result.index)
        return self.registers(operand, layout)[layout.register_at[place]]


def keep(tiles: Tiles, val: Val, place: Val, align: int = 0) -> None:
    """Write a value held in registers, or a vector of such, to shared memory."""
    b = tiles.b
    val = b.convert("zext", val, "i8") if val.type.elem == "i1" else val
    b.store(val, place, align or val.type.bits // 8)


def kept(tiles: Tiles, place: Val, type: LType) -> Val:
    """The value of a type that `keep` wrote."""
    b = tiles.b
    if type.elem == "i1":
        return b.convert("trunc", b.load(LType("i8"), place, 1), "i1")
    return b.load(type, place, type.bits // 8)


def _apart(layout: Layout, axis: int) -> bool:
    """True when registers and threads set different bits of a coordinate, so that it adds up."""
    registers = threads = 0
    for vector in layout.register:
        registers |= vector[axis]
    for vector in (*layout.lane, *layout.warp):
        threads |= vector[axis]
    return not registers & threads
