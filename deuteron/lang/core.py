"""The functions of the language: programs, tiles and their shapes, folds, debugging.

Memory access stands in `access.py`, mathematics in `math.py`, what is written in the language
itself in `standard.py` and `random.py`.  Each function may be called in a kernel only.
"""

from __future__ import annotations

import builtins
import sys
import warnings
from collections.abc import Callable
from typing import Any, TextIO

from deuteron.dtypes import DType, int1
from deuteron.lang.context import Context, builtin
from deuteron.lang.semantic import arith, casts, contract, debug, indexing, lanes, shape
from deuteron.lang.values import Operand, Scalar, Tensor, describe, tensor_member

TRITON_MAX_TENSOR_NUMEL = shape.MAX_NUMEL


# -- programs ------------------------------------------------------------------------------
@builtin
def program_id(ctx: Context, axis: int) -> Tensor:
    """The place of this program in the grid along axis 0, 1 or 2; an int32."""
    return ctx.op("program_id", axis=shape.check_grid_axis(ctx, axis))


@builtin
def num_programs(ctx: Context, axis: int) -> Tensor:
    """The size of the grid along axis 0, 1 or 2; an int32."""
    return ctx.op("num_programs", axis=shape.check_grid_axis(ctx, axis))


# -- creation ------------------------------------------------------------------------------
@builtin
def arange(ctx: Context, start: int, end: int) -> Tensor:
    """The int32 values start, …, end - 1.

    Any length will do, as for all shapes; powers of two are fastest, and what Triton asks for.
    """
    return shape.arange(ctx, start, end)


@builtin
def full(ctx: Context, shape: Any, value: Tensor | Scalar, dtype: DType) -> Tensor:
    """A tile of that shape and dtype, every element the scalar `value`."""
    return _full(ctx, shape, value, dtype)


@builtin
def zeros(ctx: Context, shape: Any, dtype: DType) -> Tensor:
    """A tile of that shape and dtype, all zero."""
    return _full(ctx, shape, 0, dtype)


@builtin
def zeros_like(ctx: Context, input: Tensor) -> Tensor:
    """A tile of the shape and dtype of `input`, all zero."""
    tensor = casts.to_tensor(ctx, input)
    return _full(ctx, tensor.shape, 0, tensor.dtype)


def _full(ctx: Context, dims: Any, value: Tensor | Scalar, dtype: object) -> Tensor:
    checked = casts.check_number_dtype(ctx, "dtype", dtype)
    return shape.full(ctx, shape.flatten_shape_args([dims]), value, checked)


@builtin
def to_tensor(ctx: Context, x: Operand) -> Tensor:
    """A number as a scalar tensor of the first dtype that holds it; a tensor as it is.

    Integers become int32, uint32, int64 or uint64, floats float32 or float64, booleans int1.
    """
    return casts.to_tensor(ctx, x)


@tensor_member
@builtin
def cast(
    ctx: Context,
    input: Operand,
    dtype: DType,
    fp_downcast_rounding: str | None = None,
    bitcast: bool = False,
) -> Tensor:
    """The elements of `input` converted to `dtype`, or its bits read as `dtype` with `bitcast`.

    `fp_downcast_rounding` is "rtne" (to nearest, ties to even; the default) or "rtz" (toward
    zero), and allowed only for casts to a narrower float.
    """
    tensor = casts.to_tensor(ctx, input)
    element = casts.check_dtype(ctx, "dtype", dtype)
    if bitcast:
        return casts.bitcast(ctx, tensor, element)
    return casts.cast(ctx, tensor, element, fp_downcast_rounding)


@tensor_member
@builtin
def to(
    ctx: Context,
    input: Operand,
    dtype: DType,
    fp_downcast_rounding: str | None = None,
    bitcast: bool = False,
) -> Tensor:
    """`x.to(dtype)`: the same as `cast`."""
    tensor = casts.to_tensor(ctx, input)
    element = casts.check_dtype(ctx, "dtype", dtype)
    if bitcast:
        return casts.bitcast(ctx, tensor, element)
    return casts.cast(ctx, tensor, element, fp_downcast_rounding)


