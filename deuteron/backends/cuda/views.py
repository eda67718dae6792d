"""Ops that move no data: which register of an operand each register of the result is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deuteron.backends.cuda.assign import operand_layouts
from deuteron.backends.cuda.layout import Coord, Layout
from deuteron.backends.cuda.tiles import Deferred, Tile, Tiles
from deuteron.backends.llvm.builder import I32, Val
from deuteron.ir import Op, Value


def emit_arange(tiles: Tiles, op: Op, layout: Layout) -> Tile:
    """`arange(start, end)` in any 1-D layout."""
    coords = layout.register_coords()

    def write(register: int) -> Val:
        own = tiles.coordinate(layout, 0, coords[register])
        first: int = op.attrs["start"]
        return tiles.b.add(own, tiles.b.const(first, I32)) if first else own

    return Tile(layout, Deferred(tiles.b, layout.registers, write))


def emit_view(tiles: Tiles, op: Op, result: Value, layout: Layout) -> Tile:
    """A reshaping op's result in a layout."""
    if op.name == "splat":
        return Tile(layout, [tiles.scalar(op.operands[0])] * layout.registers)
    if op.name in ("join", "cat"):
        return Tile(layout, _merged(tiles, op, layout))
    (source,) = operand_layouts(op, layout)
    operand = op.operands[0]
    if source is None:
        return Tile(layout, [tiles.scalar(operand)] * layout.registers)
    registers = tiles.registers(operand, source)
    of = source_coordinate(op, result, layout)
    places, coords = source.register_at, layout.register_coords()

    def pick(register: int) -> Val:
        return registers[places[of(coords[register])]]

    return Tile(layout, Deferred(tiles.b, layout.registers, pick))


def source_coordinate(op: Op, result: Value, layout: Layout) -> Callable[[Coord], Coord]:
    """Where in the operand an element of the result comes from."""
    shape = op.operands[0].type.shape
    match op.name:
        case "broadcast":
            return lambda c: tuple(i if s != 1 else 0 for i, s in zip(c, shape, strict=True))
        case "expand_dims":
            axis: int = op.attrs["axis"]
            return lambda c: (*c[:axis], *c[axis + 1 :])
        case "permute":
            order: Sequence[int] = op.attrs["order"]
            return lambda c: tuple(c[order.index(i)] for i in range(len(order)))
        case "reshape":
            return lambda c: _unflatten(_flatten(c, layout.shape), shape)
        case "split":
            return lambda c: (*c, result.index)
        case _:
            raise AssertionError(f"`{op.name}` is no view")


def _flatten(coord: Coord, shape: Sequence[int]) -> int:
    number = 0
    for index, size in zip(coord, shape, strict=True):
        number = number * size + index
    return number


def _unflatten(number: int, shape: Sequence[int]) -> Coord:
    coord: list[int] = []
    for size in reversed(shape):
        number, index = divmod(number, size)
        coord.append(index)
    return tuple(reversed(coord))


def _merged(tiles: Tiles, op: Op, layout: Layout) -> list[Val]:
    """`join` or `cat`: each element is one of the first or of the second operand."""
    axis = op.attrs["axis"] if op.name == "cat" else len(layout.shape) - 1
    side_bit = layout.shape[axis] // 2
    source = operand_layouts(op, layout)[0]
    if source is None:  # two scalars
        sides = [[tiles.scalar(o)] for o in op.operands]
    else:
        sides = [tiles.registers(o, source) for o in op.operands]

    def place(coord: Coord) -> int:
        if source is None:
            return 0
        if op.name == "join":
            return source.register_at[coord[:axis]]
        return source.register_at[(*coord[:axis], coord[axis] % side_bit, *coord[axis + 1 :])]

    threads_choose = any(v[axis] & side_bit for v in (*layout.lane, *layout.warp))
    merged: list[Val] = []
    for coord in layout.register_coords():
        left, right = (side[place(coord)] for side in sides)
        if threads_choose:
            own = tiles.coordinate(layout, axis, coord)
            on_right = tiles.b.icmp("sge", own, tiles.b.const(side_bit, I32))
            merged.append(tiles.b.select(on_right, right, left))
        else:
            merged.append(right if coord[axis] & side_bit else left)
    return merged
