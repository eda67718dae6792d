"""Planning: which values are kept in buffers, and which sinks share a loop nest.

Three looks at the function, all before any code is written:

1. what must be kept: operands of shape ops that need memory, loads that a later store could change;
2. a trial grouping, which tells where each virtual value would be computed;
3. what is worth keeping: a costly value that two groups, a deeper loop, or every row of a
   broadcast would compute again.  Then the grouping is made once more, for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod

from deuteron.backends.cpu.demand import Demand
from deuteron.backends.cpu.dot_plan import DotPlan, plan_dot
from deuteron.backends.cpu.first_turns import begin_accumulators
from deuteron.backends.cpu.grouping import Grouper
from deuteron.backends.cpu.steps import BlockPlan, Group, Step
from deuteron.backends.cpu.target import CpuTarget
from deuteron.backends.image import is_memory_write
from deuteron.ir import For, Function, If, Op, Reduce, Scan, Value, While
from deuteron.ir.axis_info import AxisFacts
from deuteron.ir.nodes import Block, Node, node_blocks, node_operands
from deuteron.ir.pointer_roots import PointerRoots
from deuteron.passes.simplify import constant_of

# A value that costs less than this many vector additions is computed again rather than kept.
WORTH_KEEPING = 8
# What it must cost to be kept when a broadcast would ask for it element by element.
WORTH_KEEPING_WIDENED = 20

# The step that asks for a value, by number, and how many loops it stands in.
Place = tuple[int, int]


class Plan:
    """The decisions for one function, and the facts they rest on."""

    def __init__(self, function: Function, target: CpuTarget) -> None:
        self.function = function
        self.target = target
        self.facts = AxisFacts(function)
        self.demand = Demand(self.facts)
        self.roots = PointerRoots(function)
        self.order: dict[Node, int] = {}
        self.depth: dict[Block, int] = {}
        self.end: dict[Block, int] = {}
        self.block_of: dict[Node, Block] = {}
        self.owner: dict[Block, Node] = {}
        self.users: dict[Value, list[Node]] = {}
        self._number(function.body, 0)
        self.yielded = {value for block in self.depth for value in block.yields}
        ops = [n for n in self.order if isinstance(n, Op)]
        self.writes = [op for op in ops if is_memory_write(op)]
        self.dots = {op: self._plan_dot(op) for op in ops if op.name == "dot"}
        self.pitch = self._share_pitches()
        self._must_keep()
        self.blocks: dict[Block, BlockPlan] = {}
        self._group()
        if self._keep_what_pays():
            self._group()
        self.begun = begin_accumulators(self)

    def _group(self) -> None:
        grouper = Grouper(self)
        self.blocks = {block: grouper.plan(block) for block in self.depth}

    def _number(self, block: Block, depth: int) -> None:
        self.depth[block] = depth
        for node in block.nodes:
            self.order[node] = len(self.order)
            self.block_of[node] = block
            for operand in node_operands(node):
                self.users.setdefault(operand, []).append(node)
            if isinstance(node, (Reduce, Scan)):
                continue
            for inner in node_blocks(node):
                self.owner[inner] = node
                deeper = isinstance(node, (For, While))
                self._number(inner, depth + deeper)
        self.end[block] = len(self.order)

    def homes(self, block: Block) -> list[tuple[Value, Value]]:
        """What a loop's body or a branch yields, each with the result that takes it."""
        node = self.owner.get(block)
        match node:
            case For() | While() if block is node.body:
                return list(zip(block.yields, node.results, strict=True))
            case If():
                return list(zip(block.yields, node.results, strict=True))
            case _:
                return []

    def variables(self, block: Block) -> dict[Value, Value]:
        """Of a loop's body, the argument that each result is the last value of."""
        node = self.owner.get(block)
        match node:
            case For():  # the first argument is the counter
                return dict(zip(node.results, block.args[1:], strict=True))
            case While() if block is node.body:
                return dict(zip(node.results, block.args, strict=True))
            case _:
                return {}

    # -- dots -------------------------------------------------------------------------------
    def _plan_dot(self, op: Op) -> DotPlan:
        a, b, acc = (o.type for o in op.operands)
        m, k = a.shape[-2:]
        return plan_dot(self.target, a.dtype, b.dtype, acc.dtype, m, b.shape[-1], k)

    def _share_pitches(self) -> dict[Value, int]:
        """The row pitch of every value that may share a buffer with a dot's accumulator.

        Dots that add to one buffer take the widest pitch that any of them wants.
        """
        links = self._carried_links()
        for op in self.dots:
            for value in (op.operands[2], op.result):
                links.setdefault(value, []).extend((op.operands[2], op.result))
        pitch: dict[Value, int] = {}
        for op in self.dots:
            if op.result in pitch:
                continue
            family = reachable(op.result, links)
            widest = max(plan.ldc for dot, plan in self.dots.items() if dot.result in family)
            pitch |= dict.fromkeys(family, widest)
        self.dots = {op: replace(plan, ldc=pitch[op.result]) for op, plan in self.dots.items()}
        return pitch

    def _carried_links(self) -> dict[Value, list[Value]]:
        """Values that are one variable of a loop: argument, yield, result."""
        links: dict[Value, list[Value]] = {}
        for block in self.depth:
            variables = self.variables(block)
            for yielded, home in self.homes(block) if variables else ():
                family = (variables[home], yielded, home)
                for value in family:
                    links.setdefault(value, []).extend(family)
        return links

    # -- what must be kept ------------------------------------------------------------------
    def _must_keep(self) -> None:
        for node in self.order:
            kept = self._needs_memory(node) if isinstance(node, Op) else None
            if kept is not None:
                self.demand.keep(kept)
        ops = [n for n in self.order if isinstance(n, Op)]
        for load in (op for op in ops if op.name == "load" and op.result.type.shape):
            if any(self._may_change(load, write) for write in self.writes):
                self.demand.keep(load.result)

    def _needs_memory(self, op: Op) -> Value | None:
        """The value that an op needs in a buffer to move its elements, if there is one."""
        match op.name:
            case "join" | "cat":
                return op.result
            case "reshape":
                keeps = op.result.type.shape and not self.demand.is_virtual(op.result)
                return op.result if keeps else None
            case "split" | "gather":
                return op.operands[0] if self.demand.is_virtual(op.operands[0]) else None
            case "dot":
                acc = op.operands[2]
                return acc if constant_of(acc) != 0 and self.demand.is_virtual(acc) else None
            case _:
                return None

    def _may_change(self, load: Op, write: Op) -> bool:
        """Whether a write could come between a load and a use of what it loaded."""
        if not self.may_alias(load, write):
            return False
        start, at = self.order[load], self.order[write]
        if at > start and load.result in self.demand.sources_of(write.operands):
            same = self.demand.sources_of(write.operands)[load.result]
            if not (same and load.operands[0] is write.operands[0]):
                return True
        uses = self._uses(load.result)
        last = max((self._last_use(*use, self.block_of[load]) for use in uses), default=start)
        return start < at < last

    def _uses(self, value: Value) -> list[tuple[Block, int]]:
        """Where a value is used, through virtual ops: the block, and what comes right after."""
        found: list[tuple[Block, int]] = []
        seen: set[Value] = set()
        stack = [value]
        while stack:
            current = stack.pop()
            if current in seen:
                continue
            seen.add(current)
            for user in self.users.get(current, ()):
                virtual = isinstance(user, Op) and all(map(self.demand.is_virtual, user.results))
                if virtual and user.results:
                    stack.extend(user.results)
                else:
                    # A store uses its operands before it writes.
                    writes = isinstance(user, Op) and is_memory_write(user)
                    found.append((self.block_of[user], self.order[user] + (not writes)))
            if current in self.yielded:
                found += [(b, self.end[b]) for b in self.depth if current in b.yields]
        return found

    def _last_use(self, block: Block, at: int, home: Block) -> int:
        """When a use is over for good: loops around it, but not around `home`, come back to it."""
        while block is not home:
            node = self.owner[block]
            if isinstance(node, (For, While)):
                at = self.end[node.body]
            block = self.block_of[node]
        return at

    def may_alias(self, load: Op, write: Op) -> bool:
        """Whether a write may touch what a load reads.

        Different array arguments do not overlap unless the launch found that they do.
        """
        left, right = (self.roots.of(op.operands[0]) for op in (load, write))
        if left is None or right is None or write.name.startswith("atomic"):
            return True
        return left is right or bool(self.function.attrs.get("aliased"))

    def reads(self, step: Step, value: Value) -> bool:
        """Whether a step reads a real value."""
        if isinstance(step, Group):
            return any(value in self.demand.sources_of(s.inputs) for s in step.sinks)
        return value in self.demand.node_sources(step.node)

    def is_steady(self, load: Op) -> bool:
        """Whether what a load reads stays as it is throughout the launch.

        A volatile load waits for somebody: nothing in its kernel is taken to stay.
        """
        ops = (node for node in self.order if isinstance(node, Op))
        if any(op.attrs.get("volatile") for op in ops):
            return False
        return not any(self.may_alias(load, write) for write in self.writes)

    # -- what is worth keeping --------------------------------------------------------------
    def _keep_what_pays(self) -> bool:
        """Mark values to keep, consumers before producers; returns whether there were any."""
        places = self._places()
        before = len(self.demand.kept)
        for node in sorted(places, key=lambda n: -self.order[n]):
            value = node.result
            if not self.demand.is_virtual(value) or not value.type.shape:
                continue
            if self._pays(value, places[node]):
                self.demand.keep(value)
        return len(self.demand.kept) > before

    def _places(self) -> dict[Op, set[Place]]:
        """For each virtual op, where it is asked for."""
        places: dict[Op, set[Place]] = {}
        steps = [(s, self.depth[block]) for block, plan in self.blocks.items() for s in plan.steps]
        for number, (step, depth) in enumerate(steps):
            for value in _inputs(step):
                for part in self.demand.virtual_parts(value):
                    if part.op is not None:
                        places.setdefault(part.op, set()).add((number, depth))
        return places

    def _pays(self, value: Value, places: set[Place]) -> bool:
        op = value.op
        assert op is not None
        if op.name in ("splat", "broadcast", "expand_dims", "permute"):
            return False
        cost = self.demand.cost(value)
        if cost >= WORTH_KEEPING_WIDENED and self._widened(value):
            return True
        own = self.depth[self.block_of[op]]
        deeper = any(depth > own for _, depth in places)
        if deeper and (cost >= WORTH_KEEPING or self._loads(value)):
            return True
        return cost >= WORTH_KEEPING and self._asked_again(value, places)

    def _loads(self, value: Value) -> bool:
        return any(p.is_op("load") for p in self.demand.virtual_parts(value))

    def _asked_again(self, value: Value, places: set[Place]) -> bool:
        """Whether more than one place would compute a value.

        The places were found before anything was kept for its cost: a value whose only user has
        been kept since is computed once, where that one is.
        """
        users = self.users.get(value, ())
        if len(users) == 1 and any(result in self.demand.kept for result in users[0].results):
            return False
        return len(places) > 1

    def _widened(self, value: Value) -> bool:
        """Whether a broadcast repeats the value along an axis it is not vectorised on."""
        stack = list(self.users.get(value, ()))
        while stack:
            user = stack.pop()
            if not isinstance(user, Op):
                continue
            if user.name in ("expand_dims", "reshape", "permute"):
                stack += self.users.get(user.result, ())
            if user.name == "broadcast" and prod(user.result.type.shape) > value.type.numel:
                return True
        return False


def _inputs(step: Step) -> list[Value]:
    """What a step asks for itself: a dot's first two operands were packed where they were made."""
    if isinstance(step, Group):
        return [value for sink in step.sinks for value in sink.inputs]
    is_dot = isinstance(step.node, Op) and step.node.name == "dot"
    return list(node_operands(step.node)[2 if is_dot else 0 :])


def reachable(start: Value, links: Mapping[Value, Iterable[Value]]) -> set[Value]:
    """All values linked with one, over any number of steps."""
    found: set[Value] = set()
    stack = [start]
    while stack:
        value = stack.pop()
        if value not in found:
            found.add(value)
            stack += links.get(value, ())
    return found
