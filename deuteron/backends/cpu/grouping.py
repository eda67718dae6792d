"""Grouping: turns the nodes of a block into steps, joining sinks into shared loop nests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from deuteron.backends.cpu.steps import (
    Assign,
    BlockPlan,
    Fold,
    Group,
    Keep,
    Pack,
    Single,
    Sink,
    Step,
    Store,
)
from deuteron.ir import OPS, Effect, For, If, Op, Reduce, Scan, Value, While, walk
from deuteron.ir.nodes import Block, Node, node_blocks

if TYPE_CHECKING:
    from deuteron.backends.cpu.planner import Plan


class Grouper:
    """Plans blocks one by one.  `made` tells which step of its block gives each real value."""

    def __init__(self, plan: Plan) -> None:
        self.p = plan
        self.demand = plan.demand
        self.steps: list[Step] = []
        self.made: dict[Value, int] = {}
        self.packs = self._packs()

    def _packs(self) -> dict[Value, list[Pack]]:
        """The packings of each value, by the dots that need it; equal ones once."""
        packs: dict[Value, list[Pack]] = {}
        for op, plan in self.p.dots.items():
            for value, side in zip(op.operands, ("a", "b"), strict=False):
                wanted = packs.setdefault(value, [])
                if not any(same_layout(w, plan, side) for w in wanted):
                    wanted.append(Pack(value, plan, side))
        return packs

    # -- a block ----------------------------------------------------------------------------
    def plan(self, block: Block) -> BlockPlan:
        self.steps, self.made = [], {}
        for value in block.args:
            self._pack(value)
        for node in block.nodes:
            self._node(node)
            for value in node.results:
                if value in self.demand.kept and self.demand.is_computed(value):
                    self._add(Keep(value))
                self._pack(value)
        self._yields(block)
        self._allow_in_place(block)
        return BlockPlan(self.steps)

    def _pack(self, value: Value) -> None:
        for pack in self.packs.get(value, ()):
            self._add(Pack(value, pack.plan, pack.side))

    def _node(self, node: Node) -> None:
        match node:
            case Reduce():
                self._add(Fold(node))
            case Scan():
                self._single(node)
            case For() | While():
                self._assign_all(zip(node.inits, node.results, strict=True))
                self._single(node)
            case If():
                self._single(node)
            case Op():
                self._op(node)

    def _op(self, node: Op) -> None:
        if node.name == "store" and node.operands[0].type.shape:
            self._add(Store(node))
        elif node.name == "dot":
            self._single(node)
        elif node.name in ("join", "cat", "reshape") and node.result in self.demand.kept:
            self._single(node)
        elif node.name == "split" and node.result.type.shape:
            return
        elif node.results and self.demand.is_computed(node.result):
            return
        else:
            self._single(node)

    def _single(self, node: Node) -> None:
        writes = any(_writes(n) for n in (node, *_inside(node)))
        self.steps.append(Single(node, writes))
        for value in node.results:
            self.made[value] = len(self.steps) - 1

    def _assign_all(self, pairs: Iterable[tuple[Value, Value]]) -> None:
        for value, home in pairs:
            if home.type.shape:
                self._add(Assign(value, home))

    # -- joining ----------------------------------------------------------------------------
    def _add(self, sink: Sink) -> None:
        """Put a sink into an earlier group when nothing stands against it, else into a new one."""
        fresh = self._group_for(sink)
        target = self._joinable(sink, fresh)
        if target is None:
            self.steps.append(fresh)
            at = len(self.steps) - 1
        else:
            at = target
            group = self.steps[at]
            assert isinstance(group, Group)
            group.sinks.append(sink)
            group.writes |= fresh.writes
            group.folded = fresh.folded if group.folded is None else group.folded
        for value in _gives(sink):
            self.made[value] = at

    def _joinable(self, sink: Sink, fresh: Group) -> int | None:
        sources = self.demand.sources_of(sink.inputs)
        for at in range(len(self.steps) - 1, -1, -1):
            step = self.steps[at]
            if isinstance(step, Group) and self._fits(step, fresh, sources, at):
                return at
            if step.writes or fresh.writes:
                return None
            if any(self.made.get(s, -1) >= at for s in sources):
                return None
        return None

    def _fits(self, group: Group, fresh: Group, sources: dict[Value, bool], at: int) -> bool:
        if (group.shape, group.axis, group.rows) != (fresh.shape, fresh.axis, fresh.rows):
            return False
        if fresh.folded is not None and group.folded not in (None, fresh.folded):
            return False
        kept_here = {s.value for s in group.sinks if isinstance(s, Keep)}
        for source, same in sources.items():
            if self.made.get(source, -1) > at:
                return False
            if self.made.get(source, -1) == at and not (same and source in kept_here):
                return False
        return not self._conflict([*group.sinks, *fresh.sinks])

    def _conflict(self, sinks: list[Sink]) -> bool:
        """Whether sinks of one nest would load what another turn of it stores, or too early."""
        stores = [s.op for s in sinks if isinstance(s, Store)]
        if not stores:
            return False
        for sink in sinks:
            for load, same in self._loads(sink).items():
                for store in stores:
                    if not self.p.may_alias(load, store):
                        continue
                    early = self.p.order[load] < self.p.order[store]
                    if not (same and early and same_place(load, store)):
                        return True
        return False

    def _loads(self, sink: Sink) -> dict[Op, bool]:
        """The loads a sink does itself, and whether element i of it needs only element i of them."""
        found: dict[Op, bool] = {}
        for source, same in self.demand.sources_of(sink.inputs).items():
            if source.is_op("load") and self.demand.is_virtual(source) and source.op:
                found[source.op] = same
        if isinstance(sink, Keep) and sink.value.is_op("load") and sink.value.op:
            found[sink.value.op] = True
        return found

    # -- orientation ------------------------------------------------------------------------
    def _group_for(self, sink: Sink) -> Group:
        axis, rows = self._axis(sink), None
        if isinstance(sink, Pack) and not self._packs_along(sink, axis):
            axis = len(sink.shape) - 1
        folded = sink.node.axis if isinstance(sink, Fold) else None
        last = len(sink.shape) - 1
        if isinstance(sink, Pack):
            rows = self._pack_rows(sink, axis)
        elif isinstance(sink, (Keep, Assign)) and axis != last:
            rows = (last, _divisor(sink.shape[last], self.p.target.lanes(32)))
        if rows is not None and rows[1] == 1:
            rows = None
        return Group(sink.shape, [sink], axis, folded, rows, isinstance(sink, Store))

    def _axis(self, sink: Sink) -> int:
        """The axis chunks run along: that of the addresses, else the last one longer than 1."""
        longer = [a for a, size in enumerate(sink.shape) if size > 1]
        axis = longer[-1] if longer else len(sink.shape) - 1
        if isinstance(sink, Store):
            stored = self.demand.contiguous_axis(sink.op)
            return axis if stored is None else stored
        values = [v for v in sink.inputs if v.type.shape == sink.shape]
        for value in values:
            wanted = self.demand.preferred_axis(value)
            if wanted is not None and sink.shape[wanted] > 1:
                return wanted
        return axis

    def _packs_along(self, sink: Pack, axis: int) -> bool:
        """Whether chunks along K of B hold whole packs."""
        if sink.side == "a" or axis != len(sink.shape) - 2:
            return True
        lanes = _divisor(sink.shape[axis], self.p.target.lanes(32))
        return lanes > 1 and lanes % sink.plan.pack == 0

    def _pack_rows(self, sink: Pack, axis: int) -> tuple[int, int] | None:
        rank = len(sink.shape)
        row, column = rank - 2, rank - 1
        lanes = self.p.target.lanes(32)
        if sink.side == "a":
            return None if axis == column else (column, _divisor(sink.shape[column], lanes))
        if axis == column:
            return (row, sink.plan.pack)
        return (column, _divisor(sink.shape[column], min(lanes, sink.plan.nr)))

    # -- the end of a block -----------------------------------------------------------------
    def _yields(self, block: Block) -> None:
        """Put what a loop or branch yields where its results live, each before it is overwritten."""
        pairs = self._yield_pairs(block)
        pending = [(v, h) for v, h in pairs if h.type.shape]
        carried = self._carried_args(block)
        while pending:
            free = [
                pair for pair in pending if not self._read_by_others(carried.get(pair[1]), pair, pending)
            ]
            chosen = free[0] if free else pending[0]
            if not free:
                self._keep_readers(carried[chosen[1]], chosen, pending)
            pending.remove(chosen)
            self._add_last(Assign(*chosen))

    def _add_last(self, sink: Assign) -> None:
        """As `_add`, but never before a step that may still read the old value."""
        fresh = self._group_for(sink)
        self.steps.append(fresh)
        self.made[sink.home] = len(self.steps) - 1

    def _read_by_others(
        self, arg: Value | None, pair: tuple[Value, Value], pending: list[tuple[Value, Value]]
    ) -> bool:
        if arg is None:
            return False
        return any(arg in self.demand.sources(v) for v, h in pending if (v, h) != pair)

    def _keep_readers(
        self, arg: Value, pair: tuple[Value, Value], pending: list[tuple[Value, Value]]
    ) -> None:
        """Two variables that read each other: the others are computed aside first."""
        for i, (value, home) in enumerate(pending):
            if (value, home) == pair or arg not in self.demand.sources(value):
                continue
            aside = Value(value.type, "aside")
            self._add_last(Assign(value, aside))
            pending[i] = (aside, home)

    def _yield_pairs(self, block: Block) -> list[tuple[Value, Value]]:
        for node in self.p.order:
            if isinstance(node, (For, While)) and node.body is block:
                return list(zip(block.yields, node.results, strict=True))
            if isinstance(node, If) and block in (node.then, node.otherwise):
                return list(zip(block.yields, node.results, strict=True))
        return []

    def _carried_args(self, block: Block) -> dict[Value, Value]:
        """The loop's argument that shares a buffer with each result."""
        for node in self.p.order:
            if isinstance(node, (For, While)) and node.body is block:
                skip = isinstance(node, For)
                return dict(zip(node.results, block.args[skip:], strict=True))
        return {}

    # -- in place ---------------------------------------------------------------------------
    def _allow_in_place(self, block: Block) -> None:
        """Let accumulators of dots be updated where they are when nobody reads the old value."""
        for at, step in enumerate(self.steps):
            if not isinstance(step, Single) or step.node not in self.p.dots:
                continue
            acc = step.node.operands[2]  # pyright: ignore
            if self._read_after(at, acc) or not self._owned(acc, block):
                continue
            if acc in block.args and not self._becomes(acc, step.node.results[0], block):
                continue
            step.in_place = acc
            self._keep_in_place(acc, block)

    def _keep_in_place(self, acc: Value, block: Block) -> None:
        """The accumulator itself, rescaled from the loop's variable, may take that one's place."""
        for at, step in enumerate(self.steps):
            sinks = step.sinks if isinstance(step, Group) else []
            for sink in sinks:
                if not isinstance(sink, Keep) or sink.value is not acc:
                    continue
                for arg, same in self.demand.sources_of(sink.inputs).items():
                    fits = same and arg in block.args and arg.type == acc.type
                    others = [s for s in sinks if s is not sink]
                    clear = not any(arg in self.demand.sources_of(s.inputs) for s in others)
                    if fits and clear and not self._read_after(at, arg):
                        if self._becomes(arg, acc, block):
                            sink.in_place = arg

    def _becomes(self, arg: Value, value: Value, block: Block) -> bool:
        """Whether a value, through dots that add to it, is what the loop's variable becomes."""
        variables = self._carried_args(block)
        final = {a: y for (y, h) in self._yield_pairs(block) for a in [variables.get(h)] if a}
        while final.get(arg) is not value:
            users = self.p.users.get(value, [])
            if len(users) != 1 or users[0] not in self.p.dots:
                return False
            dot = users[0]
            assert isinstance(dot, Op)
            if dot.operands[2] is not value:
                return False
            value = dot.result
        return True

    def _read_after(self, at: int, value: Value) -> bool:
        return any(self._reads(step, value) for step in self.steps[at + 1 :])

    def _owned(self, acc: Value, block: Block) -> bool:
        """Whether the buffer of a value is this block's to change."""
        if acc in block.args:
            return True
        owner = acc.owner
        kept = acc in self.demand.kept or not self.demand.is_virtual(acc)
        return kept and isinstance(owner, Op) and self.p.block_of.get(owner) is block

    def _reads(self, step: Step, value: Value) -> bool:
        if isinstance(step, Group):
            return any(value in self.demand.sources_of(s.inputs) for s in step.sinks)
        return value in self.demand.node_sources(step.node)


def same_place(load: Op, store: Op) -> bool:
    """Whether a store's element i goes exactly where a load's element i came from."""
    return load.operands[0] is store.operands[0]


def same_layout(pack: Pack, plan: object, side: str) -> bool:
    """Whether a packing serves another dot too."""
    if pack.side != side:
        return False
    left, right = pack.plan, plan
    names = ("lda", "a_elem", "a_bias") if side == "a" else ("nr", "b_elem", "pack", "k_padded")
    return all(getattr(left, n) == getattr(right, n) for n in names)


def _divisor(size: int, limit: int) -> int:
    """The greatest power of two that divides a size, up to a limit."""
    return min(size & -size, limit)


def _gives(sink: Sink) -> tuple[Value, ...]:
    match sink:
        case Keep():
            return (sink.value,)
        case Assign():
            return (sink.home,)
        case Fold():
            return sink.node.results
        case Store() | Pack():
            return ()


def _writes(node: Node) -> bool:
    return isinstance(node, Op) and OPS[node.name].effect is Effect.WRITE


def _inside(node: Node) -> list[Node]:
    return [n for block in node_blocks(node) for n in walk(block)]
