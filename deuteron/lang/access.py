"""The functions of the language that touch memory: load, store and the atomics.

A pointer argument stands for the first element of an array; adding integers to it moves by
elements.  A tile of pointers reads or writes one element a pointer.
"""

from __future__ import annotations

from deuteron.lang.context import Context, builtin
from deuteron.lang.semantic import memory
from deuteron.lang.values import Operand, Tensor, tensor_member


@builtin
def load(
    ctx: Context,
    pointer: object,
    mask: Operand | None = None,
    other: Operand | None = None,
    *,
    cache_modifier: str = "",
    eviction_policy: str = "",
    volatile: bool = False,
) -> Tensor:
    """The elements at `pointer`, a pointer or a tile of pointers.

    Where the boolean `mask` is false nothing is read and the result is `other`, or unspecified
    without it; both broadcast.  `cache_modifier` ("", ".ca", ".cg", ".cv") and `eviction_policy`
    ("", "evict_first", "evict_last") are hints.  A `volatile` load is neither merged nor moved.
    """
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
    *,
    cache_modifier: str = "",
    eviction_policy: str = "",
) -> None:
    """Write `value` to `pointer`, a pointer or a tile of pointers.

    The value broadcasts to the pointers and is cast to what they point to.  Where the boolean
    `mask` is false nothing is written.  `cache_modifier` ("", ".wb", ".cg", ".cs", ".wt") and
    `eviction_policy` are hints.
    """
    memory.store(
        ctx,
        pointer,
        value,
        mask,
        cache_modifier=cache_modifier,
        eviction_policy=eviction_policy,
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
