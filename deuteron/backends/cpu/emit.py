"""Writes a planned function as LLVM IR: parameters, programs, control flow, dots.

The function written follows the launch convention: it runs the programs `begin .. end` of a grid,
one after the other, in the arena it is given and with the tile store it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deuteron.backends.cpu.buffers import Arena
from deuteron.backends.cpu.chunks import Chunks
from deuteron.backends.cpu.dot_plan import Compute
from deuteron.backends.cpu.first_turns import begins_accumulator
from deuteron.backends.cpu.index import ZERO, Coord, Index
from deuteron.backends.cpu.lookahead import next_tiles
from deuteron.backends.cpu.microkernel import emit_dot
from deuteron.backends.cpu.microkernel_amx import emit_dot_amx
from deuteron.backends.cpu.nests import Nests
from deuteron.backends.cpu.planner import Plan
from deuteron.backends.cpu.prefetch import PrefetchRows
from deuteron.backends.cpu.scans import Scans
from deuteron.backends.cpu.singles import Singles, Sites
from deuteron.backends.cpu.steps import Group, Pack, Single
from deuteron.backends.cpu.tile_store import STORE, TileStore
from deuteron.backends.llvm.builder import I64, PTR, Builder, LType, Val
from deuteron.backends.llvm.levels import Levels, Placed
from deuteron.backends.llvm.registers import storage_elem, to_register
from deuteron.dtypes import int1
from deuteron.ir import For, If, Op, Reduce, Scan, Type, Value, While
from deuteron.ir.nodes import Block
from deuteron.passes.simplify import constant_of

FIRST_ARGUMENT_SLOT = 4
CONTROL_SLOT = 3


@dataclass(frozen=True, slots=True)
class Emitted:
    """The module's text and what a launch needs to know."""

    text: str
    scratch_bytes: int
    store_bytes: int
    sites: Sites


def emit(plan: Plan) -> Emitted:
    """The planned function as an LLVM module that exports it under its name."""
    return _Emitter(plan).function()


