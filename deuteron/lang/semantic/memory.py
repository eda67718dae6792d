"""Loads, stores and atomics through pointers and tiles of pointers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deuteron.dtypes import DType, int1, int8, int64, integer
from deuteron.errors import CompilationError
from deuteron.ir.types import Pointer
from deuteron.lang.context import Context
from deuteron.lang.semantic.casts import bitcast, cast, constant, to_tensor
from deuteron.lang.semantic.shape import broadcast_together, common_shape, stretch
from deuteron.lang.values import Operand, Tensor, describe

_LOAD_CACHE = ("", ".ca", ".cg", ".cs", ".cv")
_STORE_CACHE = ("", ".wb", ".cg", ".cs", ".wt")
_EVICTION = ("", "evict_first", "evict_last", "evict_normal")
_SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")
_SCOPES = ("cta", "gpu", "sys")
# What a locked exchange of one word takes: timeouts are counted in these.
POLL_NS = 8


# -- checks --------------------------------------------------------------------------------
def _choice(ctx: Context, name: str, value: object, choices: tuple[str, ...]) -> str:
    if value not in choices:
        expected = ", ".join(repr(c) for c in choices)
        raise ctx.error(
            f"unknown {name}",
            expected=f"one of {expected}",
            got=repr(value),
            remedy="correct it, or leave it out",
        )
    return str(value)


def _cache_attrs(
    ctx: Context, cache_modifier: object, eviction_policy: object, caches: tuple[str, ...]
) -> dict[str, Any]:
    """The attributes that were given; what is left out stays out of the IR."""
    attrs = {
        "cache_modifier": _choice(ctx, "cache_modifier", cache_modifier or "", caches),
        "eviction_policy": _choice(ctx, "eviction_policy", eviction_policy or "", _EVICTION),
    }
    return {name: value for name, value in attrs.items() if value}


def check_pointer(ctx: Context, name: str, pointer: object) -> tuple[Tensor, Pointer]:
    """The pointer and its type, or an error."""
    if isinstance(pointer, Tensor) and isinstance(pointer.dtype, Pointer):
        return pointer, pointer.dtype
    raise ctx.error(
        f"{name} needs a pointer",
        expected="a pointer argument, plus offsets",
        got=describe(pointer),
        remedy="pass the array itself to the kernel and add offsets to its parameter",
    )


def _writable(ctx: Context, name: str, pointer: object) -> tuple[Tensor, Pointer]:
    tensor, type = check_pointer(ctx, name, pointer)
    if type.const:
        raise ctx.error(
            f"{name} through a const pointer",
            expected="a pointer that may be written through",
            got=describe(tensor),
            remedy="take the tl.const annotation off the parameter",
        )
    return tensor, type


def _check_mask(ctx: Context, name: str, mask: Operand) -> Tensor:
    tensor = to_tensor(ctx, mask)
    if tensor.dtype != int1:
        raise ctx.error(
            f"the mask of {name} is not boolean",
            expected="a comparison, such as offsets < n",
            got=describe(tensor),
            remedy="compare it with 0: mask != 0",
        )
    return tensor


def _check_scalar_pointer(ctx: Context, name: str, pointer: Tensor, **others: Tensor) -> None:
    if pointer.shape:
        return
    for what, other in others.items():
        if other.shape:
            raise ctx.error(
                f"{name} through a single pointer with a tile as its {what}",
                expected="a scalar",
                got=describe(other),
                remedy="make a tile of pointers: pointer + tl.arange(0, BLOCK)",
            )


def _as_bytes(ctx: Context, pointer: Tensor, type: Pointer) -> tuple[Tensor, DType]:
    """Booleans live in memory as bytes, so a pointer to them becomes one to int8."""
    if type.pointee != int1:
        return pointer, type.pointee
    return ctx.op("bitcast", pointer, to=Pointer(int8, type.const)), int8


# -- load and store ------------------------------------------------------------------------
def load(
    ctx: Context,
    pointer: object,
    mask: Operand | None,
    other: Operand | None,
    *,
    cache_modifier: object = "",
    eviction_policy: object = "",
    volatile: bool = False,
) -> Tensor:
    """The elements at the pointers; lanes masked off are not touched and give `other`."""
    address, type = check_pointer(ctx, "load", pointer)
    attrs = _cache_attrs(ctx, cache_modifier, eviction_policy, _LOAD_CACHE)
    if volatile:
        attrs["volatile"] = True
    if mask is None and other is not None:
        raise ctx.error(
            "load has `other` but no mask",
            expected="a mask that says where `other` is taken",
            got=f"other={describe(other)}",
            remedy="add mask=, or leave other out",
        )
    extra: list[Tensor] = []
    if mask is not None:
        extra.append(_check_mask(ctx, "load", mask))
        _check_scalar_pointer(ctx, "load", address, mask=extra[0])
    if other is not None:
        extra.append(to_tensor(ctx, other))
        _check_scalar_pointer(ctx, "load", address, other=extra[1])
    address, dtype = _as_bytes(ctx, address, type)
    if len(extra) == 2:
        extra[1] = cast(ctx, extra[1], dtype)
    loaded = ctx.op(
        "load",
        *broadcast_together(ctx, address, *extra, names=("pointer", "mask", "other")),
        **attrs,
    )
    return cast(ctx, loaded, type.pointee)


def store(
    ctx: Context,
    pointer: object,
    value: Operand,
    mask: Operand | None,
    *,
    cache_modifier: object = "",
    eviction_policy: object = "",
) -> None:
    """Write the value, cast to the pointee; lanes masked off are not touched."""
    address, type = _writable(ctx, "store", pointer)
    attrs = _cache_attrs(ctx, cache_modifier, eviction_policy, _STORE_CACHE)
    data = to_tensor(ctx, value)
    _check_scalar_pointer(ctx, "store", address, value=data)
    operands = [data]
    if mask is not None:
        operands.append(_check_mask(ctx, "store", mask))
        _check_scalar_pointer(ctx, "store", address, mask=operands[1])
    _check_covers(ctx, "store", address, *operands, names=("value", "mask"))
    # To the pointee first: a boolean is `!= 0`, not the low byte of the number.
    operands[0] = cast(ctx, data, type.pointee)
    address, dtype = _as_bytes(ctx, address, type)
    operands[0] = cast(ctx, operands[0], dtype)
    stretched = (stretch(ctx, o, address.shape) for o in operands)
    ctx.builder.ops("store", address.handle, *(s.handle for s in stretched), **attrs)


def _check_covers(
    ctx: Context, name: str, pointer: Tensor, *operands: Tensor, names: Sequence[str]
) -> None:
    common = common_shape(ctx, pointer, *operands, names=("pointer", *names))
    if common != pointer.shape:
        raise ctx.error(
            f"{name} would need more pointers than there are",
            expected=f"pointers of shape {common}",
            got=f"pointers of shape {pointer.shape}",
            remedy="add the missing offsets to the pointer",
        )


# -- atomics -------------------------------------------------------------------------------
def _order_attrs(ctx: Context, sem: object, scope: object) -> dict[str, Any]:
    return {
        "sem": _choice(ctx, "sem", sem or "acq_rel", _SEMANTICS),
        "scope": _choice(ctx, "scope", scope or "gpu", _SCOPES),
    }


def _check_atomic_dtype(ctx: Context, kind: str, dtype: DType) -> None:
    if dtype.bits < 32 and not (kind == "add" and dtype.is_standard_floating()):
        raise ctx.error(
            f"atomic_{kind} is not defined on {dtype}",
            expected="32 or 64 bits" + (", float16 or bfloat16" if kind == "add" else ""),
            got=f"a pointer to {dtype}",
            remedy="keep the shared values in a 32-bit array",
        )
    if kind in ("and", "or", "xor") and dtype.is_floating():
        raise ctx.error(
            f"atomic_{kind} is not defined on floats",
            expected="a pointer to integers",
            got=f"a pointer to {dtype}",
            remedy="reinterpret the array as integers, with deuteron.reinterpret",
        )


def atomic_rmw(
    ctx: Context,
    kind: str,
    pointer: object,
    value: Operand,
    mask: Operand | None,
    sem: object,
    scope: object,
) -> Tensor:
    """Combine `value` into memory by `kind` in one step; gives what was there before."""
    name = f"atomic_{kind}"
    address, type = _writable(ctx, name, pointer)
    attrs = _order_attrs(ctx, sem, scope)
    _check_atomic_dtype(ctx, kind, type.pointee)
    operands = [cast(ctx, to_tensor(ctx, value), type.pointee)]
    if mask is not None:
        operands.append(_check_mask(ctx, name, mask))
    _check_covers(ctx, name, address, *operands, names=("value", "mask"))
    stretched = (stretch(ctx, o, address.shape) for o in operands)
    return ctx.op("atomic_rmw", address, *stretched, kind=kind, **attrs)


def atomic_cas(
    ctx: Context, pointer: object, expected: Operand, value: Operand, sem: object, scope: object
) -> Tensor:
    """Write `value` where memory equals `expected`, bit for bit; gives what was there before."""
    address, type = _writable(ctx, "atomic_cas", pointer)
    attrs = _order_attrs(ctx, sem, scope)
    if type.pointee.bits < 16:
        raise _too_narrow(ctx, "atomic_cas", type.pointee)
    operands = [cast(ctx, to_tensor(ctx, side), type.pointee) for side in (expected, value)]
    _check_covers(ctx, "atomic_cas", address, *operands, names=("cmp", "val"))
    stretched = (stretch(ctx, o, address.shape) for o in operands)
    return ctx.op("atomic_cas", address, *stretched, **attrs)


def atomic_load(
    ctx: Context, pointer: object, mask: Operand | None, sem: object, scope: object
) -> Tensor:
    """Memory read in one step, as an update that changes nothing."""
    address, type = check_pointer(ctx, "atomic_load", pointer)
    bits = type.pointee.bits
    if bits < 16:
        raise _too_narrow(ctx, "atomic_load", type.pointee)
    word = integer(bits)
    place = ctx.op("bitcast", address, to=Pointer(word))
    if mask is None:
        old = atomic_cas(ctx, place, 0, 0, sem or "acquire", scope)
    else:
        old = atomic_rmw(ctx, "or", place, 0, mask, sem or "acquire", scope)
    return bitcast(ctx, old, type.pointee)


def _too_narrow(ctx: Context, name: str, dtype: DType) -> CompilationError:
    return ctx.error(
        f"{name} is not defined on {dtype}",
        expected="16, 32 or 64 bits",
        got=f"a pointer to {dtype}",
        remedy="keep the shared values in a 32-bit array",
    )


def atomic_poll(
    ctx: Context,
    pointer: object,
    expected: Operand,
    sem: object,
    scope: object,
    timeout_ns: Operand | None,
) -> Tensor:
    """Whether an integer became the expected one before the time was over."""
    address, type = check_pointer(ctx, "atomic_poll", pointer)
    value = to_tensor(ctx, expected)
    if address.shape or value.shape or not type.pointee.is_int():
        raise ctx.error(
            "atomic_poll waits for one integer",
            expected="a pointer to an integer, and a scalar",
            got=f"{describe(address)} and {describe(value)}",
            remedy="poll one place, and load the others after",
        )
    _choice(ctx, "sem", sem or "acquire", ("acquire", "relaxed"))
    wanted = cast(ctx, value, type.pointee)
    polls = _polls(ctx, timeout_ns)
    b = ctx.builder
    inits = [b.const(False, int1), b.const(0, int64)]
    types = [v.type for v in inits]
    seen, count = b.open(types)
    again = b.op("not", seen)
    if polls is not None:
        again = b.op("and", again, b.op("lt", count, polls.handle))
    condition = b.close([again])
    _, count = b.open(types)
    old = atomic_load(ctx, address, None, sem, scope)
    found = b.op("eq", old.handle, wanted.handle)
    body = b.close([found, b.op("add", count, b.const(1, int64))])
    return Tensor(b.while_(inits, condition, body)[0])


def _polls(ctx: Context, timeout_ns: Operand | None) -> Tensor | None:
    """How often to look, at least once; None for ever."""
    if timeout_ns is None:
        return None
    time = to_tensor(ctx, timeout_ns)
    if time.shape or time.is_pointer or not time.number.is_int():
        raise ctx.error(
            "timeout_ns must be one integer",
            expected="nanoseconds, as an integer scalar",
            got=describe(time),
            remedy="cast a float with .to(tl.int64)",
        )
    polls = ctx.op("idiv", cast(ctx, time, int64), constant(ctx, POLL_NS, int64))
    return ctx.op("add", polls, constant(ctx, 1, int64))
