"""Whether a loop's turns keep out of each other's way in memory.

An address is made of an array, and of offsets that are added to it.  Threads that touch the same
offsets in each turn meet only themselves.  Offsets that move on by more than they span, as
`i * BLOCK + tl.arange(0, BLOCK)` does, are new in each turn.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from deuteron.backends.cuda.dot_sources import defined_in
from deuteron.ir import For, Value, While
from deuteron.passes.simplify import constant_of

# The offsets of a tile of addresses, and how they are stretched: equal for equal places in arrays.
Place = tuple[object, ...]

_STRETCHES = ("splat", "broadcast", "expand_dims", "reshape", "cast", "hint")


def place_of(pointer: Value, params: Container[Value]) -> Place:
    """Where in its array an address is: equal for equal offsets into any array."""
    parts: list[object] = []
    while (op := pointer.op) is not None:
        match op.name:
            case "addptr":
                parts.append(op.operands[1])
            case "splat" | "broadcast":
                parts.append((op.name, op.result.type.shape))
            case "expand_dims":
                parts.append((op.name, op.attrs["axis"]))
            case _:
                return (*parts, pointer)
        pointer = op.operands[0]
    return tuple(parts) if pointer in params else (*parts, pointer)


def keeps_apart(place: Place, loop: For | While) -> bool:
    """Whether a thread that goes by these offsets meets nobody else's of another turn."""
    inside = defined_in(loop)
    values = [part for part in place if isinstance(part, Value)]
    if not any(value in inside for value in values):
        return True
    step = constant_of(loop.step) if isinstance(loop, For) else None
    if not isinstance(loop, For) or step is None:
        return False
    advance = width = 0.0
    for value in values:
        reach = _reach(value, loop, inside)
        if reach is None:
            return False
        advance += reach.advance
        width += reach.width
    return abs(advance * step) > width


@dataclass(frozen=True, slots=True)
class _Reach:
    """How far an offset moves with the loop's index, and how far its elements lie apart."""

    advance: float = 0
    width: float = 0

    def times(self, factor: float) -> _Reach:
        return _Reach(self.advance * factor, self.width * abs(factor))


def _reach(value: Value, loop: For, inside: set[Value]) -> _Reach | None:
    """None when it is not known."""
    if value is loop.body.args[0]:
        return _Reach(advance=1)
    if not value.type.shape and value not in inside:
        return _Reach()
    op = value.op
    if op is None:
        return None
    if constant_of(value) is not None:
        return _Reach()
    if op.name == "arange":
        return _Reach(width=op.attrs["end"] - op.attrs["start"] - 1)
    if op.name in _STRETCHES:
        return _reach(op.operands[0], loop, inside)
    if op.name not in ("add", "sub", "mul"):
        return None
    left, right = (_reach(operand, loop, inside) for operand in op.operands)
    if left is None or right is None:
        return None
    if op.name == "mul":
        factors = [constant_of(operand) for operand in op.operands]
        if factors[1] is not None:
            return left.times(factors[1])
        return None if factors[0] is None else right.times(factors[0])
    sign = 1 if op.name == "add" else -1
    return _Reach(left.advance + sign * right.advance, left.width + right.width)
