"""Compiles two kernels, and complains of itself when one computes wrongly.

    python -m tests.golden.compile_twice [BYTES]

With BYTES no file that it writes may become longer than that, as on a full disk.
"""

import resource
import sys

import numpy as np

import deuteron as dn
import deuteron.language as tl


@dn.jit
def double(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at) * 2)


@dn.jit
def triple(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at) * 3)


if __name__ == "__main__":
    for limit in sys.argv[1:]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    double[(1,)](x, out, BLOCK=64)
    np.testing.assert_array_equal(out, x * 2)
    triple[(1,)](x, out, BLOCK=64)
    np.testing.assert_array_equal(out, x * 3)
    print("right")
