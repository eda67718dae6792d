"""How a dot of tiles is computed on a GPU: the instruction, the warps, where operands come from.

`acc[M, N] += A[M, K] @ B[K, N]` by one of
    wgmma   4 warps multiply 64 rows; operands in shared memory, A also in registers  (sm_90a)
    mma     1 warp multiplies 16 × 8; operands in registers, by ldmatrix from shared memory
    fma     a thread multiplies and adds numbers; operands in shared memory
Everything in a plan follows from types, shapes and how the operands lie in memory; `dots.py` acts
on it.

float32 operands are taken as tf32 (10 bits of mantissa) by the matrix instructions unless the
dot's `input_precision` says "ieee", which means fma; "tf32x3" and "bf16x3" split each operand in
two and take three products, about 21 bits; "bf16x6" is as good as "ieee" and done as that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from deuteron.backends.cuda.layout import (
    Coord,
    Layout,
    mma_accumulator,
    mma_operand,
    wgmma_accumulator,
    wgmma_operand_a,
)
from deuteron.backends.cuda.target import CudaTarget
from deuteron.backends.cuda.tile_format import TileFormat
from deuteron.dtypes import (
    DType,
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    int8,
    int32,
    uint8,
)
from deuteron.ir import Op

WARPS_PER_GROUP = 4
GROUP_ROWS = 64
MMA_ROWS, MMA_COLUMNS = 16, 8
MAX_WGMMA_COLUMNS = 256
# Every matrix instruction takes so many bits of an operand along K.
K_BITS = 256
# The lowest PTX version, times ten, whose mma.sync takes 8-bit floats.
_FP8_MMA_PTX = 84

_PTX_NAMES = {
    float16: "f16",
    bfloat16: "bf16",
    float32: "tf32",
    float8e4nv: "e4m3",
    float8e5: "e5m2",
    int8: "s8",
    uint8: "u8",
}
_ACC_NAMES = {float32: "f32", float16: "f16", int32: "s32"}


class DotKind(Enum):
    """The instruction a dot is built on."""

    FMA = "fma"
    MMA = "mma.sync"
    WGMMA = "wgmma"


@dataclass(frozen=True, slots=True)
class Source:
    """What is known of an operand when its dot is planned.

    `order` are its axes from the one along which its elements are neighbours; it is `fixed` when
    they are copied to shared memory as they lie.  `home` is where it is in registers, if anywhere.
    """

    order: tuple[int, ...]
    fixed: bool = False
    home: Layout | None = None


@dataclass(frozen=True, slots=True)
class OperandPlan:
    """How one operand reaches the instruction.

    `stored` is its own dtype, in which it lies in shared memory in `format`; `element` is what the
    instruction takes: the same, or float16 where 8-bit floats have no instruction.
    `registers` is the layout the instruction takes from registers; None where it cannot.
    `from_registers` is True when the operand is there already.
    """

    stored: DType
    element: DType
    format: TileFormat
    registers: Layout | None
    from_registers: bool


@dataclass(frozen=True, slots=True)
class DotPlan:
    """One dot.  `shape` is (batch, M, N, K); `k_step` is how much of K an instruction takes.

    `columns` is how many columns one instruction computes.  With `split` each float32 is taken as
    the sum of two tf32.
    """

    kind: DotKind
    shape: tuple[int, int, int, int]
    accumulator: Layout
    a: OperandPlan
    b: OperandPlan
    acc: DType
    k_step: int = 1
    columns: int = 1
    split: bool = False

    @property
    def operands(self) -> tuple[OperandPlan, OperandPlan]:
        return self.a, self.b

    @property
    def a_layout(self) -> Layout | None:
        """Where A is wanted in registers; None when it comes from its home by shared memory."""
        return self.a.registers if self.a.from_registers else None

    @property
    def b_layout(self) -> Layout | None:
        """Where B is wanted in registers, likewise."""
        return self.b.registers if self.b.from_registers else None

    @property
    def type_names(self) -> str:
        """The types as instructions spell them: accumulator, A, B."""
        a, b = (_PTX_NAMES[operand.element] for operand in self.operands)
        return f"{_ACC_NAMES[self.acc]}.{a}.{b}"


def plan_dot(
    op: Op, target: CudaTarget, num_warps: int, sources: Sequence[Source], *, chained: bool = False
) -> DotPlan:
    """Choose how to compute a dot.

    `sources` tells of A and B.  In a `chained` dot rows stay in their warps, so that one dot's
    result can be the next one's A without leaving its registers.
    """
    return _Planner(op, target, num_warps, sources, chained).plan()


class _Planner:
    def __init__(
        self, op: Op, target: CudaTarget, num_warps: int, sources: Sequence[Source], chained: bool
    ) -> None:
        self.target = target
        self.num_warps = num_warps
        self.sources = sources
        self.chained = chained
        a, b, acc = (operand.type for operand in op.operands)
        self.types = (a.dtype, b.dtype)
        self.acc = acc.dtype
        self.acc_shape = acc.shape
        self.operand_shapes = (a.shape, b.shape)
        self.batch = acc.shape[0] if acc.rank == 3 else 1
        self.m, self.n, self.k = acc.shape[-2], acc.shape[-1], a.shape[-1]
        self.precision: str = op.attrs.get("input_precision") or "tf32"

    def plan(self) -> DotPlan:
        if self._fits_wgmma():
            return self._wgmma()
        if (elements := self._mma_elements()) is not None:
            return self._mma(elements)
        return self._fma()

    # -- what fits --------------------------------------------------------------------------
    def _k_axis(self, index: int) -> int:
        """Which axis of an operand is K."""
        return len(self.acc_shape) - 1 - index

    def _order(self, index: int, *, along_k: bool = False) -> tuple[int, ...]:
        """The axes of an operand in shared memory, from the contiguous one."""
        source = self.sources[index]
        rank = len(self.acc_shape)
        k = self._k_axis(index)
        inner = k if along_k and not source.fixed else source.order[0]
        if inner < rank - 2:
            inner = k
        other = 2 * rank - 3 - inner
        return (inner, other, *range(rank - 2))

    def _runs_along_k(self, index: int) -> bool:
        return self._order(index, along_k=True)[0] == self._k_axis(index)

    def _exact_types(self) -> bool:
        """Whether matrix instructions take both operands as they are."""
        a, b = self.types
        if a not in _PTX_NAMES or b not in _PTX_NAMES or self.acc not in _ACC_NAMES:
            return False
        return a is not float32 or self.precision not in ("ieee", "bf16x6")

    def _fits_wgmma(self) -> bool:
        bits = self.types[0].bits
        if not (self.target.has_wgmma and self._exact_types() and len(self.acc_shape) == 2):
            return False
        if self.num_warps % WARPS_PER_GROUP or self.m < GROUP_ROWS or self.k * bits < K_BITS:
            return False
        if bits == 32 and self.precision != "tf32":
            return False
        if bits != 16:  # transposed operands only in 16 bits
            return self._runs_along_k(0) and self._runs_along_k(1) and self.n >= MMA_COLUMNS
        if self._order(1)[0] == self._k_axis(1):
            return self.n >= MMA_COLUMNS
        # Each warpgroup's columns must fill rows of shared memory, of at least 32 bytes.
        format = TileFormat(self.operand_shapes[1], 2, self._order(1))
        return format.swizzle_bytes > 0 and 2 * self._group_columns() >= format.row_bytes

    def _group_columns(self) -> int:
        """Columns that each warpgroup computes."""
        groups = self.num_warps // WARPS_PER_GROUP
        groups_m = min(groups, self.m // GROUP_ROWS)
        return max(MMA_COLUMNS, self.n // (groups // groups_m))

    def _mma_elements(self) -> tuple[DType, DType] | None:
        """What mma.sync takes the operands as; None when it does not fit."""
        if not self._exact_types() or self.m < MMA_ROWS or self.n < MMA_COLUMNS:
            return None
        elements = self.types
        if elements[0].is_fp8() and not self._has_fp8_mma():
            elements = (float16, float16)
        return elements if self.k * elements[0].bits >= K_BITS else None

    def _has_fp8_mma(self) -> bool:
        new_enough = self.target.sm >= 89 and self.target.ptx_version >= _FP8_MMA_PTX
        return new_enough and self.k * 8 >= K_BITS and self.acc is float32

    # -- plans ------------------------------------------------------------------------------
    def _shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.m, self.n, self.k

    def _operand(self, index: int, element: DType, registers: Layout | None) -> OperandPlan:
        """`element` as the instruction takes it; in shared memory it is as in global memory."""
        source = self.sources[index]
        stored = self.types[index]
        along_k = stored.bits != 16
        format = TileFormat(
            self.operand_shapes[index], stored.storage_bytes, self._order(index, along_k=along_k)
        )
        there = False
        if registers is not None and source.home is not None and not source.fixed:
            there = _same_threads(source.home, registers)
        return OperandPlan(stored, element, format, registers, there)

    def _wgmma(self) -> DotPlan:
        columns = min(MAX_WGMMA_COLUMNS, self._group_columns())
        a, b = self.types
        registers = wgmma_operand_a(self.operand_shapes[0], self.num_warps, a.bits)
        return DotPlan(
            kind=DotKind.WGMMA,
            shape=self._shape(),
            accumulator=wgmma_accumulator(self.acc_shape, self.num_warps, columns),
            a=self._operand(0, a, registers),
            b=self._operand(1, b, None),
            acc=self.acc,
            k_step=K_BITS // a.bits,
            columns=columns,
        )

    def _mma(self, elements: tuple[DType, DType]) -> DotPlan:
        warps = self._arrange_warps()
        layouts = [
            mma_operand(self.operand_shapes[i], i, elements[i].bits, self.num_warps, *warps)
            for i in range(2)
        ]
        return DotPlan(
            kind=DotKind.MMA,
            shape=self._shape(),
            accumulator=mma_accumulator(self.acc_shape, self.num_warps, *warps),
            a=self._operand(0, elements[0], layouts[0]),
            b=self._operand(1, elements[1], layouts[1]),
            acc=self.acc,
            k_step=K_BITS // elements[0].bits,
            columns=MMA_COLUMNS,
            split=elements[0] is float32 and self.precision in ("tf32x3", "bf16x3"),
        )

    def _arrange_warps(self) -> tuple[int, int]:
        """Warps along M and N: those whose part of the tile needs the fewest operands."""
        most = min(self.num_warps, self.m // MMA_ROWS)
        if self.chained:
            return most, self.num_warps // most
        choices = [1 << i for i in range(most.bit_length())]

        def cost(warps_m: int) -> tuple[int, int]:
            warps_n = self.num_warps // warps_m
            rows, columns = self.m // warps_m, max(MMA_COLUMNS, self.n // warps_n)
            return rows + columns, -warps_m

        best = min(choices, key=cost)
        return best, self.num_warps // best

    def _fma(self) -> DotPlan:
        a, b = self.types
        vectors = [
            1 if self._order(i)[0] == self._k_axis(i) else 16 // self.types[i].storage_bytes
            for i in range(2)
        ]
        accumulator = fma_accumulator(self.acc_shape, self.num_warps, vectors[0], vectors[1])
        return DotPlan(
            kind=DotKind.FMA,
            shape=self._shape(),
            accumulator=accumulator,
            a=self._plain_operand(0, a),
            b=self._plain_operand(1, b),
            acc=self.acc,
        )

    def _plain_operand(self, index: int, element: DType) -> OperandPlan:
        format = TileFormat(self.operand_shapes[index], element.storage_bytes, self._order(index))
        return OperandPlan(element, element, format, None, from_registers=False)


def _same_threads(home: Layout, wanted: Layout) -> bool:
    """Whether every thread has what it wants, in whatever registers."""
    threads_agree = home.lane == wanted.lane and home.warp == wanted.warp
    return threads_agree and set(home.register) == set(wanted.register)


def fma_accumulator(
    shape: tuple[int, ...], num_warps: int, vector_m: int = 1, vector_n: int = 1
) -> Layout:
    """Accumulators of dots without matrix instructions.

    A thread holds `vector_m` rows and `vector_n` columns that are neighbours, as it reads them from
    shared memory; a warp covers 4 × 8 such blocks; the rest of the tile is in registers.
    """
    rank = len(shape)
    m, n = rank - 2, rank - 1
    free = {axis: [1 << i for i in range(shape[axis].bit_length() - 1)] for axis in range(rank)}

    def take(axis: int, count: int, *, top: bool = False) -> list[Coord]:
        bits = free[axis]
        start = max(0, len(bits) - count) if top else 0
        taken = bits[start : start + count]
        free[axis] = bits[:start] + bits[start + len(taken) :]
        return [tuple(bit if a == axis else 0 for a in range(rank)) for bit in taken]

    register = take(n, _log2(min(vector_n, 4))) + take(m, _log2(min(vector_m, 4)))
    lane = take(n, 3)
    lane += take(m, 5 - len(lane))
    lane += take(n, 5 - len(lane))
    warps = _log2(num_warps)
    rows, columns = len(free[m]) + _log2(min(vector_m, 4)), len(free[n]) + _log2(min(vector_n, 4))

    def operands(along_m: int) -> int:
        """How many rows and columns a thread reads, with so many bits of the warp along M."""
        return (1 << max(0, rows - along_m)) + (1 << max(0, columns - warps + along_m))

    warp = take(m, min(range(warps + 1), key=operands), top=True)
    warp += take(n, warps - len(warp), top=True)
    warp += take(m, warps - len(warp), top=True)
    zero = (0,) * rank
    lane += [zero] * (5 - len(lane))
    warp += [zero] * (_log2(num_warps) - len(warp))
    for axis in reversed(range(rank)):
        register += take(axis, len(free[axis]))
    return Layout(shape, tuple(register), tuple(lane), tuple(warp))


def _log2(value: int) -> int:
    return value.bit_length() - 1
