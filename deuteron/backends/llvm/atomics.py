"""Atomic read-modify-writes of one element, for any target."""

from __future__ import annotations

from deuteron.backends.llvm.builder import Builder, LType, Val
from deuteron.backends.llvm.registers import narrow_float, storage_elem, to_register, to_storage
from deuteron.dtypes import DType, bfloat16

_ORDER = {"relaxed": "monotonic", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
_FAILURE_ORDER = {"relaxed": "monotonic", "acquire": "acquire", "release": "monotonic"}


def emit_read_modify_write(
    b: Builder, kind: str, pointer: Val, operand: Val, element: DType, sem: str, scope: str = ""
) -> Val:
    """An atomic of `optable.ATOMIC_KINDS`; returns what was there before.

    `sem` is "relaxed", "acquire", "release" or "acq_rel"; `scope` is LLVM's `syncscope("…") `, or
    empty for the whole system.
    """
    order = _ORDER[sem]
    instruction = _instruction(kind, element)
    stored = to_storage(b, operand, element)
    if element is bfloat16 and instruction.startswith("f"):
        return _bfloat_loop(b, pointer, operand, kind, order, scope)
    align = element.storage_bytes
    text = f"atomicrmw {instruction} {pointer}, {stored} {scope}{order}, align {align}"
    return to_register(b, b.emit(text, stored.type), element)


def emit_compare_exchange(
    b: Builder,
    pointer: Val,
    expected: Val,
    new: Val,
    element: DType,
    sem: str,
    scope: str = "",
) -> Val:
    """Store `new` where `expected` is, compared bit by bit; returns what was there before."""
    size = element.storage_bytes
    bits = LType(f"i{size * 8}")
    stored = [b.bitcast(to_storage(b, v, element), bits.elem) for v in (expected, new)]
    orders = f"{scope}{_ORDER[sem]} {_FAILURE_ORDER.get(sem, 'acquire')}"
    text = f"cmpxchg {pointer}, {stored[0]}, {stored[1]} {orders}, align {size}"
    pair = b.emit(text, LType("i1"))
    old = b.emit(f"extractvalue {{ {bits}, i1 }} {pair.text}, 0", bits)
    return to_register(b, b.bitcast(old, storage_elem(element)), element)


def _bfloat_loop(b: Builder, pointer: Val, value: Val, kind: str, order: str, scope: str) -> Val:
    """LLVM knows no atomic on 16 bits that adds as bfloat16: try until nobody came between."""
    i16 = LType("i16")
    first = b.emit(f"load atomic i16, {pointer} {scope}monotonic, align 2", i16)
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
    text = f"cmpxchg {pointer}, {old}, {bits} {scope}{order} {failure}, align 2"
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