class _Emitter:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.b = Builder()
        self.levels = Levels(self.b)
        self.arena = Arena()
        self.chunks = Chunks(self.b, self.levels, plan.facts, Val("%scratch", PTR))
        self.grid = [self._slot(i, I64) for i in range(3)]
        self.control = self._slot(CONTROL_SLOT, PTR)
        programs = self.b.mul(self.b.mul(self.grid[0], self.grid[1]), self.grid[2])
        self.store = TileStore(self.b, plan)
        self.nests = Nests(plan, self.chunks, self.arena, self.store, programs)
        self.scans = Scans(self.nests)
        self.singles = Singles(self.nests, self.control, lambda: self.program)
        # The ids of the program now being written, and the loops around the present place.
        self.program: list[Val] = []
        self.loops: list[For] = []

    # -- the function -----------------------------------------------------------------------
    def function(self) -> Emitted:
        function = self.plan.function
        for i, param in enumerate(function.params):
            val = self._argument(FIRST_ARGUMENT_SLOT + i, param.type)
            self.chunks.scalars[param] = Placed(val)
        self.store.open(self.chunks.scalars)
        self._programs(function.body)
        self.b.do("ret void")
        text = self._module(function.name)
        return Emitted(text, self.arena.size, self.store.size, self.singles.sites)

    def _slot(self, number: int, type: LType) -> Val:
        address = self.b.gep("i64", Val("%args", PTR), number)
        return self.b.load(type, address, 8)

    def _argument(self, number: int, type: Type) -> Val:
        if type.is_pointer:
            return self._slot(number, PTR)
        dtype = type.dtype
        if dtype.is_floating():
            stored = self._slot(number, LType(storage_elem(dtype)))
            return to_register(self.b, stored, dtype)
        wide = self._slot(number, I64)
        if dtype is int1:
            return self.b.icmp("ne", wide, self.b.const(0, I64))
        return wide if dtype.bits == 64 else self.b.convert("trunc", wide, f"i{dtype.bits}")

    def _module(self, name: str) -> str:
        attrs = f"nounwind {self.plan.target.function_attrs}"
        head = (
            f"define void @{name}(ptr noalias readonly %args, i64 %begin, i64 %end, "
            f"ptr noalias %scratch, ptr noalias {STORE}) #0 {{"
        )
        body = self.b.code.text()
        declares = "\n".join(self.b.declares.values())
        constants = "".join(f"@{n} = {text}\n" for n, text in self.b.globals.items())
        tail = f"attributes #0 = {{ {attrs} }}\n!0 = !{{i32 1}}\n"
        functions = self.store.functions
        return f"{functions}{constants}{head}\nentry:\n{body}\n}}\n\n{declares}\n\n{tail}"

    def _programs(self, body: Block) -> None:
        """The loop over program ids."""
        b = self.b
        asserts = any(isinstance(n, Op) and n.name == "assert" for n in self.plan.order)

        def header(carried: list[Val]) -> Val:
            more = b.icmp("slt", carried[0], Val("%end", I64))
            if not asserts:
                return more
            failed = b.emit(f"load atomic i64, {self.control} monotonic, align 8", I64)
            return b.and_(more, b.icmp("eq", failed, b.const(0, I64)))

        def program(carried: list[Val]) -> Sequence[Val]:
            self.program = self._coordinates(carried[0])
            with self.arena.scope():
                self.block(body)
            return [b.add(carried[0], b.const(1, I64))]

        self.levels.guarded([Val("%begin", I64)], header, program)

    def _coordinates(self, linear: Val) -> list[Val]:
        rest = self.b.binary("udiv", linear, self.grid[0])
        first = self.b.sub(linear, self.b.mul(rest, self.grid[0]))
        third = self.b.binary("udiv", rest, self.grid[1])
        second = self.b.sub(rest, self.b.mul(third, self.grid[1]))
        return [first, second, third]

    # -- blocks -----------------------------------------------------------------------------
    def block(self, block: Block) -> None:
        """Write the steps of a block at the present place."""
        with self.chunks.pinned():
            self._grid_queries(block)
            for step in self.plan.blocks[block].steps:
                match step:
                    case Group():
                        self.nests.write(step)
                    case Single():
                        self._single(step)

    def _grid_queries(self, block: Block) -> None:
        for node in block.nodes:
            if isinstance(node, Op) and node.name in ("program_id", "num_programs"):
                source = self.program if node.name == "program_id" else self.grid
                axis: int = node.attrs["axis"]
                val = self.b.convert("trunc", source[axis], "i32")
                self.chunks.scalars[node.result] = Placed(val, self.levels.depth)

    def _single(self, step: Single) -> None:
        node = step.node
        match node:
            case For():
                self._for(node)
            case While():
                self._while(node)
            case If():
                self._if(node)
            case Scan():
                self.scans.write(node)
            case Reduce():
                raise AssertionError("reductions are sinks")
            case Op():
                if node.name == "dot":
                    self._dot(node, step.in_place)
                elif node.name not in ("program_id", "num_programs"):
                    self.singles.write(node)

    def _value(self, value: Value) -> Val:
        """A scalar, here."""
        return self.chunks.get(value, Index(())).val

    # -- control flow -----------------------------------------------------------------------
    def _share_homes(self, args: Sequence[Value], results: Sequence[Value]) -> None:
        for arg, result in zip(args, results, strict=True):
            if result.type.shape:
                self.chunks.buffers[arg] = self.chunks.buffers[result]

    def _bind(self, values: Sequence[Value], vals: Sequence[Val]) -> None:
        given = iter(vals)
        for value in values:
            if not value.type.shape:
                self.chunks.scalars[value] = Placed(next(given), self.levels.depth)

    def _scalars(self, values: Sequence[Value]) -> list[Val]:
        return [self._value(v) for v in values if not v.type.shape]

    def _for(self, node: For) -> None:
        b = self.b
        lower, upper, step = (self._value(v) for v in (node.lower, node.upper, node.step))
        for assign in self.plan.begun.get(node, ()):
            self.nests.new_buffer(assign.home)
        self._share_homes(node.body.args[1:], node.results)
        signed = "s" if node.lower.type.dtype.is_int_signed() else "u"
        known_step = constant_of(node.step)

        def goes_on(index: Val) -> Val:
            up = b.icmp(f"{signed}lt", index, upper)
            if known_step is not None and known_step > 0:
                return up
            down = b.icmp(f"{signed}gt", index, upper)
            if known_step is not None:
                return down
            return b.select(b.icmp("sgt", step, b.const(0, step.type)), up, down)

        def body(carried: list[Val]) -> Sequence[Val]:
            self._bind(node.body.args, carried)
            self.loops.append(node)
            with self.arena.scope():
                self.block(node.body)
                after = self._scalars(node.body.yields)
            self.loops.pop()
            return [b.add(carried[0], step), *after]

        self._zero_without_turns(node, goes_on(lower))
        start = [lower, *self._scalars(node.inits)]
        final = self.levels.guarded(start, lambda carried: goes_on(carried[0]), body)
        self._bind(node.results, final[1:])

    def _zero_without_turns(self, node: For, runs: Val) -> None:
        """Write the zeros that accumulators keep when a loop that would begin them has no turn."""
        assigns = self.plan.begun.get(node)
        if not assigns:
            return

        def zero() -> list[Val]:
            for assign in assigns:
                self.nests.write(Group(assign.shape, [assign], len(assign.shape) - 1))
            return []

        self.levels.branch(runs, list[Val], zero)

    def _while(self, node: While) -> None:
        self._share_homes(node.condition.args, node.results)
        self._share_homes(node.body.args, node.results)

        def header(carried: list[Val]) -> Val:
            self._bind(node.condition.args, carried)
            with self.arena.scope():
                self.block(node.condition)
                return self._value(node.condition.yields[0])

        def body(carried: list[Val]) -> Sequence[Val]:
            self._bind(node.body.args, carried)
            with self.arena.scope():
                self.block(node.body)
                return self._scalars(node.body.yields)

        final = self.levels.guarded(self._scalars(node.inits), header, body)
        self._bind(node.results, final)

    def _if(self, node: If) -> None:
        for result in node.results:
            if result.type.shape:
                self.nests.new_buffer(result)

        def side(block: Block) -> Sequence[Val]:
            with self.arena.scope():
                self.block(block)
                return self._scalars(block.yields)

        condition = self._value(node.condition)
        merged = self.levels.branch(
            condition, lambda: side(node.then), lambda: side(node.otherwise)
        )
        self._bind(node.results, merged)

    # -- dots -------------------------------------------------------------------------------
    def _dot(self, node: Op, in_place: Value | None) -> None:
        plan = self.plan.dots[node]
        a, b, acc = node.operands
        zero = self._begins(node) or constant_of(acc) == 0
        if in_place is not None:
            target = self.chunks.buffers[in_place]
        else:
            target = self.nests.tile(node.result)
            if not zero:
                self.nests.copy([(acc, target)], acc.type.rank - 1)
        packs = (Pack(a, plan, "a"), Pack(b, plan, "b"))
        ahead = self._next_tiles(node, packs)
        left, right = (self.nests.packs[pack.value, pack.layout] for pack in packs)

        def one(batch: tuple[Coord, ...]) -> None:
            start = Index((*batch, ZERO, ZERO))
            places = [
                self.chunks.memory.buffer_address(t, start).val for t in (left, right, target)
            ]
            write = emit_dot_amx if plan.compute is Compute.BF16_TILES else emit_dot
            write(self.b, plan, *places, zero_init=zero, prefetch=ahead)

        with self.levels.scope():
            self.nests.over_batch(a.type.shape, one)
        self.chunks.buffers[node.result] = target

    def _begins(self, dot: Op) -> Val | None:
        """Whether this turn of the loop is the one that begins the dot's accumulator (an i1)."""
        loop = self.loops[-1] if self.loops else None
        if loop is None or not begins_accumulator(self.plan, loop, dot):
            return None
        index, first = (self.chunks.scalar(v).val for v in (loop.body.args[0], loop.lower))
        return self.b.icmp("eq", index, first)

    def _next_tiles(self, dot: Op, packs: Sequence[Pack]) -> list[PrefetchRows]:
        """What to prefetch while a dot computes: its operands of the loop's next turn."""
        if not self.loops or dot not in self.loops[-1].body.nodes:
            return []
        ahead = next_tiles(self.plan, self.chunks, self.loops[-1], dot)
        tiles: list[PrefetchRows] = []
        for pack in packs:
            source = ahead.get(pack.value)
            kept = self.nests.kept.get((pack.value, pack.layout))
            if source is not None:
                tiles += [source] if kept is None else kept.next_tile(self.b, pack, source)
        return tiles
