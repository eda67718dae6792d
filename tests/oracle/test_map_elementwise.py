"""Scalar functions on tiles against NumPy, compiled and on the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron.language as tl
from deuteron.lang.jit import jit
from tests.oracle.two_ways import run_both


@jit
def compare(x, y):
    if x < y:
        return -1
    elif x == y:
        return 0
    else:
        return 1


def compare_tiles(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.map_elementwise(compare, tl.load(x + i), tl.load(y + i)))


def test_branches_by_element():
    x, y = (np.random.default_rng(s).integers(0, 4, 128, np.int32) for s in (0, 1))
    for _, _, out in run_both(compare_tiles, x, y, np.zeros_like(x), N=128):
        np.testing.assert_array_equal(out, np.sign(x - y))


@jit
def quotients(a, b):
    return a // b, a % b


@jit
def packed_quotients(a0, a1, a2, a3, b0, b1, b2, b3):
    return a0 // b0, a1 // b1, a2 // b2, a3 // b3, a0 % b0, a1 % b1, a2 % b2, a3 % b3


def divide(a, b, q, r, N: tl.constexpr, PACK: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(a + i), tl.load(b + i)
    if PACK == 1:
        d, m = tl.map_elementwise(quotients, x, y)
    else:
        d, m = tl.map_elementwise(packed_quotients, x, y, pack=PACK)
    tl.store(q + i, d)
    tl.store(r + i, m)


@pytest.mark.parametrize("pack", [1, 4])
def test_several_results(pack):
    rng = np.random.default_rng(3)
    a, b = rng.integers(1, 1 << 32, (2, 256), np.uint32)
    for _, _, q, r in run_both(divide, a, b, a * 0, a * 0, N=256, PACK=pack):
        np.testing.assert_array_equal(q, a // b)
        np.testing.assert_array_equal(r, a % b)


@jit
def collatz(n, most):
    steps = 0
    while (n > 1) & (steps < most):
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


@jit
def triangle(n):
    total = 0
    if n > 3:  # the others must not keep the loop from ending
        for i in range(n, 0, -1):
            total += i
    return total


def loops(x, out, most, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(out + i, tl.map_elementwise(collatz, v, most))
    tl.store(out + N + i, tl.map_elementwise(triangle, v))


def test_loops_by_element():
    x = np.arange(-20, 44, dtype=np.int32)

    def steps(n: int, count: int = 0) -> int:
        while n > 1 and count < 50:
            n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
        return count

    want = [[steps(int(n)) for n in x], [n * (n + 1) // 2 if n > 3 else 0 for n in x.tolist()]]
    for _, out, _ in run_both(loops, x, np.zeros((2, 64), np.int32), 50, N=64):
        np.testing.assert_array_equal(out, want)


@jit
def nearer_to_zero(a, b):
    if a * a < b * b:
        return a
    return b


def reduce_with_branches(x, out, M: tl.constexpr, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(out + tl.arange(0, M), tl.reduce(v, 1, nearer_to_zero))


def test_branches_of_a_reduction():
    x = np.random.default_rng(4).standard_normal((8, 64)).astype(np.float32)
    want = np.take_along_axis(x, np.abs(x).argmin(1)[:, None], 1)[:, 0]
    for _, out in run_both(reduce_with_branches, x, np.zeros(8, np.float32), M=8, N=64):
        np.testing.assert_array_equal(out, want)
