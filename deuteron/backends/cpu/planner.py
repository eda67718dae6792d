"""Planning: which values are kept in buffers, and which sinks share a loop nest.

Three looks at the function, all before any code is written:

1. what must be kept: operands of shape ops that need memory, loads that a later store could change;
2. a trial grouping, which tells where each virtual value would be computed;
3. what is worth keeping: a costly value that two groups, a deeper loop, or every row of a broadcast
   would compute again.  Then the grouping is made once more, for good.
"""

from __future__ import annotations

from math import prod

from deuteron.backends.cpu.demand import Demand
from deuteron.backends.cpu.dot_plan import DotPlan, plan_dot
from deuteron.backends.cpu.grouping import Grouper
from deuteron.backends.cpu.steps import BlockPlan, Group
from deuteron.backends.cpu.target import CpuTarget
from deuteron.ir import OPS, Effect, For, Function, Op, Reduce, Scan, Value, While
from deuteron.ir.axis_info import AxisFacts
from deuteron.ir.nodes import Block, Node, node_blocks, node_operands
from deuteron.passes.simplify import constant_of

# A value that costs less than this many vector additions is computed again rather than kept.
WORTH_KEEPING = 8
# What it must cost to be kept when a broadcast would ask for it element by element.
WORTH_KEEPING_WIDENED = 20


