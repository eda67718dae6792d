"""The functions of the language that touch memory: load, store and the atomics.

A pointer argument stands for the first element of an array; adding integers to it moves by
elements.  A tile of pointers reads or writes one element a pointer.
"""

from __future__ import annotations

from collections.abc import Sequence

from deuteron.errors import CompilationError
from deuteron.lang.context import Context, builtin
from deuteron.lang.semantic import blocks, memory
from deuteron.lang.values import Operand, Tensor, describe, tensor_member


@builtin
def load(
    ctx: Context,
    pointer: object,
    mask: Operand | None = None,
    other: Operand | None = None,
    boundary_check: Sequence[int] = (),
    padding_option: str = "",
    cache_modifier: str = "",
    eviction_policy: str = "",
    volatile: bool = False,
) -> Tensor:
    """The elements at `pointer`: a pointer, a tile of pointers, or a block pointer.

    Where the boolean `mask` is false nothing is read and the result is `other`, or unspecified
    without it; both broadcast.  `cache_modifier` ("", ".ca", ".cg", ".cv") and `eviction_policy`
    ("", "evict_first", "evict_last") are hints.  A `volatile` load is neither merged nor moved.

    A block pointer takes no mask.  Along the axes named by `boundary_check` nothing is read outside
    of the array, and the result there is zero, or NaN with `padding_option="nan"`.
    """
    if isinstance(pointer, blocks.BlockPointer):
        _check_no_mask(ctx, "load", mask, other)
        blocks.check_padding(ctx, padding_option, pointer.pointee)
        pointer, mask = blocks.block_addresses(ctx, pointer, boundary_check)
        other = None if mask is None else blocks.padding_value(padding_option)
    elif boundary_check or padding_option:
        raise _no_block(ctx, "load", pointer)
    return memory.load(
        ctx,
        pointer,
        mask,
        other,
        cache_modifier=cache_modifier,
        eviction_policy=eviction_policy,
        volatile=volatile,
    )


@tensor_member
@builtin
def store(
    ctx: Context,
    pointer: object,
    value: Operand,
    mask: Operand | None = None,
    boundary_check: Sequence[int] = (),
    cache_modifier: str = "",
    eviction_policy: str = "",
) -> None:
    """Write `value` to `pointer`: a pointer, a tile of pointers, or a block pointer.

    The value broadcasts to the pointers and is cast to what they point to.  Where the boolean
    `mask` is false nothing is written.  `cache_modifier` ("", ".wb", ".cg", ".cs", ".wt") and
    `eviction_policy` are hints.  A block pointer takes no mask: nothing is written outside of the
    array along the axes named by `boundary_check`.
    """
    if isinstance(pointer, blocks.BlockPointer):
        _check_no_mask(ctx, "store", mask, None)
        pointer, mask = blocks.block_addresses(ctx, pointer, boundary_check)
    elif boundary_check:
        raise _no_block(ctx, "store", pointer)
    memory.store(
        ctx,
        pointer,
        value,
        mask,
        cache_modifier=cache_modifier,
        eviction_policy=eviction_policy,
    )


def _check_no_mask(ctx: Context, name: str, mask: object, other: object) -> None:
    if mask is None and other is None:
        return
    raise ctx.error(
        f"{name} through a block pointer takes no mask",
        expected="boundary_check=(…), which names the axes to check",
        got=f"mask={describe(mask)}",
        remedy="leave mask and other out; padding_option says what is read outside",
    )


def _no_block(ctx: Context, name: str, pointer: object) -> CompilationError:
    return ctx.error(
        f"{name} checks bounds of block pointers only",
        expected="what tl.make_block_ptr gives",
        got=describe(pointer),
        remedy="give a mask instead, such as offsets < n",
    )


@tensor_member
@builtin
def atomic_add(
    ctx: Context,
    pointer: object,
    val: Operand,
    mask: Operand | None = None,
    sem: str | None = None,
    scope: str | None = None,
) -> Tensor:
    """Add `val` to memory in one step; gives what was there before.

    On 32- and 64-bit integers and on floats of 16 bits or more.  `sem` is "relaxed", "acquire",
    "release" or "acq_rel" (the default), `scope` "cta", "gpu" (the default) or "sys".
    """
    return memory.atomic_rmw(ctx, "add", pointer, val, mask, sem, scope)


@tensor_member
@builtin
def atomic_max(
    ctx: Context,
    pointer: object,
    val: Operand,
    mask: Operand | None = None,
    sem: str | None = None,
    scope: str | None = None,
) -> Tensor:
    """Replace memory by the greater of itself and `val` in one step; gives what was there before.

    On 32- and 64-bit integers and floats; arguments as for `atomic_add`.
    """
    return memory.atomic_rmw(ctx, "max", pointer, val, mask, sem, scope)


