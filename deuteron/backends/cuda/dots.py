"""Writes dots: brings their operands to where the planned instruction takes them, and issues it.

An operand comes from registers, or from a tile in shared memory that
    was copied there ahead of time                       (`pipeline.py`)
    was written before the loop that the dot is in       (operands that the loop does not change)
    is written just before the dot                       (all others)
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from deuteron.backends.cuda.dot_fma import emit_fma
from deuteron.backends.cuda.dot_mma import emit_mma
from deuteron.backends.cuda.dot_plan import DotKind, DotPlan, OperandPlan
from deuteron.backends.cuda.dot_sources import defined_in, running_dots, strip_views
from deuteron.backends.cuda.dot_wgmma import (
    accumulator_values,
    emit_wgmma,
    fence_async,
    wait_wgmma,
)
from deuteron.backends.cuda.pipeline import LoopPipeline, RunsOn
from deuteron.backends.cuda.shared_tile import SharedTile, write_tile
from deuteron.backends.cuda.tile_format import TILE_ALIGN, TileFormat
from deuteron.backends.cuda.tiles import Tile, Tiles
from deuteron.backends.llvm.builder import Val
from deuteron.ir import For, Op, Value, While, walk
from deuteron.ir.nodes import node_blocks
from deuteron.passes.simplify import constant_of

# A value in shared memory, and the form it has there.
Stored = tuple[Value, TileFormat]


class Dots:
    """The dots of one kernel."""

    def __init__(self, tiles: Tiles) -> None:
        self.tiles = tiles
        self.cta = tiles.cta
        self.assignment = tiles.assignment
        self.ready: dict[Stored, SharedTile] = {}
        self._loops: list[LoopDots] = []

    def emit(self, op: Op) -> Tile:
        """One dot; its result is in the plan's accumulator layout."""
        plan = self.assignment.dots[op]
        zero = constant_of(op.operands[2]) == 0
        acc = self.tiles.registers(op.operands[2], plan.accumulator)
        with self.cta.region():
            a, b = self._operands(op, plan)
            if plan.kind is DotKind.WGMMA:
                assert isinstance(b, SharedTile)
                words = emit_wgmma(self.tiles, plan, a, b, None if zero else acc)
                return Tile(plan.accumulator, self._waited(op, plan, words))
            if plan.kind is DotKind.MMA:
                return Tile(plan.accumulator, emit_mma(self.tiles, plan, a, b, acc))
            assert isinstance(a, SharedTile)
            assert isinstance(b, SharedTile)
            return Tile(plan.accumulator, emit_fma(self.tiles, plan, a, b, acc))

    def _waited(self, op: Op, plan: DotPlan, words: Sequence[Val]) -> list[Val]:
        """What wgmma leaves: waited for, unless the dot may run on into the next turn."""
        if self._loops and op in self._loops[-1].running:
            return self._loops[-1].issued(words)
        return accumulator_values(self.tiles, plan, wait_wgmma(self.tiles, 0, words))

    # -- operands ---------------------------------------------------------------------------
    def _operands(self, op: Op, plan: DotPlan) -> list[SharedTile | Sequence[Val]]:
        missing = {
            stored: None
            for value, operand in zip(op.operands, plan.operands, strict=False)
            if (stored := stored_as(value, operand)) is not None and stored not in self.ready
        }
        written = self.write(list(missing))
        if written:
            if plan.kind is DotKind.WGMMA:
                fence_async(self.tiles)
            self.cta.barrier()
        found: list[SharedTile | Sequence[Val]] = []
        for value, operand in zip(op.operands, plan.operands, strict=False):
            stored = stored_as(value, operand)
            if stored is None:
                assert operand.registers is not None
                found.append(self.tiles.registers(value, operand.registers))
            else:
                tile = self.ready[stored] if stored in self.ready else written[stored]
                found.append(tile.permute(strip_views(value)[1]))
        return found

    def write(self, wanted: Sequence[Stored]) -> dict[Stored, SharedTile]:
        """Write values to shared memory that the innermost region takes; no barrier after it."""
        starts = [self.cta.allocate(format.size_bytes, TILE_ALIGN) for _, format in wanted]
        if wanted:
            self.cta.wait_for_readers()
        written: dict[Stored, SharedTile] = {}
        for (value, format), start in zip(wanted, starts, strict=True):
            tile = SharedTile(format, value.type.dtype, self.cta.shared_address(start))
            home = self.assignment.common_home((value,))
            write_tile(self.tiles, tile, self.tiles.registers(value, home), home)
            written[value, format] = tile
        return written

    # -- loops ------------------------------------------------------------------------------
    @contextmanager
    def loop(self, node: For | While, runs: RunsOn | None = None) -> Generator[LoopDots]:
        """Around the writing of a loop, which calls what `LoopDots` says.

        `runs` tells of an index whether a `For` has such a turn.
        """
        before = dict(self.ready)
        with self.cta.region():
            self._write_unchanging(node)
            loop = LoopDots(self, node, runs)
            self._loops.append(loop)
            yield loop
            self._loops.pop()
        self.ready = before

    def _write_unchanging(self, node: For | While) -> None:
        """Write the operands of a loop's dots that the loop does not change."""
        inside = defined_in(node)
        wanted: dict[Stored, None] = {}
        for block in node_blocks(node):
            for op in walk(block):
                if not (isinstance(op, Op) and op.name == "dot"):
                    continue
                plan = self.assignment.dots[op]
                for value, operand in zip(op.operands, plan.operands, strict=False):
                    stored = stored_as(value, operand)
                    if stored and stored[0] not in inside and stored not in self.ready:
                        wanted[stored] = None
        if wanted:
            self.ready |= self.write(list(wanted))
            if self.assignment.target.has_wgmma:
                fence_async(self.tiles)
            self.cta.barrier()


