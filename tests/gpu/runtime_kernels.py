"""Kernels of the runtime's tests on a card."""

# pyright: reportGeneralTypeIssues=false
from __future__ import annotations

import deuteron as dn
import deuteron.language as tl


@dn.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask) + tl.load(y_ptr + at, mask), mask)


@dn.jit
def scale(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < n) * factor, at < n)


@dn.jit
def scalars(out_ptr, i, j, f, flag, e: tl.float64, h: tl.float16, b: tl.int8):
    tl.store(out_ptr, i.to(tl.float64))
    tl.store(out_ptr + 1, j.to(tl.float64))
    tl.store(out_ptr + 2, f.to(tl.float64))
    tl.store(out_ptr + 3, flag.to(tl.float64))
    tl.store(out_ptr + 4, e)
    tl.store(out_ptr + 5, h.to(tl.float64))
    tl.store(out_ptr + 6, b.to(tl.float64))
    tl.store(out_ptr + 7, tl.num_programs(0).to(tl.float64))


@dn.jit
def positive(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.device_assert(x > 0, "x is positive")
    tl.store(out_ptr + at, x)


@dn.jit
def wild(x_ptr, n):
    tl.store(x_ptr + n, 1.0)


@dn.jit
def transposed(x_ptr, out_ptr, SIZE: tl.constexpr):
    row = tl.arange(0, SIZE)[:, None]
    col = tl.arange(0, SIZE)[None, :]
    tl.store(out_ptr + row * SIZE + col, tl.trans(tl.load(x_ptr + row * SIZE + col)))
