"""Elements of a tile chosen by their places: gathers and histograms."""

from __future__ import annotations

from deuteron.dtypes import DType, int1
from deuteron.lang.context import Context
from deuteron.lang.semantic.arith import LOAD_FIRST
from deuteron.lang.semantic.casts import to_tensor
from deuteron.lang.semantic.shape import arange, broadcast_to, check_axis, check_shape, reshape
from deuteron.lang.values import Operand, Tensor, describe


def positions(ctx: Context, dims: tuple[int, ...], axis: int) -> Tensor:
    """For each element of a tile of that shape its place along the axis."""
    line = tuple(n if i == axis else 1 for i, n in enumerate(dims))
    return broadcast_to(ctx, reshape(ctx, arange(ctx, 0, dims[axis]), line), dims)


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
    _check_integers(ctx, "a histogram", values)
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
