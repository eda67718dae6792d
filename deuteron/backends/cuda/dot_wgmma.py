"""Dots by wgmma: four warps multiply 64 rows by up to 256 columns, from shared memory.

The instruction runs on after it is issued.  Between `emit_wgmma` and `wait_wgmma` nobody may touch
the accumulators or A's registers or write the operands' memory: accumulators are tied through the
instructions and through the wait, so that no code that uses them can be moved in front of it.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions" and "Matrix Descriptor Format".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deuteron.backends.cuda.dot_plan import GROUP_ROWS, WARPS_PER_GROUP, DotPlan
from deuteron.backends.cuda.fragments import join_word, pack_words, split_word
from deuteron.backends.cuda.layout import Coord
from deuteron.backends.cuda.shared_tile import SharedTile
from deuteron.backends.cuda.tile_format import TileFormat
from deuteron.backends.cuda.tiles import Tiles
from deuteron.backends.llvm.builder import F32, I32, I64, LType, Val
from deuteron.backends.llvm.levels import Placed
from deuteron.dtypes import bfloat16, float16, float32

# How descriptors name the width of the swizzle.
_SWIZZLES = {128: 1, 64: 2, 32: 3}
_ADDRESS_BITS = 0x3FFFF
# Descriptors count in units of 16 bytes.
_UNIT_BITS = 4
_SWIZZLE_ROWS = 8


def emit_wgmma(
    tiles: Tiles,
    plan: DotPlan,
    a: SharedTile | Sequence[Val],
    b: SharedTile,
    acc: Sequence[Val] | None,
) -> list[Val]:
    """Issue acc + a @ b as one group; its accumulators as `accumulator_words`, not to be used yet.

    `acc` None stands for zeros.  What was written to the operands' memory must be fenced
    (`fence_async`), and all threads have waited for each other since.
    """
    return _Wgmma(tiles, plan, a, b, acc).run()


def wait_wgmma(tiles: Tiles, pending: int, words: Sequence[Val]) -> list[Val]:
    """Wait until at most `pending` groups are under way; `words` are accumulators of any."""
    outs = ["=f" if word.type == F32 else "=r" for word in words]
    ties = map(str, range(len(words)))
    return tiles.cta.asm(
        f"wgmma.wait_group.sync.aligned {pending};",
        ",".join([*outs, *ties, "~{memory}"]),
        words,
        [word.type for word in words],
        convergent=True,
    )


def fence_async(tiles: Tiles) -> None:
    """Make the calling thread's writes to shared memory visible to wgmma, after a barrier."""
    tiles.cta.asm("fence.proxy.async.shared::cta;", "~{memory}", [])


def accumulator_words(tiles: Tiles, plan: DotPlan, values: Sequence[Val]) -> list[Val]:
    """Accumulators as the instruction holds them: halves in pairs."""
    if plan.acc is not float16:
        return list(values)
    return [join_word(tiles, values[i : i + 2]) for i in range(0, len(values), 2)]


def accumulator_values(tiles: Tiles, plan: DotPlan, words: Sequence[Val]) -> list[Val]:
    """The inverse of `accumulator_words`."""
    if plan.acc is not float16:
        return list(words)
    return [half for word in words for half in split_word(tiles, word, "half")]


@dataclass(frozen=True, slots=True)
class _Descriptors:
    """Matrix descriptors of one operand: a value plus constants for its parts."""

    tiles: Tiles
    format: TileFormat
    base: Val
    k_axis: int

    @staticmethod
    def of(tiles: Tiles, tile: SharedTile, k_axis: int, group_start: Val | None) -> _Descriptors:
        """`group_start` is the offset of the calling warpgroup's part."""
        b, format = tiles.b, tile.format
        address = tile.base if group_start is None else b.add(tile.base, group_start)
        units = b.lshr(b.and_(address, b.const(_ADDRESS_BITS, I32)), b.const(_UNIT_BITS, I32))
        stride = _SWIZZLE_ROWS * format.row_bytes >> _UNIT_BITS
        leading = format.chunk_bytes >> _UNIT_BITS if format.contiguous != k_axis else 1
        fixed = _SWIZZLES[format.swizzle_bytes] << 62 | stride << 32 | leading << 16
        base = b.or_(b.convert("zext", units, "i64"), b.const(fixed, I64))
        return _Descriptors(tiles, format, base, k_axis)

    def at(self, coord: Coord) -> Val:
        """The descriptor of the part that begins at `coord`."""
        offset = self.format.linear(coord) >> _UNIT_BITS
        return self.tiles.b.add(self.base, self.tiles.b.const(offset, I64))

    @property
    def is_transposed(self) -> bool:
        return self.format.contiguous != self.k_axis


