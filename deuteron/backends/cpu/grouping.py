"""Grouping: turns the nodes of a block into steps, joining sinks into shared loop nests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from deuteron.backends.cpu.in_place import allow_in_place
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
from deuteron.backends.cpu.tile_store import keys_of
from deuteron.ir import OPS, Effect, For, If, Op, Reduce, Scan, Value, While, walk
from deuteron.ir.nodes import Block, Node, node_blocks

if TYPE_CHECKING:
    from deuteron.backends.cpu.planner import Plan

# A value that a block yields, and the result that takes it.
Yield = tuple[Value, Value]


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
            for value, side in zip(op.operands[:2], ("a", "b"), strict=True):
                wanted = packs.setdefault(value, [])
                pack = Pack(value, plan, side)
                pack.keys = keys_of(self.p, pack)
                if all(pack.layout != w.layout for w in wanted):
                    wanted.append(pack)
        return packs

    # -- a block ----------------------------------------------------------------------------
    def plan(self, block: Block) -> BlockPlan:
        """The steps of a block."""
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
        allow_in_place(self.p, block, self.steps)
        return BlockPlan(self.steps)

    def _pack(self, value: Value) -> None:
        for pack in self.packs.get(value, ()):
            self._add(replace(pack))

    def _node(self, node: Node) -> None:
        match node:
            case Reduce():
                self._add(Fold(node))
            case For() | While():
                self._assign_all(zip(node.inits, node.results, strict=True))
                self._single(node)
            case Scan() | If():
                self._single(node)
            case Op():
                self._op(node)

    def _op(self, node: Op) -> None:
        if node.name == "store" and node.operands[0].type.shape:
            self._add(Store(node))
        elif not self._waits(node):
            self._single(node)

    def _waits(self, op: Op) -> bool:
        """Whether an op is carried out only where its result is asked for, or as a Keep."""
        if op.name in ("join", "cat", "reshape") and op.result in self.demand.kept:
            return False
        if op.name == "split":
            return bool(op.result.type.shape)
        return bool(op.results) and self.demand.is_computed(op.result)

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
        if fresh.kept_pack is not None:
            return None
        sources = self._sources(sink)
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
        if group.kept_pack is not None:
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
        """Whether sinks of one nest would load what another turn of it stores, or too early.

        Nor may two stores meet in one place, but for the same turn of both.
        """
        stores = [s.op for s in sinks if isinstance(s, Store)]
        if not stores:
            return False
        pairs = combinations(stores, 2)
        if any(self.p.may_alias(a, b) and not same_place(a, b) for a, b in pairs):
            return True
        loads = [found for sink in sinks for found in self._loads(sink).items()]
        return any(self._clash(load, same, store) for load, same in loads for store in stores)

    def _clash(self, load: Op, same: bool, store: Op) -> bool:
        """Whether a load and a store that may meet do not go element by element, in order."""
        if not self.p.may_alias(load, store):
            return False
        early = self.p.order[load] < self.p.order[store]
        return not (same and early and same_place(load, store))

    def _loads(self, sink: Sink) -> dict[Op, bool]:
        """The loads a sink does itself, and whether its element i needs only element i of them."""
        found: dict[Op, bool] = {}
        for source, same in self._sources(sink).items():
            own = isinstance(sink, Keep) and source is sink.value
            if source.op and source.op.name == "load" and (own or self.demand.is_virtual(source)):
                found[source.op] = same
        return found

    def _sources(self, sink: Sink) -> dict[Value, bool]:
        """What a sink reads, and whether its element i needs only element i of that."""
        if isinstance(sink, Keep) and sink.value.op:
            return self.demand.ingredients(sink.value.op)
        return self.demand.sources_of(sink.inputs)

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
        """Whether chunks stay within one matrix and, along K of B, hold whole packs."""
        row = len(sink.shape) - 2
        if axis < row:
            return False
        if sink.side == "a" or axis > row:
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
        """Put what a loop or branch yields where its results live, none before its last reader."""
        pending = [(value, home) for value, home in self.p.homes(block) if home.type.shape]
        variables = self.p.variables(block)
        while pending:
            ready = (p for p in pending if not self._readers(variables.get(p[1]), p, pending))
            chosen = next(ready, None)
            if chosen is None:
                self._keep_readers(variables[pending[0][1]], pending[0], pending)
            else:
                pending.remove(chosen)
                self._add_last(Assign(*chosen))

    def _add_last(self, sink: Assign) -> None:
        """As `_add`, but never before a step that may still read the old value."""
        fresh = self._group_for(sink)
        self.steps.append(fresh)
        self.made[sink.home] = len(self.steps) - 1

    def _readers(self, arg: Value | None, pair: Yield, pending: list[Yield]) -> list[int]:
        """Which of the pending values would miss a variable once `pair` has overwritten it.

        The pair's own value may read it, but element by element only.
        """
        if arg is None:
            return []
        reads = [self.demand.sources(value).get(arg) for value, _ in pending]
        return [
            i
            for i, same in enumerate(reads)
            if same is not None and not (same and pending[i] == pair)
        ]

    def _keep_readers(self, arg: Value, pair: Yield, pending: list[Yield]) -> None:
        """Variables that read each other: values that would miss one are computed aside first."""
        for i in self._readers(arg, pair, pending):
            value, home = pending[i]
            aside = Value(value.type, "aside")
            self._add_last(Assign(value, aside))
            pending[i] = (aside, home)


def same_place(access: Op, store: Op) -> bool:
    """Whether a store's element i goes exactly where another access's element i lies."""
    return access.operands[0] is store.operands[0]


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
