"""Dots of any types by multiplying and adding numbers, for what no matrix instruction does.

Each thread reads the rows of A and the columns of B that its accumulators need from shared memory,
a few steps along K at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deuteron.backends.cuda.dot_plan import DotPlan
from deuteron.backends.cuda.layout import Coord
from deuteron.backends.cuda.shared_tile import Places, SharedTile, read_elements
from deuteron.backends.cuda.tile_format import MAX_ROW_BYTES, PIECE_BYTES
from deuteron.backends.cuda.tiles import Tiles
from deuteron.backends.llvm.builder import I32, Val
from deuteron.backends.llvm.registers import convert
from deuteron.dtypes import DType, float16, float32

# What one turn of the loop along K multiplies, at most.
_UNROLLED_PRODUCTS = 4096


def emit_fma(
    tiles: Tiles, plan: DotPlan, a: SharedTile, b: SharedTile, acc: Sequence[Val]
) -> list[Val]:
    """The accumulators after acc + a @ b, in the plan's accumulator layout."""
    return _Fma(tiles, plan, a, b).run(acc)


class _Fma:
    def __init__(self, tiles: Tiles, plan: DotPlan, a: SharedTile, b: SharedTile) -> None:
        self.tiles = tiles
        self.b = tiles.b
        self.plan = plan
        self.operands = (a, b)
        self.layout = plan.accumulator
        self.rank = len(self.layout.shape)
        # Halves are summed up in float, and rounded at the end.
        self.compute: DType = float32 if plan.acc is float16 else plan.acc

    def run(self, acc: Sequence[Val]) -> list[Val]:
        plan, b = self.plan, self.b
        sums = [convert(b, value, plan.acc, self.compute) for value in acc]
        k = plan.shape[3]
        turn = self._turn()
        if turn < k:

            def body(index: Val, carried: list[Val]) -> list[Val]:
                start = b.convert("trunc", index, "i32")
                moved = [self._moved(which, start, turn) for which in range(2)]
                return self._block(moved, carried, turn)

            sums = self.tiles.levels.counted(k // turn, turn, sums, body)
        else:
            sums = self._block(self.operands, sums, k)
        return [convert(b, value, self.compute, plan.acc) for value in sums]

    # -- the loop along K -------------------------------------------------------------------
    def _k_axis(self, which: int) -> int:
        return self.rank - 1 - which

    def _along_k(self, which: int, k: int) -> Coord:
        axis = self._k_axis(which)
        return tuple(k if a == axis else 0 for a in range(self.rank))

    def _turn(self) -> int:
        """How far along K one turn goes: all of it, or to where both tiles' swizzles begin anew."""
        k = self.plan.shape[3]
        if k * self.layout.registers <= _UNROLLED_PRODUCTS:
            return k
        turn = 1
        while turn < k and not all(self._repeats(which, turn) for which in range(2)):
            turn *= 2
        return turn

    def _repeats(self, which: int, turn: int) -> bool:
        format = self.operands[which].format
        steps = [turn << i for i in range((self.plan.shape[3] // turn).bit_length() - 1)]
        offsets = [format.linear(self._along_k(which, step)) for step in steps]
        plain = all(
            format.offset(self._along_k(which, step)) == offset
            for step, offset in zip(steps, offsets, strict=True)
        )
        even = all(offset == offsets[0] << i for i, offset in enumerate(offsets))
        return plain and even and offsets[0] % MAX_ROW_BYTES == 0

    def _moved(self, which: int, start: Val, turn: int) -> SharedTile:
        """An operand from `start` along K on."""
        tile, b = self.operands[which], self.b
        stride = tile.format.linear(self._along_k(which, turn)) // turn
        return replace(tile, base=b.add(tile.base, b.mul(start, b.const(stride, I32))))

    # -- multiplication ---------------------------------------------------------------------
    def _block(self, operands: Sequence[SharedTile], sums: Sequence[Val], k: int) -> list[Val]:
        sums = list(sums)
        places = [
            Places(self.tiles, tile, [self._operand_coord(which, v, 0) for v in self._thread()])
            for which, tile in enumerate(operands)
        ]
        step = min(k, max(self._run_along_k(which) for which in range(2)))
        for start in range(0, k, step):
            a, b = (
                self._read(which, operands[which], places[which], range(start, start + step))
                for which in range(2)
            )
            for along_k in range(start, start + step):
                for register, coord in enumerate(self.layout.register_coords()):
                    left = a[self._operand_coord(0, coord, along_k)]
                    right = b[self._operand_coord(1, coord, along_k)]
                    sums[register] = self._multiply(left, right, sums[register])
        return sums

    def _thread(self) -> Sequence[Coord]:
        return (*self.layout.lane, *self.layout.warp)

    def _operand_coord(self, which: int, coord: Coord, k: int) -> Coord:
        """Where in an operand the factor of an accumulator's element lies."""
        *batch, row, column = coord
        return (*batch, row, k) if which == 0 else (*batch, k, column)

    def _run_along_k(self, which: int) -> int:
        format = self.operands[which].format
        runs_along_k = format.contiguous == self._k_axis(which)
        return PIECE_BYTES // format.element_bytes if runs_along_k else 1

    def _read(self, which: int, tile: SharedTile, places: Places, steps: range) -> dict[Coord, Val]:
        coords = {
            self._operand_coord(which, coord, k): None
            for coord in self.layout.register_coords()
            for k in steps
        }
        found = read_elements(self.tiles, tile, places, list(coords))
        return {
            coord: convert(self.b, value, tile.element, self.compute)
            for coord, value in found.items()
        }

    def _multiply(self, left: Val, right: Val, total: Val) -> Val:
        b = self.b
        if self.compute.is_floating():
            return b.fma(left, right, total)
        return b.add(total, b.mul(left, right))
