"""The dot microkernel: `C (+)= A @ B` on scratch operands laid out as `dot_plan` says.

For each panel of B (which stays in the first-level cache) every block of `mr` rows of A is
multiplied with it: `mr * nr` accumulators live in registers while K is walked, one row of the
panel and `mr` broadcast elements of A at a time.  A last block takes the rows that are left over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deuteron.backends.cpu.dot_plan import Compute, DotPlan
from deuteron.backends.cpu.loops import counted_loop, either
from deuteron.backends.cpu.prefetch import PrefetchRows, emit_prefetch_share
from deuteron.backends.llvm.builder import I64, Builder, LType, Val
from deuteron.backends.llvm.registers import elem_bytes
from deuteron.errors import InternalError

# Steps of K in one turn of the innermost loop; up to UNROLL_WHOLE steps there is no loop.  Not so
# when multiplying and adding are two instructions: LLVM would reassociate the unrolled additions
# into more live products than there are registers.
UNROLL = 2
UNROLL_WHOLE = 8
# Steps between two shares of prefetch: more often would cost the multiplications their ports.
STEPS_PER_SHARE = 16


def emit_dot(
    b: Builder,
    plan: DotPlan,
    a_ptr: Val,
    b_ptr: Val,
    c_ptr: Val,
    *,
    zero_init: bool | Val,
    prefetch: Sequence[PrefetchRows] = (),
) -> None:
    """Emit `C = A @ B` when `zero_init` (an i1 where it is not known yet), else `C += A @ B`.

    Ends in a new basic block.
    The three pointers are 64-byte aligned scratch of `plan.a_bytes`, `b_bytes` and `c_bytes`.
    `prefetch` names tiles that are read soon after: best the next A and B at their source.
    """
    full_blocks, rest = divmod(plan.m, plan.mr)
    blocks = full_blocks + (rest > 0)

    def panel(j: Val, _: list[Val]) -> list[Val]:
        panel_ptr = b.strided(b_ptr, j, plan.panel_elements * elem_bytes(plan.b_elem))
        columns = b.strided(c_ptr, j, plan.nr * plan.acc.storage_bytes)
        bias = _bias_correction(b, plan, panel_ptr)

        def block(i: Val, rows: int) -> None:
            a_block = b.strided(a_ptr, i, plan.mr * plan.lda * elem_bytes(plan.a_elem))
            c_block = b.strided(columns, i, plan.mr * plan.ldc * plan.acc.storage_bytes)
            number = b.add(b.mul(j, b.const(blocks, j.type)), i)
            kernel = _Block(b, plan, rows, number, blocks * plan.panels, prefetch)
            kernel.emit(a_block, panel_ptr, c_block, bias, zero_init)

        def full_block(i: Val, _: list[Val]) -> list[Val]:
            block(i, plan.mr)
            return []

        if full_blocks:
            counted_loop(b, "rows", full_blocks, full_block)
        if rest:
            block(b.const(full_blocks, I64), rest)
        return []

    counted_loop(b, "panel", plan.panels, panel)


@dataclass(frozen=True, slots=True)
class _Block:
    """The register block number `number` of `count`: `rows` rows by `plan.nr` columns."""

    b: Builder
    plan: DotPlan
    rows: int
    number: Val
    count: int
    prefetch: Sequence[PrefetchRows]

    def emit(self, a: Val, panel: Val, c: Val, bias: list[Val], zero_init: bool | Val) -> None:
        """Load C, walk K, store C."""
        vectors, vector_bytes = _vectors(self.plan), _vector_bytes(self.plan)
        row_bytes = self.plan.ldc * self.plan.acc.storage_bytes
        addresses = [
            _at(self.b, c, row * row_bytes + q * vector_bytes)
            for row in range(self.rows)
            for q in range(vectors)
        ]
        accs = self._initial(addresses, zero_init)
        if bias:
            accs = [self.b.sub(value, bias[i % vectors]) for i, value in enumerate(accs)]
        accs = self._walk_k(a, panel, accs)
        for pointer, value in zip(addresses, accs, strict=True):
            self.b.store(value, pointer, vector_bytes)

    def _initial(self, addresses: Sequence[Val], zero_init: bool | Val) -> list[Val]:
        acc, size = _acc_type(self.plan), _vector_bytes(self.plan)

        def zeros() -> list[Val]:
            return [Val("zeroinitializer", acc)] * len(addresses)

        def loaded() -> list[Val]:
            return [self.b.load(acc, pointer, size) for pointer in addresses]

        if isinstance(zero_init, Val):
            return either(self.b, "initial", zero_init, zeros, loaded)
        return zeros() if zero_init else loaded()

    def _walk_k(self, a: Val, panel: Val, accs: list[Val]) -> list[Val]:
        steps = self.plan.k_padded // self.plan.pack
        if steps <= (UNROLL_WHOLE if self.plan.is_fused else 1):
            self._prefetch_share(self.b.const(0, I64), 1)
            return self._steps(a, panel, accs, steps)
        shares = steps // STEPS_PER_SHARE if self.prefetch and steps % STEPS_PER_SHARE == 0 else 1
        turns, rest = divmod(steps, self._unroll)

        def share(index: Val, carried: list[Val]) -> list[Val]:
            self._prefetch_share(index, shares)
            return counted_loop(self.b, "k", turns // shares, self._turn, carried)

        a, panel, *accs = counted_loop(self.b, "share", shares, share, [a, panel, *accs])
        return self._steps(a, panel, accs, rest)

    @property
    def _unroll(self) -> int:
        return UNROLL if self.plan.is_fused else 1

    def _prefetch_share(self, index: Val, shares: int) -> None:
        unit = self.b.add(self.b.mul(self.number, self.b.const(shares, I64)), index)
        for tile in self.prefetch:
            emit_prefetch_share(self.b, tile, unit, shares * self.count)

    def _turn(self, _: Val, carried: list[Val]) -> list[Val]:
        a, panel, *accs = carried
        after = self._steps(a, panel, accs, self._unroll)
        a_next = _at(self.b, a, self._unroll * self.plan.pack * elem_bytes(self.plan.a_elem))
        return [a_next, _at(self.b, panel, self._unroll * _row_bytes(self.plan)), *after]

    def _steps(self, a: Val, panel: Val, accs: list[Val], steps: int) -> list[Val]:
        for step in range(steps):
            accs = self._step(a, panel, accs, step)
        return accs

    def _step(self, a: Val, panel: Val, accs: list[Val], step: int) -> list[Val]:
        """Add the products of the `pack` positions of K that lie `step` steps from the pointers."""
        plan, vectors = self.plan, _vectors(self.plan)
        row = _load_row(self.b, plan, _at(self.b, panel, step * _row_bytes(plan)))
        result: list[Val] = []
        for r in range(self.rows):
            at = (r * plan.lda + step * plan.pack) * elem_bytes(plan.a_elem)
            element = self._broadcast(_at(self.b, a, at))
            mine = accs[r * vectors : (r + 1) * vectors]
            result += [
                _multiply_add(self.b, plan, acc, element, right)
                for acc, right in zip(mine, row, strict=True)
            ]
        return result

    def _broadcast(self, pointer: Val) -> Val:
        """The `pack` elements of A at `pointer` in every accumulator lane."""
        unit = LType(self.plan.acc_elem if self.plan.pack == 1 else "i32")
        scalar = self.b.load(unit, pointer, elem_bytes(self.plan.a_elem))
        vector = self.b.splat(scalar, self.plan.lanes)
        operand = _operand_type(self.plan)
        if vector.type == operand:
            return vector
        return self.b.emit(f"bitcast {vector} to {operand}", operand)


def _multiply_add(b: Builder, plan: DotPlan, acc: Val, left: Val, right: Val) -> Val:
    """acc + left * right, summed over the `pack` neighbours that share a lane."""
    bits = plan.target.vector_bits
    match plan.compute:
        case Compute.FMA if plan.target.has_fma:
            return b.fma(left, right, acc)
        case Compute.FMA:
            return b.fadd(acc, b.fmul(left, right))
        case Compute.INTEGER:
            return b.add(acc, b.mul(left, right))
        case Compute.BF16_PAIRS:
            return b.call(acc.type, f"llvm.x86.avx512bf16.dpbf16ps.{bits}", [acc, left, right])
        case Compute.I8_QUADS:
            return b.call(acc.type, f"llvm.x86.avx512.vpdpbusd.{bits}", [acc, left, right])
        case Compute.I16_PAIRS if plan.target.has_vnni:
            return b.call(acc.type, f"llvm.x86.avx512.vpdpwssd.{bits}", [acc, left, right])
        case Compute.I16_PAIRS:
            name = {512: "avx512.pmaddw.d.512", 256: "avx2.pmadd.wd", 128: "sse2.pmadd.wd"}[bits]
            return b.add(acc, b.call(acc.type, f"llvm.x86.{name}", [left, right]))
        case Compute.BF16_TILES:
            raise InternalError("tiles are multiplied by microkernel_amx")


def _bias_correction(b: Builder, plan: DotPlan, panel: Val) -> list[Val]:
    """a_bias * (column sums of the panel), one value for each vector of a row; empty without bias.

    With A' = A + bias: A @ B = A' @ B - bias * (column sums of B).
    """
    if not plan.a_bias:
        return []
    bias = b.const(plan.a_bias, _operand_type(plan))

    def step(i: Val, sums: list[Val]) -> list[Val]:
        row = _load_row(b, plan, b.strided(panel, i, _row_bytes(plan)))
        return [_multiply_add(b, plan, s, bias, v) for s, v in zip(sums, row, strict=True)]

    zeros = [Val("zeroinitializer", _acc_type(plan))] * _vectors(plan)
    return counted_loop(b, "bias", plan.k_padded // plan.pack, step, zeros)


def _load_row(b: Builder, plan: DotPlan, pointer: Val) -> list[Val]:
    """One step's row of a panel: `nr` columns of `pack` elements."""
    size, operand = _vector_bytes(plan), _operand_type(plan)
    return [b.load(operand, _at(b, pointer, q * size), size) for q in range(_vectors(plan))]


def _acc_type(plan: DotPlan) -> LType:
    return LType(plan.acc_elem, plan.lanes)


def _operand_type(plan: DotPlan) -> LType:
    """The vector type the instruction takes A and B in."""
    elem = {Compute.BF16_PAIRS: "bfloat", Compute.I16_PAIRS: "i16", Compute.I8_QUADS: "i8"}
    return LType(elem.get(plan.compute, plan.acc_elem), plan.lanes * plan.pack)


def _vectors(plan: DotPlan) -> int:
    """Vector registers in one row of a register block."""
    return plan.nr // plan.lanes


def _vector_bytes(plan: DotPlan) -> int:
    return plan.target.vector_bits // 8


def _row_bytes(plan: DotPlan) -> int:
    """Bytes of one step's row of a panel."""
    return plan.nr * plan.pack * elem_bytes(plan.b_elem)


def _at(b: Builder, pointer: Val, distance_bytes: int) -> Val:
    return b.gep("i8", pointer, distance_bytes) if distance_bytes else pointer
