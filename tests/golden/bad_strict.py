# ruff: noqa
"""Strict kernels that go beyond Triton; see `bad_kernels.py`."""

import deuteron.language as tl
from deuteron.lang.jit import jit


@jit(strict=True)
def strict_break(x_ptr, n, B: tl.constexpr):
    for i in range(n):
        if i > 3:
            break


@jit(strict=True)
def strict_continue(x_ptr, n, B: tl.constexpr):
    for i in range(n):
        if i > 3:
            continue
        tl.store(x_ptr + i, 1.0)


@jit(strict=True)
def strict_tuple_loop(x_ptr, n, B: tl.constexpr):
    for item in (n, 2):
        tl.store(x_ptr, item)


@jit(strict=True)
def strict_length(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, 100), 1.0)


@jit(strict=True)
def strict_element(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, tl.arange(0, B)[n])


@jit(strict=True)
def strict_slice(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, tl.sum(tl.arange(0, B)[:4]))


@jit(strict=True)
def strict_power(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, tl.load(x_ptr) ** 2)


@jit(strict=True)
def strict_abs(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, abs(tl.load(x_ptr)))
