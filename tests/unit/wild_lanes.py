"""Kernels whose masked-off lanes point anywhere; run as a program, each must leave memory alone.

A touched lane would end the process: the addresses lie in pages that nobody owns.
"""

import numpy as np

import deuteron as dn
import deuteron.language as tl

FAR = tl.constexpr(1 << 44)  # elements: beyond what a process can own
BLOCK = 64
GRID = (1,)


@dn.jit
def copy(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK).to(tl.int64)
    mask = at < n
    far = tl.where(mask, at, at * FAR) * stride
    tl.store(out_ptr + far, tl.load(x_ptr + far, mask, other=7) + 1, mask)


@dn.jit
def copy_rows(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK)[:, None].to(tl.int64), tl.arange(0, BLOCK)[None, :]
    mask = (rows < n) & (columns < n)
    at = tl.where(rows < n, rows, rows * FAR) * n + columns
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask, other=0), mask)


@dn.jit
def nothing_at_all(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    never = at > n
    nowhere = tl.zeros((BLOCK,), tl.int64).to(tl.pointer_type(tl.float32)) + at
    tl.store(out_ptr + at, tl.load(nowhere, never, other=3))
    tl.store(nowhere, 1.0, never)
    tl.atomic_add(nowhere, 1.0, never)
    tl.atomic_max(nowhere, 1.0, never)
    tl.store(x_ptr - FAR, 1.0, mask=n < 0)
    tl.store(out_ptr, tl.load(x_ptr - FAR, mask=n < 0, other=4))


@dn.jit
def count(out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK).to(tl.int64)
    mask = at < n
    tl.atomic_add(out_ptr + tl.where(mask, at % 4, at * FAR), 1, mask)


def check_copies() -> None:
    for dtype in ("int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool"):
        x = (np.arange(BLOCK) % 2).astype(dtype)
        for n in (0, 1, 3, 17, 63, 64):
            for stride in (1, 2):
                out = np.zeros(2 * BLOCK, dtype)
                wide = np.repeat(x, 2) if stride == 2 else x
                copy[GRID](wide, out, n, stride, BLOCK=BLOCK)
                expected = np.zeros(2 * BLOCK, dtype)
                expected[: n * stride : stride] = (wide[: n * stride : stride] + 1).astype(dtype)
                np.testing.assert_array_equal(out, expected)


def check_rows() -> None:
    for n in (0, 1, 5, 32):
        x = np.arange(n * n, dtype=np.float32)
        out = np.zeros(n * n, np.float32)
        copy_rows[GRID](x, out, n, BLOCK=32)
        np.testing.assert_array_equal(out, x)


def check_nothing() -> None:
    x, out = np.zeros(BLOCK, np.float32), np.zeros(BLOCK, np.float32)
    nothing_at_all[GRID](x, out, BLOCK + 5, BLOCK=BLOCK)
    np.testing.assert_array_equal(out, [4] + [3] * (BLOCK - 1))
    np.testing.assert_array_equal(x, np.zeros(BLOCK))


def check_atomics() -> None:
    for n in (0, 2, 9, 64):
        out = np.zeros(4, np.int32)
        count[GRID](out, n, BLOCK=BLOCK)
        np.testing.assert_array_equal(out, np.bincount(np.arange(n) % 4, minlength=4))


if __name__ == "__main__":
    check_copies()
    check_rows()
    check_nothing()
    check_atomics()
    print("unharmed")
