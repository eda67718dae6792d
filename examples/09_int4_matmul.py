"""09: float32 activations times int4 weights, as GPTQ checkpoints store them.

    qweight   int32 [K / 8, N]        eight weights in a word, along K
    qzeros    int32 [groups, N / 8]   eight zero points in a word, along N, less one
    scales    [groups, N]
    g_idx     int32 [K]               the group of each row: k // groupsize, or any (act-order)

Weights are unpacked, shifted and scaled tile by tile; the matrix is never made.  That is an eighth
of float32's memory, and not always more speed.  On one AVX-512 core at K = N = 2048, torch's time
with weights that were dequantised beforehand is taken 0.8 times at 64 rows and 1.3 times at 512,
but 13 times at a single row, where unpacking is all there is to do.
"""

import torch
from devices import chosen_device, tolerance

import deuteron as dn
import deuteron.language as tl


@dn.jit
def int4_matmul_kernel(
    x_ptr, qweight_ptr, qzeros_ptr, scales_ptr, g_idx_ptr, out_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_rows, in_cols = rows[:, None] < M, cols[None, :] < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        ks = start + tl.arange(0, BLOCK_K)
        in_ks = ks < K
        x = tl.load(x_ptr + rows[:, None] * K + ks, mask=in_rows & in_ks, other=0.0)
        mask = in_ks[:, None] & in_cols
        group = tl.load(g_idx_ptr + ks, mask=in_ks, other=0)[:, None]
        words = tl.load(qweight_ptr + (ks // 8)[:, None] * N + cols, mask=mask, other=0)
        weights = (words >> (ks % 8 * 4)[:, None]) & 15
        words = tl.load(qzeros_ptr + group * (N // 8) + cols // 8, mask=mask, other=0)
        zeros = ((words >> (cols % 8 * 4)) & 15) + 1
        scales = tl.load(scales_ptr + group * N + cols, mask=mask, other=0.0).to(tl.float32)
        acc = tl.dot(x, (weights - zeros).to(tl.float32) * scales, acc)
    tl.store(out_ptr + rows[:, None] * N + cols, acc, mask=in_rows & in_cols)


def int4_matmul(x, qweight, qzeros, scales, g_idx):
    """x @ W for contiguous float32 x, on the device of x."""
    (m, k), n = x.shape, qweight.shape[1]
    out = x.new_empty((m, n))
    block_m, block_n, block_k = (32, 64, 32) if x.is_cuda else (64, 128, 64)
    grid = (dn.cdiv(m, block_m), dn.cdiv(n, block_n))
    int4_matmul_kernel[grid](
        x, qweight, qzeros, scales, g_idx, out, m, n, k,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k,
    )  # fmt: skip
    return out


def pack(values, axis):
    """Eight 4-bit values in each int32, along an axis."""
    parts = values.to(torch.int64).unflatten(axis, (-1, 8)).movedim(axis + 1, 0)
    words = sum(part << 4 * i for i, part in enumerate(parts))
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32).contiguous()


def checkpoint(k, n, groups, g_idx):
    """Random weights in GPTQ's layout, and the matrix they stand for."""
    weights = torch.randint(0, 16, (k, n))
    zeros = torch.randint(1, 17, (groups, n))
    scales = torch.rand(groups, n).half() / 16
    matrix = (weights - zeros[g_idx.long()]) * scales.float()[g_idx.long()]
    return matrix, (pack(weights, 0), pack(zeros - 1, 1), scales, g_idx)


def main(device="cpu"):
    torch.manual_seed(0)
    m, k, n, groupsize = 37, 256, 200, 64
    in_order = torch.arange(k, dtype=torch.int32) // groupsize
    x = torch.randn(m, k)
    for g_idx in (in_order, in_order[torch.randperm(k)]):
        matrix, stored = checkpoint(k, n, k // groupsize, g_idx)
        out = int4_matmul(x.to(device), *(part.to(device) for part in stored))
        torch.testing.assert_close(out.cpu(), x @ matrix, **tolerance(device, 1e-4, 1e-3))
    print(f"09 int4 matmul: {m}x{k} @ {k}x{n}, in order and act-order, agrees with torch")


if __name__ == "__main__":
    main(chosen_device())
