"""Writes a function with assigned layouts as LLVM IR: the code of one thread.

A tile in a layout is a list of registers, one LLVM value each.  Ops are written in program order;
each makes its result in the layouts assigned to it and converts it to what else is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deuteron.backends.cpu.kernel_info import AssertSite
from deuteron.backends.cuda.accesses import Accesses, BothWays
from deuteron.backends.cuda.assembly import emit_assembly
from deuteron.backends.cuda.assign import Assignment
from deuteron.backends.cuda.cta import SHARED_ALIGN, SHARED_SYMBOL
from deuteron.backends.cuda.debug import emit_assert, emit_print
from deuteron.backends.cuda.dots import Dots
from deuteron.backends.cuda.elementwise import emit_op
from deuteron.backends.cuda.folds import emit_reduce, emit_scan
from deuteron.backends.cuda.gathers import emit_gather, emit_histogram
from deuteron.backends.cuda.layout import Coord, Layout
from deuteron.backends.cuda.tiles import Deferred, Tile, Tiles
from deuteron.backends.cuda.views import emit_arange, emit_view
from deuteron.backends.llvm.builder import PTR, LType, Val
from deuteron.backends.llvm.registers import register_elem, storage_elem, to_register
from deuteron.dtypes import int1
from deuteron.ir import For, If, Op, Reduce, Scan, Value, While
from deuteron.ir.nodes import Block
from deuteron.ir.optable import OPS
from deuteron.passes.simplify import constant_of

CONTROL = Val("%control", PTR)


@dataclass(frozen=True, slots=True)
class Emitted:
    """The module's text and what a launch needs to know."""

    text: str
    shared_bytes: int
    asserts: tuple[AssertSite, ...]
    layouts: str


def emit(assignment: Assignment, *, maxnreg: int | None = None) -> Emitted:
    """The function as an LLVM module whose kernel bears its name."""
    return _Emitter(assignment, maxnreg).function()


