"""Which layout a tile of addresses is best accessed in.

Neighbouring threads should touch neighbouring bytes, and a thread as many at once as one
instruction moves (16 bytes).  Tiles of one shape that run along the same axis get one layout, the
widest that any of them can use, so that what one access loads and another stores needs no
conversion.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from deuteron.backends.cuda.layout import Layout, blocked
from deuteron.backends.cuda.target import WARP_SIZE
from deuteron.backends.llvm.registers import elem_bytes, storage_elem
from deuteron.ir import Function, Op, Value, walk
from deuteron.ir.axis_info import AxisFacts

ACCESS_BYTES = 16
_ACCESSES = ("load", "store", "atomic_rmw", "atomic_cas")


class Coalescing:
    """Layouts for the accesses of one function."""

    def __init__(self, function: Function, facts: AxisFacts, num_warps: int) -> None:
        self.facts = facts
        self.num_warps = num_warps
        self._widest: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        for node in walk(function.body):
            if isinstance(node, Op) and node.name in _ACCESSES and node.operands[0].type.shape:
                pointer = node.operands[0]
                key = pointer.type.shape, self.order(pointer)
                self._widest[key] = max(self._widest.get(key, 1), self.run(pointer))

    def order(self, pointer: Value) -> tuple[int, ...]:
        """The axes of a tile of addresses, from the one along which they run."""
        return _order(self.facts.of(pointer).contiguity)

    def run(self, pointer: Value) -> int:
        """How many elements one aligned access can move."""
        info = self.facts.of(pointer)
        axis = self.order(pointer)[0]
        size = elem_bytes(storage_elem(pointer.type.pointee))
        return max(1, min(info.contiguity[axis], info.divisibility // size, ACCESS_BYTES // size))

    def is_scattered(self, pointer: Value) -> bool:
        """True when no two addresses are known to be neighbours."""
        return self.run(pointer) == 1

    def layout(self, pointer: Value) -> Layout:
        """The layout for an access through this tile."""
        order = self.order(pointer)
        return self.spread(pointer.type.shape, order, self._widest[pointer.type.shape, order])

    def default(self, shape: tuple[int, ...]) -> Layout:
        """The layout of tiles of a shape about which nothing else is known.

        That of an access of the shape where there is one.
        """
        for (accessed, order), vector in self._widest.items():
            if accessed == shape:
                return self.spread(shape, order, vector)
        return self.spread(shape, tuple(reversed(range(len(shape)))), 1)

    def spread(self, shape: tuple[int, ...], order: Sequence[int], vector: int) -> Layout:
        """A blocked layout whose vectors leave no thread without an element if that can be."""
        vector = max(1, min(vector, prod(shape) // (WARP_SIZE * self.num_warps)))
        return blocked(shape, self.num_warps, tuple(order), vector)


def _order(contiguity: Sequence[int]) -> tuple[int, ...]:
    """Axes by falling contiguity, later axes first among equals."""
    return tuple(sorted(range(len(contiguity)), key=lambda a: (-contiguity[a], -a)))
