"""Corners of the language that Triton's own tests ask for: against NumPy, both ways."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron.language as tl
from tests.oracle.two_ways import run_both

FLOAT8 = (tl.float8e5, tl.float8e4nv, tl.float8e4b15, tl.float8e5b16, tl.float8e4b8)


def absolute_codes(codes, DTYPE: tl.constexpr):
    places = tl.arange(0, 256)
    x = tl.load(codes + places).to(DTYPE, bitcast=True)
    tl.store(codes + places, tl.abs(x).to(tl.uint8, bitcast=True))


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_abs_of_eight_bits(dtype: tl.dtype):
    codes = np.arange(256, dtype=np.uint8)
    want = codes & 0x7F
    if dtype in (tl.float8e5b16, tl.float8e4b8):
        want[0x80] = 0x80  # the one NaN, where others have minus zero
    for (got,) in run_both(absolute_codes, codes, DTYPE=dtype):
        if dtype == tl.float8e5:
            got[got > 0x7C], want[want > 0x7C] = 0x7F, 0x7F  # one NaN is as good as another
        np.testing.assert_array_equal(got, want)


def branch_by_one_element(x, ITEM: tl.constexpr):
    holds = tl.load(x + tl.arange(0, 1)) > 42
    if ITEM:
        holds = holds.item()
    if holds:
        tl.store(x, 42)


@pytest.mark.parametrize("item", [False, True])
@pytest.mark.parametrize(("before", "after"), [(41, 41), (43, 42)])
def test_a_tile_of_one_element_is_a_condition(item: bool, before: int, after: int):
    for (got,) in run_both(branch_by_one_element, np.array([before], np.int32), ITEM=item):
        assert got.tolist() == [after]


def sum_of_all(x, out):
    total = tl.sum(tl.load(x + tl.arange(0, 32)[:, None] * 8 + tl.arange(0, 8)), keep_dims=True)
    tl.store(out[None, None, :], total)


def test_brackets_of_a_scalar():
    x = np.arange(256, dtype=np.int32)
    for _, out in run_both(sum_of_all, x, np.zeros(1, np.int32)):
        assert out.tolist() == [x.sum()]


def narrow_toward_zero(x, codes, DTYPE: tl.constexpr, N: tl.constexpr):
    places = tl.arange(0, N)
    narrow = tl.load(x + places).to(DTYPE, fp_downcast_rounding="rtz")
    tl.store(codes + places, narrow.to(tl.uint8, bitcast=True))


def widen(codes, x, DTYPE: tl.constexpr):
    places = tl.arange(0, 256)
    tl.store(x + places, tl.load(codes + places).to(DTYPE, bitcast=True).to(tl.float32))


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_eight_bits_toward_zero(dtype: tl.dtype):
    codes = np.arange(256, dtype=np.uint8)
    _, values = run_both(widen, codes, np.zeros(256, np.float32), DTYPE=dtype)[0]
    values = np.unique(values[np.isfinite(values)])  # in order; minus zero is zero
    rng = np.random.default_rng(5)
    spread = rng.standard_normal(4032) * 2.0 ** rng.integers(-20, 8, 4032)
    x = np.concatenate([spread, values[:64]]).astype(np.float32)
    magnitudes = values[values >= 0]
    want = magnitudes[np.searchsorted(magnitudes, np.abs(x), side="right") - 1]
    for _, got, *_ in run_both(
        narrow_toward_zero, x, np.zeros(4096, np.uint8), DTYPE=dtype, N=4096
    ):
        padded = [
            run_both(widen, part, np.zeros(256, np.float32), DTYPE=dtype)[0][1]
            for part in got.reshape(-1, 256)
        ]
        back = np.concatenate(padded)
        np.testing.assert_array_equal(np.abs(back), want)
        assert (np.signbit(back) == np.signbit(x))[want != 0].all()
