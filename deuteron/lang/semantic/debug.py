"""Prints, assertions and hints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast as typing_cast

from deuteron.errors import CompileTimeAssertionFailure
from deuteron.ir.types import Pointer
from deuteron.lang.context import Context
from deuteron.lang.semantic.arith import truth
from deuteron.lang.semantic.casts import to_tensor
from deuteron.lang.semantic.shape import broadcast_together
from deuteron.lang.values import Operand, Tensor, describe


def device_print(ctx: Context, prefix: object, values: Sequence[object], *, hex: bool) -> None:
    """Print tensors when the kernel runs, each element with its program and place."""
    if not isinstance(prefix, str) or not _is_plain(prefix):
        raise ctx.error(
            "the first argument of device_print is no plain ASCII string",
            expected="a label",
            got=describe(prefix),
            remedy='give a label first: device_print("x", x)',
        )
    tensors = [to_tensor(ctx, v) for v in values]
    shown = [ctx.op("ptr_to_int", t) if isinstance(t.dtype, Pointer) else t for t in tensors]
    label = prefix.strip()
    if shown and not label.endswith(":"):
        label += ":"
    ctx.builder.ops("print", *(t.handle for t in shown), prefix=label, hex=hex)


def _is_plain(text: str) -> bool:
    return all(c.isascii() and (c.isprintable() or c.isspace()) for c in text)


def device_assert(ctx: Context, condition: Operand, message: object, mask: Operand | None) -> None:
    """Stop the kernel where the condition fails; nothing is built unless the launch has debug."""
    if not isinstance(message, str):
        raise ctx.error(
            "the message of device_assert is no string",
            expected="a string",
            got=describe(message),
            remedy="print values with tl.device_print",
        )
    if not ctx.options.debug:
        return
    operands = [truth(ctx, to_tensor(ctx, condition))]
    if mask is not None:
        operands.append(truth(ctx, to_tensor(ctx, mask)))
    stretched = broadcast_together(ctx, *operands)
    ctx.builder.ops("assert", *(t.handle for t in stretched), message=message)


def expect_zero(ctx: Context, x: Tensor, mask: Operand) -> Tensor:
    """`x`; with debug, the kernel stops where it is not zero and the mask holds."""
    if ctx.options.debug:
        is_zero = ctx.op("not", truth(ctx, x))
        outside = ctx.op("not", truth(ctx, to_tensor(ctx, mask)))
        holds = ctx.op("or", *broadcast_together(ctx, is_zero, outside))
        device_assert(ctx, holds, "expect_zero: x is not 0 where the mask holds", None)
    return x


def static_assert(ctx: Context, condition: object, message: object) -> None:
    """Fail the compilation unless the condition, known at compile time, holds."""
    if isinstance(condition, Tensor):
        raise ctx.error(
            "static_assert needs a condition known at compile time",
            expected="a constexpr",
            got=describe(condition),
            remedy="use tl.device_assert for what is known only when the kernel runs",
        )
    if not condition:
        text = str(message) if message else "static_assert failed"
        raise CompileTimeAssertionFailure(
            text,
            ctx.loc,
            expected="a condition that holds",
            got=describe(condition),
            remedy="launch the kernel with constants that fulfil it",
        )


def assume(ctx: Context, condition: Operand) -> None:
    """Let the compiler rely on a scalar condition."""
    tensor = to_tensor(ctx, condition)
    if tensor.shape:
        raise ctx.error(
            "assume needs a scalar condition",
            expected="a scalar",
            got=describe(tensor),
            remedy="reduce the tile first: tl.min(x)",
        )
    ctx.builder.ops("assume", truth(ctx, tensor).handle)


def hint(ctx: Context, name: str, attr: str, x: object, values: object) -> Tensor:
    """Attach one known number a dimension to a tensor."""
    tensor = to_tensor(ctx, x)
    given: Sequence[object] = (values,)
    if isinstance(values, (tuple, list)):
        given = typing_cast("Sequence[object]", values)
    numbers = [v for v in given if isinstance(v, int) and not isinstance(v, bool) and v > 0]
    if len(numbers) != len(given):
        raise ctx.error(
            f"{name} needs positive integer constants",
            expected="1, 2, 4, …, one number a dimension",
            got=", ".join(describe(v) for v in given),
            remedy="pass constants, or names annotated with tl.constexpr",
        )
    if len(numbers) != max(1, len(tensor.shape)):
        raise ctx.error(
            f"{name} needs one value a dimension",
            expected=f"{max(1, len(tensor.shape))} for {tensor}",
            got=f"{len(numbers)}",
            remedy="pass a tuple with one number for each axis",
        )
    return ctx.op("hint", tensor, **{attr: tuple(numbers)})
