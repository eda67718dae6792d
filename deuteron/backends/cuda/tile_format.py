"""The form of tiles in shared memory that cp.async, ldmatrix and wgmma all take to.

A tile lies in rows of up to 128 bytes along its contiguous axis; what is longer continues in the
next *chunk* of rows.  Within a row the 16-byte pieces are permuted by XOR with the row's number, so
that eight pieces above one another lie in different banks: the swizzles of 128, 64 and 32 bytes
that wgmma's descriptors know (PTX ISA, "Shared Memory Matrix Layout").

Offsets are linear over GF(2) in the coordinates, as layouts are: a thread's part is computed once,
and another register's address differs from it by a constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from deuteron.backends.cuda.layout import Coord

# Tiles begin at multiples of this: the swizzles' patterns repeat after it.
TILE_ALIGN = 1024
MAX_ROW_BYTES = 128
PIECE_BYTES = 16
_LEAST_SWIZZLE = 32


@dataclass(frozen=True)
class TileFormat:
    """Where each element of a tile lies.

    `order` names the axes, the contiguous one first; the sizes in `shape` are powers of two.
    """

    shape: tuple[int, ...]
    element_bytes: int
    order: tuple[int, ...]

    @property
    def contiguous(self) -> int:
        """The axis along which elements are neighbours."""
        return self.order[0]

    @property
    def row_bytes(self) -> int:
        return min(MAX_ROW_BYTES, self.shape[self.order[0]] * self.element_bytes)

    @property
    def chunk_bytes(self) -> int:
        """From one chunk of rows to the next."""
        return self.row_bytes * self.shape[self.order[1]]

    @property
    def swizzle_bytes(self) -> int:
        """The width of the swizzle; 0 for none."""
        return self.row_bytes if self.row_bytes >= _LEAST_SWIZZLE else 0

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.element_bytes

    def linear(self, coord: Coord) -> int:
        """The offset of an element before swizzling."""
        chunk, within = divmod(coord[self.order[0]] * self.element_bytes, self.row_bytes)
        outer = 0
        for axis in reversed(self.order[2:]):
            outer = outer * self.shape[axis] + coord[axis]
        chunks = self.shape[self.order[0]] * self.element_bytes // self.row_bytes
        row = coord[self.order[1]]
        return within + row * self.row_bytes + (chunk + outer * chunks) * self.chunk_bytes

    def offset(self, coord: Coord) -> int:
        """The offset of an element; the offset of an XOR of coordinates is the XOR of offsets."""
        linear = self.linear(coord)
        if not self.swizzle_bytes:
            return linear
        return linear ^ (linear >> 3 & (self.swizzle_bytes - PIECE_BYTES))

    def permute(self, order: Sequence[int]) -> TileFormat:
        """The same memory, its axis `order[i]` being axis i of the result."""
        shape = tuple(self.shape[axis] for axis in order)
        places = {axis: place for place, axis in enumerate(order)}
        return TileFormat(shape, self.element_bytes, tuple(places[axis] for axis in self.order))
