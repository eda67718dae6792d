"""Integer tiles that are known while a kernel is compiled and vary along one axis only.

Where sorts, flips and merges take elements from is arithmetic on positions.  Knowing it, a gather
becomes a renaming of registers or an exchange between lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deuteron.ir import Op, Value
from deuteron.passes.simplify import constant_of

_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": int.__add__,
    "sub": int.__sub__,
    "mul": int.__mul__,
    "and": int.__and__,
    "or": int.__or__,
    "xor": int.__xor__,
}


def gathers_at_home(op: Op) -> bool:
    """Whether a gather's result may lie as its source does."""
    source, index = op.operands
    return source.type.shape == index.type.shape


def gather_wants_index(op: Op) -> bool:
    """Whether the index is looked at when the kernel runs."""
    index = op.operands[1]
    return not gathers_at_home(op) or distance(index, op.attrs["axis"]) is None


def distance(index: Value, axis: int) -> int | None:
    """The d with which each element of an index is its place along the axis XOR d.

    None when there is none, or when the index is known at run time only.
    """
    line = _line(index, axis)
    if line is None:
        return None
    first = line[0]
    fits = 0 <= first < len(line) and all(at ^ first == place for place, at in enumerate(line))
    return first if fits else None


def _line(value: Value, axis: int) -> Sequence[int] | None:
    """The elements along an axis, when they are known and the same at all places of the others."""
    constant, size = constant_of(value), value.type.shape[axis]
    if isinstance(constant, int):
        return [constant] * size
    op = value.op
    match op.name if op else "":
        case "arange":
            assert op is not None
            return range(op.attrs["start"], op.attrs["end"])
        case "broadcast" | "reshape" | "expand_dims":
            assert op is not None
            return _stretched(op, axis)
        case name if name in _ARITHMETIC:
            assert op is not None
            left, right = (_line(operand, axis) for operand in op.operands)
            if left is None or right is None:
                return None
            return list(map(_ARITHMETIC[name], left, right))
        case _:
            return None


def _stretched(op: Op, axis: int) -> Sequence[int] | None:
    """The line of a tile made of one that is long along one axis at most."""
    source, size = op.operands[0], op.result.type.shape[axis]
    long = [a for a, length in enumerate(source.type.shape) if length > 1]
    if source.type.numel != size or len(long) > 1:
        return None
    if op.name != "broadcast" and op.result.type.numel != size:
        return None
    return _line(source, long[0] if long else 0)
