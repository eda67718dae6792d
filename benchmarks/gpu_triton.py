"""The peers in Triton: its tutorials' kernels, as a user of it would write them.

Imported only where Triton is installed.
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUntypedFunctionDecorator=false, reportUnknownParameterType=false
# pyright: reportIndexIssue=false
from __future__ import annotations

from typing import Any, no_type_check

import triton
import triton.language as tl

from deuteron.ops.matmul import GROUP_M, Blocks


@triton.jit
@no_type_check
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = x + y."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@triton.jit
@no_type_check
def softmax_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    """One row a program."""
    start = tl.program_id(0).to(tl.int64) * n_cols
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + start + cols, mask=mask, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, axis=0))
    denominator = tl.sum(numerator, axis=0)
    tl.store(out_ptr + start + cols, numerator / denominator, mask=mask)


@triton.jit
@no_type_check
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, out_ptr, n_cols, eps, BLOCK: tl.constexpr):
    """One row a program."""
    start = tl.program_id(0).to(tl.int64) * n_cols
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n_cols
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / n_cols
    w = tl.load(w_ptr + cols, mask=mask)
    b = tl.load(b_ptr + cols, mask=mask)
    normal = centred * (1 / tl.sqrt(variance + eps))
    tl.store(out_ptr + start + cols, normal * w + b, mask=mask)


@triton.jit
@no_type_check
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """The tutorial's product: addresses wrap around, so that loads need one mask."""
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first_m = pid // in_group * GROUP_M
    rows_in_group = min(tiles_m - first_m, GROUP_M)
    pid_m = first_m + (pid % in_group) % rows_in_group
    pid_n = (pid % in_group) // rows_in_group

    rows = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    cols = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=ks[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=ks[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptrs, acc.to(tl.bfloat16), mask=inside)


@triton.jit
@no_type_check
def empty_kernel(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    """Does nothing, so that only the launch is left."""


def add(x: Any, y: Any, out: Any) -> None:
    """The sum of two arrays, into `out`."""
    n = x.numel()
    add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)


def softmax(x: Any, out: Any, num_warps: int) -> None:
    """Softmax of rows, into `out`."""
    rows, cols = x.shape
    block = triton.next_power_of_2(cols)
    softmax_kernel[(rows,)](x, out, cols, BLOCK=block, num_warps=num_warps)


def layer_norm(x: Any, weight: Any, bias: Any, out: Any, num_warps: int) -> None:
    """Layer normalisation of rows, into `out`."""
    rows, cols = x.shape
    block = triton.next_power_of_2(cols)
    layer_norm_kernel[(rows,)](
        x, weight, bias, out, cols, 1e-5, BLOCK=block, num_warps=num_warps
    )  # fmt: skip


def matmul(a: Any, b: Any, out: Any, blocks: Blocks) -> None:
    """The product of two bfloat16 matrices, into `out`."""
    (m, k), n = a.shape, b.shape[1]
    tiles = triton.cdiv(m, blocks.m) * triton.cdiv(n, blocks.n)
    matmul_kernel[(tiles,)](
        a, b, out, m, n, k, *a.stride(), *b.stride(), *out.stride(),
        BLOCK_M=blocks.m, BLOCK_N=blocks.n, BLOCK_K=blocks.k, GROUP_M=GROUP_M,
        num_warps=blocks.num_warps, num_stages=blocks.num_stages,
    )  # fmt: skip
