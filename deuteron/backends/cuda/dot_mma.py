"""Dots by mma.sync: each warp multiplies its rows by its columns, 16 × 8 at a time.

Operands come as words (`fragments.py`).  For each step along K a warp fetches its words of A and of
B once and uses each for all tiles of its part.
"""

from __future__ import annotations

from collections.abc import Sequence

from deuteron.backends.cuda.dot_plan import MMA_COLUMNS, MMA_ROWS, DotPlan
from deuteron.backends.cuda.fragments import Fragments, join_word, split_word
from deuteron.backends.cuda.layout import Coord, Layout
from deuteron.backends.cuda.shared_tile import SharedTile
from deuteron.backends.cuda.tiles import Tiles
from deuteron.backends.llvm.builder import F32, I32, Val
from deuteron.dtypes import float16, float32

Operand = SharedTile | Sequence[Val]
# The words of a fragment: as they are, or the high parts and then the low parts.
Words = Sequence[Sequence[Val]]


def emit_mma(tiles: Tiles, plan: DotPlan, a: Operand, b: Operand, acc: Sequence[Val]) -> list[Val]:
    """The accumulators after acc + a @ b, in the plan's accumulator layout."""
    return _Mma(tiles, plan, a, b, acc).run()


class _Mma:
    def __init__(
        self, tiles: Tiles, plan: DotPlan, a: Operand, b: Operand, acc: Sequence[Val]
    ) -> None:
        self.tiles = tiles
        self.plan = plan
        self.batched = len(plan.accumulator.shape) == 3
        rank = len(plan.accumulator.shape)
        self.a = Fragments(tiles, plan.a, rank - 1, a)
        self.b = Fragments(tiles, plan.b, rank - 2, b)
        self.halves = plan.acc is float16
        self.acc = list(acc)

    def run(self) -> list[Val]:
        batch, _, _, k = self.plan.shape
        rows = _starts(self.plan.accumulator, -2, MMA_ROWS)
        columns = _starts(self.plan.accumulator, -1, MMA_COLUMNS)
        for number in range(batch):
            for start in range(0, k, self.plan.k_step):
                self._step(number, rows, columns, start)
        return self.acc

    def _coord(self, batch: int, row: int, column: int) -> Coord:
        return (batch, row, column) if self.batched else (row, column)

    def _step(self, batch: int, rows: Sequence[int], columns: Sequence[int], k: int) -> None:
        half = self.plan.k_step // 2
        a: list[Words] = []
        for row in rows:
            places = [(row, k), (row + 8, k), (row, k + half), (row + 8, k + half)]
            a.append(self._words(self.a, [self._coord(batch, *p) for p in places]))
        pair = 2 if len(columns) > 1 else 1
        for first in range(0, len(columns), pair):
            group = columns[first : first + pair]
            places = [(k + step, column) for column in group for step in (0, half)]
            words = self._words(self.b, [self._coord(batch, *p) for p in places])
            for number, column in enumerate(group):
                b = [part[2 * number : 2 * number + 2] for part in words]
                for row, row_words in zip(rows, a, strict=True):
                    self._tile(self._coord(batch, row, column), row_words, b)

    def _words(self, fragments: Fragments, coords: Sequence[Coord]) -> Words:
        words = fragments.words(coords)
        if self.plan.a.element is not float32:
            return [words]
        high = [self._rounded(word) for word in words]
        if not self.plan.split:
            return [high]
        b = self.tiles.b
        rests = [
            b.fsub(b.bitcast(word, "float"), b.bitcast(rounded, "float"))
            for word, rounded in zip(words, high, strict=True)
        ]
        return [high, [self._rounded(rest) for rest in rests]]

    def _rounded(self, word: Val) -> Val:
        """A float32 rounded to tf32."""
        value = self.tiles.b.bitcast(word, "float")
        text = "cvt.rna.tf32.f32 $0, $1;"
        return self.tiles.cta.asm(text, "=r,f", [value], [I32], sideeffect=False)[0]

    def _tile(self, start: Coord, a: Words, b: Words) -> None:
        """Multiply one 16 × 8 tile; of split operands, the smallest products first."""
        at = self.plan.accumulator.register_at
        *batch, row, column = start
        registers = [at[(*batch, row + 8 * (i >> 1), column + (i & 1))] for i in range(4)]
        if self.plan.split:
            self._multiply(registers, a[1], b[0])
            self._multiply(registers, a[0], b[1])
        self._multiply(registers, a[0], b[0])

    def _multiply(self, registers: Sequence[int], a: Sequence[Val], b: Sequence[Val]) -> None:
        acc = [self.acc[r] for r in registers]
        if self.halves:
            acc = [join_word(self.tiles, acc[i : i + 2]) for i in (0, 2)]
        count = len(acc)
        type = acc[0].type
        letter = "f" if type == F32 else "r"
        names = [f"${i}" for i in range(count + 6)]
        groups = (names[:count], names[count : count + 4], names[count + 4 :], names[:count])
        acc_name, a_name, b_name = self.plan.type_names.split(".")
        shape = f"m16n8k{self.plan.k_step}"
        text = (
            f"mma.sync.aligned.{shape}.row.col.{acc_name}.{a_name}.{b_name}.{acc_name} "
            + ", ".join(f"{{{', '.join(group)}}}" for group in groups)
            + ";"
        )
        ties = map(str, range(count))
        constraints = ",".join([*[f"={letter}"] * count, *["r"] * 6, *ties])
        results = self.tiles.cta.asm(
            text, constraints, [*a, *b, *acc], [type] * count, sideeffect=False, convergent=True
        )
        if self.halves:
            results = [half for word in results for half in split_word(self.tiles, word, "half")]
        for register, result in zip(registers, results, strict=True):
            self.acc[register] = result


def _starts(layout: Layout, axis: int, step: int) -> list[int]:
    """Where the tiles of a warp begin along an axis, for warp 0."""
    return sorted({c[axis] for c in layout.register_coords() if c[axis] % step == 0})
