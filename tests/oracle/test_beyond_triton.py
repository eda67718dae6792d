"""What this language has beyond Triton's: against plain Python and NumPy, both ways."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as dn
import deuteron.language as tl
from deuteron.lang.jit import jit
from tests.oracle.two_ways import run_both


# -- break and continue ------------------------------------------------------------------------
def first_multiple(out, start, stop, step, of):
    """Counts up or down; a branch in a branch, and what follows both."""
    found, looked, odd = -1, 0, 0
    for i in range(start, stop, step):
        looked += 1
        if i % 2 != 0:
            odd += 1
            if odd > 4:
                break
            if i == 7:
                continue
        elif i % of == 0:
            found = i
            break
        looked += 10
    tl.store(out, found)
    tl.store(out + 1, looked)
    tl.store(out + 2, odd)


def as_python(function, *args):
    """The results of an integer kernel, by Python itself."""

    class Language:
        static_range = range

        def store(self, place, value):
            out[place] = value

    out = {}
    scope = dict(function.__globals__) | {"tl": Language()}
    type(function)(function.__code__, scope)(0, *args)
    return [out[place] for place in sorted(out)]


@pytest.mark.parametrize("bounds", [(1, 50, 1), (60, -3, -1), (5, 5, 1), (1, 9, 3), (7, 8, 1)])
@pytest.mark.parametrize("of", [2, 10, 100])
def test_break_in_for(bounds, of):
    want = as_python(first_multiple, *bounds, of)
    for out, *_ in run_both(first_multiple, np.zeros(3, np.int32), *bounds, of):
        assert out.tolist() == want


def nested(out, n, m):
    total, turns = 0, 0
    for i in range(n):
        if i == 3:
            continue
        for j in range(m):
            if j > i:
                break
            if (i + j) % 3 == 0:
                continue
            total += i * j
        while True:
            turns += 1
            if turns % 5 == 0:
                break
            if turns % 2 == 0:
                continue
            total -= 1
        if total > 40:
            break
    tl.store(out, total)
    tl.store(out + 1, turns)


@pytest.mark.parametrize("sizes", [(0, 0), (3, 4), (9, 9), (20, 2)])
def test_nested_loops(sizes):
    want = as_python(nested, *sizes)
    for out, *_ in run_both(nested, np.zeros(2, np.int32), *sizes):
        assert out.tolist() == want


def search(x, out, n, key):
    """The condition reads memory that a `break` says not to read any more."""
    i = 0
    while tl.load(x + i) != key:
        i += 1
        if i >= n:
            break
    tl.store(out, i)


@pytest.mark.parametrize("key", [0, 5, 77])
def test_break_in_while(key):
    x = np.arange(16, dtype=np.int32)
    for _, out, *_ in run_both(search, x, np.zeros(1, np.int32), 16, key):
        assert out[0] == min(key, 16)


def unrolled(out, n):
    total = 0
    for i in tl.static_range(10):
        if i == 2:
            continue
        if i == 8:
            break
        total += i
        if total > n:
            total += 100
            break
        total += 1
    tl.store(out, total)


@pytest.mark.parametrize("n", [0, 5, 20, 1000])
def test_break_in_unrolled_loops(n):
    for out, _ in run_both(unrolled, np.zeros(1, np.int32), n):
        assert out[0] == as_python(unrolled, n)[0]


def newton(x, out, most, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    root = a
    for _ in range(most):
        better = (root + a / root) / 2
        if tl.max(tl.abs(better - root)) < 1e-6:
            root = better
            break
        root = better
    tl.store(out + i, root)


def test_tiles_through_break():
    x = np.random.default_rng(0).uniform(1, 100, 32).astype(np.float32)
    for _, out, _ in run_both(newton, x, np.zeros_like(x), 50, B=32):
        np.testing.assert_allclose(out, np.sqrt(x), 1e-5)


# -- loops over tuples -------------------------------------------------------------------------
def sum_all(pointers, scales, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for _ in range(n):
        for pointer in pointers:
            total += tl.load(pointer + i)
        for scale, (shift, _) in scales:
            if scale == 0:
                continue
            total = total * scale + shift
    tl.store(out + i, total)


def test_for_over_tuples():
    x, y = np.random.default_rng(1).standard_normal((2, 16)).astype(np.float32)
    want = np.zeros(16, np.float32)
    for _ in range(3):
        want = ((want + x + y) * 2 + 1) * 0.5 + 3
    scales = ((2, (1, None)), (0, (9, None)), (0.5, (3, None)))
    for kernel in (jit(sum_all), dn.JITFunction(sum_all, jit(sum_all).frontend, interpret=True)):
        out = np.zeros(16, np.float32)
        kernel[(1,)]((x, y), scales, out, 3, B=16)
        np.testing.assert_allclose(out, want, 1e-5)


# -- powers ------------------------------------------------------------------------------------
def powers(x, k, out, ints, B: tl.constexpr):
    i = tl.arange(0, B)
    v, n = tl.load(x + i), tl.load(k + i)
    tl.store(out + i, v**3)
    tl.store(out + B + i, v**-2)
    tl.store(out + 2 * B + i, v**0.5)
    tl.store(out + 3 * B + i, v**n)
    tl.store(out + 4 * B + i, 2**v)
    tl.store(out + 5 * B + i, v**0 + abs(-v))
    tl.store(ints + i, n**5)


def test_powers():
    x = np.random.default_rng(2).uniform(0.5, 3, 16).astype(np.float32)
    k = np.arange(-8, 8, dtype=np.int32)
    want = [x**3, x**-2.0, x**0.5, x ** k.astype(np.float32), 2**x, 1 + x]
    out, ints = np.zeros((6, 16), np.float32), np.zeros(16, np.int32)
    for _, _, got, whole in run_both(powers, x, k, out, ints, B=16):
        np.testing.assert_allclose(got, np.array(want), 2e-5)
        np.testing.assert_array_equal(whole, k**5)


# -- tiles of any size -------------------------------------------------------------------------
SIZES = [(1, 3), (5, 7), (12, 20), (33, 48), (100, 36)]


def any_size(x, y, out, sums, lasts, order, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    at = i[:, None] * N + j[None, :]
    a = tl.load(x + at)
    b = tl.load(y + at, mask=(i[:, None] < M - 1) & (j[None, :] > 0), other=1.0)
    c = tl.exp(a * 0.1) + tl.trans(tl.reshape(b, (N, M)))
    tl.store(out + at, tl.cumsum(c, 1) + tl.sum(a, 0)[None, :])
    tl.store(sums + i, tl.sum(c, 1) + tl.max(b, 1) + tl.argmin(a, 1))
    wide = tl.cat(tl.join(a, b).reshape(M, 2 * N), a, dim=1)
    tl.store(lasts + i[:, None] * 3 * N + tl.arange(0, 3 * N)[None, :], wide)
    tl.store(order + at, tl.sort(a, 1))


@pytest.mark.parametrize("shape", SIZES)
def test_tiles_of_any_size(shape):
    m, n = shape
    x, y = np.random.default_rng(3).standard_normal((2, m, n)).astype(np.float32)
    b = np.where((np.arange(m)[:, None] < m - 1) & (np.arange(n) > 0), y, 1)
    c = np.exp(x * np.float32(0.1)) + b.reshape(n, m).T
    sums = c.sum(1) + b.max(1) + x.argmin(1)
    wide = np.concatenate((np.stack((x, b), 2).reshape(m, 2 * n), x), 1)
    results = (np.zeros_like(x), np.zeros_like(sums), np.zeros_like(wide), np.zeros_like(x))
    for _, _, out, got, lasts, order in run_both(any_size, x, y, *results, M=m, N=n):
        np.testing.assert_allclose(out, np.cumsum(c, 1) + x.sum(0), 1e-4, 1e-4)
        np.testing.assert_allclose(got, sums, 1e-4, 1e-4)
        np.testing.assert_array_equal(lasts, wide)
        np.testing.assert_array_equal(order, np.sort(x, 1))


def product(a, b, c, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    acc = tl.zeros((M, N), tl.float32)
    for _ in range(n):
        x = tl.load(a + i[:, None] * K + k[None, :])
        y = tl.load(b + k[:, None] * N + j[None, :])
        acc += tl.dot(x, y)
    tl.store(c + i[:, None] * N + j[None, :], acc)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 5, 7), (17, 33, 9), (30, 40, 50), (96, 24, 100)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_dots_of_any_size(sizes, dtype):
    m, n, k = sizes
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(s).astype(dtype) for s in ((m, k), (k, n)))
    want = 2 * (a.astype(np.float64) @ b.astype(np.float64))
    out = np.zeros((m, n), np.float32)
    for _, _, c, _ in run_both(product, a, b, out, 2, M=m, N=n, K=k):
        np.testing.assert_allclose(c, want, 1e-3, 1e-3)


def softmax_row(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.softmax(tl.load(x + i)))
    tl.store(out + N + i, tl.flip(tl.load(x + i)))
    tl.store(out + 2 * N + i, tl.gather(tl.load(x + i), (i + 1) % N, 0))


@pytest.mark.parametrize("n", [1, 3, 17, 50, 781])
def test_rows_of_any_length(n):
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    want = np.exp(x) / np.exp(x).sum()
    for _, out in run_both(softmax_row, x, np.zeros((3, n), np.float32), N=n):
        np.testing.assert_allclose(out[0], want, 1e-5, 1e-6)
        np.testing.assert_array_equal(out[1], x[::-1])
        np.testing.assert_array_equal(out[2], np.roll(x, -1))


# -- elements and slices -----------------------------------------------------------------------
def slices(x, out, rows, n, M: tl.constexpr, N: tl.constexpr):
    a = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    j = tl.arange(0, N)
    tl.store(rows + j, a[2])
    tl.store(rows + N + j, a[-1, :])
    tl.store(rows + 2 * N + j, a[n])
    tl.store(out, a[1, 3] + a[n, -2])
    i = tl.arange(0, M)
    tl.store(rows + 3 * N + i, a[:, 5])
    tl.store(rows + 4 * N + i, a[..., n])
    half = a[1:3, N // 2 :]
    tl.static_assert(half.shape == (2, N - N // 2))
    k = tl.arange(0, N - N // 2)
    tl.store(rows + 5 * N + k, tl.sum(half, 0))
    third = a[0, 1:-1:3]
    tl.store(rows + 6 * N + tl.arange(0, third.shape[0]), third)
    tl.store(rows + 7 * N + j, a[0][::-1])
    total = tl.zeros((M,), tl.float32)
    for step in range(n):
        total += a[:, step] * a[step, None, 0]
    tl.store(rows + 8 * N + i, total)


@pytest.mark.parametrize("shape", [(8, 16), (6, 10)])
def test_elements_and_slices(shape):
    m, n = shape
    a = np.random.default_rng(5).standard_normal((m, n)).astype(np.float32)
    want = np.zeros((9, n), np.float32)
    want[0], want[1], want[2] = a[2], a[-1], a[3]
    want[3, :m], want[4, :m] = a[:, 5], a[:, 3]
    want[5, : n - n // 2] = a[1:3, n // 2 :].sum(0)
    third = a[0, 1:-1:3]
    want[6, : len(third)] = third
    want[7] = a[0, ::-1]
    want[8, :m] = sum(a[:, s] * a[s, 0] for s in range(3))
    for _, out, rows, *_ in run_both(
        slices, a, np.zeros(1, np.float32), np.zeros_like(want), 3, M=m, N=n
    ):
        rows[6, len(third) :] = 0
        np.testing.assert_allclose(rows, want, 1e-6)
        assert out[0] == a[1, 3] + a[3, -2]