class _Emitter:
    def __init__(self, assignment: Assignment, maxnreg: int | None) -> None:
        self.assignment = assignment
        self.maxnreg = maxnreg
        self.tiles = Tiles(assignment)
        self.cta = self.tiles.cta
        self.b = self.cta.b
        self.levels = self.tiles.levels
        self.accesses = Accesses(self.tiles)
        self.dots = Dots(self.tiles)
        self.asserts: list[AssertSite] = []

    # -- the function -----------------------------------------------------------------------
    def function(self) -> Emitted:
        function = self.assignment.function
        params = [self._param(i, p) for i, p in enumerate(function.params)]
        self.block(function.body)
        self.b.do("ret void")
        if self.asserts:
            params.append(str(CONTROL))
        return Emitted(
            self._module(function.name, params),
            self.cta.shared_bytes,
            tuple(self.asserts),
            self.tiles.describe(),
        )

    def _param(self, number: int, param: Value) -> str:
        """Declare a parameter and make its value known."""
        type = param.type
        name = f"%arg{number}"
        if type.is_pointer:
            self.tiles.scalars[param] = Val(name, PTR)
            return f"ptr {name}"
        dtype = type.dtype
        if dtype.is_floating():
            elem = "double" if dtype.bits == 64 else storage_elem(dtype)
        else:
            elem = "i8" if dtype is int1 else f"i{dtype.bits}"
        given = Val(name, LType(elem))
        self.tiles.scalars[param] = to_register(self.b, given, dtype)
        return str(given)

    def _module(self, name: str, params: Sequence[str]) -> str:
        threads = 32 * self.cta.num_warps
        limit = f' "nvvm.maxnreg"="{self.maxnreg}"' if self.maxnreg else ""
        body = self.b.code.text()
        declares = "\n".join(self.b.declares.values())
        structs = "".join(f"{n} = type {text}\n" for text, n in self.b.structs.items())
        constants = "".join(f"@{n} = {text}\n" for n, text in self.b.globals.items())
        return (
            f"@{SHARED_SYMBOL} = external addrspace(3) global [0 x i8], align {SHARED_ALIGN}\n"
            f"{structs}{constants}define ptx_kernel void @{name}({', '.join(params)}) #0 {{\n"
            f"entry:\n{body}\n}}\n\n{declares}\n\n"
            f'attributes #0 = {{ nounwind "nvvm.maxntid"="{threads}"{limit} }}\n'
        )

    # -- blocks -----------------------------------------------------------------------------
    def block(self, block: Block) -> None:
        """Write the nodes of a block at the present place."""
        for node in block.nodes:
            match node:
                case Op():
                    self._op(node)
                case Reduce():
                    self._results(node.results, emit_reduce(self.tiles, node))
                case Scan():
                    self._results(node.results, emit_scan(self.tiles, node))
                case For():
                    self._for(node)
                case While():
                    self._while(node)
                case If():
                    self._if(node)

    def _results(self, results: Sequence[Value], given: Sequence[Tile]) -> None:
        for value, tile in zip(results, given, strict=True):
            self.tiles.put(value, tile)

    def _op(self, op: Op) -> None:
        match op.name:
            case "load" if op.result in self.assignment.copied:
                pass
            case "load":
                self._results(op.results, [self.accesses.load(op)])
            case "store":
                self.accesses.store(op)
            case "atomic_rmw" | "atomic_cas":
                self._results(op.results, [self.accesses.atomic(op)])
            case "dot":
                self._results(op.results, [self.dots.emit(op)])
            case "gather":
                self._results(op.results, [emit_gather(self.tiles, op)])
            case "histogram":
                self._results(op.results, [emit_histogram(self.tiles, op)])
            case "inline_asm":
                self._results(op.results, emit_assembly(self.tiles, op))
            case "print":
                emit_print(self.tiles, op)
            case "assert":
                site = AssertSite(str(op.attrs.get("message") or ""), op.loc.file, op.loc.line)
                self.asserts.append(site)
                emit_assert(self.tiles, op, CONTROL, len(self.asserts))
            case "assume":
                pass
            case "barrier":
                self.accesses.wait()
            case _:
                self._pure(op)

    def _pure(self, op: Op) -> None:
        """An op whose result is known from its operands and attributes."""
        for result in op.results:
            if not result.type.shape:
                self.tiles.scalars[result] = self._scalar(op, result)
                continue
            for layout in self.assignment.made_in(result):
                if op.name == "arange":
                    tile = emit_arange(self.tiles, op, layout)
                elif OPS[op.name].elementwise:
                    tile = self._elementwise(op, layout)
                else:
                    tile = emit_view(self.tiles, op, result, layout)
                self.tiles.put(result, tile)

    def _elementwise(self, op: Op, layout: Layout) -> Tile:
        """One result for registers that are known to hold the same, each when it is asked for."""
        operands = [self.tiles.registers(o, layout) for o in op.operands]
        steps = self.assignment.facts.of(op.result).constancy
        coords = layout.register_coords()
        made: dict[Coord, Val] = {}

        def write(register: int) -> Val:
            place = tuple(c // step for c, step in zip(coords[register], steps, strict=True))
            if place not in made:
                made[place] = emit_op(self.b, op, [registers[register] for registers in operands])
            return made[place]

        return Tile(layout, Deferred(self.b, layout.registers, write))

    def _scalar(self, op: Op, result: Value) -> Val:
        match op.name:
            case "const":
                value = op.attrs["value"]
                return self.b.const(value, LType(register_elem(op.attrs["dtype"])))
            case "program_id":
                return self.cta.program_id(op.attrs["axis"])
            case "num_programs":
                return self.cta.num_programs(op.attrs["axis"])
            case "reshape" | "broadcast" | "split":
                return self.tiles.only_element(op, result)
            case _:
                return emit_op(self.b, op, [self.tiles.scalar(o) for o in op.operands])

    # -- control flow -----------------------------------------------------------------------
    def _bind(self, values: Sequence[Value], homes: Sequence[Value], vals: Sequence[Val]) -> None:
        """Make carried values known, each in the home of its counterpart."""
        rest = iter(vals)
        for value, other in zip(values, homes, strict=True):
            if value.type.shape:
                layout = self.assignment.homes[other]
                registers = [next(rest) for _ in range(layout.registers)]
                self.tiles.put(value, Tile(layout, registers))
            else:
                self.tiles.scalars[value] = next(rest)

    def _carried(self, values: Sequence[Value], homes: Sequence[Value]) -> list[Val]:
        """The registers of values as they are carried: each in the home of its counterpart."""
        vals: list[Val] = []
        for value, other in zip(values, homes, strict=True):
            if value.type.shape:
                vals += self.tiles.registers(value, self.assignment.homes[other])
            else:
                vals.append(self.tiles.scalar(value))
        return vals

    def _for(self, node: For) -> None:
        lower, upper, step = (self.tiles.scalar(v) for v in (node.lower, node.upper, node.step))
        args = node.body.args[1:]

        def runs(index: Val) -> Val:
            return runs_on(self.tiles, node, index, upper, step)

        for load in self.assignment.loads_ahead(node):
            self.accesses.order(load.operands[0], None, writes=False)
        before = self.accesses.open_accesses()
        with self.dots.loop(node, runs) as dots:
            extra = len(dots.carried)

            def body(carried: list[Val]) -> Sequence[Val]:
                self._enter_loop()
                self.tiles.scalars[node.body.args[0]] = carried[0]
                self._bind(args, args, carried[extra + 1 :])
                dots.begin(carried[1 : extra + 1])
                self.block(node.body)
                after = self._carried(node.body.yields, args)
                self._leave_loop(node)
                return [self.b.add(carried[0], step), *dots.end(), *after]

            first = [lower, *dots.carried, *self._carried(node.inits, args)]
            final = self.levels.guarded(first, lambda carried: runs(carried[0]), body)
            results = dots.finish(final[extra + 1 :])
        self.accesses.reopen(before)  # the body may not run, nor the waiting in it
        self._bind(node.results, args, results)

    def _enter_loop(self) -> None:
        self.cta.enter_loop()
        self.accesses.begin_loop()

    def _leave_loop(self, node: For | While) -> None:
        self.cta.enter_loop()
        self.accesses.end_loop(node)

    def _while(self, node: While) -> None:
        args = node.body.args
        after_header = self.accesses.open_accesses()

        def header(carried: list[Val]) -> Val:
            nonlocal after_header
            self._enter_loop()
            self._bind(node.condition.args, args, carried)
            self.block(node.condition)
            after_header = self.accesses.open_accesses()
            return self.tiles.scalar(node.condition.yields[0])

        def body(carried: list[Val]) -> Sequence[Val]:
            self._bind(args, args, carried)
            self.block(node.body)
            after = self._carried(node.body.yields, args)
            self._leave_loop(node)
            return after

        with self.dots.loop(node):
            final = self.levels.guarded(self._carried(node.inits, args), header, body)
        self.accesses.reopen(after_header)
        self._bind(node.results, args, final)

    def _if(self, node: If) -> None:
        before = self.accesses.open_accesses()
        ends: list[BothWays] = []

        def side(block: Block) -> Callable[[], Sequence[Val]]:
            def write() -> Sequence[Val]:
                self.accesses.start_over(before)
                self.block(block)
                ends.append(self.accesses.open_accesses())
                return self._carried(block.yields, node.results)

            return write

        condition = self.tiles.scalar(node.condition)
        merged = self.levels.branch(condition, side(node.then), side(node.otherwise))
        for end in ends:
            self.accesses.reopen(end)
        self.cta.enter_loop()
        self._bind(node.results, node.results, merged)


def runs_on(tiles: Tiles, node: For, index: Val, upper: Val, step: Val) -> Val:
    """Whether a loop's body runs for this value of its index."""
    b = tiles.cta.b
    signed = "s" if node.lower.type.dtype.is_int_signed() else "u"
    known_step = constant_of(node.step)
    up = b.icmp(f"{signed}lt", index, upper)
    if known_step is not None and known_step > 0:
        return up
    down = b.icmp(f"{signed}gt", index, upper)
    if known_step is not None:
        return down
    return b.select(b.icmp("sgt", step, b.const(0, step.type)), up, down)
