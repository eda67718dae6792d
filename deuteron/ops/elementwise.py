"""Elementwise operations on contiguous arrays."""

from typing import no_type_check

import deuteron.language as tl
from deuteron import cdiv, jit
from deuteron.ops.arrays import Array, empty_like, on_gpu, require_contiguous, require_shape, size

# Large enough that handing out blocks costs nothing, small enough that all threads get some.
BLOCK = 16384
GPU_BLOCK = 1024


@jit
@no_type_check
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = x + y; one program sums BLOCK elements."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def add(x: Array, y: Array, out: Array | None = None) -> Array:
    """The sum of two contiguous arrays of one shape and dtype."""
    out = empty_like(x) if out is None else out
    for name, array in (("x", x), ("y", y), ("out", out)):
        require_shape("add", name, array, x.shape)
        require_contiguous("add", name, array)
    n = size(x)
    block = GPU_BLOCK if on_gpu(x) else BLOCK
    add_kernel[(cdiv(n, block),)](x, y, out, n, BLOCK=block)
    return out
