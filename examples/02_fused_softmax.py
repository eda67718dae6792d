"""02: fused softmax.

Softmax written with array operations walks over memory five times: max, subtract, exp, sum, divide.
Fused into one kernel, a row is read once, kept close to the arithmetic, and written once.  A block
must be a power of two, so a row of 781 columns is held in 1,024 lanes; the lanes outside read minus
infinity, which vanishes both in the maximum and in the sum.
"""

import numpy as np
from devices import chosen_device, empty_like, fetch, place

import deuteron as dn
import deuteron.language as tl


@dn.jit
def softmax_kernel(out_ptr, x_ptr, row_stride, n_rows, n_cols, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    # Fewer programs than rows: each one strides through the rows until none is left.
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        start = row.to(tl.int64) * row_stride
        x = tl.load(x_ptr + start + cols, mask=mask, other=float("-inf"))
        numerator = tl.exp(x - tl.max(x, axis=0))
        denominator = tl.sum(numerator, axis=0)
        tl.store(out_ptr + start + cols, numerator / denominator, mask=mask)


def softmax(x):
    """Softmax over the last axis of a contiguous 2-D array."""
    n_rows, n_cols = x.shape
    out = empty_like(x)
    grid = (min(n_rows, 64),)
    block = dn.next_power_of_2(n_cols)
    softmax_kernel[grid](out, x, n_cols, n_rows, n_cols, BLOCK=block)
    return out


def reference(x):
    """The same in float64, one array operation at a time."""
    x = x.astype(np.float64)
    numerator = np.exp(x - x.max(axis=1, keepdims=True))
    return numerator / numerator.sum(axis=1, keepdims=True)


def main(device="cpu"):
    rng = np.random.default_rng(0)
    for shape in ((1823, 781), (5, 1), (64, 128)):
        x = 10 * rng.standard_normal(shape, dtype=np.float32)
        got = fetch(softmax(place(x, device)))
        np.testing.assert_allclose(got, reference(x), rtol=2e-5, atol=1e-7)
    print("02 fused softmax: 1823x781, 5x1 and 64x128 agree with NumPy")


if __name__ == "__main__":
    main(chosen_device())
