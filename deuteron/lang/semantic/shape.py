"""Making tiles and changing their shapes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import cast as typing_cast

from deuteron.dtypes import DType
from deuteron.lang.context import Context
from deuteron.lang.semantic.casts import bits_constant, cast
from deuteron.lang.values import Scalar, Tensor, describe

MAX_NUMEL = 1 << 20
CONSTEXPR = "annotate the name it comes from with tl.constexpr"

Shape = tuple[int, ...]


# -- checks --------------------------------------------------------------------------------
def check_shape(ctx: Context, shape: Sequence[object]) -> Shape:
    """The shape as a tuple of positive ints, at most MAX_NUMEL elements in all."""
    dims = [_check_dim(ctx, dim) for dim in shape]
    return _check_numel(ctx, tuple(dims))


def _check_dim(ctx: Context, dim: object) -> int:
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise ctx.error(
            "a dimension of a shape is not known at compile time",
            expected="an integer constant",
            got=describe(dim),
            remedy=CONSTEXPR if isinstance(dim, Tensor) else "divide sizes with `//`",
        )
    if dim <= 0:
        raise ctx.error(
            "a dimension of a shape is not positive",
            expected="1 or more",
            got=str(dim),
            remedy="check how it is computed",
        )
    check_length(ctx, dim)
    return dim


def check_length(ctx: Context, length: int) -> None:
    """Refuse what is no power of two in kernels that must stay Triton's."""
    if length & (length - 1):
        ctx.beyond_triton(
            f"an axis of {length} elements",
            "round up with next_power_of_2 and mask the lanes that are too many",
        )


def _check_numel(ctx: Context, shape: Shape) -> Shape:
    if prod(shape) > MAX_NUMEL:
        raise ctx.error(
            "a tile is too large",
            expected=f"at most {MAX_NUMEL:,} elements",
            got=f"{prod(shape):,} in shape {shape}",
            remedy="use smaller blocks and more programs, or a loop",
        )
    return shape


def check_axis(ctx: Context, axis: object, rank: int, what: str = "axis") -> int:
    """The axis counted from the front."""
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise ctx.error(
            f"`{what}` is not an integer constant",
            expected="an axis known at compile time",
            got=describe(axis),
            remedy=CONSTEXPR if isinstance(axis, Tensor) else "axes are counted by integers",
        )
    if not -rank <= axis < rank:
        expected = f"{-rank} to {rank - 1}" if rank else "no axis: the value is a scalar"
        raise ctx.error(
            f"`{what}` is out of range",
            expected=expected,
            got=str(axis),
            remedy="axes count from 0 at the front, or from -1 at the end",
            cause=f"invalid axis {axis}. Expected {-rank} <= axis < {rank}",
        )
    return axis % rank


def check_grid_axis(ctx: Context, axis: object) -> int:
    """The axis of a grid: 0, 1 or 2."""
    if isinstance(axis, bool) or not isinstance(axis, int) or axis not in (0, 1, 2):
        raise ctx.error(
            "this is no axis of the grid",
            expected="0, 1 or 2",
            got=describe(axis),
            remedy=CONSTEXPR if isinstance(axis, Tensor) else "split an axis with // and %",
            cause=f"program_id axis must be 0, 1, or 2 but got {axis}",
        )
    return axis


