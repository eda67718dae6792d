"""Which loads of a loop run ahead of it, asynchronously, into shared memory.

A load whose value only goes to dots (as it is, or transposed) need not pass through registers:
cp.async copies it while earlier turns compute.  For that its addresses must be known turns ahead,
so whatever they are computed from must be pure: ops on the loop's index, on what is carried in the
same way, and on what is known outside.  A loop that stores where such a load may read is left
alone; arguments are taken to be different arrays unless the function's attribute `aliased` says
that they may overlap.

This is pure data, made from IR; `pipeline.py` acts on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deuteron.backends.cuda.coalesce import ACCESS_BYTES, Coalescing
from deuteron.backends.cuda.layout import Layout
from deuteron.backends.cuda.tile_format import TILE_ALIGN, TileFormat
from deuteron.ir import For, Function, Op, Value, While, walk
from deuteron.ir.nodes import Block, Node, node_blocks, node_operands
from deuteron.ir.optable import OPS
from deuteron.ir.pointer_roots import PointerRoots
from deuteron.passes.simplify import constant_of

# What cp.async moves at once, at least.
_LEAST_COPY_BYTES = 4
# Besides elementwise ops, what addresses may be computed by ahead of time.
_SHAPES = frozenset({"const", "arange", "splat", "broadcast", "expand_dims", "permute", "reshape"})
_WRITES = frozenset({"store", "atomic_rmw", "atomic_cas"})


@dataclass(frozen=True, slots=True)
class AsyncLoad:
    """A load done by cp.async: `run` elements a copy, shared out among threads by `layout`."""

    op: Op
    run: int
    layout: Layout
    format: TileFormat

    @property
    def pointer(self) -> Value:
        return self.op.operands[0]

    @property
    def mask(self) -> Value | None:
        return self.op.operands[1] if len(self.op.operands) > 1 else None


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """One loop's asynchronous loads.

    `stages` tiles of each are kept: one in use, the others on their way.  `carried` are the
    numbers of the carried scalars that addresses depend on, `slice` the ops of the body that
    compute addresses, masks and those scalars' next values.
    """

    loop: For
    loads: tuple[AsyncLoad, ...]
    stages: int
    carried: tuple[int, ...]
    slice: frozenset[Op]

    @property
    def offsets(self) -> list[int]:
        """Where each load's tile begins in a stage."""
        offsets, total = [0], 0
        for load in self.loads:
            total += -(-load.format.size_bytes // TILE_ALIGN) * TILE_ALIGN
            offsets.append(total)
        return offsets[:-1]

    @property
    def stage_bytes(self) -> int:
        return sum(-(-load.format.size_bytes // TILE_ALIGN) * TILE_ALIGN for load in self.loads)


def plan_loops(
    function: Function,
    coalescing: Coalescing,
    num_stages: int,
    shared_limit: int,
    *,
    most_stages: int | None = None,
) -> dict[For, LoopPlan]:
    """The loops with loads to run ahead.

    `num_stages` is what holds for loops that do not say; fewer are taken when shared memory is too
    small for so many, and no more than `most_stages` whatever loops say.
    """
    return _Planner(function, coalescing, num_stages, shared_limit, most_stages).plan()


def asked_stages(function: Function) -> list[int]:
    """The stages that loops ask for themselves."""
    loops = (node for node in walk(function.body) if isinstance(node, For))
    asked = (loop.attrs.get("num_stages") for loop in loops)
    return [stages for stages in asked if stages is not None]


class _Planner:
    def __init__(
        self,
        function: Function,
        coalescing: Coalescing,
        num_stages: int,
        shared_limit: int,
        most_stages: int | None,
    ) -> None:
        self.most_stages = most_stages
        self.function = function
        self.coalescing = coalescing
        self.num_stages = num_stages
        self.shared_limit = shared_limit
        self.roots = PointerRoots(function)
        self.users = _users(function)

    def plan(self) -> dict[For, LoopPlan]:
        found: dict[For, LoopPlan] = {}
        for node in walk(self.function.body):
            if isinstance(node, For) and not _holds_loops_with_dots(node):
                plan = self._loop(node)
                if plan is not None:
                    found[node] = plan
        return found

    def _loop(self, loop: For) -> LoopPlan | None:
        asked = loop.attrs.get("num_stages")
        stages = self.num_stages if asked is None else asked
        if self.most_stages is not None:
            stages = min(stages, self.most_stages)
        if stages < 2:
            return None
        writes = [n for n in walk(loop.body) if isinstance(n, Op) and n.name in _WRITES]
        if any(_may_synchronize(op, self.users) for op in writes):
            return None
        written = {root for op in writes for root in self.roots.all_of(op.operands[0])}
        loads: list[AsyncLoad] = []
        used = _Slice(loop)
        for node in loop.body.nodes:
            load = self._async_load(node) if isinstance(node, Op) and node.name == "load" else None
            if load is None or self._may_be_written(load, written):
                continue
            if used.add(node_operands(load.op)[:2]):
                loads.append(load)
        if not loads:
            return None
        carried = tuple(sorted(used.carried))
        plan = LoopPlan(loop, tuple(loads), stages, carried, frozenset(used.ops))
        fitting = min(stages, self.shared_limit // plan.stage_bytes)
        if fitting < 2:
            return None
        return LoopPlan(loop, plan.loads, fitting, carried, plan.slice)

    def _may_be_written(self, load: AsyncLoad, written: set[Value | None]) -> bool:
        read = self.roots.all_of(load.pointer)
        anywhere = None in written or None in read or bool(self.function.attrs.get("aliased"))
        return bool(written) and (anywhere or bool(written & read))

    def _async_load(self, op: Op) -> AsyncLoad | None:
        """How a load is done asynchronously, when it can be."""
        pointer, *rest = op.operands
        zero_fill = len(rest) < 2 or _is_zero(rest[1])
        if pointer.type.rank < 2 or op.attrs.get("volatile") or not zero_fill:
            return None
        if not self._only_feeds_dots(op.result):
            return None
        size = pointer.type.pointee.storage_bytes
        order = self.coalescing.order(pointer)
        run = min(self.coalescing.run(pointer), ACCESS_BYTES // size)
        if rest:
            run = min(run, self.coalescing.facts.of(rest[0]).constancy[order[0]])
        if run * size < _LEAST_COPY_BYTES or order[0] < pointer.type.rank - 2:
            return None
        layout = self.coalescing.spread(pointer.type.shape, order, run)
        run = min(run, layout.run_length(order[0]))
        if run * size < _LEAST_COPY_BYTES:
            return None
        return AsyncLoad(op, run, layout, TileFormat(pointer.type.shape, size, tile_order(order)))

    def _only_feeds_dots(self, value: Value) -> bool:
        users = self.users.get(value, [])
        if not users:
            return False
        for user in users:
            if not isinstance(user, Op):
                return False
            if user.name in ("permute", "hint"):
                if not self._only_feeds_dots(user.result):
                    return False
            elif user.name != "dot" or user.operands[2] is value:
                return False
        return True


def tile_order(order: Sequence[int]) -> tuple[int, ...]:
    """The order of a tile's axes in shared memory: the two of the matrix, then the batch."""
    rank = len(order)
    inner = order[0]
    return (inner, 2 * rank - 3 - inner, *range(rank - 2))


class _Slice:
    """The ops and carried scalars that some values of a loop's body are computed from."""

    def __init__(self, loop: For) -> None:
        self.loop = loop
        self.ops: set[Op] = set()
        self.carried: set[int] = set()
        self._inside = {v for node in walk(loop.body) for v in node.results}

    def add(self, values: Sequence[Value]) -> bool:
        """Take in what values are computed from; False, changing nothing, if it is not pure."""
        ops, carried = set(self.ops), set(self.carried)
        stack = list(values)
        while stack:
            value = stack.pop()
            if value.owner is self.loop.body:
                number = value.index - 1
                if value.index == 0 or number in carried:
                    continue
                if value.type.shape:
                    return False
                carried.add(number)
                stack.append(self.loop.body.yields[number])
            elif value in self._inside and value.op not in ops:
                if value.op is None or not _is_pure(value.op):
                    return False
                ops.add(value.op)
                stack += value.op.operands
        self.ops, self.carried = ops, carried
        return True


def _is_zero(value: Value) -> bool:
    """Whether a tile is known to be 0 everywhere, perhaps converted from another dtype."""
    while value.op is not None and value.op.name in ("cast", "splat"):
        value = value.op.operands[0]
    return constant_of(value) == 0


def _is_pure(op: Op) -> bool:
    return OPS[op.name].elementwise or op.name in _SHAPES


def _users(function: Function) -> dict[Value, list[Node | Block]]:
    """The nodes that read each value, and the blocks that yield it."""
    users: dict[Value, list[Node | Block]] = {}

    def visit(block: Block) -> None:
        for node in block.nodes:
            for value in node_operands(node):
                users.setdefault(value, []).append(node)
            for inner in node_blocks(node):
                visit(inner)
        for value in block.yields:
            users.setdefault(value, []).append(block)

    visit(function.body)
    return users


def _may_synchronize(op: Op, users: dict[Value, list[Node | Block]]) -> bool:
    """Whether later loads may have to wait for an atomic: when anyone looks at what it returns."""
    return any(users.get(result) for result in op.results)


def _holds_loops_with_dots(loop: For) -> bool:
    """Loops inside have the asynchronous copies then."""
    inner = (node for node in walk(loop.body) if isinstance(node, For | While))
    return any(
        isinstance(node, Op) and node.name == "dot" for each in inner for node in _body(each)
    )


def _body(loop: For | While) -> Iterator[Node]:
    for block in node_blocks(loop):
        yield from walk(block)