class Plan:
    """The decisions for one function."""

    def __init__(self, function: Function, target: CpuTarget) -> None:
        self.function = function
        self.target = target
        self.facts = AxisFacts(function)
        self.demand = Demand(self.facts)
        self.order: dict[Node, int] = {}
        self.depth: dict[Block, int] = {}
        self.end: dict[Block, int] = {}
        self.block_of: dict[Node, Block] = {}
        self.users: dict[Value, list[Node]] = {}
        self._number(function.body, 0)
        self.dots = {n: self._plan_dot(n) for n in self.order if isinstance(n, Op) and n.name == "dot"}
        self.pitch = self._accumulator_pitches()
        self._must_keep()
        self.blocks: dict[Block, BlockPlan] = {}
        self._group()
        if self._keep_what_pays():
            self._group()

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
                deeper = isinstance(node, (For, While))
                self._number(inner, depth + deeper)
        self.end[block] = len(self.order)

    # -- dots -------------------------------------------------------------------------------
    def _plan_dot(self, op: Op) -> DotPlan:
        a, b, acc = (o.type for o in op.operands)
        m, k = a.shape[-2:]
        return plan_dot(self.target, a.dtype, b.dtype, acc.dtype, m, b.shape[-1], k)

    def _accumulator_pitches(self) -> dict[Value, int]:
        """Row pitch of every value that shares a buffer with a dot's accumulator."""
        pitch: dict[Value, int] = {}
        work = [(v, p.ldc) for op, p in self.dots.items() for v in (op.operands[2], *op.results)]
        links = self._carried_links()
        while work:
            value, wanted = work.pop()
            if value in pitch:
                continue
            pitch[value] = wanted
            work += [(other, wanted) for other in links.get(value, ())]
        return pitch

    def _carried_links(self) -> dict[Value, list[Value]]:
        """Values that are one variable of a loop: argument, yield, result."""
        links: dict[Value, list[Value]] = {}
        for node in self.order:
            if isinstance(node, (For, While)):
                skip = isinstance(node, For)
                triples = zip(node.body.args[skip:], node.body.yields, node.results, strict=True)
                for family in triples:
                    for value in family:
                        links.setdefault(value, []).extend(family)
        return links

    # -- what must be kept ------------------------------------------------------------------
    def _must_keep(self) -> None:
        for node in self.order:
            if not isinstance(node, Op):
                continue
            if node.name in ("join", "cat"):
                self.demand.keep(node.result)
            elif node.name == "reshape" and not self.demand.is_virtual(node.result):
                self.demand.keep(node.result)
            elif node.name == "split" and self.demand.is_virtual(node.operands[0]):
                self.demand.keep(node.operands[0])
            elif node.name == "dot" and constant_of(node.operands[2]) != 0:
                if self.demand.is_virtual(node.operands[2]):
                    self.demand.keep(node.operands[2])
        writes = [n for n in self.order if isinstance(n, Op) and is_memory_write(n)]
        for node in self.order:
            if isinstance(node, Op) and node.name == "load" and node.result.type.shape:
                if any(self._may_change(node, write) for write in writes):
                    self.demand.keep(node.result)

    def _may_change(self, load: Op, write: Op) -> bool:
        """Whether a write could come between a load and a use of what it loaded."""
        if not self.may_alias(load, write):
            return False
        start, at = self.order[load], self.order[write]
        if at > start and load.result in self.demand.sources_of(write.operands):
            same = self.demand.sources_of(write.operands)[load.result]
            if not (same and load.operands[0] is write.operands[0]):
                return True
        last = max((self._last_use(u, load) for u in self._uses(load.result)), default=start)
        return start < at < last

    def _uses(self, value: Value) -> list[Node]:
        """Nodes other than virtual ops that a value reaches, through virtual ops."""
        found: list[Node] = []
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
                    found.append(user)
            found += self._yielding(current)
        return found

    def _yielding(self, value: Value) -> list[Node]:
        """Nodes at the end of blocks that yield the value."""
        return [b.nodes[-1] for b in self.depth if value in b.yields and b.nodes]

    def _last_use(self, user: Node, load: Op) -> int:
        """The last place a use may stand, given the loops around it that the load is outside of."""
        block = self.block_of[user]
        if self.depth[block] > self.depth[self.block_of[load]]:
            return self.end[block]
        return self.order[user] + (user not in self._writes_at(user))

    def _writes_at(self, user: Node) -> tuple[Node, ...]:
        """A store uses its operands before it writes."""
        return (user,) if isinstance(user, Op) and is_memory_write(user) else ()

    def may_alias(self, load: Op, write: Op) -> bool:
        """Whether a write may touch what a load reads.

        Different array arguments do not overlap unless the launch found that they do.
        """
        left, right = root_of(load.operands[0]), root_of(write.operands[0])
        if left is None or right is None or write.name.startswith("atomic"):
            return True
        return left is right or bool(self.function.attrs.get("aliased"))

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

    def _places(self) -> dict[Op, set[tuple[int, int]]]:
        """For each virtual op, the (group, depth) pairs that ask for it."""
        places: dict[Op, set[tuple[int, int]]] = {}
        number = 0
        for block, plan in self.blocks.items():
            for step in plan.steps:
                number += 1
                if isinstance(step, Group):
                    inputs = [v for s in step.sinks for v in s.inputs]
                else:
                    inputs = read_directly(step.node)
                for value in inputs:
                    for part in self.demand.virtual_parts(value):
                        if part.op is not None:
                            places.setdefault(part.op, set()).add((number, self.depth[block]))
        return places

    def _pays(self, value: Value, places: set[tuple[int, int]]) -> bool:
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
        return cost >= WORTH_KEEPING and len(self._asking(value, places)) > 1

    def _loads(self, value: Value) -> bool:
        return any(p.is_op("load") for p in self.demand.virtual_parts(value))

    def _asking(self, value: Value, places: set[tuple[int, int]]) -> set[tuple[int, int]]:
        """The places that ask for a value past its consumers that are kept already."""
        users = self.users.get(value, ())
        if users and all(isinstance(u, Op) and u.results and u.result in self.demand.kept for u in users):
            return set(list(places)[:1]) if len(users) == 1 else places
        return places

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


def read_directly(node: Node) -> list[Value]:
    """The operands a node asks for itself: those of a dot were packed where they were made."""
    is_dot = isinstance(node, Op) and node.name == "dot"
    return list(node_operands(node))[2 if is_dot else 0 :]


def is_memory_write(op: Op) -> bool:
    return OPS[op.name].effect is Effect.WRITE and op.name not in ("print", "assert", "assume")


def root_of(pointer: Value) -> Value | None:
    """The kernel parameter a pointer is computed from; None when it cannot be told."""
    while True:
        owner = pointer.owner
        if isinstance(owner, Block):
            return pointer if pointer.type.is_pointer and not pointer.type.shape else None
        if not isinstance(owner, Op) or not owner.operands or owner.name in ("load", "int_to_ptr"):
            return None
        if owner.name == "select":
            left, right = root_of(owner.operands[1]), root_of(owner.operands[2])
            return left if left is right else None
        pointer = owner.operands[0]