@tensor_member
@builtin
def atomic_min(
    ctx: Context,
    pointer: object,
    val: Operand,
    mask: Operand | None = None,
    sem: str | None = None,
    scope: str | None = None,
) -> Tensor:
    """Replace memory by the lesser of itself and `val` in one step; gives what was there before.

    On 32- and 64-bit integers and floats; arguments as for `atomic_add`.
    """
    return memory.atomic_rmw(ctx, "min", pointer, val, mask, sem, scope)


@tensor_member
@builtin
def atomic_and(
    ctx: Context,
    pointer: object,
    val: Operand,
    mask: Operand | None = None,
    sem: str | None = None,
    scope: str | None = None,
) -> Tensor:
    """Combine memory with `val` by bitwise and in one step; gives what was there before.

    On 32- and 64-bit integers; arguments as for `atomic_add`.
    """
    return memory.atomic_rmw(ctx, "and", pointer, val, mask, sem, scope)


@tensor_member
@builtin
def atomic_or(
    ctx: Context,
    pointer: object,
    val: Operand,
    mask: Operand | None = None,
    sem: str | None = None,
    scope: str | None = None,
) -> Tensor:
    """Combine memory with `val` by bitwise or in one step; gives what was there before.

    On 32- and 64-bit integers; arguments as for `atomic_add`.
    """
    return memory.atomic_rmw(ctx, "or", pointer, val, mask, sem, scope)


@tensor_member
@builtin
def atomic_xor(
    ctx: Context,
    pointer: object,
    val: Operand,
    mask: Operand | None = None,
    sem: str | None = None,
    scope: str | None = None,
) -> Tensor:
    """Combine memory with `val` by bitwise exclusive or in one step; gives what was there before.

    On 32- and 64-bit integers; arguments as for `atomic_add`.
    """
    return memory.atomic_rmw(ctx, "xor", pointer, val, mask, sem, scope)


@tensor_member
@builtin
def atomic_xchg(
    ctx: Context,
    pointer: object,
    val: Operand,
    mask: Operand | None = None,
    sem: str | None = None,
    scope: str | None = None,
) -> Tensor:
    """Write `val` and give what was there before, in one step.

    On 32- and 64-bit integers and floats; arguments as for `atomic_add`.
    """
    return memory.atomic_rmw(ctx, "xchg", pointer, val, mask, sem, scope)


@tensor_member
@builtin
def atomic_load(
    ctx: Context,
    pointer: object,
    mask: Operand | None = None,
    sem: str | None = None,
    scope: str | None = None,
) -> Tensor:
    """What is in memory, read in one step; 0 where the mask is false.

    On values of 16, 32 and 64 bits in memory that may be written; a mask needs 32 or 64 bits.
    `sem` and `scope` as for `atomic_add`, by default "acquire" and "gpu".
    """
    return memory.atomic_load(ctx, pointer, mask, sem, scope)


@tensor_member
@builtin
def atomic_store(
    ctx: Context,
    pointer: object,
    val: Operand,
    mask: Operand | None = None,
    sem: str | None = None,
    scope: str | None = None,
) -> None:
    """Write `val` in one step.

    On 32- and 64-bit integers and floats; `sem` and `scope` as for `atomic_add`, by default
    "release" and "gpu".
    """
    memory.atomic_rmw(ctx, "xchg", pointer, val, mask, sem or "release", scope)


@tensor_member
@builtin
def atomic_poll(
    ctx: Context,
    pointer: object,
    expected_value: Operand,
    sem: str | None = None,
    scope: str | None = None,
    timeout_ns: Operand | None = None,
) -> Tensor:
    """Read one integer of 16, 32 or 64 bits again and again until it is `expected_value`.

    True when it was seen; False when `timeout_ns` nanoseconds (at a rough count) went by before.
    Memory is read once at least.  `sem` is "acquire" (the default) or "relaxed".  Programs of a
    grid may run one after the other: without a timeout, waiting for a later one may never end.
    """
    return memory.atomic_poll(ctx, pointer, expected_value, sem, scope, timeout_ns)


@tensor_member
@builtin
def atomic_cas(
    ctx: Context,
    pointer: object,
    cmp: Operand,
    val: Operand,
    sem: str | None = None,
    scope: str | None = None,
) -> Tensor:
    """Write `val` where memory equals `cmp`, bit for bit, in one step; gives what was there before.

    On values of 16, 32 and 64 bits; `sem` and `scope` as for `atomic_add`.
    """
    return memory.atomic_cas(ctx, pointer, cmp, val, sem, scope)
