"""Layer normalisation over the last axis, one row a program."""

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
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, out_ptr, n_cols, eps, BLOCK: tl.constexpr):
    """out[row] = (x[row] - mean) / sqrt(variance + eps) * w + b; BLOCK covers a whole row."""
    start = tl.program_id(0).to(tl.int64) * n_cols
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n_cols
    # The difference form of the variance: the mean of squares would cancel for large means.
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / n_cols
    w = tl.load(w_ptr + cols, mask=mask)
    b = tl.load(b_ptr + cols, mask=mask)
    normal = centred * (1 / tl.sqrt(variance + eps))
    tl.store(out_ptr + start + cols, normal * w + b, mask=mask)


def layer_norm(
    x: Array, weight: Array, bias: Array, eps: float = 1e-5, out: Array | None = None
) -> Array:
    """Normalise a contiguous float array over its last axis, then scale and shift.

    `weight` and `bias` have the last axis' length.  The arithmetic is float32.
    """
    out = empty_like(x) if out is None else out
    n_cols = x.shape[-1]
    require_shape("layer_norm", "weight", weight, (n_cols,))
    require_shape("layer_norm", "bias", bias, (n_cols,))
    require_shape("layer_norm", "out", out, x.shape)
    for name, array in (("x", x), ("weight", weight), ("bias", bias), ("out", out)):
        require_contiguous("layer_norm", name, array)
    rows = size(x) // max(1, n_cols)
    block = next_power_of_2(n_cols)
    layer_norm_kernel[(rows,)](
        x, weight, bias, out, n_cols, eps, BLOCK=block, num_warps=row_warps(block)
    )
    return out
