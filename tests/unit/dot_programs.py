"""A whole program around one dot: operands are packed as a backend would, then multiplied.

`run_dot` compiles `C (+)= A @ B` for a target, runs it on NumPy arrays and returns C.  Scratch
starts as NaN and lies between guards, so that padding that is read and not written, or written past
its end, shows.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from deuteron.backends.cpu.dot_pack import (
    emit_clear_padding,
    emit_store_b,
    emit_store_b_transposed,
    to_scratch,
)
from deuteron.backends.cpu.dot_plan import Compute, DotPlan, elem_bytes
from deuteron.backends.cpu.loops import counted_loop
from deuteron.backends.cpu.microkernel import emit_dot
from deuteron.backends.cpu.microkernel_amx import emit_dot_amx
from deuteron.backends.cpu.prefetch import PrefetchRows
from deuteron.backends.cpu.target import CpuTarget, host_target
from deuteron.backends.llvm.builder import I64, PTR, Builder, LType, Val
from deuteron.backends.llvm.compile import Machine, assembly, compile_object, load_object
from deuteron.dtypes import DType, bfloat16

GUARD_BYTES = 256
_MEMORY = {"float32": "float", "float64": "double", "float16": "half", "bfloat16": "i16"}


def runs_here(target: CpuTarget) -> bool:
    """True when this machine has all the target asks for."""
    host = host_target()
    return target.triple == host.triple and target.features <= host.features


def memory_elem(dtype: DType) -> str:
    """LLVM type of an operand's elements in the arrays of these tests; fp8 comes as float."""
    if dtype.is_fp8():
        return "float"
    return _MEMORY.get(dtype.name, f"i{dtype.bits}")


