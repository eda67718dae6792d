"""Scratch memory of one program: where tiles that must exist in memory are put.

Every thread has an arena; a buffer is a fixed place in it with a layout.  Places are handed out
while code is written and taken back when the block that asked for them ends, so that the arena is
as long as what is alive at once.  Its first and last 64 bytes are never anything's value: the
address that masked-off lanes are pointed to, and what lanes beyond the ends of a tile may read.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

from deuteron.backends.llvm.levels import Placed
from deuteron.backends.llvm.registers import elem_bytes, storage_elem
from deuteron.ir import Type

LINE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tile in memory: byte offset, LLVM element type, stride of each axis in elements.

    It lies in the arena, or from the address `base` on.
    """

    offset: int
    elem: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    base: Placed | None = None

    def strided(self, shape: tuple[int, ...], strides: tuple[int, ...], start: int = 0) -> Buffer:
        """Another view of the same memory, `start` elements in."""
        offset = self.offset + start * elem_bytes(self.elem)
        return Buffer(offset, self.elem, shape, strides, self.base)

    @property
    def is_linear(self) -> bool:
        """Row-major without gaps."""
        return self.strides == row_major(self.shape)

    @property
    def unit_axis(self) -> int | None:
        """The axis along which elements are neighbours (the last longer than 1), if any."""
        for axis in reversed(range(len(self.shape))):
            if self.shape[axis] > 1:
                return axis if self.strides[axis] == 1 else None
        return len(self.shape) - 1


def row_major(shape: tuple[int, ...], pitch: int | None = None) -> tuple[int, ...]:
    """Strides of a row-major layout whose rows are `pitch` elements apart."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size if len(strides) > 1 or pitch is None else pitch
    return tuple(reversed(strides))


class Arena:
    """Hands out offsets; `size` is how long the arena must be."""

    def __init__(self) -> None:
        self.size = 2 * LINE_BYTES
        self._top = LINE_BYTES

    @contextmanager
    def scope(self) -> Generator[None]:
        """What is allocated inside is free again afterwards."""
        top = self._top
        yield
        self._top = top

    def bytes(self, count: int) -> int:
        """The offset of `count` fresh bytes, on a cache line."""
        offset = self._top
        self._top += -(-count // LINE_BYTES) * LINE_BYTES
        self.size = max(self.size, self._top + LINE_BYTES)
        return offset

    def tile(self, type: Type, *, elem: str | None = None, pitch: int | None = None) -> Buffer:
        """A buffer for a tile; rows (the last axis) lie `pitch` elements apart."""
        elem = elem or storage_elem(type.element)
        strides = row_major(type.shape, pitch)
        rows = prod(type.shape[:-1])
        length = rows * (pitch or type.shape[-1]) if type.shape else 1
        return Buffer(self.bytes(length * elem_bytes(elem)), elem, type.shape, strides)