class _Wgmma:
    def __init__(
        self,
        tiles: Tiles,
        plan: DotPlan,
        a: SharedTile | Sequence[Val],
        b: SharedTile,
        acc: Sequence[Val] | None,
    ) -> None:
        self.tiles = tiles
        self.plan = plan
        self.acc = acc
        rows, columns = self._group_starts()
        self.b = _Descriptors.of(tiles, b, 0, self._group_offset(b.format, 1, columns))
        if isinstance(a, SharedTile):
            self.a = _Descriptors.of(tiles, a, 1, self._group_offset(a.format, 0, rows))
            self.a_words: list[Val] = []
        else:
            self.a_words = pack_words(tiles, a, plan.a.stored, plan.a.element)

    def _group_starts(self) -> tuple[list[int], list[int]]:
        """What each bit of the warpgroup's number adds to its first row and first column."""
        bits = self.plan.accumulator.warp[WARPS_PER_GROUP.bit_length() - 1 :]
        return [v[0] for v in bits], [v[1] for v in bits]

    def _group_offset(self, format: TileFormat, axis: int, starts: Sequence[int]) -> Val | None:
        """The offset of the warpgroup's part of an operand, the same in the whole warp."""
        offsets = [format.linear(_along(axis, start)) for start in starts]
        if not any(offsets):
            return None
        b = self.tiles.b
        with self.tiles.levels.at(0):
            group = _warpgroup(self.tiles)
            total = b.const(0, I32)
            for bit, offset in enumerate(offsets):
                own = b.and_(b.lshr(group, b.const(bit, I32)), b.const(1, I32))
                total = b.add(total, b.mul(own, b.const(offset, I32)))
        return total

    # -- the instructions -------------------------------------------------------------------
    def run(self) -> list[Val]:
        """One assembly statement: no compiler sees the accumulators while they change."""
        layout = self.plan.accumulator
        blocks = [
            (row, column)
            for row, column in layout.register_coords()
            if row % GROUP_ROWS == 0 and column % self.plan.columns == 0
        ]
        type = F32 if self.plan.acc is float32 else I32
        count = layout.registers >> (self.plan.acc is float16)
        start = None if self.acc is None else accumulator_words(self.tiles, self.plan, self.acc)
        text = _Text(type, count, start)
        text.line("wgmma.fence.sync.aligned;")
        for k in range(0, self.plan.shape[3], self.plan.k_step):
            for row, column in blocks:
                self._instruction(text, row, column, k)
        text.line("wgmma.commit_group.sync.aligned;")
        return text.emit(self.tiles)

    def _instruction(self, text: _Text, row: int, column: int, k: int) -> None:
        plan = self.plan
        first = plan.accumulator.register_at[row, column] >> (plan.acc is float16)
        size = plan.columns // 2 >> (plan.acc is float16)
        acc = text.accumulators(first, size)
        if self.a_words:
            a = self._a_registers(text, row, k)
        else:
            a = text.argument("l", self.a.at((row, k)))
        b = text.argument("l", self.b.at((k, column)))
        keeps = "0" if self.acc is None and k == 0 else "1"
        name = f"wgmma.mma_async.sync.aligned.m64n{plan.columns}k{plan.k_step}.{plan.type_names}"
        text.line(f"{name} {acc}, {a}, {b}, {keeps}{self._modifiers()};")

    def _a_registers(self, text: _Text, row: int, k: int) -> str:
        assert self.plan.a.registers is not None
        per_word = I32.bits // self.plan.a.element.bits
        half = self.plan.k_step // 2
        at = self.plan.a.registers.register_at
        places = [(row, k), (row + 8, k), (row, k + half), (row + 8, k + half)]
        words = [text.argument("r", self.a_words[at[place] // per_word]) for place in places]
        return f"{{{', '.join(words)}}}"

    def _modifiers(self) -> str:
        """Signs (of floats) and transpositions (of 16 bits), as the instruction wants them."""
        element = self.plan.a.element
        if not element.is_floating():
            return ""
        signs = ", 1, 1"
        if element not in (float16, bfloat16):
            return signs
        a = "" if self.a_words else f", {int(self.a.is_transposed)}"
        return f"{signs}{a}, {int(self.b.is_transposed)}"


def _warpgroup(tiles: Tiles) -> Val:
    """The number of the calling warpgroup, which all of the warp gets from one lane: uniform."""
    placed = tiles.levels.recall(("warpgroup",))
    if placed is None:
        cta, b = tiles.cta, tiles.b
        group = b.lshr(cta.warp, b.const(WARPS_PER_GROUP.bit_length() - 1, I32))
        uniform = cta.shuffle_index(group, cta.i32(0))
        placed = tiles.levels.remember(("warpgroup",), Placed(uniform))
    return placed.val


def _along(axis: int, start: int) -> Coord:
    return (start, 0) if axis == 0 else (0, start)


class _Text:
    """An assembly statement under construction: accumulators first, then arguments."""

    def __init__(self, type: LType, count: int, start: Sequence[Val] | None) -> None:
        self.type = type
        self.count = count
        self.start = start
        self.lines: list[str] = []
        self.args: list[tuple[str, Val]] = []
        self._known: dict[Val, str] = {}

    def line(self, text: str) -> None:
        self.lines.append(text)

    def accumulators(self, first: int, size: int) -> str:
        return f"{{{', '.join(f'${first + i}' for i in range(size))}}}"

    def argument(self, letter: str, value: Val) -> str:
        if value not in self._known:
            ties = 0 if self.start is None else self.count
            self._known[value] = f"${self.count + ties + len(self.args)}"
            self.args.append((letter, value))
        return self._known[value]

    def emit(self, tiles: Tiles) -> list[Val]:
        letter = "f" if self.type == F32 else "r"
        outs = [f"={letter}" if self.start is not None else f"=&{letter}"] * self.count
        ties = [] if self.start is None else list(map(str, range(self.count)))
        constraints = [*outs, *ties, *(letter for letter, _ in self.args), "~{memory}"]
        return tiles.cta.asm(
            "\n".join(self.lines),
            ",".join(constraints),
            [*(self.start or ()), *(value for _, value in self.args)],
            [self.type] * self.count,
            convergent=True,
        )
