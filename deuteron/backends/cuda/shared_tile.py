"""Tiles in shared memory: addresses in them, and their way from registers and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deuteron.backends.cuda.cta import SHARED_PTR
from deuteron.backends.cuda.layout import Coord, Layout
from deuteron.backends.cuda.tile_format import MAX_ROW_BYTES, PIECE_BYTES, TileFormat
from deuteron.backends.cuda.tiles import Tiles
from deuteron.backends.llvm.builder import I32, LType, Val
from deuteron.backends.llvm.registers import storage_elem, to_register, to_storage
from deuteron.dtypes import DType


@dataclass(frozen=True, slots=True)
class SharedTile:
    """A tile that lies in shared memory, its elements as in global memory.

    `base` is the shared address (i32) of its first byte, a multiple of TILE_ALIGN.
    """

    format: TileFormat
    element: DType
    base: Val

    def permute(self, order: Sequence[int]) -> SharedTile:
        return replace(self, format=self.format.permute(order))


class Places:
    """Addresses in a tile, where each thread has its own place.

    `thread` gives the coordinates that the bits of the thread's number (lane, then warp) stand for.
    """

    def __init__(self, tiles: Tiles, tile: SharedTile, thread: Sequence[Coord]) -> None:
        self.b = tiles.b
        self.format = tile.format
        self._thread = thread
        vectors = tuple(tile.format.offset(v) for v in thread)
        self._span = 0
        for vector in vectors:
            self._span |= vector
        self._root = tile.base
        if self._span:
            self._root = self.b.add(tile.base, tiles.thread_image(vectors))
        self._flipped = {0: self._root}

    def at(self, coord: Coord) -> tuple[Val, int]:
        """The address of the element at `coord` from the thread's place, in two summands."""
        constant = self.format.offset(coord)
        flips = constant & self._span
        assert flips < MAX_ROW_BYTES, "threads and registers share more than the swizzle's bits"
        root = self._flipped.get(flips)
        if root is None:
            root = self._flipped[flips] = self.b.xor(self._root, self.b.const(flips, I32))
        return root, constant ^ flips

    def runs(self, coords: Sequence[Coord]) -> list[list[Coord]]:
        """Coordinates in runs of neighbours in memory that one access moves, 16 bytes at most."""
        axis = self.format.contiguous
        longest = PIECE_BYTES // self.format.element_bytes
        for vector in self._thread:
            if vector[axis]:
                longest = min(longest, vector[axis] & -vector[axis])
        wanted, done = set(coords), set[Coord]()
        found: list[list[Coord]] = []
        for coord in sorted(coords):
            if coord not in done:
                run = _longest_run(wanted, coord, axis, longest)
                done.update(run)
                found.append(run)
        return found

    def pointer(self, coord: Coord) -> Val:
        """The same as a pointer."""
        root, constant = self.at(coord)
        pointer = self.b.emit(f"inttoptr {root} to {SHARED_PTR}", SHARED_PTR)
        return self.b.emit(f"getelementptr i8, {pointer}, i32 {constant}", SHARED_PTR)


def _longest_run(wanted: set[Coord], start: Coord, axis: int, longest: int) -> list[Coord]:
    """Neighbours of `start` along an axis, from an aligned place on, a power of two of them."""

    def neighbours(count: int) -> list[Coord]:
        return [(*start[:axis], start[axis] + i, *start[axis + 1 :]) for i in range(count)]

    count = 1
    while 2 * count <= longest and start[axis] % (2 * count) == 0:
        if not wanted.issuperset(neighbours(2 * count)):
            break
        count *= 2
    return neighbours(count)


# -- registers and tiles ----------------------------------------------------------------------
def write_tile(tiles: Tiles, tile: SharedTile, values: Sequence[Val], layout: Layout) -> None:
    """Store a tile held in registers.  Readers must wait at a barrier."""
    b = tiles.b
    places = Places(tiles, tile, (*layout.lane, *layout.warp))
    at = layout.register_at

    def write() -> None:
        for run in places.runs(layout.register_coords()):
            stored = [to_storage(b, values[at[coord]], tile.element) for coord in run]
            size = len(run) * tile.format.element_bytes
            b.store(b.vector_of(stored), places.pointer(run[0]), size)

    tiles.on_representatives(layout, write)


def read_elements(
    tiles: Tiles, tile: SharedTile, places: Places, coords: Sequence[Coord]
) -> dict[Coord, Val]:
    """The elements at some coordinates from the thread's place, as values are held in registers."""
    b = tiles.b
    elem = storage_elem(tile.element)
    values: dict[Coord, Val] = {}
    for run in places.runs(coords):
        count = len(run)
        type = LType(elem, count if count > 1 else 0)
        whole = b.load(type, places.pointer(run[0]), count * tile.format.element_bytes)
        parts = [b.extract(whole, i) for i in range(count)] if count > 1 else [whole]
        for coord, part in zip(run, parts, strict=True):
            values[coord] = to_register(b, part, tile.element)
    return values
