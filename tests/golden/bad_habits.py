# ruff: noqa
"""What people write who know NumPy, torch or Triton's newest release; as in `bad_kernels.py`."""

import deuteron as dn
import deuteron.language as tl
import numpy as np
from deuteron.lang.jit import jit

SIZES = (16, 32)


class Settings:
    scale = 2


def cdiv(a, b):
    return (a + b - 1) // b


@jit
def scaled(x, SCALE: tl.constexpr):
    return x * SCALE


@jit
def scaled_twice(x):
    return scaled(x, x)


@jit
def pair(x):
    return x, x


# -- names from elsewhere ----------------------------------------------------------------------
@jit
def dtype_of_numpy(x_ptr, n, B: tl.constexpr):
    zeros = tl.zeros((B,), np.float32)
    tl.store(x_ptr + tl.arange(0, B), zeros)


@jit
def function_of_numpy(x_ptr, n, B: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, B))
    tl.store(x_ptr, np.sum(x))


@jit
def unknown_function_of_numpy(x_ptr, n, B: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, B))
    tl.store(x_ptr, np.median(x))


@jit
def cdiv_of_the_host(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, cdiv(n, B))


@jit
def global_tuple(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, SIZES[0])


@jit
def global_class(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, Settings.scale)


@jit
def astype(x_ptr, n, B: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, B))
    tl.store(x_ptr + tl.arange(0, B), x.astype(tl.float16))


@jit
def mean_of_a_tile(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, tl.load(x_ptr + tl.arange(0, B)).mean())


@jit
def misspelt_method(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, tl.load(x_ptr + tl.arange(0, B)).cumsun())


@jit
def dim_for_axis(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, tl.load(x_ptr + tl.arange(0, B)).max(dim=0))


@jit
def dtype_as_a_string(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, n.to("float32"))


# -- arrays --------------------------------------------------------------------------------------
@jit
def element_of_a_pointer(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, x_ptr[0])


@jit
def shape_of_a_pointer(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, x_ptr.shape[0])


@jit
def stride_of_a_pointer(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, x_ptr.stride(0))


@jit
def length_of_a_number(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, len(n))


@jit
def mask_of_another_length(x_ptr, n, B: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, B), mask=tl.arange(0, 2 * B) < n)
    tl.store(x_ptr + tl.arange(0, B), x)


@jit
def atomic_of_another_length(x_ptr, n, B: tl.constexpr):
    tl.atomic_add(x_ptr + tl.arange(0, B), tl.zeros((2 * B,), tl.float32))


@jit
def other_without_a_mask(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, tl.load(x_ptr, other=0.0))


# -- calls ---------------------------------------------------------------------------------------
@jit
def arange_of_one_bound(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr + tl.arange(B), 0.0)


@jit
def zeros_without_a_dtype(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, B), tl.zeros([B]))


@jit
def option_that_is_not_there(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, tl.maximum(n, 0, axis=0))


@jit
def combine_of_one(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, tl.reduce(tl.arange(0, B), 0, scaled_twice))


@jit
def chain_of_calls(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, 1 + scaled_twice(n))


@jit
def pair_as_a_value(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, pair(n))


@jit
def runtime_arange(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, n), 0.0)


@jit
def matmul_operator(x_ptr, n, B: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, B))
    tl.store(x_ptr, x @ x)


@jit
def comprehension_over_a_range(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, len([i for i in range(n)]))


@jit
def enumerated(x_ptr, n, B: tl.constexpr):
    for i, x in enumerate((1.0, 2.0)):
        tl.store(x_ptr + i, x)


@jit
def async_with(x_ptr, n, B: tl.constexpr):
    with tl.async_task([0]):
        tl.store(x_ptr, 1.0)
