"""Atomic ops, one element at a time."""

from __future__ import annotations

from collections.abc import Sequence

from deuteron.backends.cpu.index import Index
from deuteron.backends.cpu.levels import Placed
from deuteron.backends.cpu.nests import Nests
from deuteron.backends.llvm.builder import Builder, LType, Val
from deuteron.backends.llvm.registers import (
    narrow_float,
    register_elem,
    storage_elem,
    to_register,
    to_storage,
)
from deuteron.dtypes import DType, bfloat16
from deuteron.ir import Op

_ORDER = {"relaxed": "monotonic", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
_FAILURE_ORDER = {"relaxed": "monotonic", "acquire": "acquire", "release": "monotonic"}


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
    values = [nests.chunks.get(o, index).val for o in op.operands]
    element = op.operands[1].type.dtype
    if op.name == "atomic_cas":
        return _compare_exchange(nests.b, values, element, op.attrs.get("sem") or "acq_rel")
    if len(values) < 3:
        return _read_modify_write(nests.b, op, values, element)
    zero = nests.b.const(0, LType(register_elem(element)))
    return nests.levels.branch(
        values[2], lambda: [_read_modify_write(nests.b, op, values, element)], lambda: [zero]
    )[0]


def _read_modify_write(b: Builder, op: Op, values: Sequence[Val], element: DType) -> Val:
    pointer, operand = values[:2]
    order = _ORDER[op.attrs.get("sem") or "acq_rel"]
    kind = _instruction(op.attrs["kind"], element)
    stored = to_storage(b, operand, element)
    if element is bfloat16 and kind.startswith("f"):
        return _bfloat_loop(b, pointer, operand, op.attrs["kind"], order)
    text = f"atomicrmw {kind} {pointer}, {stored} {order}, align {element.storage_bytes}"
    return to_register(b, b.emit(text, stored.type), element)


def _compare_exchange(b: Builder, values: Sequence[Val], element: DType, sem: str) -> Val:
    size = element.storage_bytes
    bits = LType(f"i{size * 8}")
    stored = [to_storage(b, v, element) for v in values[1:]]
    expected, new = (b.bitcast(v, bits.elem) for v in stored)
    orders = f"{_ORDER[sem]} {_FAILURE_ORDER.get(sem, 'acquire')}"
    text = f"cmpxchg {values[0]}, {expected}, {new} {orders}, align {size}"
    pair = b.emit(text, LType("i1"))
    old = b.emit(f"extractvalue {{ {bits}, i1 }} {pair.text}, 0", bits)
    return to_register(b, b.bitcast(old, storage_elem(element)), element)


def _bfloat_loop(b: Builder, pointer: Val, value: Val, kind: str, order: str) -> Val:
    """LLVM knows no atomic on 16 bits that adds as bfloat16: try until nobody came between."""
    i16 = LType("i16")
    first = b.emit(f"load atomic i16, {pointer} monotonic, align 2", i16)
    again, done = b.name("retry"), b.name("added")
    entry = b.code.block
    b.branch(again)
    b.label(again)
    seen = f"%{b.name('seen')}"
    old = Val(f"%{b.name('old')}", i16)
    b.do(f"{old.text} = phi i16 [ {first.text}, %{entry} ], [ {seen}, %{again} ]")
    wide = to_register(b, old, bfloat16)
    new = b.fadd(wide, value)
    if kind != "add":
        new = b.intrinsic("maxnum" if kind == "max" else "minnum", [wide, value])
    bits = to_storage(b, narrow_float(b, new, bfloat16), bfloat16)
    failure = "monotonic" if order in ("monotonic", "release") else "acquire"
    text = f"cmpxchg {pointer}, {old}, {bits} {order} {failure}, align 2"
    pair = b.emit(text, LType("i1"))
    b.do(f"{seen} = extractvalue {{ i16, i1 }} {pair.text}, 0")
    won = b.emit(f"extractvalue {{ i16, i1 }} {pair.text}, 1", LType("i1"))
    b.branch_if(won, done, again)
    b.label(done)
    return wide


def _instruction(kind: str, element: DType) -> str:
    """LLVM's name of an atomic read-modify-write on that element type."""
    if element.is_floating() and kind in ("add", "max", "min"):
        return f"f{kind}"
    if kind in ("max", "min") and not element.is_int_signed():
        return f"u{kind}"
    return kind
