"""01: vector addition.

A kernel is written for one *program*, which owns one block of elements.  `add_kernel[grid](...)`
runs the program once for every point of the grid; `tl.program_id(0)` says which one this is.  The
last block usually sticks out over the end of the arrays, so a mask switches those lanes off.
"""

import numpy as np
from devices import chosen_device, empty_like, fetch, place

import deuteron as dn
import deuteron.language as tl


@dn.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def add(x, y):
    """The sum of two arrays of one shape."""
    out = empty_like(x)
    n = len(x)
    add_kernel[lambda meta: (dn.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=1024)
    return out


def main(device="cpu"):
    rng = np.random.default_rng(0)
    for n in (1, 1000, 98_432):
        x = rng.standard_normal(n, dtype=np.float32)
        y = rng.standard_normal(n, dtype=np.float32)
        expected = x.astype(np.float64) + y
        got = fetch(add(place(x, device), place(y, device)))
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)
    print("01 vector add: sums of 1, 1,000 and 98,432 elements agree with NumPy")


if __name__ == "__main__":
    main(chosen_device())