def flatten_shape_args(args: Sequence[object]) -> list[object]:
    """Shapes may be given as one sequence or as separate arguments."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        return list(typing_cast("Sequence[object]", args[0]))
    return list(args)


# -- creation ------------------------------------------------------------------------------
def arange(ctx: Context, start: object, end: object) -> Tensor:
    """The int32 values start, …, end - 1."""
    for bound in (start, end):
        if isinstance(bound, bool) or not isinstance(bound, int):
            raise ctx.error(
                "the bounds of arange must be known at compile time",
                expected="integer constants",
                got=describe(bound),
                remedy=(
                    "annotate the name with tl.constexpr, as in `BLOCK: tl.constexpr`"
                    if isinstance(bound, Tensor)
                    else "pass integers; `//` divides them"
                ),
            )
    first, last = typing_cast(int, start), typing_cast(int, end)
    if last <= first:
        raise ctx.error(
            "arange is empty",
            expected="end > start",
            got=f"arange({first}, {last})",
            remedy="exchange the bounds, or correct them",
        )
    if not -(2**31) <= first < last <= 2**31:
        raise ctx.error(
            "arange does not fit int32",
            expected="bounds between -2**31 and 2**31",
            got=f"arange({first}, {last})",
            remedy="start at 0, and add an int64",
        )
    length = last - first
    check_length(ctx, length)
    _check_numel(ctx, (length,))
    return ctx.op("arange", start=first, end=last)


def full(ctx: Context, shape: Sequence[object], value: Tensor | Scalar, dtype: DType) -> Tensor:
    """A tile of one scalar value; shape () gives a scalar."""
    checked = check_shape(ctx, shape)
    if isinstance(value, Tensor):
        if value.numel != 1:
            raise ctx.error(
                "full needs a scalar value",
                expected="a number, or a scalar tensor",
                got=describe(value),
                remedy="stretch a tile with tl.broadcast_to",
            )
        scalar = cast(ctx, reshape(ctx, value, ()), dtype)
    else:
        scalar = bits_constant(ctx, value, dtype)
    return splat(ctx, scalar, checked)


# -- broadcasting --------------------------------------------------------------------------
def splat(ctx: Context, x: Tensor, shape: Shape) -> Tensor:
    """A scalar in every element of a tile."""
    return ctx.op("splat", x, shape=shape) if shape else x


def broadcast_to(ctx: Context, x: Tensor, shape: Shape) -> Tensor:
    """Stretch `x` to `shape`: a scalar to anything, a tile along its axes of length 1."""
    if x.shape == shape:
        return x
    if not x.shape:
        return splat(ctx, x, shape)
    fits = len(x.shape) == len(shape) and all(
        have in (1, want) for have, want in zip(x.shape, shape, strict=True)
    )
    if not fits:
        raise ctx.error(
            "a tile cannot be broadcast to this shape",
            expected="the same rank, and each dimension equal or 1 in the tile",
            got=f"{x.shape} to {shape}",
            remedy="insert the missing axes with x[:, None] or x[None, :]",
        )
    return ctx.op("broadcast", x, shape=shape)


def common_shape(ctx: Context, *tensors: Tensor, names: Sequence[str] = ()) -> Shape:
    """The shape all broadcast to; a lower rank counts as having axes of length 1 in front.

    `names` tell an error what each tensor is for.
    """
    rank = max(len(t.shape) for t in tensors)
    padded = [(1,) * (rank - len(t.shape)) + t.shape for t in tensors]
    shape: list[int] = []
    for axis, dims in enumerate(zip(*padded, strict=True)):
        if len({d for d in dims if d != 1}) > 1:
            raise ctx.error(
                "shapes do not broadcast",
                expected="dimensions that are equal, or 1 on one side",
                got=f"{_named_shapes(tensors, names)}, which differ in axis {axis}",
                remedy="insert axes of length 1 with x[:, None] or x[None, :]",
            )
        shape.append(max(dims))
    return _check_numel(ctx, tuple(shape))


def stretch(ctx: Context, x: Tensor, shape: Shape) -> Tensor:
    """Broadcast to `shape`, with axes of length 1 put in front of a lower rank."""
    if x.shape:
        for _ in range(len(shape) - len(x.shape)):
            x = ctx.op("expand_dims", x, axis=0)
    return broadcast_to(ctx, x, shape)


def _named_shapes(tensors: Sequence[Tensor], names: Sequence[str]) -> str:
    if not names:
        return " and ".join(str(t.shape) for t in tensors)
    shown = zip(names, tensors, strict=False)
    return " and ".join(f"{name} {t.shape}" for name, t in shown)


def broadcast_together(
    ctx: Context, *tensors: Tensor, names: Sequence[str] = ()
) -> tuple[Tensor, ...]:
    """All stretched to their common shape; `names` are as for `common_shape`."""
    if len({t.shape for t in tensors}) == 1:
        return tensors
    shape = common_shape(ctx, *tensors, names=names)
    return tuple(stretch(ctx, t, shape) for t in tensors)


# -- shape changes -------------------------------------------------------------------------
def reshape(ctx: Context, x: Tensor, shape: Sequence[object]) -> Tensor:
    """The same elements in row-major order under another shape; () makes a scalar."""
    checked = check_shape(ctx, shape)
    if checked == x.shape:
        return x
    if prod(checked) != x.numel:
        raise ctx.error(
            "reshape cannot change the number of elements",
            expected=f"{x.numel} elements, as in {x.shape}",
            got=f"{prod(checked)} in {checked}",
            remedy="correct the shape, or stretch with tl.broadcast_to",
        )
    return ctx.op("reshape", x, shape=checked) if x.shape else splat(ctx, x, checked)


def expand_dims(ctx: Context, x: Tensor, axis: object) -> Tensor:
    """Insert axes of length 1; `axis` counts in the result."""
    if isinstance(axis, (tuple, list)):
        axes: list[object] = list(typing_cast("Sequence[object]", axis))
    else:
        axes = [axis]
    rank = len(x.shape) + len(axes)
    checked = sorted(check_axis(ctx, a, rank) for a in axes)
    if len(set(checked)) != len(checked):
        raise ctx.error(
            "expand_dims got an axis twice",
            expected="different axes",
            got=str(checked),
            remedy="axes count in the result",
            cause=f"expand_dims received duplicate axes, normalized axes = {checked}",
        )
    for place in checked:
        x = ctx.op("expand_dims", x, axis=place) if x.shape else splat(ctx, x, (1,))
    return x


def permute(ctx: Context, x: Tensor, order: Sequence[object]) -> Tensor:
    """Reorder the axes: axis i of the result is axis order[i] of `x`."""
    rank = len(x.shape)
    checked = tuple(check_axis(ctx, axis, rank) for axis in order)
    if sorted(checked) != list(range(rank)):
        raise ctx.error(
            "the order is no permutation of the axes",
            expected=f"each of {list(range(rank))} once",
            got=str(list(order)),
            remedy="name every axis; tl.trans without an order swaps the last two",
        )
    return ctx.op("permute", x, order=checked)


def transpose(ctx: Context, x: Tensor) -> Tensor:
    """Swap the last two axes."""
    rank = len(x.shape)
    if rank < 2:
        raise ctx.error(
            "only a tile of two or more axes can be transposed",
            expected="two axes or more",
            got=describe(x),
            remedy="make a row or a column of it with x[None, :] or x[:, None]",
        )
    return permute(ctx, x, (*range(rank - 2), rank - 1, rank - 2))


def join(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """Both along a new last axis of length 2."""
    _check_same_element(ctx, "join", a, b)
    a, b = broadcast_together(ctx, a, b)
    _check_numel(ctx, (*a.shape, 2))
    return ctx.op("join", a, b)


def split(ctx: Context, x: Tensor) -> tuple[Tensor, Tensor]:
    """The halves of a tile whose last axis has length 2."""
    if x.shape[-1:] != (2,):
        raise ctx.error(
            "split needs a last axis of length 2",
            expected="a shape (…, 2)",
            got=describe(x),
            remedy="reshape it first",
        )
    left, right = ctx.builder.ops("split", x.handle)
    return Tensor(left), Tensor(right)


def cat(ctx: Context, a: Tensor, b: Tensor, axis: object) -> Tensor:
    """One after the other along `axis`."""
    _check_same_element(ctx, "cat", a, b)
    place = check_axis(ctx, axis, len(a.shape), "dim")
    rest = [(*t.shape[:place], *t.shape[place + 1 :]) for t in (a, b)]
    if len(a.shape) != len(b.shape) or rest[0] != rest[1]:
        raise ctx.error(
            "cat needs tiles that differ in length along one axis at most",
            expected=f"{a.shape}, of any length along axis {place}",
            got=str(b.shape),
            remedy="stretch one of them with tl.broadcast_to, or reshape it",
        )
    length = a.shape[place] + b.shape[place]
    check_length(ctx, length)
    _check_numel(ctx, (*a.shape[:place], length, *a.shape[place + 1 :]))
    return ctx.op("cat", a, b, axis=place)


def _check_same_element(ctx: Context, name: str, a: Tensor, b: Tensor) -> None:
    if a.dtype != b.dtype:
        raise ctx.error(
            f"{name} needs one dtype",
            expected=str(a.dtype),
            got=str(b.dtype),
            remedy=(
                f"cast the second with .to(tl.{a.dtype})"
                if isinstance(a.dtype, DType) and isinstance(b.dtype, DType)
                else "load what pointers point to first, with tl.load"
            ),
        )
