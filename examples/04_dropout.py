"""04: dropout without a stored mask.

The usual dropout keeps a mask as large as the data from the forward to the backward pass.  Philox
is a random generator without state: the number at a place is a function of (seed, offset).  So the
seed alone is kept, and the backward pass draws the very same mask again.
"""

import numpy as np
from devices import chosen_device, empty_like, fetch, place

import deuteron as dn
import deuteron.language as tl


@dn.jit
def dropout_kernel(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    keep = tl.rand(seed, offsets) > p
    tl.store(out_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=mask)


def dropout(x, p, seed):
    """Zero each element with probability `p` and scale the rest by 1/(1-p)."""
    out = empty_like(x)
    dropout_kernel[(dn.cdiv(len(x), 1024),)](x, out, len(x), p, seed, BLOCK=1024)
    return out


def dropout_grad(grad, p, seed):
    """The gradient: the same mask, hence the same kernel, on the incoming gradient."""
    return dropout(grad, p, seed)


def main(device="cpu"):
    n, p = 100_000, 0.3
    x = np.random.default_rng(0).standard_normal(n, dtype=np.float32)
    there = place(x, device)
    out = fetch(dropout(there, p, seed=123))
    kept = out != 0
    np.testing.assert_allclose(out[kept], x[kept].astype(np.float64) / (1 - p), rtol=1e-6)
    # Five standard deviations of a binomial count: a wrong generator misses it, luck does not.
    assert abs(kept.sum() - n * (1 - p)) < 5 * np.sqrt(n * p * (1 - p)), kept.sum()
    assert np.array_equal(out, fetch(dropout(there, p, seed=123))), "one seed must give one mask"
    assert not np.array_equal(out, fetch(dropout(there, p, seed=124))), "another seed, another mask"
    grad = fetch(dropout_grad(place(np.ones_like(x), device), p, seed=123))
    assert np.array_equal(grad != 0, kept), "the backward mask must be the forward mask"
    print(f"04 dropout: {kept.mean():.1%} of {n:,} kept at p = {p}, repeatable from the seed")


if __name__ == "__main__":
    main(chosen_device())
