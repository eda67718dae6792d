"""How a dot of tiles is computed on a CPU: the instruction, the register block, the layouts.

`C[M, N] (+)= A[M, K] @ B[K, N]` runs on operands in scratch memory, each 64-byte aligned:

    A   row-major [M][lda], elements `a_elem`; columns K .. k_padded-1 must be finite
    B   panels [n_padded / nr][k_padded / pack][nr][pack], elements `b_elem`
    C   row-major [M][ldc], elements `acc`; columns N .. n_padded-1 hold nothing of use

`plan_dot` decides; `dot_pack` writes A and B; `microkernel` multiplies.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from deuteron.backends.cpu.target import CpuTarget
from deuteron.backends.llvm.registers import elem_bytes
from deuteron.dtypes import (
    FLOAT8,
    DType,
    bfloat16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from deuteron.errors import InternalError

LINE_BYTES = 64
# A tile register of AMX: 16 rows of C, or of A with 32 steps of K.
TILE_ROWS = 16
TILE_K = 32
# Rows at a multiple of this many bytes compete for the same sets of a first-level cache.
ALIASING_BYTES = 2048
# Accumulators that hide the latency of fma: 4 cycles, two a cycle, and half of that in reserve.
IN_FLIGHT = 12
MAX_VECTORS = 8
# What a panel of B may take of the first-level cache; narrow panels may take more.
PANEL_BYTES = 32 << 10


class Compute(Enum):
    """The instruction a dot is built on."""

    FMA = "fused multiply-add of float or double"
    INTEGER = "multiply and add of i32 or i64"
    BF16_PAIRS = "vdpbf16ps: two products a float lane"
    I16_PAIRS = "vpdpwssd, or vpmaddwd and vpaddd: two products an i32 lane"
    I8_QUADS = "vpdpbusd: four products an i32 lane, unsigned A by signed B"
    BF16_TILES = "tdpbf16ps: a tile of C by 32 steps of K at once"


# The 8-bit float types are exact in bfloat16.
_BF16_EXACT = frozenset({bfloat16, *FLOAT8})
_I16_EXACT = frozenset({int8, uint8, int16})
_ACC_ELEM = {float32: "float", float64: "double", int32: "i32", int64: "i64"}
_PACK = {Compute.BF16_TILES: 2, Compute.BF16_PAIRS: 2, Compute.I16_PAIRS: 2, Compute.I8_QUADS: 4}
_PACKED_ELEM = {
    Compute.BF16_TILES: "i16",
    Compute.BF16_PAIRS: "i16",
    Compute.I16_PAIRS: "i16",
    Compute.I8_QUADS: "i8",
}


@dataclass(frozen=True, slots=True)
class DotPlan:
    """One dot's shape, types, register block and layouts.

    `acc` is the dtype C is held in (float32, float64, int32 or int64).  `a_elem` and `b_elem` name
    the LLVM element types of A and B in scratch; for bfloat16 pairs that is the raw `i16`.  A
    register block is `mr` rows by `nr` columns.  `a_bias` is added (as exclusive or of the sign
    bit) to signed A where the instruction wants unsigned, and taken out again by the microkernel.
    """

    target: CpuTarget
    a_dtype: DType
    b_dtype: DType
    acc: DType
    m: int
    n: int
    k: int
    compute: Compute
    pack: int
    a_elem: str
    b_elem: str
    mr: int
    nr: int
    a_bias: int
    lda: int
    ldc: int

    @property
    def acc_elem(self) -> str:
        """LLVM element type of C."""
        return _ACC_ELEM[self.acc]

    @property
    def lanes(self) -> int:
        """Accumulator elements in one vector register."""
        return self.target.lanes(self.acc.bits)

    @property
    def is_fused(self) -> bool:
        """Multiplying and adding are one instruction."""
        return _is_fused(self.target, self.compute)

    @property
    def k_padded(self) -> int:
        """K rounded up to the pack factor."""
        return round_up(self.k, self.pack)

    @property
    def n_padded(self) -> int:
        """N rounded up to whole panels."""
        return round_up(self.n, self.nr)

    @property
    def panels(self) -> int:
        """How many panels of `nr` columns B has."""
        return self.n_padded // self.nr

    @property
    def panel_elements(self) -> int:
        """Elements of one panel of B."""
        return self.k_padded * self.nr

    @property
    def a_bytes(self) -> int:
        """Scratch A takes."""
        return round_up(self.m * self.lda * elem_bytes(self.a_elem), LINE_BYTES)

    @property
    def b_bytes(self) -> int:
        """Scratch B takes."""
        return round_up(self.panels * self.panel_elements * elem_bytes(self.b_elem), LINE_BYTES)

    @property
    def c_bytes(self) -> int:
        """Scratch C takes."""
        return round_up(self.m * self.ldc * self.acc.storage_bytes, LINE_BYTES)


def round_up(value: int, multiple: int) -> int:
    """The least multiple that is not below `value`."""
    return -(-value // multiple) * multiple


def plan_dot(
    target: CpuTarget, a_dtype: DType, b_dtype: DType, acc_dtype: DType, m: int, n: int, k: int
) -> DotPlan:
    """Choose how to compute an [m, k] by [k, n] dot on `target`.

    Any sizes from 1 and any pair of float or of integer dtypes.  An accumulator of 16-bit floats is
    planned as float32, narrow integers as int32: the caller converts.

    Raises InternalError when a size is below 1 or floats meet integers.
    """
    if min(m, n, k) < 1 or a_dtype.is_floating() != b_dtype.is_floating():
        raise InternalError(f"no dot of {a_dtype}[{m}, {k}] and {b_dtype}[{k}, {n}]")
    acc = _accumulator(a_dtype, b_dtype, acc_dtype)
    compute = _choose_compute(target, a_dtype, b_dtype, acc)
    if _fits_tiles(target, a_dtype, b_dtype, acc, m, n, k):
        compute = Compute.BF16_TILES
    pack = _PACK.get(compute, 1)
    elem = _PACKED_ELEM.get(compute, _ACC_ELEM[acc])
    # A product that is not added at once needs a register, and SSE one for the factor it replaces.
    spare_registers = 0 if _is_fused(target, compute) else 2
    steps = -(-k // pack)
    mr, nr = choose_block(target, acc.bits, (m, n), steps, spare_registers)
    lda = row_pitch(round_up(k, pack), elem_bytes(elem))
    ldc = round_up(n, nr)
    if compute is Compute.BF16_TILES:
        mr, nr = 2 * TILE_ROWS, TILE_ROWS * (2 if n % (2 * TILE_ROWS) == 0 else 1)
        # The 16 rows of a tile are read at once: a line more sets them apart in the cache.
        lda += TILE_K
        ldc = row_pitch(n, acc.storage_bytes)
    return DotPlan(
        target=target,
        a_dtype=a_dtype,
        b_dtype=b_dtype,
        acc=acc,
        m=m,
        n=n,
        k=k,
        compute=compute,
        pack=pack,
        a_elem=elem,
        b_elem=elem,
        mr=mr,
        nr=nr,
        a_bias=128 if compute is Compute.I8_QUADS and a_dtype is int8 else 0,
        lda=lda,
        ldc=ldc,
    )


def _accumulator(a: DType, b: DType, acc: DType) -> DType:
    if a.is_floating():
        return float64 if float64 in (a, b, acc) else float32
    return int64 if acc.bits == 64 else int32


def _choose_compute(target: CpuTarget, a: DType, b: DType, acc: DType) -> Compute:
    if acc.is_floating():
        narrow = a in _BF16_EXACT and b in _BF16_EXACT and acc is float32
        return Compute.BF16_PAIRS if narrow and target.has_fast_bf16_dot else Compute.FMA
    if acc is int32 and target.is_x86 and a in _I16_EXACT and b in _I16_EXACT:
        quads = target.has_vnni and a.bits == 8 and b is int8
        return Compute.I8_QUADS if quads else Compute.I16_PAIRS
    return Compute.INTEGER


def _fits_tiles(target: CpuTarget, a: DType, b: DType, acc: DType, m: int, n: int, k: int) -> bool:
    """Whether AMX can do it, and in whole tiles."""
    exact = a in _BF16_EXACT and b in _BF16_EXACT and acc is float32
    whole = m % TILE_ROWS == 0 and n % TILE_ROWS == 0 and k % TILE_K == 0
    return exact and whole and target.has_amx_bf16


def _is_fused(target: CpuTarget, compute: Compute) -> bool:
    match compute:
        case Compute.FMA:
            return target.has_fma
        case Compute.INTEGER:
            return False
        case Compute.I16_PAIRS:
            return target.has_vnni
        case Compute.BF16_PAIRS | Compute.I8_QUADS | Compute.BF16_TILES:
            return True


def choose_block(
    target: CpuTarget, bits: int, shape: tuple[int, int], steps: int, spare_registers: int = 0
) -> tuple[int, int]:
    """Rows and columns of the register block for an accumulator of `bits`-bit elements.

    `shape` is the accumulator's, `steps` the length of a panel of B.  The cheapest by
    `_block_cost`; among those within 1.5 % the one with the least code, then without rows left
    over, then with the fewest loads.
    """
    m, n = shape
    lanes = target.lanes(bits)
    vectors_needed = -(-n // lanes)
    panel_limit = PANEL_BYTES * 8 // (steps * target.vector_bits)
    most_vectors = min(vectors_needed, max(panel_limit, 2), MAX_VECTORS)
    candidates = [
        (rows, vectors)
        for vectors in range(1, most_vectors + 1)
        for rows in range(1, m + 1)
        if rows * vectors + vectors + 1 + spare_registers <= target.vector_registers
    ]

    def cost(block: tuple[int, int]) -> int:
        rows, vectors = block
        full, rest = divmod(m, rows)
        column = full * _block_cost(rows, vectors) + (_block_cost(rest, vectors) if rest else 0)
        return column * -(-vectors_needed // vectors)

    def size(block: tuple[int, int]) -> tuple[int, int, int]:
        rows, vectors = block
        return (rows + m % rows) * vectors, m % rows, rows + vectors

    limit = min(map(cost, candidates)) * 1.015
    rows, vectors = min((b for b in candidates if cost(b) <= limit), key=size)
    return rows, vectors * lanes


def _block_cost(rows: int, vectors: int) -> int:
    """Half cycles for one step of K, of CPUs that start two multiplications and two loads a cycle.

    Below `IN_FLIGHT` accumulators the multiplications wait for their own results.
    """
    return max(rows * vectors, rows + vectors, IN_FLIGHT)


def row_pitch(elements: int, size: int) -> int:
    """Elements from one row of A to the next: whole cache lines, and not all in the same sets."""
    pitch = round_up(elements * size, LINE_BYTES)
    if pitch % ALIASING_BYTES == 0:
        pitch += LINE_BYTES
    return pitch // size
