"""Small kernels whose IR is kept in tests/golden/ir: one for each thing the front end does."""

from __future__ import annotations

import deuteron.language as tl
from deuteron.lang.jit import jit


@jit
def vector_add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@jit
def transpose(x_ptr, out_ptr, stride, M: tl.constexpr, N: tl.constexpr):
    rows, cols = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + rows[:, None] * stride + cols[None, :])
    tl.store(out_ptr + cols[:, None] * M + rows, x.T.to(tl.float16))


@jit
def leaky_relu(x, slope):
    return tl.where(x >= 0, x, slope * x)


@jit
def matmul(a_ptr, b_ptr, c_ptr, k, M: tl.constexpr, K: tl.constexpr, ACTIVATION: tl.constexpr):
    rows, ks = tl.arange(0, M), tl.arange(0, K)
    acc = tl.zeros((M, M), dtype=tl.float32)
    for _ in tl.range(0, tl.cdiv(k, K), num_stages=3):
        a = tl.load(a_ptr + rows[:, None] * k + ks[None, :])
        b = tl.load(b_ptr + ks[:, None] * M + rows[None, :])
        acc = tl.dot(a, b, acc)
        a_ptr += K
        b_ptr += K * M
    if ACTIVATION == "leaky_relu":
        acc = leaky_relu(acc, 0.01)
    tl.store(c_ptr + rows[:, None] * M + rows[None, :], acc)


@jit
def early_exit(out_ptr, n):
    pid = tl.program_id(0)
    if pid >= n:
        return
    if pid == 0:
        tl.store(out_ptr, -1)
        return
    tl.store(out_ptr + pid, pid)


@jit
def branches(out_ptr, n, flag):
    scale, shift = 1, 0
    if flag > 2 and n > 0:
        scale = n * 2
    elif flag != 0:
        shift = n if n < 100 else 100
    tl.store(out_ptr, scale + shift)


@jit
def while_loop(out_ptr, n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    tl.store(out_ptr, steps)


@jit
def nested_loops(out_ptr, n):
    total = 0
    for i in range(n):
        for j in range(i, 0, -1):
            total += j
    tl.store(out_ptr, total)


@jit
def sign(x):
    if x > 0:
        return 1.0
    if x < 0:
        return -1.0
    return 0.0


@jit
def call_with_returns(x_ptr, out_ptr):
    tl.store(out_ptr, sign(tl.load(x_ptr)))


@jit
def unrolled(pointers, values, N: tl.constexpr):
    for i in tl.static_range(len(pointers)):
        width: tl.constexpr = N << i
        tl.store(pointers[i] + tl.arange(0, width), values[i])


@jit
def larger(a, i, b, j):
    take = (a > b) | ((a == b) & (i < j))
    return tl.where(take, a, b), tl.where(take, i, j)


@jit
def argmax_by_hand(x_ptr, out_ptr, at_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    best, where = tl.reduce((tl.load(x_ptr + at), at), 0, larger)
    tl.store(out_ptr, best)
    tl.store(at_ptr, where)


@jit
def softmax_row(x_ptr, out_ptr, n, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at, mask=at < n, other=-float("inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + at, numerator / tl.sum(numerator, axis=0), mask=at < n)


@jit
def debugging(x_ptr, n, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    print("x", x)
    assert n > 0, f"n must be positive, N is {N}"
    tl.assume(n < 1000)
    tl.atomic_add(x_ptr, tl.sum(x, axis=0), sem="relaxed")
