"""Kernels that the tests compile ahead of time."""

from __future__ import annotations

import deuteron as dn
import deuteron.language as tl


@dn.jit
def scale(x_ptr, out_ptr, n, stride, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at * stride, mask=mask) * factor, mask=mask)


@dn.jit
def checked(x_ptr, double, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=1)
    tl.device_assert(x > 0, "x must be positive")
    if tl.program_id(0) == 0:
        tl.device_print("x", x)
        tl.device_print("n, half", n, tl.sum(x, axis=0).to(tl.float16) / 2)
        tl.device_print("done")


@dn.jit
def many_types(
    out_ptr, a: tl.int8, b: tl.uint16, c: tl.float64, d: tl.float16, e: tl.int1, f: tl.int64,
    g: tl.bfloat16,
):  # fmt: skip
    tl.store(out_ptr, a.to(tl.float64))
    tl.store(out_ptr + 1, b.to(tl.float64))
    tl.store(out_ptr + 2, c)
    tl.store(out_ptr + 3, d.to(tl.float64))
    tl.store(out_ptr + 4, e.to(tl.float64))
    tl.store(out_ptr + 5, f.to(tl.float64))
    tl.store(out_ptr + 6, g.to(tl.float64))


@dn.jit
def where_am_i(out_ptr, ones):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = x + tl.num_programs(0) * (y + tl.num_programs(1) * z)
    tl.store(out_ptr + at, 100 * x + 10 * y + z + ones)