# -- shapes --------------------------------------------------------------------------------
@builtin
def broadcast(ctx: Context, input: Operand, other: Operand) -> tuple[Tensor, ...]:
    """Both stretched to their common shape."""
    pair = (casts.to_tensor(ctx, side) for side in (input, other))
    return shape.broadcast_together(ctx, *pair)


@tensor_member
@builtin
def broadcast_to(ctx: Context, input: Operand, *shape_: Any) -> Tensor:
    """`input` stretched to a shape, given as one tuple or as separate dimensions."""
    dims = shape.check_shape(ctx, shape.flatten_shape_args(shape_))
    return shape.broadcast_to(ctx, casts.to_tensor(ctx, input), dims)


@tensor_member
@builtin
def expand_dims(ctx: Context, input: Operand, axis: Any) -> Tensor:
    """`input` with an axis of length 1 inserted at `axis` (or at each of several)."""
    return shape.expand_dims(ctx, casts.to_tensor(ctx, input), axis)


@tensor_member
@builtin
def unsqueeze(ctx: Context, input: Operand, dim: int) -> Tensor:
    """`input` with an axis of length 1 inserted at `dim`."""
    return shape.expand_dims(ctx, casts.to_tensor(ctx, input), dim)


@tensor_member
@builtin
def squeeze(ctx: Context, input: Tensor, dim: int) -> Tensor:
    """`input` without its axis `dim`, which must have length 1."""
    place = shape.check_axis(ctx, dim, len(input.shape), "dim")
    if input.shape[place] != 1:
        raise ctx.error(
            "squeeze removes axes of length 1 only",
            expected="1",
            got=str(input.shape[place]),
            remedy="reduce a longer axis, or reshape the tile",
        )
    return shape.reshape(ctx, input, input.shape[:place] + input.shape[place + 1 :])


@tensor_member
@builtin
def reshape(ctx: Context, input: Operand, *shape_: Any, can_reorder: bool = False) -> Tensor:
    """The elements of `input`, in row-major order, under another shape.

    The shape is one tuple or separate dimensions.  `can_reorder` permits another order; it is
    not made use of.
    """
    tensor = casts.to_tensor(ctx, input)
    return shape.reshape(ctx, tensor, shape.flatten_shape_args(shape_))


@tensor_member
@builtin
def view(ctx: Context, input: Operand, *shape_: Any) -> Tensor:
    """The same as `reshape`."""
    tensor = casts.to_tensor(ctx, input)
    return shape.reshape(ctx, tensor, shape.flatten_shape_args(shape_))


@tensor_member
@builtin
def ravel(ctx: Context, x: Operand, can_reorder: bool = False) -> Tensor:
    """The elements of `x`, in row-major order, as one axis."""
    tensor = casts.to_tensor(ctx, x)
    return shape.reshape(ctx, tensor, (tensor.numel,))


@tensor_member
@builtin
def item(ctx: Context, input: Tensor) -> Tensor:
    """The only element of a tile of one element, as a scalar."""
    return shape.reshape(ctx, input, ())


@tensor_member
@builtin
def permute(ctx: Context, input: Tensor, *dims: Any) -> Tensor:
    """`input` with its axes in another order: axis i of the result is axis dims[i]."""
    return shape.permute(ctx, input, shape.flatten_shape_args(dims))


@tensor_member
@builtin
def trans(ctx: Context, input: Tensor, *dims: Any) -> Tensor:
    """`input` with its last two axes swapped, or with its axes in the order `dims`."""
    order = shape.flatten_shape_args(dims)
    return shape.permute(ctx, input, order) if order else shape.transpose(ctx, input)


@builtin
def join(ctx: Context, a: Operand, b: Operand) -> Tensor:
    """`a` and `b` side by side along a new last axis of length 2; the inverse of `split`."""
    return shape.join(ctx, casts.to_tensor(ctx, a), casts.to_tensor(ctx, b))


@tensor_member
@builtin
def split(ctx: Context, a: Tensor) -> tuple[Tensor, Tensor]:
    """The two halves of a tile whose last axis has length 2; the inverse of `join`."""
    return shape.split(ctx, a)


@builtin
def interleave(ctx: Context, a: Operand, b: Operand) -> Tensor:
    """The elements of `a` and `b` in turn along the last axis, which becomes twice as long."""
    joined = shape.join(ctx, casts.to_tensor(ctx, a), casts.to_tensor(ctx, b))
    if len(joined.shape) == 1:
        return joined
    return shape.reshape(ctx, joined, (*joined.shape[:-2], 2 * joined.shape[-2]))


