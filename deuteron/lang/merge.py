"""Values where paths meet: the end of an `if`, the turn of a loop, several returns.

A *form* describes what the meeting paths have in common: a Slot wherever a value is known only
when the kernel runs, the constant itself wherever all paths agree on it, tuples and composites of
these.  The
slots' values become the block arguments and results of the IR.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn, TypeGuard

from deuteron.dtypes import DType
from deuteron.ir.nodes import Value
from deuteron.ir.types import Type
from deuteron.lang.context import Context
from deuteron.lang.semantic.casts import constant, literal_dtype
from deuteron.lang.values import (
    Composite,
    Tensor,
    constexpr,
    describe,
    parts_of,
    rebuild,
    same_kind,
)


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in a form for a value of this type."""

    type: Type


class MismatchError(Exception):
    """Two paths whose values do not fit together, each as `describe` names it."""

    def __init__(self, left: str, right: str) -> None:
        self.left, self.right = left, right
        super().__init__(f"{left} and {right}")


def is_tuple(value: object) -> TypeGuard[tuple[object, ...]]:
    """True for a tuple, named ones included."""
    return isinstance(value, tuple)


def is_number(value: object) -> TypeGuard[constexpr]:
    """True for a constexpr that could also be a tensor."""
    return isinstance(value, constexpr) and isinstance(value.value, (bool, int, float))


def carried_form(ctx: Context, value: object) -> object:
    """The form of a value that a loop carries: every number in it may change."""
    if isinstance(value, Tensor):
        return Slot(value.type)
    if isinstance(value, Composite):
        # What is known of a composite, such as a stride of 1, stays known.
        return rebuild(value, [_composite_form(ctx, v) for v in value.parts])
    if is_tuple(value):
        return rebuild(value, [carried_form(ctx, v) for v in value])
    if is_number(value):
        return Slot(Type(literal_dtype(ctx, value.value)))
    return value


def _composite_form(ctx: Context, part: object) -> object:
    if is_tuple(part):
        return rebuild(part, [_composite_form(ctx, v) for v in part])
    return part if is_number(part) else carried_form(ctx, part)


def common_form(ctx: Context, left: object, right: object) -> object:
    """What two paths have in common.  Raises MismatchError.

    Two tensors must have one type.  A constant takes the type of a tensor of its own or a higher
    kind (bool, integer, float); equal constants stay constants.
    """
    parts = parts_of(left)
    if parts is not None and same_kind(left, right):
        pairs = zip(parts, parts_of(right) or (), strict=True)
        return rebuild(left, [common_form(ctx, a, b) for a, b in pairs])
    if isinstance(left, Tensor):
        return Slot(left.type) if _fits(right, left.type) else _mismatch(left, right)
    if isinstance(right, Tensor):
        return Slot(right.type) if _fits(left, right.type) else _mismatch(left, right)
    if _equal(left, right):
        return left
    if is_number(left) and is_number(right):
        a, b = carried_form(ctx, left), carried_form(ctx, right)
        return a if a == b else _mismatch(left, right)
    return _mismatch(left, right)


def pour(ctx: Context, value: object, form: object) -> list[Value]:
    """The slots' values for one path, built at the current place.  Raises MismatchError."""
    if isinstance(form, Slot):
        if not _fits(value, form.type):
            raise MismatchError(describe_form(form), describe(value))
        if isinstance(value, Tensor):
            return [value.handle]
        assert is_number(value)
        number = constant(ctx, value.value, form.type.dtype).handle
        shape = form.type.shape
        return [ctx.builder.op("splat", number, shape=shape) if shape else number]
    inner_forms = parts_of(form)
    if inner_forms is not None:
        if not same_kind(value, form):
            raise MismatchError(describe_form(form), describe(value))
        pairs = zip(parts_of(value) or (), inner_forms, strict=True)
        return [v for item, inner in pairs for v in pour(ctx, item, inner)]
    if not _equal(value, form):
        raise MismatchError(describe(form), describe(value))
    return []


def slot_types(form: object) -> list[Type]:
    """The types of a form's slots, in the order `pour` gives their values."""
    if isinstance(form, Slot):
        return [form.type]
    return [t for inner in parts_of(form) or () for t in slot_types(inner)]


def fill(form: object, values: Iterator[Value]) -> object:
    """The form with its slots replaced by the next values."""
    if isinstance(form, Slot):
        return Tensor(next(values))
    parts = parts_of(form)
    return form if parts is None else rebuild(form, [fill(inner, values) for inner in parts])


def describe_form(form: object) -> str:
    """A form in the words of `describe`."""
    return describe(fill(form, iter([Value(t) for t in slot_types(form)])))


def _fits(value: object, type: Type) -> bool:
    if isinstance(value, Tensor):
        return value.type == type
    if not is_number(value) or type.is_pointer:
        return False
    return _kind_rank(value.value) <= _dtype_rank(type.dtype)


def _kind_rank(number: bool | int | float) -> int:
    return 0 if isinstance(number, bool) else 1 if isinstance(number, int) else 2


def _dtype_rank(dtype: DType) -> int:
    return 0 if dtype.is_bool() else 1 if dtype.is_int() else 2


def _equal(left: object, right: object) -> bool:
    if left is right:
        return True
    if isinstance(left, constexpr) and isinstance(right, constexpr):
        a, b = left.value, right.value
        return type(a) is type(b) and (a is b or bool(a == b))
    return False


def _mismatch(left: object, right: object) -> NoReturn:
    raise MismatchError(describe(left), describe(right))
