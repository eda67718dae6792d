"""Atomic ops, one element at a time."""

from __future__ import annotations

from deuteron.backends.cpu.index import Index
from deuteron.backends.cpu.nests import Nests
from deuteron.backends.llvm.atomics import emit_compare_exchange, emit_read_modify_write
from deuteron.backends.llvm.builder import LType, Val
from deuteron.backends.llvm.levels import Placed
from deuteron.backends.llvm.registers import register_elem
from deuteron.ir import Op


def write_atomic(nests: Nests, op: Op) -> None:
    """Write an atomic op element by element; its result is what was there before."""
    chunks, result = nests.chunks, op.result
    if not result.type.shape:
        chunks.scalars[result] = Placed(_guarded(nests, op, Index(())), nests.levels.depth)
        return
    used = result in nests.plan.users or result in nests.plan.yielded
    buffer = nests.new_buffer(result) if used else None

    def one(index: Index) -> None:
        old = _guarded(nests, op, index)
        if buffer is not None:
            chunks.memory.write(buffer, result.type.element, index, old)

    with chunks.here():
        nests.each(result.type.shape, one)


def _guarded(nests: Nests, op: Op, index: Index) -> Val:
    """One element's atomic where the mask holds, and 0 where not."""
    b = nests.b
    values = [nests.chunks.get(o, index).val for o in op.operands]
    element = op.operands[1].type.dtype
    sem = op.attrs.get("sem") or "acq_rel"
    masks = values[3 if op.name == "atomic_cas" else 2 :]

    def update() -> list[Val]:
        if op.name == "atomic_cas":
            return [emit_compare_exchange(b, values[0], values[1], values[2], element, sem)]
        kind: str = op.attrs["kind"]
        return [emit_read_modify_write(b, kind, values[0], values[1], element, sem)]

    if not masks:
        return update()[0]
    zero = b.const(0, LType(register_elem(element)))
    return nests.levels.branch(masks[0], update, lambda: [zero])[0]
