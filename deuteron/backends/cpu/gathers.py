"""Gathers along an axis: elements of a kept tile, chosen by a tile of indices.

The source lies in scratch memory.  Where the lanes of a chunk want neighbours, or all want the same
place along the axis, they are read as one vector; else each lane has an address of its own.  An
index is brought into range first, so that a wrong one gives a wrong element and nothing worse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deuteron.backends.cpu.buffers import LINE_BYTES, Buffer
from deuteron.backends.cpu.index import ZERO, Coord, Index
from deuteron.backends.llvm.builder import LType, Val
from deuteron.backends.llvm.levels import Placed
from deuteron.backends.llvm.registers import elem_bytes, to_register
from deuteron.ir import Op

if TYPE_CHECKING:
    from deuteron.backends.cpu.chunks import Chunks


def read_gathered(chunks: Chunks, op: Op, source: Buffer, index: Index) -> Placed:
    """A chunk of a gather from `source`, in registers."""
    along: int = op.attrs["axis"]
    if index.axis == along and _neighbours(chunks, op, source, index):
        return _read(chunks, op, source, index, _first_position(chunks, op, index))
    place = chunks.get(op.operands[1], index)
    if not place.val.type.lanes:
        position = _position(chunks, op, index)
        return _read(chunks, op, source, index.scalar() if index.axis == along else index, position)
    return _read_lanes(chunks, op, source, index, place)


def _neighbours(chunks: Chunks, op: Op, source: Buffer, index: Index) -> bool:
    """Whether the lanes of a chunk want elements that follow each other in memory.

    Lanes beyond the ends of the axis then read beyond them, by less than a cache line.
    """
    axis = index.axis
    assert axis is not None
    run = chunks.facts.of(op.operands[1]).contiguity[axis]
    fits = index.lanes * elem_bytes(source.elem) <= LINE_BYTES
    return run >= index.lanes and source.strides[axis] == 1 and fits


def _read(chunks: Chunks, op: Op, source: Buffer, index: Index, position: Coord) -> Placed:
    place = index.at(op.attrs["axis"], position)
    return chunks.memory.read(source, op.result.type.element, place)


def _length(op: Op) -> int:
    """Of the axis that is gathered along."""
    axis: int = op.attrs["axis"]
    return op.operands[0].type.shape[axis]


def _position(chunks: Chunks, op: Op, index: Index) -> Coord:
    """The place along the axis that one element of the index names."""
    last = _length(op) - 1
    placed = chunks.get(op.operands[1], index)
    if not placed.val.text.startswith("%"):
        return Coord("", min(max(int(placed.val.text), 0), last))
    key = ("position", placed.val, last)
    known = chunks.levels.recall(key)
    if known is None:
        with chunks.levels.at(placed.level):
            inside = _inside(chunks, op, placed.val, last)
            val = chunks.b.convert("zext", inside, "i64")
        known = chunks.levels.remember(key, Placed(val, placed.level))
    return Coord(known.val.text, 0, known.level)


def _first_position(chunks: Chunks, op: Op, index: Index) -> Coord:
    """The place that a chunk of neighbours begins at, with a lane in the axis if any is."""
    last, lanes = _length(op) - 1, index.lanes
    placed = chunks.get(op.operands[1], index.scalar())
    if not placed.val.text.startswith("%"):
        return Coord("", min(max(int(placed.val.text), 1 - lanes), last))
    key = ("first position", placed.val, last, lanes)
    known = chunks.levels.recall(key)
    if known is None:
        b = chunks.b
        with chunks.levels.at(placed.level):
            first = _as_i32(chunks, op, placed.val)
            first = b.intrinsic("smax", [first, b.const(-lanes, first.type)])
            first = b.intrinsic("smin", [first, b.const(last, first.type)])
            val = b.convert("zext", b.add(first, b.const(lanes, first.type)), "i64")
        known = chunks.levels.remember(key, Placed(val, placed.level))
    return Coord(known.val.text, -lanes, known.level)


def _as_i32(chunks: Chunks, op: Op, index: Val) -> Val:
    b, dtype = chunks.b, op.operands[1].type.dtype
    if index.type.bits > 32:
        return b.convert("trunc", index, "i32")
    if index.type.bits < 32:
        return b.convert("sext" if dtype.is_int_signed() else "zext", index, "i32")
    return index


def _inside(chunks: Chunks, op: Op, index: Val, last: int) -> Val:
    """An index, or one a lane, as an i32 from 0 to `last`."""
    index = _as_i32(chunks, op, index)
    return chunks.b.intrinsic("umin", [index, chunks.b.const(last, index.type)])


def _read_lanes(chunks: Chunks, op: Op, source: Buffer, index: Index, place: Placed) -> Placed:
    """Each lane from an address of its own."""
    b = chunks.b
    along: int = op.attrs["axis"]
    size = elem_bytes(source.elem)
    start = chunks.memory.buffer_address(source, index.at(along, ZERO).scalar())
    level = max(chunks.pin, place.level, start.level)
    lanes = place.val.type.lanes
    with chunks.levels.at(level):
        inside = _inside(chunks, op, place.val, source.shape[along] - 1)
        offsets = b.mul(inside, b.const(source.strides[along] * size, inside.type))
        if index.axis not in (None, along):
            assert index.axis is not None
            step = source.strides[index.axis] * size
            offsets = b.add(offsets, b.vector(range(0, lanes * step, step), "i32"))
        text = f"getelementptr i8, {start.val}, {offsets}"
        addresses = b.emit(text, LType("ptr", lanes))
        element = op.result.type.element
        stored = chunks.memory.gather(addresses, element, None)
        return Placed(to_register(b, stored, element), level)
