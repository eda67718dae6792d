# ruff: noqa
"""More kernels like those of `bad_kernels.py`: what the language's library cannot make sense of.

Every kernel takes a float32 pointer, an int32 and a constexpr.
"""

import deuteron as dn
import deuteron.language as tl
from deuteron.lang.jit import jit


# -- sorting, gathers, histograms ----------------------------------------------------------------
@jit
def sort_of_pointers(x_ptr, n, B: tl.constexpr):
    tl.sort(x_ptr + tl.arange(0, B))


@jit
def sort_along_no_axis(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, B), tl.sort(tl.arange(0, B), dim=1))


@jit
def topk_of_too_many(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, B), tl.topk(tl.arange(0, B), 2 * B))


@jit
def topk_of_three(x_ptr, n, B: tl.constexpr):
    best = tl.topk(tl.load(x_ptr + tl.arange(0, B)), 3)


@jit
def gather_by_floats(x_ptr, n, B: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, B))
    y = tl.gather(x, x, 0)


@jit
def gather_of_another_rank(x_ptr, n, B: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, B))
    y = tl.gather(x[None, :], tl.arange(0, B), 1)


@jit
def gather_of_another_shape(x_ptr, n, B: tl.constexpr):
    x = tl.zeros((B, 2), tl.float32)
    y = tl.gather(x, tl.zeros((B // 2, 4), tl.int32), 1)


@jit
def histogram_of_floats(x_ptr, n, B: tl.constexpr):
    h = tl.histogram(tl.load(x_ptr + tl.arange(0, B)), 8)


@jit
def histogram_of_a_matrix(x_ptr, n, B: tl.constexpr):
    h = tl.histogram(tl.zeros((B, 2), tl.int32), 8)


@jit
def histogram_with_a_number_as_mask(x_ptr, n, B: tl.constexpr):
    h = tl.histogram(tl.arange(0, B), 8, mask=n)


# -- brackets ------------------------------------------------------------------------------------
@jit
def element_out_of_range(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, tl.arange(0, B)[B])


@jit
def slice_by_a_tensor(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, tl.sum(tl.arange(0, B)[:n]))


@jit
def empty_slice(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, tl.sum(tl.arange(0, B)[8:4]))


@jit
def power_by_a_tensor(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, n**n)


@jit
def negative_power(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, n**-1)


# -- map_elementwise -----------------------------------------------------------------------------
@jit
def loads(x, pointer):
    return x + tl.load(pointer)


@jit
def makes_a_tile(x):
    return x + tl.arange(0, 4)


@jit
def three_values(a, b):
    return a, b, a + b


@jit
def map_that_loads(x_ptr, n, B: tl.constexpr):
    y = tl.map_elementwise(loads, tl.arange(0, B), x_ptr)


@jit
def map_that_makes_tiles(x_ptr, n, B: tl.constexpr):
    y = tl.map_elementwise(makes_a_tile, tl.arange(0, B))


@jit
def map_of_nothing(x_ptr, n, B: tl.constexpr):
    y = tl.map_elementwise(three_values)


@jit
def map_of_broken_packs(x_ptr, n, B: tl.constexpr):
    y = tl.map_elementwise(three_values, tl.arange(0, B), pack=2)


@jit
def map_of_a_short_axis(x_ptr, n, B: tl.constexpr):
    y = tl.map_elementwise(three_values, n, pack=2)


# -- block pointers ------------------------------------------------------------------------------
@jit
def block_with_a_mask(x_ptr, n, B: tl.constexpr):
    block = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (B,), (0,))
    x = tl.load(block, mask=n > 0)


@jit
def boundary_of_a_pointer(x_ptr, n, B: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, B), boundary_check=(0,))


@jit
def boundary_of_no_axis(x_ptr, n, B: tl.constexpr):
    block = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (B,), (0,))
    x = tl.load(block, boundary_check=(1,))


@jit
def block_of_two_lengths(x_ptr, n, B: tl.constexpr):
    block = tl.make_block_ptr(x_ptr, (n, n), (1,), (0,), (B,), (0,))


