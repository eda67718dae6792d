"""Operations that fold axes: matrix products, reductions and scans."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import cast as typing_cast

from deuteron.dtypes import DType, bfloat16, float16, float32, float64, int8, int32, uint8
from deuteron.ir.nodes import Block, For, If, Op, While
from deuteron.ir.optable import OPS
from deuteron.ir.unused import drop_unused
from deuteron.lang.context import Context
from deuteron.lang.semantic.casts import check_number_dtype, constant, to_tensor
from deuteron.lang.semantic.lanes import Lanes
from deuteron.lang.semantic.shape import check_axis, expand_dims, reshape, splat
from deuteron.lang.values import Tensor, describe, unwrap

INPUT_PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")
_DOT_DTYPES = (int8, uint8, float16, bfloat16, float32, float64)


# -- dot -----------------------------------------------------------------------------------
def dot(
    ctx: Context,
    a: object,
    b: object,
    acc: object,
    *,
    input_precision: str | None,
    allow_tf32: bool | None,
    out_dtype: object,
) -> Tensor:
    """a @ b + acc over the last two axes of tiles; axes in front of them are batches."""
    left, right = _dot_operands(ctx, a, b)
    precision = _input_precision(ctx, input_precision, allow_tf32)
    shape = (*left.shape[:-1], right.shape[-1])
    wanted = acc.dtype if out_dtype is None and isinstance(acc, Tensor) else out_dtype
    dtype = _dot_dtype(ctx, left.number, wanted)
    if acc is None:
        start = splat(ctx, constant(ctx, 0, dtype), shape)
    else:
        start = _accumulator(ctx, acc, shape, dtype)
    if len(shape) <= 3:
        return ctx.op("dot", left, right, start, input_precision=precision)
    folded = [reshape(ctx, x, (prod(x.shape[:-2]), *x.shape[-2:])) for x in (left, right, start)]
    return reshape(ctx, ctx.op("dot", *folded, input_precision=precision), shape)


def _dot_operands(ctx: Context, a: object, b: object) -> tuple[Tensor, Tensor]:
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)) or a.is_pointer or b.is_pointer:
        raise ctx.error(
            "dot needs two tiles of numbers",
            expected="tiles of numbers",
            got=f"{describe(a)} and {describe(b)}",
            remedy="load the tiles before multiplying them",
        )
    _check_dot_dtypes(ctx, a, b)
    if len(a.shape) != len(b.shape) or len(a.shape) < 2:
        raise ctx.error(
            "dot needs two tiles of as many axes, two at least",
            expected="shapes (M, K) and (K, N), or with the same batch axes in front of each",
            got=f"shapes {a.shape} and {b.shape}",
            remedy="add axes with x[:, None] or reshape",
        )
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        batch = "the same batch, and " if len(a.shape) > 2 else ""
        raise ctx.error(
            "the shapes of dot do not fit",
            expected=f"{batch}as many columns in the first as rows in the second",
            got=f"{a.shape} @ {b.shape}",
            remedy="transpose one side with tl.trans, or check the block sizes",
        )
    return a, b


def _check_dot_dtypes(ctx: Context, a: Tensor, b: Tensor) -> None:
    both_fp8 = a.number.is_fp8() and b.number.is_fp8()
    if both_fp8 or (a.dtype == b.dtype and a.dtype in _DOT_DTYPES):
        return
    same = a.dtype == b.dtype
    raise ctx.error(
        f"dot is not defined on {a.dtype}" if same else "the dtypes of dot differ",
        expected="both int8, uint8, float8, float16, bfloat16, float32 or float64",
        got=f"{a.dtype} and {b.dtype}",
        remedy="cast one side with .to(...)",
    )


def _input_precision(ctx: Context, precision: str | None, allow_tf32: bool | None) -> str:
    if precision is None:
        return "ieee" if allow_tf32 is False else "tf32"
    if allow_tf32 is not None:
        raise ctx.error(
            "dot got both input_precision and allow_tf32",
            expected="one of them",
            got="both",
            remedy="leave allow_tf32 out; it is the older spelling",
        )
    if precision.lower() not in INPUT_PRECISIONS:
        raise ctx.error(
            "unknown input_precision",
            expected=", ".join(map(repr, INPUT_PRECISIONS)),
            got=repr(precision),
            remedy='leave it out for "tf32"',
        )
    return precision.lower()


def _dot_dtype(ctx: Context, operand: DType, wanted: object) -> DType:
    """The dtype of the result: what the operands allow, the first being the default."""
    if operand.is_int():
        if wanted is not None:
            check_number_dtype(ctx, "out_dtype", wanted)
        return int32  # whatever is asked for, as in Triton
    allowed: tuple[DType, ...]
    if operand == float64:
        allowed = (float64,)
    elif operand in (float32, bfloat16):
        allowed = (float32,)
    else:
        allowed = (float32, float16)
    if wanted is None:
        return allowed[0]
    dtype = check_number_dtype(ctx, "out_dtype", wanted)
    if dtype in allowed:
        return dtype
    # float32 is the default of the original language, also where it cannot be meant.
    if dtype == float32:
        return allowed[0]
    raise ctx.error(
        f"dot of {operand} cannot give {dtype}",
        expected=" or ".join(map(str, allowed)),
        got=str(dtype),
        remedy=f"accumulate in {allowed[0]} and cast the result with .to({dtype})",
    )


def _accumulator(ctx: Context, acc: object, shape: tuple[int, ...], dtype: DType) -> Tensor:
    if isinstance(acc, Tensor) and acc.shape == shape and acc.dtype == dtype:
        return acc
    raise ctx.error(
        "the accumulator of dot does not fit",
        expected=f"a tile of {dtype}, shape {shape}",
        got=describe(acc),
        remedy=f"start from tl.zeros({shape}, tl.{dtype})",
    )


# -- reductions and scans ------------------------------------------------------------------
def reduce(
    ctx: Context, operands: object, axis: object, combine: object, *, keep_dims: bool = False
) -> Tensor | tuple[Tensor, ...]:
    """Fold a tile, or several of one shape together, along an axis (None: all of them).

    `combine` takes n left and n right scalars and gives n; it must be associative and commutative.
    """
    tensors = _fold_operands(ctx, "a reduction", operands)
    rank = len(tensors[0].shape)
    if axis is None:
        tensors = [reshape(ctx, t, (t.numel,)) for t in tensors]
        place = 0
    else:
        place = check_axis(ctx, axis, rank)
    block = _combine_block(ctx, "reduce", tensors, combine)
    results = ctx.builder.reduce([t.handle for t in tensors], place, block)
    folded = [Tensor(r) for r in results]
    if keep_dims:
        kept = place if axis is not None else list(range(rank))
        folded = [expand_dims(ctx, t, kept) for t in folded]
    return folded[0] if isinstance(operands, Tensor) else tuple(folded)


def associative_scan(
    ctx: Context, operands: object, axis: object, combine: object, *, reverse: bool = False
) -> Tensor | tuple[Tensor, ...]:
    """Inclusive prefix folds along an axis, from the end when `reverse`."""
    tensors = _fold_operands(ctx, "a scan", operands)
    place = check_axis(ctx, axis, len(tensors[0].shape))
    block = _combine_block(ctx, "associative_scan", tensors, combine)
    results = ctx.builder.scan([t.handle for t in tensors], place, block, reverse=reverse)
    scanned = tuple(Tensor(r) for r in results)
    return scanned[0] if isinstance(operands, Tensor) else scanned


def _fold_operands(ctx: Context, name: str, operands: object) -> list[Tensor]:
    items = [operands]
    if isinstance(operands, (tuple, list)):
        items = list(typing_cast("Sequence[object]", operands))
    tensors = [t for t in items if isinstance(t, Tensor) and t.shape]
    if not items or len(tensors) != len(items):
        got = ", ".join(describe(i) for i in items) or "an empty tuple"
        raise ctx.error(
            f"{name} needs a tile",
            expected="a tile of one axis or more",
            got=got,
            remedy="a scalar needs no folding; make a tile with tl.arange, tl.full or tl.load",
        )
    if len({t.shape for t in tensors}) > 1:
        raise ctx.error(
            f"{name} needs tiles of one shape",
            expected="equal shapes",
            got=", ".join(str(t.shape) for t in tensors),
            remedy="stretch them first, with tl.broadcast_to",
        )
    return tensors


def _check_arity(ctx: Context, name: str, operands: int, combine: object) -> None:
    """A combine function must have a parameter for each left and each right scalar."""
    parameters: Sequence[str] | None = getattr(combine, "arg_names", None)
    if parameters is not None and len(parameters) < operands:
        variadic = any(p.variadic for p in getattr(combine, "params", ()))
        if not variadic:
            raise ctx.error(
                f"the combine function of {name} has too few parameters",
                expected=f"{operands}: a left and a right one for each tile",
                got=f"{len(parameters)} of {describe(combine)}",
                remedy="write a function such as `def combine(left, right)`",
            )


def _combine_block(ctx: Context, name: str, tensors: Sequence[Tensor], combine: object) -> Block:
    """The combine function as a block over scalars."""
    builder = ctx.builder
    scalars = [t.handle.type.scalar for t in tensors]
    _check_arity(ctx, name, 2 * len(scalars), combine)
    loc = builder.loc
    args = builder.open(scalars * 2)
    outcome = unwrap(ctx.call(combine, [Tensor(a) for a in args], {}))
    items = typing_cast("tuple[object, ...]", outcome) if isinstance(outcome, tuple) else (outcome,)
    results = [to_tensor(ctx, item) for item in items]
    builder.loc = loc
    block = builder.close([r.handle for r in results])
    drop_unused(block)
    if any(isinstance(node, (If, For, While)) for node in block.nodes):
        block = _without_branches(ctx, name, block)
    got = [r.handle.type for r in results]
    if got != scalars:
        raise ctx.error(
            f"the combine function of {name} gives other types than it takes",
            expected=", ".join(map(str, scalars)),
            got=", ".join(map(str, got)),
            remedy="cast in the combine function, or cast the tile before",
        )
    _check_pure(ctx, name, block)
    return block


def _without_branches(ctx: Context, name: str, block: Block) -> Block:
    """The same with `select` for `if`."""
    if any(isinstance(node, (For, While)) for node in block.nodes):
        _check_pure(ctx, name, block)
    loc = ctx.builder.loc
    args = ctx.builder.open([a.type for a in block.args])
    yields = Lanes(ctx, (), name).run(block, args)
    ctx.builder.loc = loc
    return ctx.builder.close(yields)


def _check_pure(ctx: Context, name: str, block: Block) -> None:
    for node in block.nodes:
        if isinstance(node, Op) and (node.name == "const" or OPS[node.name].elementwise):
            continue
        what = node.name if isinstance(node, Op) else type(node).__name__.lower()
        raise ctx.error(
            f"the combine function of {name} does more than arithmetic",
            expected="elementwise operations on its arguments",
            got=f"`{what}`",
            remedy="choose with tl.where instead of `if`, and keep memory access outside",
        )
