"""05: layer normalisation, forward and backward.

Forward: one program normalises one row and keeps the row's mean and reciprocal deviation.
Backward: dx needs only its own row, but dw and db are sums over all rows.  Each program takes every
PROGRAMS-th row, sums its share in registers and writes one partial row; a second kernel adds up the
partial rows.  No locks, and the order of the additions is always the same.
"""

import numpy as np
from devices import chosen_device, empty, empty_like, fetch, place

import deuteron as dn
import deuteron.language as tl


@dn.jit
def forward_kernel(x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n
    centred = tl.where(mask, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / n + eps)
    w = tl.load(w_ptr + cols, mask=mask)
    b = tl.load(b_ptr + cols, mask=mask)
    tl.store(y_ptr + row * n + cols, centred * rstd * w + b, mask=mask)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@dn.jit
def backward_kernel(
    x_ptr, w_ptr, dy_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, rows, n, BLOCK: tl.constexpr
):
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    dw = tl.zeros((BLOCK,), tl.float32)
    db = tl.zeros((BLOCK,), tl.float32)
    for row in range(pid, rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0)
        dy = tl.load(dy_ptr + row * n + cols, mask=mask, other=0.0)
        rstd = tl.load(rstd_ptr + row)
        x_hat = tl.where(mask, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
        g = w * dy
        along_x = tl.sum(x_hat * g, axis=0) / n
        along_1 = tl.sum(g, axis=0) / n
        tl.store(dx_ptr + row * n + cols, (g - x_hat * along_x - along_1) * rstd, mask=mask)
        dw += dy * x_hat
        db += dy
    tl.store(dw_ptr + pid * n + cols, dw, mask=mask)
    tl.store(db_ptr + pid * n + cols, db, mask=mask)


@dn.jit
def sum_rows_kernel(part_ptr, out_ptr, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.arange(0, ROWS)[:, None] * n + cols[None, :]
    part = tl.load(part_ptr + at, mask=cols[None, :] < n, other=0.0)
    tl.store(out_ptr + cols, tl.sum(part, axis=0), mask=cols < n)


def main(device="cpu"):
    rows, n, eps, programs = 151, 1000, 1e-5, 16
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, rows, n), dtype=np.float32)
    w, b = rng.standard_normal((2, n), dtype=np.float32)
    x_in, dy_in, w_in, b_in = (place(v, device) for v in (x, dy, w, b))
    y, dx = empty_like(x_in), empty_like(x_in)
    mean, rstd = empty(x_in, (2, rows))
    parts = empty(x_in, (2, programs, n))
    dw, db = empty(x_in, (2, n))
    block = dn.next_power_of_2(n)
    forward_kernel[(rows,)](x_in, w_in, b_in, y, mean, rstd, n, eps, BLOCK=block)
    backward_kernel[(programs,)](x_in, w_in, dy_in, mean, rstd, dx, *parts, rows, n, BLOCK=block)
    for part, out in zip(parts, (dw, db), strict=True):
        sum_rows_kernel[(dn.cdiv(n, 128),)](part, out, n, ROWS=programs, BLOCK=128)

    y, dx, dw, db = (fetch(v) for v in (y, dx, dw, db))
    x, dy, w = (v.astype(np.float64) for v in (x, dy, w))
    r = 1 / np.sqrt(x.var(axis=1, keepdims=True) + eps)
    x_hat, g = (x - x.mean(axis=1, keepdims=True)) * r, w * dy
    inner = g - x_hat * (x_hat * g).mean(axis=1, keepdims=True) - g.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(y, x_hat * w + b, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dx, inner * r, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dw, (dy * x_hat).sum(axis=0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(db, dy.sum(axis=0), rtol=1e-4, atol=1e-4)
    print(f"05 layer norm: y, dx, dw and db of {rows}x{n} agree with NumPy")


if __name__ == "__main__":
    main(chosen_device())