@dataclass(frozen=True)
class DotProgram:
    """A plan and how its operands come: B by rows or by columns, bfloat16 raw or as registers."""

    plan: DotPlan
    zero_init: bool = False
    by_columns: bool = False
    widened: bool = False
    run_time_positions: bool = False
    prefetch: bool = False

    def text(self) -> str:
        """The LLVM module."""
        b = Builder()
        a, bp, c, scratch = (Val(f"%{name}", PTR) for name in ("a", "b", "c", "scratch"))
        a_at = b.gep("i8", scratch, GUARD_BYTES)
        b_at = b.gep("i8", a_at, self.plan.a_bytes + GUARD_BYTES)
        c_at = b.gep("i8", b_at, self.plan.b_bytes + GUARD_BYTES)
        emit_clear_padding(b, self.plan, a_at, b_at)
        self._pack_a(b, a, a_at)
        if self.by_columns:
            self._pack_columns(b, bp, b_at)
        else:
            self._pack_rows(b, bp, b_at)
        if not self.zero_init:
            self._copy_c(b, c, self.plan.n, c_at, self.plan.ldc)
        ahead = [PrefetchRows(a, b.const(self.plan.k, I64), self.plan.m, self.plan.k)]
        emit = emit_dot_amx if self.plan.compute is Compute.BF16_TILES else emit_dot
        emit(
            b,
            self.plan,
            a_at,
            b_at,
            c_at,
            zero_init=self.zero_init,
            prefetch=ahead if self.prefetch else (),
        )
        self._copy_c(b, c_at, self.plan.ldc, c, self.plan.n)
        b.do("ret void")
        lines = [
            *(f"@{name} = {value}" for name, value in b.globals.items()),
            "define void @dot(ptr %a, ptr %b, ptr %c, ptr %scratch) #0 {",
            "entry:",
            *b.code.lines,
            "}",
            *b.declares.values(),
            f"attributes #0 = {{ nounwind {self.plan.target.function_attrs} }}",
        ]
        return "\n".join(lines) + "\n"

    def assembly(self) -> str:
        return assembly(self.text(), _machine(self.plan.target))

    def run(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        """C after the program; `c` is what it adds to."""
        plan = self.plan
        source = b.T if self.by_columns else b
        compiled = compile_object(self.text(), _machine(plan.target))
        address = load_object(compiled.obj, ["dot"])["dot"]
        sizes = [plan.a_bytes, plan.b_bytes, plan.c_bytes]
        arena = np.full(sum(sizes) + (len(sizes) + 2) * GUARD_BYTES, 0xFF, np.uint8)
        start = -arena.ctypes.data % 64
        operands = [np.ascontiguousarray(x) for x in (a, source)]
        result = np.array(c)
        pointers = [x.ctypes.data for x in (*operands, result)] + [arena.ctypes.data + start]
        ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(address)(*pointers)
        self._check_guards(arena[start:], sizes)
        return result

    def _check_guards(self, arena: np.ndarray, sizes: list[int]) -> None:
        at = 0
        for size in [*sizes, 0]:
            assert np.all(arena[at : at + GUARD_BYTES] == 0xFF)
            at += GUARD_BYTES + size

    # -- operands ---------------------------------------------------------------------------
    def _load(self, b: Builder, source: Val, at: Val | int, lanes: int, dtype: DType) -> Val:
        elem = memory_elem(dtype)
        value = b.load(LType(elem, lanes), b.gep(elem, source, at), dtype.storage_bytes)
        if dtype is bfloat16 and self.widened:
            wide = b.convert("zext", value, "i32")
            return b.bitcast(b.shl(wide, b.const(16, wide.type)), "float")
        return value

    def _pack_a(self, b: Builder, source: Val, target: Val) -> None:
        plan, chunk = self.plan, self.plan.lanes

        def row(m: Val, _: list[Val]) -> list[Val]:
            for k in range(0, plan.k, chunk):
                lanes = min(chunk, plan.k - k)
                at = b.add(b.mul(m, b.const(plan.k, I64)), b.const(k, I64))
                value = self._load(b, source, at, lanes, plan.a_dtype)
                stored = to_scratch(b, value, plan.a_dtype, plan.a_elem, plan.a_bias)
                to = b.add(b.mul(m, b.const(plan.lda, I64)), b.const(k, I64))
                b.store(stored, b.gep(plan.a_elem, target, to), elem_bytes(plan.a_elem))
            return []

        counted_loop(b, "pack_a", plan.m, row)

    def _widen(self, b: Builder, value: Val, lanes: int) -> Val:
        have = value.type.lanes
        picks = [i if i < have else -1 for i in range(lanes)]
        return value if have == lanes else b.shuffle(value, None, picks)

    def _pack_rows(self, b: Builder, source: Val, target: Val) -> None:
        """A vector of two registers' lanes at a time, `pack` rows together."""
        plan, chunk = self.plan, 2 * self.plan.lanes
        for n in range(0, plan.n, chunk):
            lanes = min(chunk, plan.n - n)

            def store(k: Val | int, count: int, n: int = n, lanes: int = lanes) -> None:
                rows = [self._row(b, source, k, i, n, lanes) for i in range(count)]
                rows = [self._widen(b, r, chunk) for r in rows]
                emit_store_b(b, plan, target, k, n, rows)

            def turn(i: Val, _: list[Val]) -> list[Val]:
                store(b.mul(i, b.const(plan.pack, I64)), plan.pack)
                return []

            whole, rest = divmod(plan.k, plan.pack)
            if whole:
                counted_loop(b, "pack_b", whole, turn)
            if rest:
                store(whole * plan.pack, rest)

    def _row(self, b: Builder, source: Val, k: Val | int, i: int, n: int, lanes: int) -> Val:
        width = self.plan.n
        if isinstance(k, int):
            return self._load(b, source, (k + i) * width + n, lanes, self.plan.b_dtype)
        row = b.mul(b.add(k, b.const(i, I64)), b.const(width, I64))
        return self._load(b, source, b.add(row, b.const(n, I64)), lanes, self.plan.b_dtype)

    def _pack_columns(self, b: Builder, source: Val, target: Val) -> None:
        """`lanes` columns at a time, each a vector of as many packs along k."""
        plan = self.plan
        length = plan.lanes * plan.pack
        for k in range(0, plan.k, length):
            rows = min(length, plan.k - k)

            def turn(i: Val, _: list[Val], k: int = k, rows: int = rows) -> list[Val]:
                n = b.mul(i, b.const(plan.lanes, I64))
                self._store_columns(b, source, target, (k, n), (rows, plan.lanes))
                return []

            whole, rest = divmod(plan.n, plan.lanes)
            if whole:
                counted_loop(b, "pack_b", whole, turn)
            if rest:
                at = (k, b.const(whole * plan.lanes, I64))
                self._store_columns(b, source, target, at, (rows, rest))

    def _store_columns(
        self, b: Builder, source: Val, target: Val, at: tuple[int, Val], shape: tuple[int, int]
    ) -> None:
        plan, (k, n), (rows, columns) = self.plan, at, shape
        values: list[Val] = []
        for i in range(columns):
            first = b.mul(b.add(n, b.const(i, I64)), b.const(plan.k, I64))
            first = b.add(first, b.const(k, I64))
            values.append(self._load(b, source, first, rows, plan.b_dtype))
        values = [self._widen(b, v, plan.lanes * plan.pack) for v in values]
        values += [b.const(0, values[0].type)] * (plan.lanes - columns)
        in_loop = self.run_time_positions and rows == plan.lanes * plan.pack
        emit_store_b_transposed(b, plan, target, b.const(k, I64) if in_loop else k, n, values)

    def _copy_c(self, b: Builder, source: Val, lds: int, target: Val, ldt: int) -> None:
        elem, plan = self.plan.acc_elem, self.plan

        def row(m: Val, _: list[Val]) -> list[Val]:
            for n in range(0, plan.n, plan.lanes):
                type = LType(elem, min(plan.lanes, plan.n - n))
                places = [
                    b.gep(elem, p, b.add(b.mul(m, b.const(pitch, I64)), b.const(n, I64)))
                    for p, pitch in ((source, lds), (target, ldt))
                ]
                size = elem_bytes(elem)
                b.store(b.load(type, places[0], size), places[1], size)
            return []

        counted_loop(b, "copy_c", plan.m, row)


def _machine(target: CpuTarget) -> Machine:
    return Machine(target.triple, target.cpu, target.feature_string)
