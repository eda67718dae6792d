"""Operand fragments of matrix instructions: 32-bit words in registers.

A word holds the neighbours along K that one thread gives one instruction: two of 16 bits, four of
8, one of 32.  Words come from values in registers, or from a tile in shared memory: by ldmatrix
where eight threads' words are neighbours there (or, of 16 bits, where they are after transposing),
else one element at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from deuteron.backends.cuda.dot_plan import OperandPlan
from deuteron.backends.cuda.layout import Coord, Layout
from deuteron.backends.cuda.shared_tile import Places, SharedTile
from deuteron.backends.cuda.tiles import Tiles
from deuteron.backends.llvm.builder import I16, I32, LType, Val
from deuteron.backends.llvm.registers import convert, storage_elem, to_register, to_storage
from deuteron.dtypes import DType, float8e5, float16, float32

WORD_BITS = 32
# Rows and columns (of 16 bits, or words) of the matrices that ldmatrix moves.
_MATRIX_ROWS = 8
# From sm_89 on 8-bit floats convert in pairs.
_FP8_CONVERSIONS = 89


class Fragments:
    """The words of one operand of one dot."""

    def __init__(
        self,
        tiles: Tiles,
        plan: OperandPlan,
        k_axis: int,
        given: SharedTile | Sequence[Val],
    ) -> None:
        assert plan.registers is not None
        self.tiles = tiles
        self.b = tiles.b
        self.plan = plan
        self.layout: Layout = plan.registers
        self.k_axis = k_axis
        self.per_word = WORD_BITS // plan.element.bits
        self.tile = given if isinstance(given, SharedTile) else None
        self.packed: list[Val] = []
        if not isinstance(given, SharedTile):
            self.packed = pack_words(tiles, given, plan.stored, plan.element)
        self._places: dict[tuple[Coord, ...], Places] = {}

    def words(self, coords: Sequence[Coord]) -> list[Val]:
        """The words of 2 or 4 matrices; a matrix is named by the coordinates of its first word.

        Its rows are eight neighbours along the axis that is not K.
        """
        if self.tile is None:
            at = self.layout.register_at
            return [self.packed[at[c] // self.per_word] for c in coords]
        if self._suits_ldmatrix(self.tile):
            return self._load_matrices(self.tile, coords)
        return [self._gather(self.tile, c) for c in coords]

    # -- ldmatrix ---------------------------------------------------------------------------
    def _runs_along_k(self, tile: SharedTile) -> bool:
        return tile.format.contiguous == self.k_axis

    def _suits_ldmatrix(self, tile: SharedTile) -> bool:
        same = tile.element.bits == self.plan.element.bits
        return same and (self._runs_along_k(tile) or tile.element.bits == 16)

    def _load_matrices(self, tile: SharedTile, coords: Sequence[Coord]) -> list[Val]:
        count = len(coords)
        place, constant = self._matrix_places(tile, coords).at(coords[0])
        trans = "" if self._runs_along_k(tile) else ".trans"
        outs = ", ".join(f"${i}" for i in range(count))
        text = (
            f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 "
            f"{{{outs}}}, [${count}+{constant}];"
        )
        constraints = ",".join(["=r"] * count + ["r", "~{memory}"])
        return self.tiles.cta.asm(text, constraints, [place], [I32] * count, convergent=True)

    def _matrix_places(self, tile: SharedTile, coords: Sequence[Coord]) -> Places:
        """Lanes 8 i to 8 i + 7 give the addresses of the rows of matrix i."""
        rank = len(coords[0])
        row_axis = tile.format.order[1]
        rows = [_along(row_axis, 1 << bit, rank) for bit in range(3)]
        matrices = [_difference(coords[i], coords[0]) for i in (1, 2) if i < len(coords)]
        lanes = [*rows, *matrices, (0,) * rank][:5]
        key = tuple(lanes)
        if key not in self._places:
            self._places[key] = Places(self.tiles, tile, (*lanes, *self.layout.warp))
        return self._places[key]

    # -- element by element -----------------------------------------------------------------
    def _gather(self, tile: SharedTile, coord: Coord) -> Val:
        thread = (*self.layout.lane, *self.layout.warp)
        if thread not in self._places:
            self._places[thread] = Places(self.tiles, tile, thread)
        places = self._places[thread]
        elem = LType(storage_elem(tile.element))
        size = tile.format.element_bytes
        b = self.b
        if self._runs_along_k(tile) and self.per_word > 1:
            vector = LType(elem.elem, self.per_word)
            whole = b.load(vector, places.pointer(coord), size * self.per_word)
            stored = [b.extract(whole, i) for i in range(self.per_word)]
        else:
            steps = [_moved(coord, self.k_axis, step) for step in range(self.per_word)]
            stored = [b.load(elem, places.pointer(step), size) for step in steps]
        if tile.element is self.plan.element:
            return join_word(self.tiles, stored)
        return self._widened(stored, tile.element)

    def _widened(self, stored: Sequence[Val], element: DType) -> Val:
        """A word of float16 from two 8-bit floats."""
        b = self.b
        if self.tiles.cta.target.sm >= _FP8_CONVERSIONS:
            pair = b.emit(f"bitcast {b.vector_of(stored)} to i16", I16)
            kind = "e5m2x2" if element is float8e5 else "e4m3x2"
            return self.tiles.cta.asm(
                f"cvt.rn.f16x2.{kind} $0, $1;", "=r,h", [pair], [I32], sideeffect=False
            )[0]
        wide = [to_register(b, val, element) for val in stored]
        return join_word(self.tiles, [convert(b, val, float32, float16) for val in wide])


def _along(axis: int, step: int, rank: int) -> Coord:
    return tuple(step if a == axis else 0 for a in range(rank))


def _difference(coord: Coord, start: Coord) -> Coord:
    return tuple(c ^ s for c, s in zip(coord, start, strict=True))


def _moved(coord: Coord, axis: int, step: int) -> Coord:
    return tuple(c + step if a == axis else c for a, c in enumerate(coord))


# -- words and values -------------------------------------------------------------------------
def pack_words(tiles: Tiles, values: Sequence[Val], source: DType, element: DType) -> list[Val]:
    """Values of dtype `source`, as held in registers, as words of `element`."""
    b = tiles.b
    per_word = WORD_BITS // element.bits
    if source is not element:
        values = [convert(b, value, source, element) for value in values]
    stored = [to_storage(b, value, element) for value in values]
    return [
        join_word(tiles, stored[start : start + per_word])
        for start in range(0, len(stored), per_word)
    ]


def join_word(tiles: Tiles, stored: Sequence[Val]) -> Val:
    """Elements as in memory, lowest first, as one i32."""
    vector = tiles.b.vector_of(stored)
    return vector if vector.type == I32 else tiles.b.emit(f"bitcast {vector} to i32", I32)


def split_word(tiles: Tiles, word: Val, elem: str) -> list[Val]:
    """The inverse of `join_word`."""
    b = tiles.b
    lanes = WORD_BITS // LType(elem).bits
    if lanes == 1:
        return [b.bitcast(word, elem)]
    vector = LType(elem, lanes)
    whole = b.emit(f"bitcast {word} to {vector}", vector)
    return [b.extract(whole, i) for i in range(lanes)]
