# pyright: basic, reportArgumentType=false, reportAssignmentType=false
# pyright: reportAttributeAccessIssue=false
# The functions below are kernels' code: their parameters are tensors and constants of the kernel
# language, which a Python type checker does not know.
"""Sorting in the language itself: bitonic networks whose exchanges are gathers.

A stage of the network merges runs of 2**stage elements; each of its steps compares elements that
lie a power of two apart (Batcher, "Sorting networks and their applications", 1968).  Which places
meet is arithmetic on positions, so that one loop does for every step and for any axis; for a GPU
the loops are unrolled.
"""

from __future__ import annotations

from math import inf

from deuteron.dtypes import float32, int_range
from deuteron.lang.context import Context, builtin
from deuteron.lang.core import gather, where
from deuteron.lang.jit import jit
from deuteron.lang.loops import static_range
from deuteron.lang.semantic import casts, indexing, shape
from deuteron.lang.target_info import is_cuda
from deuteron.lang.values import Tensor, constexpr, describe, tensor_member


# -- what is sorted ------------------------------------------------------------------------
@builtin
def _axis(ctx: Context, x: Tensor, dim: int | None) -> int:
    """The axis meant by `dim` (None: the last), of a tile that can be sorted."""
    if x.is_pointer or not x.shape:
        raise ctx.error(
            "only tiles of numbers have an order",
            expected="a tile of numbers",
            got=describe(x),
            remedy="load what pointers point to first, with tl.load",
        )
    rank = len(x.shape)
    return rank - 1 if dim is None else shape.check_axis(ctx, dim, rank, "dim")


@builtin
def _stages(ctx: Context, x: Tensor, axis: int) -> int:
    """How many stages it takes to sort along an axis."""
    return (x.shape[axis] - 1).bit_length()


@builtin
def _log_k(ctx: Context, x: Tensor, axis: int, k: int) -> int:
    """log2 of a topk's k."""
    fits = isinstance(k, int) and not isinstance(k, bool) and 0 < k <= x.shape[axis]
    if not fits or k & (k - 1):
        raise ctx.error(
            "topk cannot select so many",
            expected=f"a power of two from 1 to {x.shape[axis]}, the length of the axis",
            got=describe(k),
            remedy="round up with next_power_of_2, and mask what is too much",
        )
    return k.bit_length() - 1


@builtin
def _sortable(ctx: Context, x: Tensor, axis: int, descending: bool) -> Tensor:
    """The tile in a dtype with an order, filled up at the end to a power of two."""
    if x.number.is_fp8():
        x = casts.cast(ctx, x, float32)
    length = x.shape[axis]
    missing = (1 << (length - 1).bit_length()) - length
    if not missing:
        return x
    dims = (*x.shape[:axis], missing, *x.shape[axis + 1 :])
    if x.number.is_floating():
        last = -inf if descending else inf
    else:
        last = int_range(x.number)[0 if descending else 1]
    return ctx.op("cat", x, shape.full(ctx, dims, last, x.number), axis=axis)


@builtin
def _shortened(ctx: Context, x: Tensor, axis: int, length: int) -> Tensor:
    """The first elements along an axis."""
    if x.shape[axis] == length:
        return x
    dims = (*x.shape[:axis], length, *x.shape[axis + 1 :])
    return indexing.gather(ctx, x, indexing.positions(ctx, dims, axis), axis)


@builtin
def _places(ctx: Context, x: Tensor, axis: int) -> Tensor:
    """For each element its place along an axis."""
    return indexing.positions(ctx, x.shape, axis)


