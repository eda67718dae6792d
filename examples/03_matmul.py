"""03: matrix multiplication with grouped ordering.

Each program computes one BLOCK_M x BLOCK_N tile of C and walks along K.  Programs that run at about
the same time should touch few different tiles of A and B: instead of finishing a whole row of tiles
first, GROUP_M rows are taken together and walked column by column.  An activation is applied while
the tile is still in registers.  `autotune` times the configs once for each (M, N, K).
"""

import numpy as np
from devices import chosen_device, empty, fetch, place, strides, tolerance

import deuteron as dn
import deuteron.language as tl


def config(m, n, k):
    return dn.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8})


@dn.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@dn.autotune(configs=[config(64, 64, 64), config(128, 128, 64)], key=["M", "N", "K"])
@dn.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP_M * tiles_n)
    first_m = group * GROUP_M
    rows_in_group = min(tiles_m - first_m, GROUP_M)
    pid_m = first_m + (pid % (GROUP_M * tiles_n)) % rows_in_group
    pid_n = (pid % (GROUP_M * tiles_n)) // rows_in_group

    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (ks[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < left) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if ACTIVATION == "leaky_relu":
        acc = leaky_relu(acc)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


def matmul(a, b, activation=""):
    """activation(a @ b); any strides, so transposed views are fine."""
    (m, k), n = a.shape, b.shape[1]
    c = empty(a, (m, n))
    steps = (*strides(a), *strides(b), *strides(c))
    grid = lambda meta: (dn.cdiv(m, meta["BLOCK_M"]) * dn.cdiv(n, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](a, b, c, m, n, k, *steps, ACTIVATION=activation)
    return c


def main(device="cpu"):
    rng = np.random.default_rng(0)
    for dtype, atol in ((np.float32, 1e-4), (np.float16, 5e-2)):
        close = tolerance(device, 1e-3, atol)
        a = rng.standard_normal((300, 200)).astype(dtype)
        b = rng.standard_normal((170, 200)).astype(dtype).T
        expected = a.astype(np.float64) @ b.astype(np.float64)
        on_device = place(a, device), place(b, device)
        got = fetch(matmul(*on_device))
        np.testing.assert_allclose(got, expected, **close)
        bent = np.where(expected >= 0, expected, 0.01 * expected)
        got = fetch(matmul(*on_device, "leaky_relu"))
        np.testing.assert_allclose(got, bent, **close)
    print("03 matmul: 300x200 @ 200x170 in float32 and float16 agrees with NumPy")


if __name__ == "__main__":
    main(chosen_device())
