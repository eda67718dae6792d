"""Masks that are bounds: when a whole tile lies inside, its loop nest needs no masks.

A mask such as `offsets < n` holds for every element of a tile when it holds for the element with
the greatest offset.  For a mask that is a conjunction of comparisons of something that only grows
along the axes with something uniform, one or two scalar comparisons tell.
"""

from __future__ import annotations

from dataclasses import dataclass

from deuteron.backends.cpu.demand import Demand
from deuteron.backends.cpu.steps import Group, Store
from deuteron.ir import Op, Value
from deuteron.passes.simplify import constant_of

_KEEPS_GROWTH = frozenset({"broadcast", "expand_dims", "hint", "permute", "reshape"})


@dataclass(frozen=True, slots=True)
class Extent:
    """A mask, and the elements (term, coordinates) whose holding means that it holds everywhere."""

    mask: Value
    corners: tuple[tuple[Value, tuple[int, ...]], ...]


def held_masks(demand: Demand, group: Group) -> list[Extent]:
    """The masks of a group's loads and stores that a few scalar comparisons can settle."""
    masks: dict[Value, None] = {}
    for sink in group.sinks:
        if isinstance(sink, Store):
            masks.update(dict.fromkeys(sink.op.operands[2:3]))
        for value in sink.inputs:
            for part in demand.virtual_parts(value):
                if part.op is not None and part.op.name == "load":
                    masks.update(dict.fromkeys(part.op.operands[1:2]))
    found = (_extent(mask) for mask in masks if demand.is_virtual(mask) and mask.type.shape)
    return [extent for extent in found if extent is not None]


def _extent(mask: Value) -> Extent | None:
    corners: list[tuple[Value, tuple[int, ...]]] = []
    for term in _terms(mask):
        corner = _corner(term)
        if corner is None:
            return None
        corners.append((term, corner))
    return Extent(mask, tuple(corners))


def _terms(mask: Value) -> list[Value]:
    op = mask.op
    if op is not None and op.name == "and":
        return [t for operand in op.operands for t in _terms(operand)]
    if op is not None and op.name in ("broadcast", "expand_dims"):
        # A conjunction inside a broadcast: its terms keep their own shapes.
        inner = op.operands[0]
        if inner.type.shape:
            return _terms(inner)
    return [mask]


def _corner(term: Value) -> tuple[int, ...] | None:
    """The coordinates of the element of a comparison that is the last to hold."""
    op = term.op
    shape = term.type.shape
    if op is not None and op.name == "splat":
        return (0,) * len(shape)
    if op is None or op.name not in ("lt", "le", "gt", "ge") or not op.operands[0].type.shape:
        return None
    left, right = op.operands
    if op.operands[0].type.is_pointer or not left.type.dtype.is_int():
        return None
    last = tuple(size - 1 for size in shape)
    first = (0,) * len(shape)
    if _is_uniform(right) and _grows(left):
        return last if op.name in ("lt", "le") else first
    if _is_uniform(left) and _grows(right):
        return first if op.name in ("lt", "le") else last
    return None


def _is_uniform(value: Value) -> bool:
    op = value.op
    return op is not None and op.name == "splat"


def _grows(value: Value) -> bool:
    """Whether a tile never falls along any axis."""
    op = value.op
    if op is None:
        return False
    if op.name in ("splat", "arange"):
        return True
    if op.name in _KEEPS_GROWTH:
        return _grows(op.operands[0])
    if op.name == "cast":
        return _widens(op) and _grows(op.operands[0])
    if not value.type.dtype.is_int_signed():
        # Unsigned arithmetic may mean to wrap around: `i - low < high - low` tests both ends.
        return False
    if op.name == "add":
        return all(map(_grows, op.operands))
    if op.name == "sub":
        return _grows(op.operands[0]) and _is_uniform(op.operands[1])
    if op.name == "mul":
        left, right = op.operands
        factor = constant_of(right)
        return factor is not None and factor >= 0 and _grows(left)
    return False


def is_linear(value: Value) -> bool:
    """Whether a tile of offsets or addresses has one stride along each axis."""
    op = value.op
    if op is None:
        return False
    if op.name in ("splat", "arange"):
        return True
    if op.name in ("broadcast", "expand_dims", "hint", "permute"):
        return is_linear(op.operands[0])
    if op.name in ("add", "sub", "addptr"):
        return all(map(is_linear, op.operands))
    if op.name == "cast":
        return _widens(op) and is_linear(op.operands[0])
    if op.name == "mul":
        left, right = op.operands
        uniform = _is_uniform(left) or _is_uniform(right)
        return uniform and is_linear(left) and is_linear(right)
    return False


def _widens(op: Op) -> bool:
    source, target = op.operands[0].type.dtype, op.attrs["to"]
    same_sign = target.is_int_signed() or source.is_int_unsigned()
    return source.is_int() and target.is_int() and target.bits >= source.bits > 1 and same_sign
