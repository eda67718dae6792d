"""Kernels shaped like Triton's tutorials 01 to 03, and their launches on torch CPU tensors.

The file is loaded by `interpreter.py` with Deuteron standing for `triton`, and by
`interpreter_peer.py` with the original.
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUntypedFunctionDecorator=false, reportUnknownParameterType=false
# pyright: reportIndexIssue=false, reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl


@triton.jit
@no_type_check
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Tutorial 01's."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, total, mask=mask)


@triton.jit
@no_type_check
def softmax_kernel(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    """Tutorial 02's: rows are dealt out to the programs."""
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        offsets = tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
        numerator = tl.exp(x - tl.max(x, axis=0))
        result = numerator / tl.sum(numerator, axis=0)
        tl.store(out_ptr + row * columns + offsets, result, mask=mask)


@triton.jit
@no_type_check
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Tutorial 03's, of contiguous matrices."""
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = pid // (GROUP * tiles_n) * GROUP
    in_group = min(tl.cdiv(M, BLOCK_M) - first, GROUP)
    pid_m = first + pid % (GROUP * tiles_n) % in_group
    pid_n = pid % (GROUP * tiles_n) // in_group
    rows = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    columns = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * K + ks[None, :]
    b_ptrs = b_ptr + ks[:, None] * N + columns[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=ks[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=ks[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc.to(tl.float16), mask=inside)


def vector_add(n: int) -> tuple[Callable[[], object], torch.Tensor]:
    """A launch of tutorial 01 on n float32, and what it fills."""
    x, y = torch.randn(n), torch.randn(n)
    out = torch.empty_like(x)
    launch: Any = add_kernel[(triton.cdiv(n, 1024),)]
    return lambda: launch(x, y, out, n, BLOCK=1024), out


def softmax(columns: int) -> tuple[Callable[[], object], torch.Tensor]:
    """A launch of tutorial 02 on 4096 rows of float32, one program for each."""
    x = torch.randn(4096, columns)
    out = torch.empty_like(x)
    launch: Any = softmax_kernel[(4096,)]
    block = triton.next_power_of_2(columns)
    return lambda: launch(x, out, 4096, columns, BLOCK=block), out


def matmul(size: int) -> tuple[Callable[[], object], torch.Tensor]:
    """A launch of tutorial 03: a square product of float16, by one of its own configurations."""
    a, b = torch.randn(size, size).half(), torch.randn(size, size).half()
    out = torch.empty_like(a)
    tiles = triton.cdiv(size, 64) * triton.cdiv(size, 128)
    launch: Any = matmul_kernel[(tiles,)]
    blocks = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP": 8}
    return lambda: launch(a, b, out, size, size, size, **blocks), out


PROBLEMS = {"01 vector add": vector_add, "02 softmax": softmax, "03 matmul": matmul}