@jit
def block_without_an_order(x_ptr, n, B: tl.constexpr):
    block = tl.make_block_ptr(x_ptr, (n, n), (n, 1), (0, 0), (B, B), (1, 1))


@jit
def block_of_many_pointers(x_ptr, n, B: tl.constexpr):
    block = tl.make_block_ptr(x_ptr + tl.arange(0, B), (n,), (1,), (0,), (B,), (0,))


@jit
def block_of_unknown_shape(x_ptr, n, B: tl.constexpr):
    block = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (n,), (0,))


@jit
def block_at_a_float(x_ptr, n, B: tl.constexpr):
    block = tl.make_block_ptr(x_ptr, (n,), (1,), (1.5,), (B,), (0,))


@jit
def unknown_padding(x_ptr, n, B: tl.constexpr):
    block = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (B,), (0,))
    x = tl.load(block, boundary_check=(0,), padding_option="edge")


@jit
def advance_of_a_pointer(x_ptr, n, B: tl.constexpr):
    moved = tl.advance(x_ptr, (1,))


@jit
def arithmetic_on_a_block(x_ptr, n, B: tl.constexpr):
    block = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (B,), (0,))
    x = tl.load(block + B)


@jit
def block_changes_shape(x_ptr, n, B: tl.constexpr):
    block = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (B,), (0,))
    for i in range(n):
        block = tl.make_block_ptr(x_ptr, (n,), (1,), (i,), (2 * B,), (0,))


# -- tensor descriptors --------------------------------------------------------------------------
@jit
def descriptor_without_unit_stride(x_ptr, n, B: tl.constexpr):
    array = tl.make_tensor_descriptor(x_ptr, [n, n], [1, n], [B, B])


@jit
def descriptor_of_no_axes(x_ptr, n, B: tl.constexpr):
    array = tl.make_tensor_descriptor(x_ptr, [], [], [])


@jit
def descriptor_of_integers_padded_with_nan(x_ptr, n, B: tl.constexpr):
    integers = x_ptr.to(tl.pointer_type(tl.int32))
    array = tl.make_tensor_descriptor(integers, [n], [1], [B], padding_option="nan")


@jit
def load_of_no_descriptor(x_ptr, n, B: tl.constexpr):
    x = tl.load_tensor_descriptor(x_ptr, [0])


@jit
def store_of_another_shape(x_ptr, n, B: tl.constexpr):
    array = tl.make_tensor_descriptor(x_ptr, [n], [1], [B])
    array.store([0], tl.zeros((2 * B,), tl.float32))


@jit
def offsets_of_another_length(x_ptr, n, B: tl.constexpr):
    array = tl.make_tensor_descriptor(x_ptr, [n], [1], [B])
    x = array.load([0, 0])


@jit
def gather_of_whole_blocks(x_ptr, n, B: tl.constexpr):
    array = tl.make_tensor_descriptor(x_ptr, [n, n], [n, 1], [B, B])
    x = array.gather(tl.arange(0, 8), 0)


@jit
def gather_of_one_row(x_ptr, n, B: tl.constexpr):
    array = tl.make_tensor_descriptor(x_ptr, [n, n], [n, 1], [1, B])
    x = array.gather(n, 0)


@jit
def descriptor_lacks_a_method(x_ptr, n, B: tl.constexpr):
    array = tl.make_tensor_descriptor(x_ptr, [n], [1], [B])
    array.prefetch([0])


# -- scaled products, assembly, atomics ----------------------------------------------------------
@jit
def scaled_dot_of_an_unknown_format(x_ptr, n, B: tl.constexpr):
    x = tl.zeros((B, B), tl.uint8)
    y = tl.dot_scaled(x, None, "e3m4", x, None, "e4m3")


@jit
def scaled_dot_in_another_format(x_ptr, n, B: tl.constexpr):
    x = tl.zeros((B, B), tl.float32)
    y = tl.dot_scaled(x, None, "e4m3", x, None, "e4m3")


@jit
def scaled_dot_of_unpacked_floats(x_ptr, n, B: tl.constexpr):
    x = tl.zeros((B, B), tl.bfloat16)
    y = tl.dot_scaled(x, None, "bf16", x, None, "bf16", lhs_k_pack=False)


