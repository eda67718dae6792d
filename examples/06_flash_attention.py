"""06: flash attention, forward and backward.

softmax(Q K^T) V without ever storing the N x N scores.  Forward: a program holds one block of
queries and meets the keys block by block; when a new row maximum appears, what was summed before is
rescaled (online softmax).  It leaves log(sum(exp(scores))) per row, from which the backward pass
rebuilds any block of probabilities: a program holds one block of keys and meets the queries.
"""

import numpy as np
from devices import chosen_device, empty, empty_like, fetch, place, tolerance

import deuteron as dn
import deuteron.language as tl


@dn.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, n, scale,
    CAUSAL: tl.constexpr, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    start, head = tl.program_id(0) * M, tl.program_id(1)
    rows, d = start + tl.arange(0, M), tl.arange(0, D)
    q_at = (head * n + rows)[:, None] * D + d[None, :]
    q = tl.load(q_ptr + q_at, mask=rows[:, None] < n, other=0.0)
    acc = tl.zeros((M, D), tl.float32)
    top, total = tl.full((M,), float("-inf"), tl.float32), tl.zeros((M,), tl.float32)
    end = tl.minimum(start + M, n) if CAUSAL else n
    for lo in range(0, end, N):
        cols = lo + tl.arange(0, N)
        kv_at = (head * n + cols)[:, None] * D + d[None, :]
        k = tl.load(k_ptr + kv_at, mask=cols[:, None] < n, other=0.0)
        v = tl.load(v_ptr + kv_at, mask=cols[:, None] < n, other=0.0)
        visible = cols[None, :] < n
        if CAUSAL:
            visible = visible & (cols[None, :] <= rows[:, None])
        s = tl.where(visible, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, axis=1))
        p = tl.exp(s - new_top[:, None])
        shrink = tl.exp(top - new_top)
        total = total * shrink + tl.sum(p, axis=1)
        acc = tl.dot(p, v, acc * shrink[:, None])
        top = new_top
    tl.store(o_ptr + q_at, acc / total[:, None], mask=rows[:, None] < n)
    tl.store(lse_ptr + head * n + rows, top + tl.log(total), mask=rows < n)


@dn.jit
def backward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, do_ptr, lse_ptr, dq_ptr, dk_ptr, dv_ptr, n, scale,
    CAUSAL: tl.constexpr, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    start, head = tl.program_id(0) * N, tl.program_id(1)
    cols, d = start + tl.arange(0, N), tl.arange(0, D)
    kv_at = (head * n + cols)[:, None] * D + d[None, :]
    k = tl.load(k_ptr + kv_at, mask=cols[:, None] < n, other=0.0)
    v = tl.load(v_ptr + kv_at, mask=cols[:, None] < n, other=0.0)
    dk, dv = tl.zeros((N, D), tl.float32), tl.zeros((N, D), tl.float32)
    for lo in range(start // M * M if CAUSAL else 0, n, M):
        rows = lo + tl.arange(0, M)
        q_at = (head * n + rows)[:, None] * D + d[None, :]
        q = tl.load(q_ptr + q_at, mask=rows[:, None] < n, other=0.0)
        o = tl.load(o_ptr + q_at, mask=rows[:, None] < n, other=0.0)
        do = tl.load(do_ptr + q_at, mask=rows[:, None] < n, other=0.0)
        lse = tl.load(lse_ptr + head * n + rows, mask=rows < n, other=0.0)
        visible = (rows[:, None] < n) & (cols[None, :] < n)
        if CAUSAL:
            visible = visible & (cols[None, :] <= rows[:, None])
        p = tl.where(visible, tl.exp(tl.dot(q, tl.trans(k)) * scale - lse[:, None]), 0.0)
        dv = tl.dot(tl.trans(p), do, dv)
        ds = p * (tl.dot(do, tl.trans(v)) - tl.sum(do * o, axis=1)[:, None]) * scale
        dk = tl.dot(tl.trans(ds), q, dk)
        tl.atomic_add(dq_ptr + q_at, tl.dot(ds, k), mask=rows[:, None] < n)
    tl.store(dk_ptr + kv_at, dk, mask=cols[:, None] < n)
    tl.store(dv_ptr + kv_at, dv, mask=cols[:, None] < n)


def main(device="cpu"):
    heads, n, d = 3, 200, 32
    q, k, v, do = np.random.default_rng(0).standard_normal((4, heads, n, d), dtype=np.float32)
    for causal in (False, True):
        *qkv, do_in, dq = (place(x, device) for x in (q, k, v, do, np.zeros_like(q)))
        o, dk, dv = (empty_like(dq) for _ in range(3))
        lse = empty(dq, (heads, n))
        shape = {"n": n, "scale": d**-0.5, "CAUSAL": causal, "M": 64, "N": 32, "D": d}
        forward_kernel[(dn.cdiv(n, 64), heads)](*qkv, o, lse, **shape)
        backward_kernel[(dn.cdiv(n, 32), heads)](*qkv, o, do_in, lse, dq, dk, dv, **shape)

        s = np.einsum("hmd,hnd->hmn", q, k, dtype=np.float64) * d**-0.5
        p = np.exp(np.where(np.tri(n, dtype=bool) | (not causal), s, -np.inf))
        p /= p.sum(axis=2, keepdims=True)
        dp = np.einsum("hmd,hnd->hmn", do, v, dtype=np.float64)
        ds = p * (dp - (p * dp).sum(axis=2, keepdims=True)) * d**-0.5
        wanted = (p @ v, ds @ k, ds.transpose(0, 2, 1) @ q, p.transpose(0, 2, 1) @ do)
        for got, want in zip((o, dq, dk, dv), wanted, strict=True):
            np.testing.assert_allclose(fetch(got), want, **tolerance(device, 1e-3, 2e-5))
    print(f"06 flash attention: o, dq, dk, dv of {heads}x{n}x{d}, full and causal, agree")


if __name__ == "__main__":
    main(chosen_device())
