"""Layout assignment: how each tile is distributed over the threads of a block.

Forward, every value gets a *home*: the layout it is made in.  Loads are at home where they
coalesce, dots where the instruction leaves its results, reductions in a slice of their operand's
home, and what is computed from them stays there.  A value made only of constants, ranges, scalars
and program ids has no home: it is made wherever it is wanted, in any layout.  So are broadcasts:
they follow the layout of what they are combined with.

Backward, every value collects the layouts it is wanted in.  Reshaping ops pass a wish on,
transformed; whoever has a home is asked at home and converted.

Requires: tiles whose sizes are powers of two (`pad_tiles.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from deuteron.backends.cuda.coalesce import Coalescing
from deuteron.backends.cuda.dot_plan import DotPlan, plan_dot
from deuteron.backends.cuda.dot_sources import chained_dots, find_source, strip_views
from deuteron.backends.cuda.known_lines import gather_wants_index, gathers_at_home
from deuteron.backends.cuda.layout import Layout, replicated
from deuteron.backends.cuda.pipeline_plan import LoopPlan, plan_loops
from deuteron.backends.cuda.target import CudaTarget
from deuteron.ir import For, Function, If, Op, Reduce, Scan, Value, While, walk
from deuteron.ir.axis_info import AxisFacts
from deuteron.ir.nodes import Block, node_blocks, node_operands
from deuteron.ir.optable import OPS

# Ops that only say which element is which: made in any layout from the right layout of an operand.
_VIEWS = ("broadcast", "expand_dims", "permute", "reshape", "join", "split", "cat", "splat")
_ATOMICS = ("atomic_rmw", "atomic_cas")
_AT_HOME = ("gather", "histogram", "inline_asm")


class Assignment:
    """The homes and the wanted layouts of a function's tiles.

    `dots` has the plan of each dot, `loops` that of each loop whose loads run ahead of it.
    """

    def __init__(
        self,
        function: Function,
        target: CudaTarget,
        num_warps: int,
        num_stages: int = 1,
        *,
        most_stages: int | None = None,
    ) -> None:
        self.function = function
        self.target = target
        self.num_warps = num_warps
        self.facts = AxisFacts(function)
        self.coalescing = Coalescing(function, self.facts, num_warps)
        self.homes: dict[Value, Layout] = {}
        self.wanted: dict[Value, dict[Layout, None]] = {}
        self.dots: dict[Op, DotPlan] = {}
        self.loops = plan_loops(
            function, self.coalescing, num_stages, target.shared_limit, most_stages=most_stages
        )
        copies = [load for plan in self.loops.values() for load in plan.loads]
        self.copied = {load.op.result: load.format for load in copies}
        self.uses = _count_uses(function)
        self._chained = chained_dots(function)
        self._settle(function.body)
        self._collect(function.body)

    def made_in(self, value: Value) -> list[Layout]:
        """The layouts an op makes its result in."""
        home = self.homes.get(value)
        if home is None or _is_view(value):
            return list(self.wanted.get(value, {}))
        return [home]

    def converted_to(self, value: Value) -> list[Layout]:
        """The layouts that a result is converted to from its home."""
        home = self.homes.get(value)
        if home is None or _is_view(value):
            return []
        return [layout for layout in self.wanted.get(value, {}) if layout != home]

    def loads_ahead(self, loop: For) -> list[Op]:
        """The loads of a loop that run ahead of it."""
        plan = self.loops.get(loop)
        return [] if plan is None else [load.op for load in plan.loads]

    def is_used(self, value: Value) -> bool:
        return self.uses[value] > 0

    # -- forward: homes ---------------------------------------------------------------------
    def _settle(self, block: Block) -> None:
        for node in block.nodes:
            match node:
                case Op():
                    self._settle_op(node)
                case Reduce():
                    source = self.common_home(node.operands)
                    for result in node.results:
                        self._set_home(
                            result, source.slice(node.axis) if result.type.rank else None
                        )
                case Scan():
                    source = self.common_home(node.operands)
                    for result in node.results:
                        self._set_home(result, source)
                case For():
                    self._settle_loop(node, (node.body.args[1:],), (node.body,))
                case While():
                    blocks = (node.condition, node.body)
                    self._settle_loop(node, (node.condition.args, node.body.args), blocks)
                case If():
                    self._settle(node.then)
                    self._settle(node.otherwise)
                    sides = zip(node.then.yields, node.otherwise.yields, strict=True)
                    for result, side in zip(node.results, sides, strict=True):
                        if result.type.shape:
                            self.homes[result] = self.common_home(side)

    def common_home(self, values: Sequence[Value]) -> Layout:
        """Where an op over tiles of one shape takes place."""
        for value in values:
            if value in self.homes:
                return self.homes[value]
        return self.coalescing.default(values[0].type.shape)

    def _set_home(self, value: Value, layout: Layout | None) -> None:
        if value.type.shape and layout is not None:
            self.homes[value] = layout

    def _settle_op(self, op: Op) -> None:
        if not op.results or not op.result.type.shape:
            return
        if OPS[op.name].elementwise:
            found = [self.homes[o] for o in op.operands if o in self.homes]
            self._set_home(op.result, found[0] if found else None)
        elif op.name == "load":
            if op.result not in self.copied:
                self._set_home(op.result, self._access_layout(op.operands[0]))
        elif op.name in _ATOMICS:
            self._set_home(op.result, self.common_home((op.operands[1], op.operands[0])))
        elif op.name == "gather":
            moved = op.operands if gathers_at_home(op) else op.operands[1:]
            self._set_home(op.result, self.common_home(moved))
        elif op.name == "histogram":
            self._set_home(op.result, self.coalescing.default(op.result.type.shape))
        elif op.name == "inline_asm":
            home = self.common_home(op.operands or op.results)
            for result in op.results:
                self._set_home(result, home)
        elif op.name == "dot":
            plan = self.dots[op] = self._plan_dot(op)
            self._set_home(op.result, plan.accumulator)
        elif op.operands and op.operands[0] in self.homes:
            self._settle_view(op, self.homes[op.operands[0]])

    def _plan_dot(self, op: Op) -> DotPlan:
        sources = [
            find_source(operand, self.homes, self.coalescing, self.copied)
            for operand in op.operands[:2]
        ]
        chained = op in self._chained
        return plan_dot(op, self.target, self.num_warps, sources, chained=chained)

    def _settle_view(self, op: Op, source: Layout) -> None:
        match op.name:
            case "expand_dims":
                self._set_home(op.result, source.insert(op.attrs["axis"]))
            case "permute":
                self._set_home(op.result, source.permute(op.attrs["order"]))
            case "reshape":
                self._set_home(op.result, source.reshape(tuple(op.attrs["shape"])))
            case "join":
                self._set_home(op.result, source.with_minor_pair())
            case "split":
                for half in op.results:
                    self._set_home(half, source.slice(len(source.shape) - 1))
            case _:
                pass  # broadcasts follow what they are combined with

    def _access_layout(self, pointer: Value) -> Layout:
        """Where an access through a tile of addresses takes place."""
        if pointer in self.homes and self.coalescing.is_scattered(pointer):
            return self.homes[pointer]
        return self.coalescing.layout(pointer)

    def _settle_loop(
        self,
        node: For | While,
        args: Sequence[Sequence[Value]],
        blocks: Sequence[Block],
    ) -> None:
        """Carried tiles stay where the body leaves them, or else where they begin."""
        for number, init in enumerate(node.inits):
            for group in args:
                self._set_home(group[number], self.homes.get(init))
        for block in blocks:
            self._settle(block)
        moved = False
        for number, (result, after) in enumerate(zip(node.results, blocks[-1].yields, strict=True)):
            if result.type.shape:
                home = self.common_home((after, args[0][number]))
                moved = moved or self.homes.get(args[0][number]) != home
                for value in (result, *(group[number] for group in args)):
                    self.homes[value] = home
        if moved:
            for block in blocks:
                self._settle(block)

    # -- backward: wishes -------------------------------------------------------------------
    def want(self, value: Value, layout: Layout) -> None:
        """Note that a value is wanted in a layout."""
        if value.type.shape:
            self.wanted.setdefault(value, {})[layout] = None

    def _want_home(self, values: Sequence[Value], home_of: Sequence[Value]) -> None:
        for value, other in zip(values, home_of, strict=True):
            if value.type.shape:
                self.want(value, self.homes[other])

    def _collect(self, block: Block) -> None:
        for node in reversed(block.nodes):
            match node:
                case Op():
                    self._collect_op(node)
                case Reduce() | Scan():
                    source = self.common_home(node.operands)
                    for operand in node.operands:
                        self.want(operand, source)
                case For():
                    args = node.body.args[1:]
                    self._want_home(node.body.yields, args)
                    self._collect(node.body)
                    self._want_home(node.inits, args)
                    if node in self.loops:
                        self._want_ahead(self.loops[node])
                case While():
                    self._want_home(node.body.yields, node.body.args)
                    self._collect(node.body)
                    self._collect(node.condition)
                    self._want_home(node.inits, node.condition.args)
                case If():
                    for side in (node.then, node.otherwise):
                        self._want_home(side.yields, node.results)
                        self._collect(side)

    def _collect_op(self, op: Op) -> None:
        name = op.name
        if name == "store" or name in _ATOMICS:
            layout = self.access_layout(op)
            for operand in op.operands:
                if layout is not None:
                    self.want(operand, layout)
        elif name == "dot":
            self._collect_dot(op)
        elif op.results and op.result in self.copied:
            pass  # its addresses are made ahead of time
        elif name in ("print", "assert"):
            for operand in op.operands:
                if operand.type.shape:
                    self.want(operand, self.common_home((operand,)))
        elif name in _AT_HOME:
            self._collect_at_home(op)
        elif op.results and not op.result.type.shape:
            for operand in op.operands:  # an element of a tile, as a scalar
                if operand.type.shape:
                    self.want(operand, replicated(operand.type.shape, self.num_warps))
        elif op.results:
            for layout in self.made_in(op.result):
                self._pass_on(op, layout)
            if name == "split":
                for layout in self.made_in(op.results[1]):
                    self._pass_on(op, layout)

    def _collect_at_home(self, op: Op) -> None:
        """An op whose operands are not wanted in whatever layouts its result is."""
        if op.name == "gather":
            source, index = op.operands
            self.want(source, self.common_home((source,)))
            if gather_wants_index(op):
                self.want(index, self.homes[op.result])
            return
        if op.operands and op.operands[0].type.shape:
            home = self.common_home(op.operands)
            for operand in op.operands:
                self.want(operand, home)

    def _collect_dot(self, op: Op) -> None:
        plan = self.dots[op]
        self.want(op.operands[2], plan.accumulator)
        for operand, layout in zip(op.operands, (plan.a_layout, plan.b_layout), strict=False):
            source, _ = strip_views(operand)
            if layout is not None:
                self.want(operand, layout)
            elif source not in self.copied:  # goes through shared memory
                self.want(source, self.common_home((source,)))

    def _want_ahead(self, plan: LoopPlan) -> None:
        """Want what addresses of turns ahead are computed from, outside of the loop."""

        def visit(value: Value, layout: Layout | None) -> None:
            if layout is None:
                return
            if value.op is None or value.op not in plan.slice:
                self.want(value, layout)
                return
            for operand, wish in zip(
                value.op.operands, operand_layouts(value.op, layout), strict=True
            ):
                visit(operand, wish)

        for load in plan.loads:
            for value in load.op.operands[:2]:
                visit(value, load.layout)

    def access_layout(self, op: Op) -> Layout | None:
        """Where a store or an atomic takes place; None for scalars."""
        pointer, value = op.operands[0], op.operands[1]
        if not pointer.type.shape:
            return None
        if op.name in _ATOMICS or self.coalescing.is_scattered(pointer):
            return self.common_home((value, pointer))
        return self.coalescing.layout(pointer)

    def _pass_on(self, op: Op, layout: Layout) -> None:
        """Want an op's operands as its result is wanted in a layout."""
        for operand, wish in zip(op.operands, operand_layouts(op, layout), strict=True):
            if wish is not None:
                self.want(operand, wish)


