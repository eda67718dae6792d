"""10: a block-sparse matrix times a dense one.

Only some BLOCK x BLOCK tiles of A are stored, one row of tiles after the other: `values[i]` is a
tile in tile column `columns[i]`, and row r has the tiles `starts[r]` to `starts[r + 1]`.  A program
computes one tile of C and visits just the tiles that are there: a loop whose bounds are loaded.
"""

import numpy as np
from devices import chosen_device, empty, fetch, place, tolerance

import deuteron as dn
import deuteron.language as tl

BLOCK = 32


@dn.jit
def block_sparse_matmul_kernel(
    values_ptr, columns_ptr, starts_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr, BLOCK_N: tl.constexpr
):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK_N), tl.float32)
    for i in range(tl.load(starts_ptr + row), tl.load(starts_ptr + row + 1)):
        a = tl.load(values_ptr + (i * BLOCK + inside[:, None]) * BLOCK + inside[None, :])
        ks = tl.load(columns_ptr + i) * BLOCK + inside
        b = tl.load(b_ptr + ks[:, None] * N + cols[None, :], mask=cols[None, :] < N, other=0.0)
        acc = tl.dot(a, b, acc)
    rows = row * BLOCK + inside
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc, mask=cols[None, :] < N)


def block_sparse_matmul(values, columns, starts, b):
    """A @ b for a block-sparse A and a contiguous b."""
    tile_rows, n = starts.shape[0] - 1, b.shape[1]
    c = empty(b, (tile_rows * BLOCK, n))
    block_n = 128 if isinstance(b, np.ndarray) else 64
    grid = (tile_rows, dn.cdiv(n, block_n))
    block_sparse_matmul_kernel[grid](
        values, columns, starts, b, c, n, BLOCK=BLOCK, BLOCK_N=block_n
    )  # fmt: skip
    return c


def compress(dense, present):
    """The tiles of a dense matrix where `present`, a matrix of truth values, says so."""
    rows, columns = np.nonzero(present)
    tiles = dense.reshape(present.shape[0], BLOCK, present.shape[1], BLOCK).swapaxes(1, 2)
    starts = np.searchsorted(rows, np.arange(present.shape[0] + 1))
    return tiles[rows, columns], columns.astype(np.int32), starts.astype(np.int32)


def main(device="cpu"):
    rng = np.random.default_rng(0)
    tile_rows, tile_columns, n = 6, 9, 150
    present = rng.random((tile_rows, tile_columns)) < 0.3
    present[2] = False  # a row without tiles
    mask = np.kron(present, np.ones((BLOCK, BLOCK), np.float32))
    a = rng.standard_normal(mask.shape, dtype=np.float32) * mask
    b = rng.standard_normal((a.shape[1], n), dtype=np.float32)
    arrays = (place(part, device) for part in (*compress(a, present), b))
    got = fetch(block_sparse_matmul(*arrays))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(got, expected, **tolerance(device, 1e-4, 1e-4))
    print(f"10 block-sparse matmul: {present.sum()} of {present.size} tiles agree with NumPy")


if __name__ == "__main__":
    main(chosen_device())
