"""What the next turn of a loop will load: the tiles worth prefetching while a dot computes.

A dot's operand that is loaded in the body of a loop will be loaded again in the next turn, from
where its pointer will be then: the same pointer expression, with the loop's variables as the body
is about to leave them.
"""

from __future__ import annotations

from deuteron.backends.cpu.chunks import Chunks
from deuteron.backends.cpu.index import Coord, Index
from deuteron.backends.cpu.planner import Plan
from deuteron.backends.cpu.prefetch import PrefetchRows
from deuteron.backends.llvm.builder import Val
from deuteron.backends.llvm.levels import Placed
from deuteron.backends.llvm.registers import elem_bytes, storage_elem
from deuteron.ir import For, Op, Value


def next_tiles(plan: Plan, chunks: Chunks, loop: For, dot: Op) -> dict[Value, PrefetchRows]:
    """Where `dot`, in the body of `loop`, will be given its operands from in the next turn."""
    loads = {operand: _load_behind(operand) for operand in dot.operands[:2]}
    here = {o: load for o, load in loads.items() if load and plan.block_of[load] is loop.body}
    following = _next_variables(plan, chunks, loop)
    if not here or following is None:
        return {}
    with chunks.assuming(following):
        rows = {operand: _rows_of(plan, chunks, load) for operand, load in here.items()}
    return {operand: tile for operand, tile in rows.items() if tile is not None}


def _load_behind(operand: Value) -> Op | None:
    """The load that a dot's operand is, moved or converted at most."""
    op = operand.op
    while op is not None and op.name in ("permute", "cast", "hint"):
        op = op.operands[0].op
    return op if op is not None and op.name == "load" and op.result.type.rank == 2 else None


def _next_variables(plan: Plan, chunks: Chunks, loop: For) -> dict[Value, Placed] | None:
    """The loop's scalar variables after this turn, where they are known already."""
    index = loop.body.args[0]
    step = chunks.scalar(loop.step)
    now = chunks.scalar(index)
    following = {index: Placed(chunks.b.add(now.val, step.val), chunks.levels.depth)}
    for arg, value in zip(loop.body.args[1:], loop.body.yields, strict=True):
        if arg.type.shape:
            continue
        if not all(source in chunks.scalars for source in plan.demand.sources(value)):
            return None
        following[arg] = Placed(chunks.scalar(value).val, chunks.levels.depth)
    return following


def _rows_of(plan: Plan, chunks: Chunks, load: Op) -> PrefetchRows | None:
    """The rows (the runs of neighbours) that a load touches."""
    pointer = load.operands[0]
    along = plan.demand.contiguous_axis(load)
    if along is None or any(s not in chunks.scalars for s in plan.demand.sources(pointer)):
        return None
    rows, columns = pointer.type.shape[1 - along], pointer.type.shape[along]
    start = Index.origin(2)
    first = chunks.get(pointer, start).val
    second = chunks.get(pointer, start.at(1 - along, Coord("", min(1, rows - 1)))).val
    pitch = chunks.b.sub(_address(chunks, second), _address(chunks, first))
    size = elem_bytes(storage_elem(pointer.type.pointee))
    return PrefetchRows(first, pitch, rows, columns * size)


def _address(chunks: Chunks, pointer: Val) -> Val:
    return chunks.b.convert("ptrtoint", pointer, "i64")
