"""Matrix multiplication, shaped like the tutorial kernel, with block sizes for CPUs."""

from dataclasses import dataclass
from typing import no_type_check

import deuteron.language as tl
from deuteron import cdiv, get_num_threads, jit
from deuteron.ops.arrays import Array, empty, on_gpu, require_shape, strides


@dataclass(frozen=True, slots=True)
class Blocks:
    """Block sizes of one launch, and what a GPU gives each program."""

    m: int
    n: int
    k: int
    num_warps: int = 4
    num_stages: int = 3


# From large to small.  The three tiles of a large block, and the next two, fit the level-2 cache,
# to which they come from memory less often than small ones; a small block still gives every thread
# work when the product is small.
BLOCKS = (
    Blocks(256, 256, 128),
    Blocks(128, 256, 128),
    Blocks(128, 128, 128),
    Blocks(64, 64, 64),
    Blocks(32, 32, 32),
)
# Several threads wait for the last program of a launch, so that theirs are smaller.
BLOCKS_SHARED = BLOCKS[1:]
# For bfloat16, whose dot may take a tenth of the time, so that moving tiles counts for more.
BLOCKS_BF16 = (
    Blocks(256, 512, 256),
    Blocks(256, 256, 256),
    Blocks(128, 128, 256),
    Blocks(64, 64, 64),
    Blocks(32, 32, 32),
)
# With fewer programs a tile is packed more often than it pays: each is used in four at best.
LEAST_PROGRAMS = 16
# On a GPU the accumulators lie in registers, so that blocks are smaller than a CPU's.
BLOCKS_GPU = (
    Blocks(128, 256, 64, num_warps=8, num_stages=3),
    Blocks(128, 128, 64, num_warps=4, num_stages=3),
    Blocks(64, 64, 64),
    Blocks(32, 32, 32),
)
BLOCKS_GPU_FLOAT32 = (Blocks(128, 128, 32, num_warps=8), Blocks(64, 64, 32), Blocks(32, 32, 32))
GPU_PROGRAMS = 66  # blocks that fill half of a large GPU are large enough
GROUP_M = 8


@jit
@no_type_check
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b; one program computes BLOCK_M x BLOCK_N of c, in groups of GROUP_M block rows."""
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP_M * tiles_n)
    first_m = group * GROUP_M
    rows_in_group = min(tiles_m - first_m, GROUP_M)
    pid_m = first_m + (pid % (GROUP_M * tiles_n)) % rows_in_group
    pid_n = (pid % (GROUP_M * tiles_n)) // rows_in_group

    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (ks[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < left) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


def choose_blocks(m: int, n: int, threads: int, table: tuple[Blocks, ...] = BLOCKS) -> Blocks:
    """The largest blocks that give each thread two tiles, so that none waits long for the last."""
    for blocks in table:
        if cdiv(m, blocks.m) * cdiv(n, blocks.n) >= max(2 * threads, LEAST_PROGRAMS):
            return blocks
    return table[-1]


def choose_group(tiles_m: int, threads: int) -> int:
    """Block rows in a group, at most GROUP_M, for a CPU.

    A thread runs neighbouring programs: when they are whole groups it packs only its share of A.
    """
    share = max(1, tiles_m // threads)
    return share // cdiv(share, GROUP_M)


def matmul(a: Array, b: Array, out: Array | None = None, blocks: Blocks | None = None) -> Array:
    """The product of an (m, k) and a (k, n) array of one float dtype, accumulated in float32.

    Any strides will do, so transposed views are fine.  `blocks` overrides the chosen block sizes.
    """
    m, k = a.shape
    n = b.shape[1]
    out = empty(a, (m, n)) if out is None else out
    require_shape("matmul", "b", b, (k, n))
    require_shape("matmul", "out", out, (m, n))
    if blocks is None:
        blocks = _default_blocks(a, m, n)
    group = GROUP_M if on_gpu(a) else choose_group(cdiv(m, blocks.m), get_num_threads())
    matmul_kernel[(cdiv(m, blocks.m) * cdiv(n, blocks.n),)](
        a, b, out, m, n, k, *strides(a), *strides(b), *strides(out),
        BLOCK_M=blocks.m, BLOCK_N=blocks.n, BLOCK_K=blocks.k, GROUP_M=group,
        num_warps=blocks.num_warps, num_stages=blocks.num_stages,
    )  # fmt: skip
    return out


def _default_blocks(a: Array, m: int, n: int) -> Blocks:
    dtype = str(a.dtype)
    if on_gpu(a):
        table = BLOCKS_GPU_FLOAT32 if "float32" in dtype else BLOCKS_GPU
        return choose_blocks(m, n, GPU_PROGRAMS // 2, table)
    threads = get_num_threads()
    table = BLOCKS if threads == 1 else BLOCKS_SHARED
    return choose_blocks(m, n, threads, BLOCKS_BF16 if "bfloat16" in dtype else table)
