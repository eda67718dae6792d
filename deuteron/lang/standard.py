# pyright: basic, reportArgumentType=false, reportAssignmentType=false
# pyright: reportAttributeAccessIssue=false
# The functions below are kernels' code: their parameters are tensors and constants of the kernel
# language, which a Python type checker does not know.
"""What can be said in the language itself: reductions by name, scans, softmax, and others."""

from __future__ import annotations

from deuteron.dtypes import DType, float32, int32, uint32
from deuteron.lang.context import Context, builtin
from deuteron.lang.core import associative_scan, reduce, where
from deuteron.lang.jit import jit
from deuteron.lang.math import exp, fdiv, maximum, minimum
from deuteron.lang.semantic import arith, casts, indexing, shape
from deuteron.lang.values import Tensor, constexpr, describe, tensor_member


@tensor_member
@jit
def cdiv(x, div):
    """x / div rounded up, for integers with x >= 0 and div > 0."""
    return (x + div - 1) // div


@tensor_member
@jit
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return 1 / (1 + exp(-x))


@tensor_member
@jit
def softmax(x, dim: constexpr = None, keep_dims: constexpr = False, ieee_rounding=False):
    """exp(x), scaled so that it sums to 1 along the axis `dim` (None: the first).

    The result has the shape of `x`, whatever `keep_dims`.
    """
    axis: constexpr = 0 if dim is None else dim
    numerator = exp(x - max(x, axis, keep_dims=True))
    return fdiv(numerator, sum(numerator, axis, keep_dims=True), ieee_rounding)


@jit
def swizzle2d(i, j, size_i, size_j, size_g):
    """Indices (i, j) of a size_i × size_j grid, walked by columns within groups of size_g rows.

    Programs that run at about the same time then share rows and columns of their operands.
    """
    linear = i * size_j + j
    group_size = size_g * size_j
    first_row = linear // group_size * size_g
    rows = minimum(size_i - first_row, size_g)
    within = linear % group_size
    return first_row + within % rows, within // rows


# -- dtypes of folds -----------------------------------------------------------------------
@builtin
def _sum_operand(ctx: Context, input: Tensor, dtype: DType | None) -> Tensor:
    """The dtype a sum is given in: int32 or uint32 for narrower integers, unless told."""
    if input.is_pointer:
        raise ctx.error(
            "pointers cannot be summed",
            expected="a tile of numbers",
            got=describe(input),
            remedy=arith.LOAD_FIRST,
        )
    if dtype is not None:
        return casts.cast(ctx, input, casts.check_number_dtype(ctx, "dtype", dtype))
    narrow = input.number.is_int() and input.number.bits < 32
    if not narrow:
        return input
    return casts.cast(ctx, input, int32 if input.number.is_int_signed() else uint32)


@builtin
def _accumulable(ctx: Context, input: Tensor) -> Tensor:
    """16-bit floats as float32: a sum that rounds at every step loses the small terms."""
    narrow = input.number.is_floating() and input.number.bits < 32
    return casts.cast(ctx, input, float32) if narrow else input


@builtin
def _extreme_operand(ctx: Context, input: Tensor) -> Tensor:
    """The dtype `max` and `min` are given in: 32 bits at least."""
    if input.is_pointer or input.number.bits >= 32:
        return input
    return casts.cast(ctx, input, float32 if input.number.is_floating() else int32)


@builtin
def _widen_bfloat16(ctx: Context, input: Tensor) -> Tensor:
    return arith.widen_bfloat16(ctx, input)


@builtin
def _positions(ctx: Context, input: Tensor, axis: int | None) -> Tensor:
    """For each element its place along the axis (None: in row-major order)."""
    if not isinstance(input, Tensor) or not input.shape:
        raise ctx.error(
            "a tile is needed to find an index in",
            expected="a tile of one axis or more",
            got=describe(input),
            remedy="make a tile with tl.arange, tl.full or tl.load",
        )
    if axis is None:
        return shape.reshape(ctx, shape.arange(ctx, 0, input.numel), input.shape)
    place = shape.check_axis(ctx, axis, len(input.shape))
    return indexing.positions(ctx, input.shape, place)


# -- combine functions ---------------------------------------------------------------------
@jit
def _add(a, b):
    return a + b


@jit
def _multiply(a, b):
    return a * b


@jit
def _xor(a, b):
    return a ^ b