def stored_as(value: Value, plan: OperandPlan) -> Stored | None:
    """What must lie in shared memory for an operand, and how; None when it comes from registers."""
    if plan.from_registers:
        return None
    source, order = strip_views(value)
    inverse = [order.index(axis) for axis in range(len(order))]
    return source, plan.format.permute(inverse)


class LoopDots:
    """What a loop must do for its dots and loads.

    `carried` are values to carry through the loop besides its own.  Each turn starts with `begin`
    and ends with `end`; `finish` turns what the loop leaves into its results.
    """

    def __init__(self, dots: Dots, node: For | While, runs: RunsOn | None) -> None:
        self.dots = dots
        self.tiles = dots.tiles
        self.node = node
        self.running: dict[Op, int] = {}
        self.carried: list[Val] = []
        self._pipeline: LoopPipeline | None = None
        self._issued = 0
        assignment = dots.assignment
        plan = assignment.loops.get(node) if isinstance(node, For) else None
        if plan is not None:
            assert runs is not None
            self.running = running_dots(plan, assignment.dots, assignment.uses)
            room = assignment.target.shared_limit - self.tiles.cta.allocated
            stages = max(2, min(plan.stages, room // plan.stage_bytes))
            kinds = {assignment.dots[op].kind for op in assignment.dots}
            self._pipeline = LoopPipeline(
                self.tiles,
                replace(plan, stages=stages),
                runs,
                fenced=DotKind.WGMMA in kinds,
            )
            self.carried = self._pipeline.prologue()

    def begin(self, carried: Sequence[Val]) -> None:
        """At the start of a turn, with `carried` as this turn has them."""
        self._issued = 0
        if self._pipeline is None:
            return
        self._pipeline.begin(carried)
        if not self.running:
            self._pipeline.refill()
        for load in self._pipeline.plan.loads:
            self.dots.ready[load.op.result, load.format] = self._pipeline.tile(load)

    def issued(self, words: Sequence[Val]) -> list[Val]:
        """A dot that may run on was issued; the turn before is done with its memory."""
        assert self._pipeline is not None
        self._issued += 1
        words = wait_wgmma(self.tiles, self._issued, words)
        if self._issued == 1:
            self.tiles.cta.barrier()
            self._pipeline.refill()
        return words

    def end(self) -> list[Val]:
        """At the end of a turn: what to carry on."""
        return [] if self._pipeline is None else self._pipeline.end()

    def finish(self, values: Sequence[Val]) -> list[Val]:
        """The registers of the loop's own carried values after it, when all dots are done."""
        if not self.running:
            return list(values)
        parts = self._parts(values)
        numbers = sorted(self.running.values())
        words = [word for number in numbers for word in parts[number]]
        waited = iter(wait_wgmma(self.tiles, 0, words))
        for number in numbers:
            parts[number] = [next(waited) for _ in parts[number]]
        return [value for part in parts for value in part]

    def _parts(self, values: Sequence[Val]) -> list[list[Val]]:
        """Registers by the carried value they belong to."""
        rest = iter(values)
        homes = self.dots.assignment.homes
        counts = [homes[v].registers if v.type.shape else 1 for v in self.node.results]
        return [[next(rest) for _ in range(count)] for count in counts]
