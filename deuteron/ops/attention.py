"""Scaled dot-product attention without stored scores (online softmax).

Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, and Dao et al.,
"FlashAttention", 2022.
"""

from typing import no_type_check

import deuteron.language as tl
from deuteron import cdiv, jit, next_power_of_2
from deuteron.errors import LaunchError
from deuteron.ops.arrays import Array, empty_like, on_gpu, require_contiguous, require_shape, size

MAX_BLOCK_M = 256
BLOCK_N = 128
GPU_MAX_BLOCK_M = 128
GPU_BLOCK_N = 128
LOG2_E = 1.4426950408889634


@jit
@no_type_check
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, n_queries, n_keys, scale_log2,
    CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """One program holds BLOCK_M queries of one head and meets its keys BLOCK_N at a time.

    Scores are kept times log2(e), so that exp2 serves for exp.
    """
    start = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1).to(tl.int64)
    rows = start + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    q_at = (head * n_queries + rows)[:, None] * D + d[None, :]
    q = tl.load(q_ptr + q_at, mask=rows[:, None] < n_queries, other=0.0)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    end = tl.minimum(start + BLOCK_M, n_keys) if CAUSAL else n_keys
    for lo in range(0, end, BLOCK_N):
        cols = lo + tl.arange(0, BLOCK_N)
        kv_at = (head * n_keys + cols)[:, None] * D + d[None, :]
        k = tl.load(k_ptr + kv_at, mask=cols[:, None] < n_keys, other=0.0)
        v = tl.load(v_ptr + kv_at, mask=cols[:, None] < n_keys, other=0.0)
        visible = cols[None, :] < n_keys
        if CAUSAL:
            visible = visible & (cols[None, :] <= rows[:, None])
        scores = tl.where(visible, tl.dot(q, tl.trans(k)) * scale_log2, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        p = tl.exp2(scores - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        top = new_top
    tl.store(out_ptr + q_at, acc / total[:, None], mask=rows[:, None] < n_queries)


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = False,
    scale: float | None = None,
    out: Array | None = None,
) -> Array:
    """softmax(q k^T · scale) v for contiguous (..., length, head size) arrays of one float dtype.

    The head size is a power of two, at least 16; `scale` defaults to its inverse square root.  With
    `causal`, query i sees the keys up to i.
    """
    *batch, n_queries, head_size = q.shape
    n_keys = k.shape[-2]
    if head_size < 16 or head_size != next_power_of_2(head_size):
        raise LaunchError(
            f"attention: the head size must be a power of two from 16 on, got {head_size}\n"
            "  remedy:   pad q, k and v with zeros along the last axis"
        )
    out = empty_like(q) if out is None else out
    require_shape("attention", "k", k, (*batch, n_keys, head_size))
    require_shape("attention", "v", v, (*batch, n_keys, head_size))
    require_shape("attention", "out", out, q.shape)
    for name, array in (("q", q), ("k", k), ("v", v), ("out", out)):
        require_contiguous("attention", name, array)
    factor = float(head_size) ** -0.5 if scale is None else scale
    heads = size(q) // max(1, n_queries * head_size)
    most, block_n = (GPU_MAX_BLOCK_M, GPU_BLOCK_N) if on_gpu(q) else (MAX_BLOCK_M, BLOCK_N)
    block_m = min(most, max(16, next_power_of_2(n_queries)))
    attention_kernel[(cdiv(n_queries, block_m), heads)](
        q, k, v, out, n_queries, n_keys, factor * LOG2_E,
        CAUSAL=causal, BLOCK_M=block_m, BLOCK_N=block_n, D=head_size,
        num_warps=8 if block_m > 64 else 4, num_stages=2,
    )  # fmt: skip
    return out
