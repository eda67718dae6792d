"""07: functions from libdevice.

`tl` holds the mathematics that every kernel wants; `libdevice` holds the long tail under the names
that GPU programmers know: inverse trigonometry, hyperbolic functions, expm1, log1p, pow and others.
A libdevice function is called like any other, on tiles or scalars, and fuses with its neighbours.
"""

import math

import numpy as np
from devices import chosen_device, empty_like, fetch, place

import deuteron as dn
import deuteron.language as tl
from deuteron.language.extra import libdevice


@dn.jit
def asin_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, libdevice.asin(x), mask=mask)


@dn.jit
def gelu_kernel(x_ptr, out_ptr, n, TANH: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    if TANH:
        bend = libdevice.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))
    else:
        bend = libdevice.erf(x * 0.7071067811865476)
    tl.store(out_ptr + offsets, 0.5 * x * (1 + bend), mask=mask)


@dn.jit
def softplus_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    # log1p keeps the digits that 1 + exp(-|x|) would round away.
    out = tl.maximum(x, 0.0) + libdevice.log1p(tl.exp(-tl.abs(x)))
    tl.store(out_ptr + offsets, out, mask=mask)


def apply(kernel, x, **options):
    """Run an elementwise kernel over `x`."""
    out = empty_like(x)
    kernel[(dn.cdiv(len(x), 1024),)](x, out, len(x), **options, BLOCK=1024)
    return out


def main(device="cpu"):
    def run(kernel, x, **options):
        return fetch(apply(kernel, place(x, device), **options))

    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 98_432).astype(np.float32)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(run(asin_kernel, x), np.arcsin(wide), rtol=1e-5, atol=1e-7)

    x *= 12
    wide = x.astype(np.float64)
    erf = np.vectorize(math.erf)(wide / math.sqrt(2))
    tanh = np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))
    close = {"rtol": 2e-5, "atol": 2e-6}
    exact, fast = run(gelu_kernel, x, TANH=False), run(gelu_kernel, x, TANH=True)
    np.testing.assert_allclose(exact, 0.5 * wide * (1 + erf), **close)
    np.testing.assert_allclose(fast, 0.5 * wide * (1 + tanh), **close)
    np.testing.assert_allclose(run(softplus_kernel, x), np.logaddexp(0, wide), **close)
    print("07 libdevice: asin, gelu by erf and by tanh, softplus by log1p agree with NumPy")


if __name__ == "__main__":
    main(chosen_device())
