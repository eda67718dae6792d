# ruff: noqa
"""More kernels like those of `bad_kernels.py`: values that do not fit, statements that do not exist.

Every kernel takes a float32 pointer, an int32 and a constexpr.
"""

import deuteron.language as tl
from deuteron.lang.jit import jit


# -- values that do not fit ----------------------------------------------------------------------
@jit
def sum_of_pointers(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, tl.sum(x_ptr + tl.arange(0, B)))


@jit
def number_of_a_function(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, tl.exp(tl.program_id))


@jit
def none_in_arithmetic(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, tl.maximum(n, None))


@jit
def tensor_for_an_option(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, tl.sum(tl.arange(0, B), 0, keep_dims=n))


@jit
def arithmetic_on_pointers(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, x_ptr * 2)


@jit
def float_offset(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr + n / 2, 1.0)


@jit
def axis_of_the_grid(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr + tl.program_id(3), 1.0)


@jit
def axis_of_a_tile(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, tl.max(tl.arange(0, B), axis=1))


@jit
def mask_of_numbers(x_ptr, n, B: tl.constexpr):
    offsets = tl.arange(0, B)
    tl.store(x_ptr + offsets, 1.0, mask=n - offsets)


@jit
def tile_through_one_pointer(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, tl.arange(0, B))


@jit
def tile_too_large(x_ptr, n, B: tl.constexpr):
    x = tl.zeros((B * 128, B * 128), tl.float32)


@jit
def reshaped_to_another_size(x_ptr, n, B: tl.constexpr):
    x = tl.arange(0, B).reshape(4, 8)


@jit
def unrolled_too_often(x_ptr, n, B: tl.constexpr):
    for i in tl.static_range(B << 20):
        tl.store(x_ptr, 0.0)


@jit
def has_class(x_ptr, n, B: tl.constexpr):
    class Pair:
        pass


@jit
def has_delete(x_ptr, n, B: tl.constexpr):
    x = n + 1
    del x


@jit
def has_set(x_ptr, n, B: tl.constexpr):
    x = {n, B}


@jit
def has_yield(x_ptr, n, B: tl.constexpr):
    yield n


@jit
def has_assert_of_tensor(x_ptr, n, B: tl.constexpr):
    tl.static_assert(n > 0)
