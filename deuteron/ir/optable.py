"""The table of operations: what each takes, what it gives, what it does to memory.

A row's `infer` computes the result types from the operand types and attributes and raises
`OpTypeError` when they do not fit; the builder and the verifier both use it.  How an op is carried
out stands in each backend's own table; a test demands that every row is in every backend or is
refused there by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod

from deuteron.dtypes import DType, int1, int32, int64
from deuteron.ir.nodes import Attrs
from deuteron.ir.types import Pointer, Type


class OpTypeError(Exception):
    """Operands or attributes that an op cannot take."""


class Effect(Enum):
    """What an op does besides giving a value."""

    NONE = "none"
    READ = "read"  # loads memory
    WRITE = "write"  # stores memory, or prints, or may stop the program: never moved or dropped


Infer = Callable[[Sequence[Type], Attrs], tuple[Type, ...]]


@dataclass(frozen=True, slots=True)
class OpInfo:
    """One row.  `arity` is the least and greatest operand count (-1: any)."""

    name: str
    arity: tuple[int, int]
    infer: Infer
    effect: Effect = Effect.NONE
    elementwise: bool = False
    commutative: bool = False


# Functions of one float operand; `backends/llvm/math.py` and NumPy define them.
FLOAT_UNARY = (
    "exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan",
    "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "sqrt", "rsqrt",
    "cbrt", "erf", "erfc", "erfinv", "lgamma", "tgamma", "ceil", "floor", "trunc", "rint", "round",
)  # fmt: skip
# Functions of two float operands.
FLOAT_BINARY = ("pow", "atan2", "hypot", "fmod", "copysign")
# Of floats, these, `div` and `sqrt` may have the attribute `ieee`: rounded to nearest, never fused.
ANY_BINARY = ("add", "sub", "mul", "min", "max")
INT_BINARY = ("idiv", "irem", "and", "or", "xor", "shl", "shr", "umulhi")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
ATOMIC_KINDS = ("add", "and", "or", "xor", "max", "min", "xchg")


def _require(condition: bool, message: str, *shown: object) -> None:
    """Raise unless the condition holds; `shown` fill the message's braces, only when it is read.

    Nearly every check passes, and to spell a type out costs more than to infer it.
    """
    if not condition:
        raise OpTypeError(message.format(*shown))


def _same(types: Sequence[Type]) -> Type:
    first = types[0]
    if any(other != first for other in types[1:]):
        raise OpTypeError(f"operand types differ: {', '.join(map(str, types))}")
    return first


def _dtype(type: Type) -> DType:
    _require(isinstance(type.element, DType), "a number is needed, not {}", type)
    return type.dtype


def _float_like(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    type = _same(types)
    _require(_dtype(type).is_standard_floating(), "a float is needed, not {}", type)
    return (type,)


def _int_like(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    type = _same(types)
    _require(_dtype(type).is_int(), "an integer is needed, not {}", type)
    return (type,)


def _number_like(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    type = _same(types)
    _require(not _dtype(type).is_fp8(), "{} is for storage: cast it first", type)
    return (type,)


def _compare(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    return (_same(types).with_element(int1),)


def _select(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    condition, *values = types
    type = _same(values)
    _require(condition == type.with_element(int1), "condition {} does not fit {}", condition, type)
    return (type,)


def _cast(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    _dtype(types[0])
    return (types[0].with_element(attrs["to"]),)


def _bitcast(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    source, to = types[0], attrs["to"]
    if isinstance(source.element, Pointer) or isinstance(to, Pointer):
        _require(isinstance(source.element, Pointer) and isinstance(to, Pointer), "pointer bitcast")
    else:
        _require(source.dtype.bits == to.bits, "cannot bitcast {} to {}: widths differ", source, to)
    return (source.with_element(to),)


def _ptr_to_int(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    _require(types[0].is_pointer, "a pointer is needed, not {}", types[0])
    return (types[0].with_element(int64),)


def _int_to_ptr(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    _require(types[0].element == int64, "an int64 is needed, not {}", types[0])
    return (types[0].with_element(attrs["to"]),)


def _addptr(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    pointer, offset = types
    _require(pointer.is_pointer, "a pointer is needed, not {}", pointer)
    _require(offset.shape == pointer.shape and _dtype(offset).is_int(), "offset {}", offset)
    return (pointer,)


def _const(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    return (Type(attrs["dtype"]),)


def _arange(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    _require(attrs["end"] > attrs["start"], "an arange needs end > start")
    return (Type(int32, (attrs["end"] - attrs["start"],)),)


def _splat(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    _require(not types[0].shape, "a scalar is needed, not {}", types[0])
    return (types[0].with_shape(tuple(attrs["shape"])),)


def _broadcast(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    source, shape = types[0], tuple(attrs["shape"])
    fits = len(shape) == source.rank and all(
        s in (1, t) for s, t in zip(source.shape, shape, strict=True)
    )
    _require(fits, "cannot broadcast {} to {}", source, shape)
    return (source.with_shape(shape),)


def _expand_dims(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    shape, axis = list(types[0].shape), attrs["axis"]
    _require(0 <= axis <= len(shape), "axis {} is outside of {}", axis, types[0])
    shape.insert(axis, 1)
    return (types[0].with_shape(tuple(shape)),)


def _reshape(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    shape = tuple(attrs["shape"])
    _require(prod(shape) == types[0].numel, "cannot reshape {} to {}", types[0], shape)
    return (types[0].with_shape(shape),)


def _permute(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    order: Sequence[int] = attrs["order"]
    _require(sorted(order) == list(range(types[0].rank)), "order {} for {}", order, types[0])
    return (types[0].with_shape(tuple(types[0].shape[i] for i in order)),)


def _join(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    type = _same(types)
    return (type.with_shape((*type.shape, 2)),)


def _split(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    _require(types[0].shape[-1:] == (2,), "the last axis of {} must be 2 long", types[0])
    half = types[0].with_shape(types[0].shape[:-1])
    return (half, half)


def _cat(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    left, right = types
    axis = attrs["axis"]
    same = left.element == right.element and left.rank == right.rank > axis
    rest = [s for t in types for i, s in enumerate(t.shape) if i != axis]
    _require(same and rest[: len(rest) // 2] == rest[len(rest) // 2 :], "cat {}, {}", left, right)
    shape = list(left.shape)
    shape[axis] += right.shape[axis]
    return (left.with_shape(tuple(shape)),)


def _axis_query(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    _require(attrs["axis"] in (0, 1, 2), "axis {}: there are 0, 1 and 2", attrs["axis"])
    return (Type(int32),)


def _load(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    pointer, rest = types[0], types[1:]
    _require(pointer.is_pointer, "a pointer is needed, not {}", pointer)
    value = pointer.with_element(pointer.pointee)
    if rest:
        _require(rest[0] == value.with_element(int1), "mask {} does not fit {}", rest[0], value)
    if len(rest) > 1:
        _require(rest[1] == value, "other {} does not fit {}", rest[1], value)
    return (value,)


def _store(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    _require(types[0].is_pointer, "a pointer is needed, not {}", types[0])
    value = types[0].with_element(types[0].pointee)
    _require(types[1] == value, "value {} does not fit {}", types[1], types[0])
    if len(types) > 2:
        _require(types[2] == value.with_element(int1), "mask {} does not fit {}", types[2], value)
    return ()


def _atomic_rmw(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    _require(attrs["kind"] in ATOMIC_KINDS, "atomic {}", attrs["kind"])
    _store(types, attrs)
    return (types[1],)


def _atomic_cas(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    _store((*types[:2], *types[3:]), attrs)
    return (_same(types[1:3]),)


def _dot(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    a, b, acc = types
    _require(a.rank == b.rank == acc.rank and a.rank in (2, 3), "ranks of {}, {}, {}", a, b, acc)
    fits = a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2] == acc.shape[:-2]
    fits = fits and acc.shape[-2:] == (a.shape[-2], b.shape[-1])
    _require(fits, "shapes of {} @ {} + {}", a, b, acc)
    return (acc,)


def _gather(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    source, index = types
    axis: int = attrs["axis"]
    _require(_dtype(index).is_int(), "an integer index is needed, not {}", index)
    fits = source.rank == index.rank and 0 <= axis < source.rank
    fits = fits and all(
        s == i for a, (s, i) in enumerate(zip(source.shape, index.shape, strict=True)) if a != axis
    )
    _require(fits, "cannot gather {} from {} along axis {}", index, source, axis)
    return (source.with_shape(index.shape),)


def _histogram(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    source = types[0]
    _require(source.rank == 1 and _dtype(source).is_int(), "integers are counted, not {}", source)
    if len(types) > 1:
        _require(types[1] == source.with_element(int1), "mask {}, {}", types[1], source)
    return (Type(int32, (attrs["bins"],)),)


def _inline_asm(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    shape = _shared_shape(types)
    return tuple(Type(dtype, shape) for dtype in attrs["dtypes"])


def _shared_shape(types: Sequence[Type]) -> tuple[int, ...]:
    shapes = {t.shape for t in types} or {()}
    _require(len(shapes) == 1, "operands of several shapes: {}", shapes)
    return shapes.pop()


def _identity(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    return (types[0],)


def _nothing(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    return ()


def _rows() -> list[OpInfo]:
    """Every op.  Attributes are named at the right."""
    elementwise = [
        *(OpInfo(n, (1, 1), _float_like, elementwise=True) for n in FLOAT_UNARY),
        *(OpInfo(n, (2, 2), _float_like, elementwise=True) for n in FLOAT_BINARY),
        *(
            # min, max: propagate_nan (bool)
            OpInfo(n, (2, 2), _number_like, elementwise=True, commutative=n != "sub")
            for n in ANY_BINARY
        ),
        *(
            OpInfo(n, (2, 2), _int_like, elementwise=True, commutative=n in ("and", "or", "xor"))
            for n in INT_BINARY
        ),
        *(OpInfo(n, (2, 2), _compare, elementwise=True) for n in COMPARISONS),
        OpInfo("div", (2, 2), _float_like, elementwise=True),
        OpInfo("fma", (3, 3), _float_like, elementwise=True),
        OpInfo("neg", (1, 1), _number_like, elementwise=True),
        OpInfo("abs", (1, 1), _number_like, elementwise=True),
        OpInfo("not", (1, 1), _int_like, elementwise=True),
        OpInfo("select", (3, 3), _select, elementwise=True),
        OpInfo("cast", (1, 1), _cast, elementwise=True),  # to: DType, rounding: "rtne" | "rtz"
        OpInfo("bitcast", (1, 1), _bitcast, elementwise=True),  # to: DType or Pointer
        OpInfo("ptr_to_int", (1, 1), _ptr_to_int, elementwise=True),
        OpInfo("int_to_ptr", (1, 1), _int_to_ptr, elementwise=True),  # to: Pointer
        OpInfo("addptr", (2, 2), _addptr, elementwise=True),
        OpInfo("hint", (1, 1), _identity, elementwise=True),  # divisibility, contiguity, constancy
    ]
    shapes = [
        OpInfo("const", (0, 0), _const),  # value, dtype
        OpInfo("arange", (0, 0), _arange),  # start, end
        OpInfo("splat", (1, 1), _splat),  # shape
        OpInfo("broadcast", (1, 1), _broadcast),  # shape, of the same rank
        OpInfo("expand_dims", (1, 1), _expand_dims),  # axis
        OpInfo("reshape", (1, 1), _reshape),  # shape; row-major order is kept
        OpInfo("permute", (1, 1), _permute),  # order
        OpInfo("join", (2, 2), _join),
        OpInfo("split", (1, 1), _split),
        OpInfo("cat", (2, 2), _cat),  # axis
        OpInfo("program_id", (0, 0), _axis_query),  # axis
        OpInfo("num_programs", (0, 0), _axis_query),  # axis
    ]
    memory = [
        # load: cache_modifier, eviction_policy, volatile (ptr, [mask, [other]])
        OpInfo("load", (1, 3), _load, Effect.READ),
        OpInfo("store", (2, 3), _store, Effect.WRITE),  # (ptr, value, [mask])
        OpInfo("atomic_rmw", (2, 3), _atomic_rmw, Effect.WRITE),  # kind, sem, scope
        # sem, scope (ptr, cmp, value, [mask])
        OpInfo("atomic_cas", (3, 4), _atomic_cas, Effect.WRITE),
    ]
    return [*elementwise, *shapes, *memory, *_other_rows()]


def _other_rows() -> list[OpInfo]:
    return [
        OpInfo("dot", (3, 3), _dot),  # input_precision (a, b, acc)
        # axis (source, index): result[.., i, ..] is source[.., index[.., i, ..], ..]; an index out
        # of range gives any value
        OpInfo("gather", (2, 2), _gather),
        OpInfo("histogram", (1, 2), _histogram),  # bins (values, [mask]); others are not counted
        # asm, constraints (as LLVM writes them), dtypes (one a result), pack, volatile; element by
        # element on operands of one shape
        OpInfo("inline_asm", (0, -1), _inline_asm),
        OpInfo("print", (0, -1), _nothing, Effect.WRITE),  # prefix, hex
        OpInfo("assert", (1, 2), _nothing, Effect.WRITE),  # message (condition, [mask])
        OpInfo("barrier", (0, 0), _nothing, Effect.WRITE),  # the program's threads wait
        OpInfo("assume", (1, 1), _nothing, Effect.WRITE),
    ]


OPS: dict[str, OpInfo] = {row.name: row for row in _rows()}
