"""Elements of a tile chosen by their places: brackets, gathers and histograms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from typing import cast as typing_cast

from deuteron.dtypes import DType, int1
from deuteron.ir.types import Pointer
from deuteron.lang.context import Context
from deuteron.lang.semantic.arith import LOAD_FIRST, add, mul
from deuteron.lang.semantic.casts import to_tensor
from deuteron.lang.semantic.shape import (
    arange,
    broadcast_to,
    check_axis,
    check_length,
    check_shape,
    expand_dims,
    reshape,
)
from deuteron.lang.values import Operand, Tensor, describe


def positions(ctx: Context, dims: tuple[int, ...], axis: int) -> Tensor:
    """For each element of a tile of that shape its place along the axis."""
    line = tuple(n if i == axis else 1 for i, n in enumerate(dims))
    return broadcast_to(ctx, reshape(ctx, arange(ctx, 0, dims[axis]), line), dims)


# -- brackets ------------------------------------------------------------------------------
def subscript(ctx: Context, x: Tensor, items: Sequence[object]) -> Tensor:
    """`x[:, None]`: each `:` keeps an axis, each None inserts one, … keeps the rest.

    A slice with constant bounds takes a part of an axis, an integer one element of it; counted
    from the end when negative and constant.  An integer known when the kernel runs must lie in the
    axis, or any element is taken.  A scalar has no axes: each `:` of its brackets is nothing.
    """
    if not x.shape:
        items = [item for item in items if item != slice(None)]
    named = sum(item is not None and item is not Ellipsis for item in items)
    expanded: list[object] = []
    for item in items:
        expanded += [slice(None)] * (len(x.shape) - named) if item is Ellipsis else [item]
    if sum(item is not None for item in expanded) > len(x.shape):
        raise ctx.error(
            "unsupported tensor index: too many axes in the brackets",
            expected=f"{len(x.shape)} at most",
            got=f"{sum(item is not None for item in expanded)} for {describe(x)}",
            remedy=(
                "read memory with tl.load(pointer + offset)"
                if isinstance(x.dtype, Pointer)
                else "insert axes with None"
            ),
        )
    place = 0
    for item in expanded:
        if item is None:
            x = expand_dims(ctx, x, place)
        elif isinstance(item, slice):
            x = _part(ctx, x, place, typing_cast(Any, item))
        else:
            x = _one(ctx, x, place, item)
            continue
        place += 1
    return x


def _part(ctx: Context, x: Tensor, axis: int, part: Any) -> Tensor:
    """Some elements along an axis, by constant bounds."""
    if part == slice(None):
        return x
    ctx.beyond_triton("a slice of a tile", "load the part from memory")
    bounds: tuple[object, ...] = (part.start, part.stop, part.step)
    for bound in bounds:
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int)):
            raise ctx.error(
                "a slice of a tile needs bounds known at compile time",
                expected="integer constants",
                got=describe(bound),
                remedy="annotate the name with tl.constexpr, or use tl.gather",
            )
    places = range(*part.indices(x.shape[axis])) if part.step != 0 else range(0)
    if not places:
        raise ctx.error(
            "a slice takes nothing",
            expected=f"bounds that meet the {x.shape[axis]} elements of axis {axis}",
            got=":".join("" if bound is None else str(bound) for bound in bounds).removesuffix(":"),
            remedy="correct the bounds; they are Python's",
        )
    dims = (*x.shape[:axis], len(places), *x.shape[axis + 1 :])
    check_length(ctx, len(places))
    index = positions(ctx, dims, axis)
    if places.step != 1:
        index = mul(ctx, index, places.step)
    return ctx.op("gather", x, add(ctx, index, places.start), axis=axis)


def _one(ctx: Context, x: Tensor, axis: int, item: object) -> Tensor:
    """One element along an axis, which is dropped."""
    ctx.beyond_triton("an element of a tile", "load it from memory, or reduce tl.where(...)")
    length = x.shape[axis]
    if isinstance(item, int) and not isinstance(item, bool):
        if not -length <= item < length:
            raise ctx.error(
                "there is no such element",
                expected=f"{-length} to {length - 1}, along axis {axis}",
                got=str(item),
                remedy="correct the index",
            )
        item = to_tensor(ctx, item % length)
    scalar = isinstance(item, Tensor) and not item.shape and not item.is_pointer
    if not isinstance(item, Tensor) or not scalar or not item.number.is_int():
        raise ctx.error(
            "a tile cannot be indexed by this",
            expected="`:`, `...`, None, integers, and slices with constant bounds",
            got=describe(item),
            remedy="choose elements by a tile of indices with tl.gather",
        )
    dims = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    taken = ctx.op("gather", x, broadcast_to(ctx, item, dims), axis=axis)
    return reshape(ctx, taken, (*dims[:axis], *dims[axis + 1 :]))


# -- ops -----------------------------------------------------------------------------------
def gather(ctx: Context, source: Tensor, index: Tensor, axis: object) -> Tensor:
    """`source`'s elements at the places along `axis` that `index` names.

    An index out of range gives any element.
    """
    place = check_axis(ctx, axis, len(source.shape))
    _check_integers(ctx, "the index of gather", index)
    if len(index.shape) != len(source.shape):
        raise ctx.error(
            "gather needs an index of the source's rank",
            expected=f"{len(source.shape)} axes, as in {source.shape}",
            got=f"{len(index.shape)} in {index.shape}",
            remedy="insert axes with index[:, None], and stretch it with tl.broadcast_to",
        )
    wanted = (*source.shape[:place], index.shape[place], *source.shape[place + 1 :])
    if index.shape != wanted:
        raise ctx.error(
            "the index of gather does not fit the source",
            expected=f"{wanted}: the source's shape, of any length along axis {place}",
            got=str(index.shape),
            remedy="stretch the index with tl.broadcast_to",
        )
    return ctx.op("gather", source, index, axis=place)


def histogram(ctx: Context, values: Tensor, bins: object, mask: Operand | None) -> Tensor:
    """How often 0, …, bins - 1 occur in a tile of one axis; what the mask leaves out, never."""
    _check_integers(ctx, "the values of a histogram", values)
    if len(values.shape) != 1:
        raise ctx.error(
            "a histogram counts a tile of one axis",
            expected="one axis",
            got=describe(values),
            remedy="flatten it with tl.ravel",
        )
    (count,) = check_shape(ctx, [bins])
    operands = [values]
    if mask is not None:
        chosen = to_tensor(ctx, mask)
        if chosen.dtype != int1:
            raise ctx.error(
                "the mask of a histogram is not boolean",
                expected="a comparison, such as offsets < n",
                got=describe(chosen),
                remedy="compare it with 0: mask != 0",
            )
        operands.append(broadcast_to(ctx, chosen, values.shape))
    return ctx.op("histogram", *operands, bins=count)


def _check_integers(ctx: Context, what: str, x: Tensor) -> None:
    dtype = x.dtype
    if isinstance(dtype, DType) and dtype.is_int():
        return
    raise ctx.error(
        f"{what} must be integers",
        expected="a tile of integers",
        got=describe(x),
        remedy=LOAD_FIRST if x.is_pointer else "cast it first, as in x.to(tl.int32)",
    )