@builtin
def _half_places(ctx: Context, x: Tensor, axis: int) -> Tensor:
    """The places along an axis of a tile half as long."""
    dims = (*x.shape[:axis], x.shape[axis] // 2, *x.shape[axis + 1 :])
    return indexing.positions(ctx, dims, axis)


@builtin
def _flip_axis(ctx: Context, x: Tensor, dim: int | None) -> int:
    """The axis meant by `dim` (None: the last)."""
    rank = len(x.shape)
    return shape.check_axis(ctx, -1 if dim is None else dim, rank, "dim")


@builtin
def _after(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """Whether a stands after b when sorted: greater, or a NaN where b is none."""
    if not a.number.is_floating():
        return ctx.op("gt", a, b)
    return ctx.op("and", ctx.op("not", ctx.op("le", a, b)), ctx.op("eq", b, b))


# -- networks ------------------------------------------------------------------------------
@jit
def _exchange(x, place, distance, backward, axis: constexpr):
    """One step: each element and the one `distance` apart trade places when out of order."""
    other = gather(x, place ^ distance, axis)
    is_upper = (place & distance) != 0
    trade = where(is_upper != backward, _after(other, x), _after(x, other))
    return where(trade, other, x)


@jit
def _merge(x, place, stage, axis: constexpr, descending: constexpr):
    """Sort every run of 2**stage elements that rises, then falls; neighbours in turn backward."""
    backward = (((place >> stage) & 1) != 0) != descending
    if is_cuda():  # at a distance that is known, elements meet within a warp
        for step in static_range(stage):
            x = _exchange(x, place, 1 << (stage - 1 - step), backward, axis)
    else:
        for step in range(stage):
            x = _exchange(x, place, 1 << (stage - 1 - step), backward, axis)
    return x


@tensor_member
@jit
def sort(x, dim: constexpr = None, descending: constexpr = False):
    """The elements of `x` in order along the axis `dim` (None: the last); NaN counts as greatest.

    Equal elements may change places, which can be seen of zeros of both signs only.
    """
    axis: constexpr = _axis(x, dim)
    values = _sortable(x, axis, descending)
    place = _places(values, axis)
    if is_cuda():
        for stage in static_range(1, _stages(x, axis) + 1):
            values = _merge(values, place, stage, axis, descending)
    else:
        for stage in range(1, _stages(x, axis) + 1):
            values = _merge(values, place, stage, axis, descending)
    return _shortened(values, axis, x.shape[axis]).to(x.dtype)


@tensor_member
@jit
def topk(x, k: constexpr, dim: constexpr = None, descending: constexpr = True):
    """The k greatest elements along the axis `dim` (None: the last), greatest first.

    With `descending` False the k least, least first.  k is a power of two; NaN counts as greatest.
    """
    axis: constexpr = _axis(x, dim)
    log_k: constexpr = _log_k(x, axis, k)
    log_n: constexpr = _stages(x, axis)
    values = _sortable(x, axis, descending)
    place = _places(values, axis)
    if is_cuda():
        for stage in static_range(1, log_k + 1):
            values = _merge(values, place, stage, axis, descending)
    else:
        for stage in range(1, log_k + 1):
            values = _merge(values, place, stage, axis, descending)
    for _ in static_range(log_k, log_n):
        # Of two runs that lie side by side, one is sorted backward: the better of each pair of
        # elements are the k best of both.
        place = _half_places(values, axis)
        low = ((place >> log_k) << (log_k + 1)) | (place & (k - 1))
        first = gather(values, low, axis)
        second = gather(values, low | k, axis)
        worse = _after(second, first) if descending else _after(first, second)
        values = where(worse, second, first)
        values = _merge(values, place, log_k, axis, descending)
    return values.to(x.dtype)


@jit
def bitonic_merge(x, dim: constexpr = None, descending: constexpr = False):
    """Sort along `dim` (None: the last) what rises and then falls, or the other way round."""
    axis: constexpr = _axis(x, dim)
    values = _sortable(x, axis, descending)
    values = _merge(values, _places(values, axis), _stages(x, axis), axis, descending)
    return _shortened(values, axis, x.shape[axis]).to(x.dtype)


@tensor_member
@jit
def flip(x, dim: constexpr = None):
    """The elements along the axis `dim` (None: the last) in reverse order."""
    axis: constexpr = _flip_axis(x, dim)
    return gather(x, x.shape[axis] - 1 - _places(x, axis), axis)
