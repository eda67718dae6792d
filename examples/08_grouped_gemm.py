"""08: grouped matrix multiplication.

Many small products of different shapes in one launch, as in a mixture of experts.  The matrices lie
anywhere: the kernel gets arrays of addresses and of sizes.  A fixed number of programs deals out
the tiles of all products among themselves like cards, so no program waits for a large product.
"""

import numpy as np
from devices import address, chosen_device, empty, fetch, place, tolerance

import deuteron as dn
import deuteron.language as tl


@dn.jit
def grouped_matmul_kernel(
    a_addresses, b_addresses, c_addresses, sizes_ptr, groups,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    before = 0  # tiles of the products already passed
    for group in range(groups):
        m = tl.load(sizes_ptr + group * 3)
        n = tl.load(sizes_ptr + group * 3 + 1)
        k = tl.load(sizes_ptr + group * 3 + 2)
        tiles_n = tl.cdiv(n, BLOCK_N)
        after = before + tl.cdiv(m, BLOCK_M) * tiles_n
        a_ptr = tl.load(a_addresses + group).to(tl.pointer_type(tl.float32))
        b_ptr = tl.load(b_addresses + group).to(tl.pointer_type(tl.float32))
        c_ptr = tl.load(c_addresses + group).to(tl.pointer_type(tl.float32))
        while tile >= before and tile < after:
            rows = (tile - before) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
            cols = (tile - before) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
            acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for start in range(0, k, BLOCK_K):
                ks = start + tl.arange(0, BLOCK_K)
                a_mask = (rows[:, None] < m) & (ks[None, :] < k)
                b_mask = (ks[:, None] < k) & (cols[None, :] < n)
                a = tl.load(a_ptr + rows[:, None] * k + ks[None, :], mask=a_mask, other=0.0)
                b = tl.load(b_ptr + ks[:, None] * n + cols[None, :], mask=b_mask, other=0.0)
                acc = tl.dot(a, b, acc)
            inside = (rows[:, None] < m) & (cols[None, :] < n)
            tl.store(c_ptr + rows[:, None] * n + cols[None, :], acc, mask=inside)
            tile += tl.num_programs(0)
        before = after


def addresses(arrays):
    """The addresses of float32 arrays, as an array that a kernel can read."""
    return np.array([address(x) for x in arrays], np.int64)


def grouped_matmul(lefts, rights, programs=16, device="cpu"):
    """[a @ b for a, b in zip(lefts, rights)] for contiguous float32 matrices, in one launch."""
    pairs = list(zip(lefts, rights, strict=True))
    outs = [empty(a, (a.shape[0], b.shape[1])) for a, b in pairs]
    sizes = np.array([(a.shape[0], b.shape[1], a.shape[1]) for a, b in pairs], np.int32)
    tables = (addresses(lefts), addresses(rights), addresses(outs), sizes)
    grouped_matmul_kernel[(programs,)](
        *(place(table, device) for table in tables), len(pairs),
        BLOCK_M=32, BLOCK_N=32, BLOCK_K=32,
    )  # fmt: skip
    return outs


def main(device="cpu"):
    rng = np.random.default_rng(0)
    shapes = [(128, 96, 64), (1, 200, 30), (77, 33, 129), (256, 32, 32)]
    lefts = [rng.standard_normal((m, k), dtype=np.float32) for m, _, k in shapes]
    rights = [rng.standard_normal((k, n), dtype=np.float32) for _, n, k in shapes]
    lefts_in, rights_in = ([place(x, device) for x in side] for side in (lefts, rights))
    products = grouped_matmul(lefts_in, rights_in, device=device)
    close = tolerance(device, 1e-4, 1e-4)
    for a, b, c in zip(lefts, rights, products, strict=True):
        np.testing.assert_allclose(fetch(c), a.astype(np.float64) @ b, **close)
    print(f"08 grouped gemm: {len(shapes)} products of different shapes agree with NumPy")


if __name__ == "__main__":
    main(chosen_device())