@builtin
def cat(
    ctx: Context, input: Tensor, other: Tensor, can_reorder: bool = False, dim: int = 0
) -> Tensor:
    """`input`, then `other`, along the axis `dim`; the other axes have one length in both."""
    return shape.cat(ctx, input, other, dim)


# -- elements by their places --------------------------------------------------------------
@tensor_member
@builtin
def gather(ctx: Context, src: Tensor, index: Tensor, axis: int) -> Tensor:
    """The elements of `src` at the places along `axis` that `index` names.

    `index` holds integers, has the shape of `src` but for its length along `axis`, and gives the
    result its shape.  A place outside of `src` gives any element.
    """
    return indexing.gather(ctx, src, index, axis)


@tensor_member
@builtin
def histogram(ctx: Context, input: Tensor, num_bins: int, mask: Operand | None = None) -> Tensor:
    """How often each of 0, …, num_bins - 1 occurs in a tile of integers of one axis, as int32.

    Other values are not counted, nor are those where the boolean `mask` is false.
    """
    return indexing.histogram(ctx, input, num_bins, mask)


# -- selection and products ----------------------------------------------------------------
@builtin
def where(ctx: Context, condition: Operand, x: Operand, y: Operand) -> Tensor:
    """x where `condition` holds, y elsewhere; all three broadcast together.

    Both sides are computed everywhere: keep lanes out of memory by the mask of `load` and `store`.
    A condition that is no int1 holds where it differs from zero, with a UserWarning.
    """
    if isinstance(condition, Tensor) and not condition.is_pointer and condition.dtype != int1:
        loc = ctx.loc
        warnings.warn_explicit(
            f"`where` got a condition of {condition.dtype}\n"
            f"  expected: int1\n  got:      {describe(condition)}\n"
            "  remedy:   compare it with something, as in `condition != 0`",
            UserWarning,
            loc.file,
            loc.line,
        )
    return arith.where(ctx, condition, x, y)


@tensor_member
@builtin
def logical_and(ctx: Context, input: Operand, other: Operand) -> Tensor:
    """Whether both differ from zero, element by element; what `and` means on tensors."""
    return arith.logical_and(ctx, input, other)


@tensor_member
@builtin
def logical_or(ctx: Context, input: Operand, other: Operand) -> Tensor:
    """Whether one of both differs from zero, element by element; what `or` means on tensors."""
    return arith.logical_or(ctx, input, other)


@builtin
def dot(
    ctx: Context,
    input: Tensor,
    other: Tensor,
    acc: Tensor | None = None,
    input_precision: str | None = None,
    allow_tf32: bool | None = None,
    max_num_imprecise_acc: int | None = None,
    out_dtype: DType | None = None,
) -> Tensor:
    """The matrix product of two tiles, plus `acc`.

    (M, K) @ (K, N), or with one batch axis in front of each.  The operands have one dtype: int8,
    uint8 (result int32), float8, float16 (float32, or float16 by `out_dtype`), bfloat16, float32
    (float32) or float64.  `input_precision` says how far float32 operands may be rounded on
    hardware that gains from it: "tf32", the default, to 10 bits of mantissa, "tf32x3" and "bf16x3"
    to about 21, "ieee" and "bf16x6" not at all.  CPUs round nothing, GPUs do as they are told.
    `max_num_imprecise_acc` is accepted and has no effect here.
    """
    return contract.dot(
        ctx,
        input,
        other,
        acc,
        input_precision=input_precision,
        allow_tf32=allow_tf32,
        out_dtype=out_dtype,
    )


# -- folds ---------------------------------------------------------------------------------
@tensor_member
@builtin
def reduce(
    ctx: Context,
    input: Any,
    axis: int | None,
    combine_fn: Callable[..., Any],
    keep_dims: bool = False,
) -> Any:
    """Fold a tile, or a tuple of tiles of one shape, along `axis` (None: all axes).

    `combine_fn` is a jit function of n left and n right scalars that gives n; it must be
    associative and commutative.  With `keep_dims` the axis stays, with length 1.
    """
    return contract.reduce(ctx, input, axis, combine_fn, keep_dims=keep_dims)