@jit
def _or(a, b):
    return a | b


@jit
def _greater(a, b):
    return maximum(a, b)


@jit
def _lesser(a, b):
    return minimum(a, b)


@jit
def _greater_first(a, i, b, j):
    left = (a > b) | ((a == b) & (i < j))
    return where(left, a, b), where(left, i, j)


@jit
def _greater_any(a, i, b, j):
    left = a > b
    return where(left, a, b), where(left, i, j)


@jit
def _lesser_first(a, i, b, j):
    left = (a < b) | ((a == b) & (i < j))
    return where(left, a, b), where(left, i, j)


@jit
def _lesser_any(a, i, b, j):
    left = a < b
    return where(left, a, b), where(left, i, j)


# -- reductions ----------------------------------------------------------------------------
@tensor_member
@jit
def sum(input, axis=None, keep_dims=False, dtype: constexpr = None):
    """The sum along `axis` (None: of all elements).

    Integers narrower than 32 bits are summed as int32 or uint32; `dtype` chooses another one.
    """
    terms = _sum_operand(input, dtype)
    total = reduce(_accumulable(terms), axis, _add, keep_dims)
    return total.to(terms.dtype)


@tensor_member
@jit
def max(
    input,
    axis=None,
    return_indices: constexpr = False,
    return_indices_tie_break_left: constexpr = True,
    keep_dims=False,
):
    """The greatest element along `axis` (None: of all); a NaN loses.

    Given in 32 bits at least.  With `return_indices` a pair (value, index), the first index among
    equals unless `return_indices_tie_break_left` is False; only bfloat16 is widened then.
    """
    if return_indices:
        values = _widen_bfloat16(input)
        combine: constexpr = _greater_first if return_indices_tie_break_left else _greater_any
        return reduce((values, _positions(values, axis)), axis, combine, keep_dims)
    return reduce(_extreme_operand(input), axis, _greater, keep_dims)


@tensor_member
@jit
def min(
    input,
    axis=None,
    return_indices: constexpr = False,
    return_indices_tie_break_left: constexpr = True,
    keep_dims=False,
):
    """The least element along `axis` (None: of all); a NaN loses.

    Given in 32 bits at least.  With `return_indices` a pair (value, index), the first index among
    equals unless `return_indices_tie_break_left` is False; only bfloat16 is widened then.
    """
    if return_indices:
        values = _widen_bfloat16(input)
        combine: constexpr = _lesser_first if return_indices_tie_break_left else _lesser_any
        return reduce((values, _positions(values, axis)), axis, combine, keep_dims)
    return reduce(_extreme_operand(input), axis, _lesser, keep_dims)


@tensor_member
@jit
def argmax(input, axis, tie_break_left: constexpr = True, keep_dims=False):
    """The index of the greatest element along `axis`, the first among equals unless told."""
    _, index = max(input, axis, True, tie_break_left, keep_dims)
    return index


@tensor_member
@jit
def argmin(input, axis, tie_break_left: constexpr = True, keep_dims=False):
    """The index of the least element along `axis`, the first among equals unless told."""
    _, index = min(input, axis, True, tie_break_left, keep_dims)
    return index


@tensor_member
@jit
def xor_sum(input, axis=None, keep_dims=False):
    """The exclusive or of the integers along `axis` (None: of all)."""
    return reduce(input, axis, _xor, keep_dims)


@tensor_member
@jit
def reduce_or(input, axis=None, keep_dims=False):
    """The bitwise or of the integers along `axis` (None: of all)."""
    return reduce(input, axis, _or, keep_dims)


# -- scans ---------------------------------------------------------------------------------
@tensor_member
@jit
def cumsum(input, axis=0, reverse=False, dtype: constexpr = None):
    """The sums of the prefixes along `axis`, or of the suffixes with `reverse`.

    Integers narrower than 32 bits give int32 or uint32, bfloat16 gives float32; `dtype` chooses
    another one.
    """
    terms = _sum_operand(_widen_bfloat16(input), dtype)
    return associative_scan(_accumulable(terms), axis, _add, reverse).to(terms.dtype)


@tensor_member
@jit
def cumprod(input, axis=0, reverse=False):
    """The products of the prefixes along `axis`, or of the suffixes with `reverse`.

    bfloat16 gives float32.
    """
    return associative_scan(_widen_bfloat16(input), axis, _multiply, reverse)
