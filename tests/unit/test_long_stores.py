"""Outputs long enough to be stored past the caches, which wants whole aligned vectors."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as dn
import deuteron.language as tl


@dn.jit
def fill_rows(out_ptr, pitch, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    value = rows[:, None] * 4096 + cols[None, :]
    inside = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    tl.store(out_ptr + rows[:, None] * pitch + cols[None, :], value, mask=inside)


@dn.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@pytest.mark.parametrize("pitch", [2048, 2056, 2050, 2047])
@pytest.mark.parametrize("start", [0, 1, 8])
def test_rows_at_any_distance(pitch: int, start: int) -> None:
    n_rows, n_cols = 1030, 2040
    memory = np.full(n_rows * pitch + 64, -1, np.int32)
    fill_rows[(dn.cdiv(n_rows, 64), dn.cdiv(n_cols, 128))](
        memory[start:], pitch, n_rows, n_cols, ROWS=64, COLS=128
    )
    expected = np.full(n_rows * pitch + 64, -1, np.int32)
    view = expected[start : start + n_rows * pitch].reshape(n_rows, pitch)
    view[:, :n_cols] = np.arange(n_rows)[:, None] * 4096 + np.arange(n_cols)
    np.testing.assert_array_equal(memory, expected)


@pytest.mark.parametrize("start", [0, 1, 4, 5, 16])
def test_arrays_that_begin_anywhere(start: int) -> None:
    x = np.arange(1 << 22, dtype=np.float32)
    out = np.zeros(x.size + start, np.float32)
    copy[(dn.cdiv(x.size - 7, 1024),)](x, out[start:], x.size - 7, BLOCK=1024)
    np.testing.assert_array_equal(out[start : start + x.size - 7], x[:-7])
    assert (out[:start] == 0).all()
    assert (out[start + x.size - 7 :] == 0).all()
