"""Sorts, flips, gathers and histograms against NumPy, compiled and on the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import deuteron.language as tl
from tests.oracle.two_ways import run_both

DTYPES = ("float32", "float64", "float16", "int64", "int32", "uint32", "int16", "uint8")


def numbers(dtype: str, *shape: int) -> Any:
    rng = np.random.default_rng(0)
    if np.dtype(dtype).kind == "f":
        return (10 * rng.standard_normal(shape)).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def sort_rows(x, out, M: tl.constexpr, N: tl.constexpr, DIM: tl.constexpr, DOWN: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.sort(tl.load(x + at), DIM, descending=DOWN))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("down", [False, True])
def test_sort(dtype, dim, down):
    x = numbers(dtype, 8, 64)
    want = np.sort(x, dim)
    want = np.flip(want, dim) if down else want
    for _, out in run_both(sort_rows, x, np.zeros_like(x), M=8, N=64, DIM=dim, DOWN=down):
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (16, 1), (1, 512)])
def test_sort_of_short_axes(shape):
    x = numbers("float32", *shape)
    m, n = shape
    for _, out in run_both(sort_rows, x, np.zeros_like(x), M=m, N=n, DIM=None, DOWN=False):
        np.testing.assert_array_equal(out, np.sort(x, 1))


def test_sort_keeps_every_element_and_puts_nan_last():
    x = np.array([[0.0, np.nan, -0.0, 1.0, np.inf, -np.inf, np.nan, 1.0]], np.float32)
    for _, out in run_both(sort_rows, x, np.zeros_like(x), M=1, N=8, DIM=1, DOWN=False):
        np.testing.assert_array_equal(out, np.sort(x, 1))
        assert np.signbit(out).sum() == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e5m2, torch.float8_e4m3fn])
def test_sort_of_floats_that_numpy_lacks(dtype):
    x = torch.randn(4, 32, generator=torch.Generator().manual_seed(0)).to(dtype)
    want = torch.sort(x.float(), 1).values
    for _, out in run_both(sort_rows, x, torch.zeros_like(x), M=4, N=32, DIM=1, DOWN=False):
        assert torch.equal(out.float(), want)


def top_rows(
    x, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, DIM: tl.constexpr, DOWN: tl.constexpr
):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    best = tl.topk(tl.load(x + at), K, DIM, descending=DOWN)
    tl.static_assert(best.dtype == x.dtype.element_ty)
    rows: tl.constexpr = best.shape[0]
    columns: tl.constexpr = best.shape[1]
    at = tl.arange(0, rows)[:, None] * columns + tl.arange(0, columns)[None, :]
    tl.store(out + at, best)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8"])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("k", [1, 2, 8, 32])
def test_topk(dtype, dim, down, k):
    x = numbers(dtype, 32, 64)
    want = np.flip(np.sort(x, dim), dim) if down else np.sort(x, dim)
    want = want[:k] if dim == 0 else want[:, :k]
    constants = {"M": 32, "N": 64, "K": k, "DIM": dim, "DOWN": down}
    for _, out in run_both(top_rows, x, np.zeros(want.shape, dtype), **constants):
        np.testing.assert_array_equal(out, want)


def merge_row(x, out, N: tl.constexpr, DOWN: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.bitonic_merge(tl.load(x + i), descending=DOWN))


@pytest.mark.parametrize("down", [False, True])
def test_bitonic_merge(down):
    x = np.sort(numbers("int32", 64))
    x[32:] = x[32:][::-1].copy()
    want = np.sort(x)[::-1] if down else np.sort(x)
    for _, out in run_both(merge_row, x, np.zeros_like(x), N=64, DOWN=down):
        np.testing.assert_array_equal(out, want)


def flip_cube(x, out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, DIM: tl.constexpr):
    i = tl.arange(0, A)[:, None, None] * B + tl.arange(0, B)[None, :, None]
    at = i * C + tl.arange(0, C)[None, None, :]
    tl.store(out + at, tl.load(x + at).flip(DIM))


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
@pytest.mark.parametrize("dim", [None, 0, 1, 2, -1, -2])
def test_flip(dtype, dim):
    x = (numbers("int32", 4, 8, 16) % 2).astype(dtype)
    for _, out in run_both(flip_cube, x, np.zeros_like(x), A=4, B=8, C=16, DIM=dim):
        np.testing.assert_array_equal(out, np.flip(x, -1 if dim is None else dim))


def gather_rows(
    x, index, out, AXIS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    L: tl.constexpr,
):  # fmt: skip
    source = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    at = tl.arange(0, K)[:, None] * L + tl.arange(0, L)[None, :]
    tl.store(out + at, source.gather(tl.load(index + at), AXIS))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather(dtype, index, axis):
    x = numbers(dtype, 16, 32)
    shape = (64, 32) if axis == 0 else (16, 8)
    places = np.random.default_rng(1).integers(0, x.shape[axis], shape).astype(index)
    want = np.take_along_axis(x, places.astype(np.int64), axis)
    constants = {"AXIS": axis, "M": 16, "N": 32, "K": shape[0], "L": shape[1]}
    for _, _, out in run_both(gather_rows, x, places, np.zeros(shape, dtype), **constants):
        np.testing.assert_array_equal(out, want)


def test_a_gather_out_of_range_stays_in_the_tile():
    x = numbers("float32", 4, 16)
    places = np.array([[-1, 1 << 30, 16, -(1 << 31)]] * 4, np.int32)
    constants = {"AXIS": 1, "M": 4, "N": 16, "K": 4, "L": 4}
    for _, _, out in run_both(gather_rows, x, places, np.zeros((4, 4), np.float32), **constants):
        assert np.isin(out, x).all()


def gather_neighbours(x, out, n, N: tl.constexpr):
    """Indices that run along the axis, that are one number, and that a loop moves."""
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x + at)
    ones = tl.zeros((N, N), tl.int32)
    tl.store(out + at, tl.gather(v, ones + 1 + tl.arange(0, N)[None, :], 1))
    tl.store(out + N * N + at, tl.gather(v, ones + n, 0))
    tl.store(out + 2 * N * N + at, tl.gather(v, ones + n, 1))
    for i in range(n):
        v = tl.gather(v, ones + (tl.arange(0, N)[:, None] + i) % N, 0)
    tl.store(out + 3 * N * N + at, v)


def test_gathers_of_runs():
    x = numbers("float32", 16, 16)
    out = np.zeros((4, 16, 16), np.float32)
    for _, got, _ in run_both(gather_neighbours, x, out, 3, N=16):
        np.testing.assert_array_equal(got[0, :, :15], x[:, 1:])
        np.testing.assert_array_equal(got[1], np.broadcast_to(x[3], (16, 16)))
        np.testing.assert_array_equal(got[2], np.broadcast_to(x[:, 3:4], (16, 16)))
        np.testing.assert_array_equal(got[3], np.roll(x, -3, 0))


def gather_from_split(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    pairs = tl.load(x + at[:, None] * 2 + tl.arange(0, 2)[None, :])
    _, odd = tl.split(pairs)
    tl.store(out + at, tl.gather(odd, N - 1 - at, 0))


def test_gather_from_half_of_a_split():
    x = numbers("int32", 64)
    for _, out in run_both(gather_from_split, x, np.zeros(32, np.int32), N=32):
        np.testing.assert_array_equal(out, x[1::2][::-1])


def count(x, out, n, M: tl.constexpr, BINS: tl.constexpr):
    i = tl.arange(0, M)
    tl.store(out + tl.arange(0, BINS), tl.histogram(tl.load(x + i), BINS))
    tl.store(out + BINS + tl.arange(0, BINS), tl.load(x + i).histogram(BINS, mask=i < n))


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64", "int8"])
@pytest.mark.parametrize("bins", [1, 16, 128])
def test_histogram(dtype, bins):
    x = np.random.default_rng(2).integers(0, 100, 512).astype(dtype)
    if np.dtype(dtype).kind == "i":
        x[::7] = -1
    want = [np.bincount(v[(v >= 0) & (v < bins)], minlength=bins) for v in (x, x[:100])]
    out = np.full((2, bins), -1, np.int32)
    for _, got, _ in run_both(count, x, out, 100, M=512, BINS=bins):
        np.testing.assert_array_equal(got, want)
