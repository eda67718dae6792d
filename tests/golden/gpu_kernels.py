"""Small kernels whose layouts and PTX are kept in tests/golden/cuda, beside others."""

from __future__ import annotations

import deuteron.language as tl
from deuteron.lang.jit import jit


@jit
def centre_rows(x_ptr, out_ptr, stride, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * stride + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, x - tl.sum(x, axis=1)[:, None] / N)


@jit
def transposed_copy(x_ptr, out_ptr, stride, out_stride, M: tl.constexpr, N: tl.constexpr):
    rows, cols = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + rows[:, None] * stride + cols[None, :])
    tl.store(out_ptr + cols[:, None] * out_stride + rows[None, :], x.T)


@jit
def running_sum(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.cumsum(tl.load(x_ptr + at), 0))


@jit
def product(a_ptr, b_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    rows, cols, ks = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    acc = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BLOCK):
        a = tl.load(a_ptr + rows[:, None] * K + (start + ks)[None, :])
        b = tl.load(b_ptr + (start + ks)[:, None] * N + cols[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc)
