"""Places in tiles: where the elements of a chunk lie, and where those they are made from lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deuteron.ir import Op


@dataclass(frozen=True, slots=True)
class Coord:
    """A position along an axis: an i64 SSA name (or none) plus a constant, known at `level`."""

    base: str = ""
    offset: int = 0
    level: int = 0

    def plus(self, amount: int) -> Coord:
        """The position `amount` further on."""
        return replace(self, offset=self.offset + amount)


ZERO = Coord()


@dataclass(frozen=True, slots=True)
class Index:
    """Where a chunk lies: a coordinate per axis, and the axis its lanes run along (or none)."""

    coords: tuple[Coord, ...]
    axis: int | None = None
    lanes: int = 0

    @classmethod
    def origin(cls, rank: int, axis: int | None = None, lanes: int = 0) -> Index:
        """The start of a tile; a single lane makes a scalar place."""
        coords = (ZERO,) * rank
        return cls(coords, axis, lanes) if lanes > 1 else cls(coords)

    def scalar(self) -> Index:
        """The first lane alone."""
        return Index(self.coords)

    def moved(self, axis: int, amount: int) -> Index:
        """The place `amount` further on along an axis."""
        coords = list(self.coords)
        coords[axis] = coords[axis].plus(amount)
        return replace(self, coords=tuple(coords))

    def at(self, axis: int, coord: Coord) -> Index:
        """The place with another position along an axis."""
        coords = list(self.coords)
        coords[axis] = coord
        return replace(self, coords=tuple(coords))

    def fit(self, shape: tuple[int, ...]) -> Index:
        """The same place in a tile that is only 1 long on some axes."""
        coords = tuple(ZERO if size == 1 else c for c, size in zip(self.coords, shape, strict=True))
        if self.axis is not None and shape[self.axis] == 1:
            return Index(coords)
        return replace(self, coords=coords)


def without_axis(index: Index, axis: int) -> Index:
    """The place before `axis` (of length 1) was put in."""
    coords = index.coords[:axis] + index.coords[axis + 1 :]
    if index.axis is None or index.axis == axis:
        return Index(coords)
    return Index(coords, index.axis - (index.axis > axis), index.lanes)


def permuted(index: Index, order: Sequence[int]) -> Index:
    """The place in the operand of a permute."""
    coords = [ZERO] * len(order)
    for target, source in enumerate(order):
        coords[source] = index.coords[target]
    axis = None if index.axis is None else order[index.axis]
    return Index(tuple(coords), axis, index.lanes)


def reshaped(op: Op, index: Index) -> Index:
    """The place in the operand of a reshape that only adds or drops axes of length 1."""
    kept = [i for i, size in enumerate(op.result.type.shape) if size != 1]
    order = iter(kept)
    coords: list[Coord] = []
    axis = None
    for source_axis, size in enumerate(op.operands[0].type.shape):
        if size == 1:
            coords.append(ZERO)
            continue
        target_axis = next(order)
        coords.append(index.coords[target_axis])
        if index.axis == target_axis:
            axis = source_axis
    return Index(tuple(coords), axis, index.lanes if axis is not None else 0)


def keeps_axes(op: Op) -> bool:
    """Whether a reshape only adds or drops axes of length 1."""
    source, target = op.operands[0].type.shape, op.result.type.shape
    return [s for s in source if s != 1] == [s for s in target if s != 1]
