"""The dot microkernel on Intel AMX: bfloat16 pairs, one tile instruction per 16 x 16 x 32 products.

A tile register holds 16 rows of 64 bytes.  A 32 x 32 block of C is four of them, multiplied by two
tiles of A and two of B for every 32 steps of K.  A is read row-major; B's panels of pairs are what
the instruction wants.  Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume
2, TDPBF16PS, and volume 1, chapter 18.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deuteron.backends.cpu.dot_plan import TILE_K, TILE_ROWS, DotPlan
from deuteron.backends.cpu.loops import counted_loop, either
from deuteron.backends.cpu.prefetch import PrefetchRows, emit_prefetch_share
from deuteron.backends.llvm.builder import I8, I64, Builder, LType, Val
from deuteron.backends.llvm.registers import elem_bytes

TILE_BYTES = 64
CONFIG = "amx_tiles"
# C in registers 0 to 3, A in 4 and 5, B in 6 and 7.
FIRST_A, FIRST_B = 4, 6


def emit_dot_amx(
    b: Builder,
    plan: DotPlan,
    a_ptr: Val,
    b_ptr: Val,
    c_ptr: Val,
    *,
    zero_init: bool | Val,
    prefetch: Sequence[PrefetchRows] = (),
) -> None:
    """Emit `C = A @ B` when `zero_init`, else `C += A @ B`, as `microkernel.emit_dot` does."""
    b.declare("void", "llvm.x86.ldtilecfg", ["ptr"])
    b.declare("void", "llvm.x86.tilerelease", [])
    b.globals[CONFIG] = _configuration()
    b.do(f"call void @llvm.x86.ldtilecfg(ptr @{CONFIG})")
    full, rest = divmod(plan.m, 2 * TILE_ROWS)
    count = (full + (rest > 0)) * plan.panels

    def blocks(i: Val, rows: int) -> None:
        """A block of rows stays in the first-level cache while it meets every panel."""
        a_block = b.strided(a_ptr, i, 2 * TILE_ROWS * plan.lda * elem_bytes(plan.a_elem))
        c_rows = b.strided(c_ptr, i, 2 * TILE_ROWS * plan.ldc * plan.acc.storage_bytes)

        def panel(j: Val, _: list[Val]) -> list[Val]:
            panel_ptr = b.strided(b_ptr, j, plan.panel_elements * elem_bytes(plan.b_elem))
            c_block = b.strided(c_rows, j, plan.nr * plan.acc.storage_bytes)
            number = b.add(b.mul(i, b.const(plan.panels, I64)), j)
            kernel = _Block(b, plan, rows, number, count, prefetch)
            kernel.emit(a_block, panel_ptr, c_block, zero_init)
            return []

        counted_loop(b, "panel", plan.panels, panel)

    def full_block(i: Val, _: list[Val]) -> list[Val]:
        blocks(i, 2)
        return []

    if full:
        counted_loop(b, "rows", full, full_block)
    if rest:
        blocks(b.const(full, I64), 1)
    b.do("call void @llvm.x86.tilerelease()")


@dataclass(frozen=True, slots=True)
class _Block:
    """Block `number` of `count`: `rows` by `columns` tiles of C."""

    b: Builder
    plan: DotPlan
    rows: int
    number: Val
    count: int
    prefetch: Sequence[PrefetchRows]

    @property
    def columns(self) -> int:
        return self.plan.nr // TILE_ROWS

    def emit(self, a: Val, panel: Val, c: Val, zero_init: bool | Val) -> None:
        c_pitch = self.b.const(self.plan.ldc * self.plan.acc.storage_bytes, I64)
        self._begin(c, c_pitch, zero_init)
        counted_loop(self.b, "k", self.plan.k // TILE_K, lambda i, _: self._step(i, a, panel))
        for r in range(self.rows):
            for q in range(self.columns):
                tile = self._c_tile(c, r, q)
                self._call("tilestored64", [self._register(r, q), tile, c_pitch])

    def _begin(self, c: Val, c_pitch: Val, zero_init: bool | Val) -> None:
        places = [(r, q) for r in range(self.rows) for q in range(self.columns)]

        def zeros() -> list[Val]:
            for place in places:
                self._call("tilezero", [self._register(*place)])
            return []

        def loaded() -> list[Val]:
            for place in places:
                self._load(self._register(*place), self._c_tile(c, *place), c_pitch)
            return []

        if isinstance(zero_init, Val):
            either(self.b, "initial", zero_init, zeros, loaded)
        else:
            (zeros if zero_init else loaded)()

    def _step(self, i: Val, a: Val, panel: Val) -> list[Val]:
        steps = self.plan.k // TILE_K
        unit = self.b.add(self.b.mul(self.number, self.b.const(steps, I64)), i)
        for tile in self.prefetch:
            emit_prefetch_share(self.b, tile, unit, steps * self.count)
        b_pitch = self.columns * TILE_BYTES
        b_at = self.b.strided(panel, i, TILE_ROWS * b_pitch)
        for q in range(self.columns):
            at = self.b.gep("i8", b_at, q * TILE_BYTES)
            self._load(FIRST_B + q, at, self.b.const(b_pitch, I64))
        a_pitch = self.plan.lda * elem_bytes(self.plan.a_elem)
        a_at = self.b.strided(a, i, TILE_BYTES)
        for r in range(self.rows):
            at = self.b.gep("i8", a_at, r * TILE_ROWS * a_pitch)
            self._load(FIRST_A + r, at, self.b.const(a_pitch, I64))
            for q in range(self.columns):
                self._call("tdpbf16ps", [self._register(r, q), FIRST_A + r, FIRST_B + q])
        return []

    def _register(self, row: int, column: int) -> int:
        return 2 * row + column

    def _c_tile(self, c: Val, row: int, column: int) -> Val:
        pitch = self.plan.ldc * self.plan.acc.storage_bytes
        return self.b.gep("i8", c, row * TILE_ROWS * pitch + column * TILE_BYTES)

    def _load(self, register: int, pointer: Val, pitch: Val) -> None:
        self._call("tileloadd64", [register, pointer, pitch])

    def _call(self, name: str, args: Sequence[int | Val]) -> None:
        """A tile instruction; register numbers are immediates."""
        values = [a if isinstance(a, Val) else self.b.const(a, I8) for a in args]
        self.b.call(None, f"llvm.x86.{name}", values)


def _configuration() -> str:
    """Palette 1, all eight tiles 16 rows of 64 bytes."""
    layout = bytearray(64)
    layout[0] = 1
    for tile in range(8):
        layout[16 + 2 * tile] = TILE_BYTES
        layout[48 + tile] = TILE_ROWS
    body = ", ".join(f"i8 {byte}" for byte in layout)
    return f"internal unnamed_addr constant {LType('i8', 64)} <{body}>, align 64"
