"""Operands of functions by name: what they may be, their common dtype, and other precisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from deuteron.dtypes import DType, float32, float64
from deuteron.lang.context import Context, builtin
from deuteron.lang.semantic import arith, casts
from deuteron.lang.values import Operand, Tensor, describe
from deuteron.runtime.jit import JITFunction

Unary = Callable[[Operand], Tensor]
Binary = Callable[[Operand, Operand], Tensor]


def named(name: str, doc: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a builtin of that name."""
    function.__name__, function.__doc__ = name, doc
    return builtin(function)


def call(ctx: Context, function: JITFunction, *args: object) -> Tensor:
    """The tensor that kernels' code gives, whose arithmetic is rounded operation by operation."""
    with ctx.ieee_arithmetic():
        return cast(Tensor, ctx.call_jit(function, args, {}))


def together(ctx: Context, name: str, operands: Sequence[Operand]) -> list[Tensor]:
    """Numbers in their common dtype and of one shape."""
    anchor = next((o for o in operands if isinstance(o, Tensor)), operands[0])
    for operand in operands:
        anchor, _ = arith.numbers(ctx, name, anchor, operand)
    return [arith.numbers(ctx, name, anchor, operand)[1] for operand in operands]


def floats(ctx: Context, name: str, *operands: Operand) -> list[Tensor]:
    """Floats in their common dtype and of one shape; whole numbers count as floats."""
    plain = [float(o) if isinstance(o, int) else o for o in operands]
    tensors = together(ctx, name, plain)
    arith.require_float(ctx, name, tensors[0])
    return tensors


def precise(ctx: Context, name: str, *operands: Operand) -> list[Tensor]:
    """Like `floats`, of float32 or float64 alone."""
    tensors = floats(ctx, name, *operands)
    if tensors[0].number not in (float32, float64):
        raise wrong_dtype(ctx, name, tensors[0], (float32, float64))
    return tensors


def integers(ctx: Context, name: str, wanted: Sequence[DType], *operands: Operand) -> list[Tensor]:
    """Integers of one shape, in their common dtype, which must be one of those wanted."""
    tensors = together(ctx, name, operands)
    if tensors[0].number not in wanted:
        raise wrong_dtype(ctx, name, tensors[0], wanted)
    return tensors


def exactly(ctx: Context, name: str, x: Operand, dtype: DType) -> Tensor:
    """A number of one dtype; a Python number takes it on."""
    if not isinstance(x, Tensor):
        return casts.constant(ctx, x, dtype)
    if x.dtype != dtype:
        raise wrong_dtype(ctx, name, x, (dtype,))
    return x


def wrong_dtype(ctx: Context, name: str, x: Tensor, wanted: Sequence[DType]) -> Exception:
    """The error of an operand of another dtype."""
    *most, last = map(str, wanted)
    return ctx.error(
        f"{name} is not defined on {x.dtype}",
        expected=f"{', '.join(most)} or {last}" if most else last,
        got=describe(x),
        remedy=f"cast first, as in x.to(tl.{wanted[0]})",
    )


def in_float64(name: str, doc: str, function: JITFunction, arity: int = 1) -> Callable[..., Any]:
    """A function of floats that is computed in float64 and rounded once to its operands' dtype."""

    def compute(ctx: Context, *operands: Operand) -> Tensor:
        tensors = floats(ctx, name, *operands)
        wide = [casts.cast(ctx, t, float64) for t in tensors]
        return casts.cast(ctx, call(ctx, function, *wide), tensors[0].number)

    def one(ctx: Context, x: Operand) -> Tensor:
        return compute(ctx, x)

    def two(ctx: Context, x: Operand, y: Operand) -> Tensor:
        return compute(ctx, x, y)

    def three(ctx: Context, x: Operand, y: Operand, z: Operand) -> Tensor:
        return compute(ctx, x, y, z)

    def four(ctx: Context, x: Operand, y: Operand, z: Operand, w: Operand) -> Tensor:
        return compute(ctx, x, y, z, w)

    return named(name, doc, (one, two, three, four)[arity - 1])
