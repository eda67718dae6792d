"""Softmax over the last axis, one row a program."""

from typing import no_type_check

import deuteron.language as tl
from deuteron import jit, next_power_of_2
from deuteron.ops.arrays import (
    Array,
    empty_like,
    require_contiguous,
    require_shape,
    row_warps,
    size,
)


@jit
@no_type_check
def softmax_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    """out[row] = exp(x[row] - max) / sum(exp(x[row] - max)); BLOCK covers a whole row."""
    start = tl.program_id(0).to(tl.int64) * n_cols
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + start + cols, mask=mask, other=float("-inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, axis=0))
    denominator = tl.sum(numerator, axis=0)
    tl.store(out_ptr + start + cols, numerator / denominator, mask=mask)


def softmax(x: Array, out: Array | None = None) -> Array:
    """Softmax of a contiguous float array over its last axis, computed in float32."""
    out = empty_like(x) if out is None else out
    require_shape("softmax", "out", out, x.shape)
    require_contiguous("softmax", "x", x)
    require_contiguous("softmax", "out", out)
    n_cols = x.shape[-1]
    rows = size(x) // max(1, n_cols)
    block = next_power_of_2(n_cols)
    softmax_kernel[(rows,)](x, out, n_cols, BLOCK=block, num_warps=row_warps(block))
    return out