def operand_layouts(op: Op, layout: Layout) -> list[Layout | None]:
    """The layouts of the operands that make an op's result in `layout`; None for scalars."""
    match op.name:
        case "broadcast":
            source = op.operands[0].type.shape
            grown = zip(source, layout.shape, strict=True)
            for axis in [a for a, (s, t) in enumerate(grown) if s == 1 and t != 1]:
                layout = layout.unit(axis)
        case "expand_dims":
            layout = layout.drop(op.attrs["axis"])
        case "permute":
            order: Sequence[int] = op.attrs["order"]
            layout = layout.permute([order.index(i) for i in range(len(order))])
        case "reshape":
            layout = layout.reshape(op.operands[0].type.shape)
        case "join":
            layout = layout.slice(len(layout.shape) - 1)
        case "split":
            layout = layout.with_minor_pair()
        case "cat":
            layout = layout.half(op.attrs["axis"])
        case _:
            pass
    return [layout if operand.type.shape else None for operand in op.operands]


def _is_view(value: Value) -> bool:
    return value.op is not None and value.op.name in _VIEWS


def _count_uses(function: Function) -> Counter[Value]:
    """How often nodes and blocks read each value."""
    uses = Counter(function.body.yields)
    for node in walk(function.body):
        uses.update(node_operands(node))
        for block in node_blocks(node):
            uses.update(block.yields)
    return uses