@jit
def scaled_dot_of_few_scales(x_ptr, n, B: tl.constexpr):
    x = tl.zeros((32, 32), tl.bfloat16)
    y = tl.dot_scaled(x, tl.zeros((32, 8), tl.uint8), "bf16", x, None, "bf16")


@jit
def assembly_on_a_cpu(x_ptr, n, B: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, B))
    y = tl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
    tl.store(x_ptr + tl.arange(0, B), y)


@jit
def assembly_without_a_dtype(x_ptr, n, B: tl.constexpr):
    y = tl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=f,f", [n], None, True, 1)


@jit
def poll_for_a_float(x_ptr, n, B: tl.constexpr):
    tl.atomic_poll(x_ptr, 1.0)


@jit
def poll_with_a_float_timeout(x_ptr, n, B: tl.constexpr):
    tl.atomic_poll(x_ptr.to(tl.pointer_type(tl.int32)), 1, timeout_ns=1.5)


@jit
def atomic_load_of_bytes(x_ptr, n, B: tl.constexpr):
    tl.atomic_load(x_ptr.to(tl.pointer_type(tl.int8)))


# -- aggregates ----------------------------------------------------------------------------------
@dn.aggregate
class Pair:
    first: tl.tensor
    second: tl.constexpr


@jit
def aggregate_of_one_value(x_ptr, n, B: tl.constexpr):
    pair = Pair(n)


@jit
def aggregate_of_wrong_kinds(x_ptr, n, B: tl.constexpr):
    pair = Pair(n, n)


@jit
def aggregate_changed(x_ptr, n, B: tl.constexpr):
    pair = Pair(n, 1)
    pair.first = 2


@jit
def aggregate_lacks_a_field(x_ptr, n, B: tl.constexpr):
    pair = Pair(n, 1)
    tl.store(x_ptr, pair.third)


@jit
def aggregate_replaced_wrongly(x_ptr, n, B: tl.constexpr):
    pair = tl.aggregate_replace(Pair(n, 1), third=2)


@jit
def aggregates_differ(x_ptr, n, B: tl.constexpr):
    pair = Pair(n, 1)
    if n > 2:
        pair = Pair(x_ptr, 1)


# -- break and continue --------------------------------------------------------------------------
@jit
def type_changes_before_break(x_ptr, n, B: tl.constexpr):
    total = 0
    for i in range(n):
        if i > 3:
            total = 1.5
            break
        total += i


@jit
def item_after_its_loop(x_ptr, n, B: tl.constexpr):
    for item in (n, 2 * n):
        tl.store(x_ptr, item)
    tl.store(x_ptr, item)


# -- blocks, scales and seeds ------------------------------------------------------------------
@jit
def narrow_blocks(x_ptr, n, B: tl.constexpr):
    tl.make_tensor_descriptor(x_ptr, [n, n], [n, 1], [B, 2]).load([0, 0])


@jit
def greatest_floats_by_blocks(x_ptr, n, B: tl.constexpr):
    blocks = tl.make_tensor_descriptor(x_ptr, [n], [1], [B])
    blocks.atomic_max([0], blocks.load([0]))


@jit
def scales_of_two_lengths(x_ptr, n, B: tl.constexpr):
    lhs, rhs = tl.full((B, 64), 0, tl.uint8), tl.full((64, B), 0, tl.uint8)
    lhs_scale, rhs_scale = tl.full((B, 4), 0, tl.uint8), tl.full((B, 2), 0, tl.uint8)
    tl.dot_scaled(lhs, lhs_scale, "e5m2", rhs, rhs_scale, "e5m2")


@jit
def seed_of_a_float(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, B), tl.rand(0.5, tl.arange(0, B)))


# -- results -----------------------------------------------------------------------------------
from deuteron.lang.must_use import must_use_result


@must_use_result("It has no effect.")
@jit
def cube(x):
    return x * x * x


@jit
def dropped_cube(x_ptr, n, B: tl.constexpr):
    cube(tl.arange(0, B))


@jit
def dropped_advance(x_ptr, n, B: tl.constexpr):
    block = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (B,), (0,))
    tl.advance(block, (B,))
    tl.store(block, tl.zeros((B,), tl.float32))