@tensor_member
@builtin
def associative_scan(
    ctx: Context,
    input: Any,
    axis: int,
    combine_fn: Callable[..., Any],
    reverse: bool = False,
) -> Any:
    """Fold each prefix of a tile, or of a tuple of tiles of one shape, along `axis`.

    `combine_fn` is a jit function as for `reduce`, and associative.  With `reverse` the prefixes
    begin at the end.
    """
    return contract.associative_scan(ctx, input, axis, combine_fn, reverse=reverse)


@builtin
def map_elementwise(
    ctx: Context, scalar_fn: Callable[..., Any], *args: Operand, pack: int = 1
) -> Any:
    """`scalar_fn`, a jit function of scalars, on every element of tiles that broadcast together.

    It may branch and loop by the values of its element; it may not touch memory.  With `pack`, a
    power of two, one call takes so many neighbours of the last axis of every tile, and gives so
    many values for every result, side by side.
    """
    return lanes.map_elementwise(ctx, scalar_fn, args, pack)


# -- hints ---------------------------------------------------------------------------------
@builtin
def multiple_of(ctx: Context, input: Operand, values: Any) -> Tensor:
    """`input`, known to be a multiple of `values`, one a dimension, where a run begins."""
    return debug.hint(ctx, "multiple_of", "divisibility", input, values)


@builtin
def max_contiguous(ctx: Context, input: Operand, values: Any) -> Tensor:
    """`input`, known to grow by one in runs of `values` elements, one number a dimension."""
    return debug.hint(ctx, "max_contiguous", "contiguity", input, values)


@builtin
def max_constancy(ctx: Context, input: Operand, values: Any) -> Tensor:
    """`input`, known to stay the same in runs of `values` elements, one number a dimension."""
    return debug.hint(ctx, "max_constancy", "constancy", input, values)


@builtin
def assume(ctx: Context, cond: Operand) -> None:
    """Let the compiler rely on a scalar condition; where it fails, anything may happen."""
    debug.assume(ctx, cond)


@builtin
def debug_barrier(ctx: Context) -> None:
    """Wait for the other threads of this program.  On a CPU a program is one thread: nothing to do.

    Nobody needs it: a program's accesses to memory happen in the order in which they are written.
    """
    if ctx.options.target == "cuda":
        ctx.builder.ops("barrier")


@builtin
def expect_zero(ctx: Context, x: Operand, mask: Operand) -> Tensor:
    """`x`, which is expected to be zero where `mask` holds.

    With `debug=True` the kernel stops with DeviceAssertionError where it is not.
    """
    return debug.expect_zero(ctx, casts.to_tensor(ctx, x), mask)


# -- debugging -----------------------------------------------------------------------------
@builtin
def static_print(
    ctx: Context,
    *values: Any,
    sep: str = " ",
    end: str = "\n",
    file: TextIO | None = None,
    flush: bool = False,
) -> None:
    """Print while the kernel is compiled, with the arguments of Python's `print`."""
    try:
        builtins.print(*values, sep=sep, end=end, file=file or sys.stdout, flush=flush)
    except (AttributeError, TypeError) as error:
        raise ctx.error(
            f"static_print failed: {error}",
            expected="an open text file as `file`",
            got=describe(file),
            remedy="leave it out for sys.stdout",
        ) from None


@builtin
def static_assert(ctx: Context, cond: Any, msg: str = "") -> None:
    """Stop the compilation with CompileTimeAssertionFailure unless `cond` holds."""
    debug.static_assert(ctx, cond, msg)


@builtin
def device_print(ctx: Context, prefix: object, *args: Operand, hex: bool = False) -> None:
    """Print tensors when the kernel runs: the prefix, the program, and each element."""
    debug.device_print(ctx, prefix, args, hex=hex)


@builtin
def device_assert(ctx: Context, cond: Operand, msg: str = "", mask: Operand | None = None) -> None:
    """Stop the kernel with DeviceAssertionError where `cond` fails and the mask does not.

    Checked only in kernels launched with `debug=True`; otherwise it costs nothing.
    """
    debug.device_assert(ctx, cond, msg, mask)
