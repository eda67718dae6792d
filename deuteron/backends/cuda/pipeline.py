"""Loops whose loads run ahead of them: what `pipeline_plan.py` chose, written out.

With S stages, turn k finds its tiles in stage k mod S, copied S - 1 turns earlier:

    before the loop     copy for turns 0 … S-2
    turn k              wait for the copies of turn k; all threads meet
                        copy for turn k+S-1, into the stage that turn k-1 is done with
                        compute

When dots run on into the next turn (wgmma), turn k-1 is not done with its stage until turn k has
issued its own; the copy comes then ("late refill").

Addresses of turns ahead come from the ops in the plan's slice, written again with the loop's index
and the carried scalars as they will be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from deuteron.backends.cuda.assign import operand_layouts
from deuteron.backends.cuda.dot_wgmma import fence_async
from deuteron.backends.cuda.elementwise import emit_op
from deuteron.backends.cuda.layout import Coord, Layout
from deuteron.backends.cuda.pipeline_plan import AsyncLoad, LoopPlan
from deuteron.backends.cuda.shared_tile import Places, SharedTile
from deuteron.backends.cuda.tile_format import TILE_ALIGN
from deuteron.backends.cuda.tiles import Tiles
from deuteron.backends.cuda.views import source_coordinate
from deuteron.backends.llvm.builder import I32, LType, Val
from deuteron.backends.llvm.registers import register_elem
from deuteron.ir import Op, Value

# Whether a loop has a turn with this index.
RunsOn = Callable[[Val], Val]


class Ahead:
    """Values of a loop's slice for another turn than the one being computed.

    `known` are the loop's index and carried scalars in that turn; `fixed` is shared by all turns
    and keeps what does not depend on them.
    """

    def __init__(
        self,
        tiles: Tiles,
        plan: LoopPlan,
        known: Mapping[Value, Val],
        fixed: dict[tuple[Value, Layout | None, int], Val],
    ) -> None:
        self.tiles = tiles
        self.plan = plan
        self.known = known
        self._fixed = fixed
        self._own: dict[tuple[Value, Layout | None, int], Val] = {}
        self._moving: dict[Value, bool] = {}

    def scalar(self, value: Value) -> Val:
        """A scalar's value in that turn."""
        if value in self.known:
            return self.known[value]
        if value.op not in self.plan.slice:
            return self.tiles.scalar(value)
        return self._get(value, None, 0)

    def register(self, value: Value, layout: Layout, number: int) -> Val:
        """One register of a tile in that turn."""
        if not value.type.shape:
            return self.scalar(value)
        if value.op not in self.plan.slice:
            return self.tiles.registers(value, layout)[number]
        return self._get(value, layout, number)

    def _get(self, value: Value, layout: Layout | None, number: int) -> Val:
        store = self._own if self._moves(value) else self._fixed
        key = value, layout, number
        if key not in store:
            assert value.op is not None
            store[key] = self._made(value.op, layout, number)
        return store[key]

    def _moves(self, value: Value) -> bool:
        """Whether a value differs between turns."""
        if value not in self._moving:
            op = value.op if value.op in self.plan.slice else None
            moves = value in self.known or (
                op is not None and any(self._moves(operand) for operand in op.operands)
            )
            self._moving[value] = moves
        return self._moving[value]

    def _made(self, op: Op, layout: Layout | None, number: int) -> Val:
        b = self.tiles.b
        if op.name == "const":
            return b.const(op.attrs["value"], LType(register_elem(op.attrs["dtype"])))
        if layout is None:
            return emit_op(b, op, [self.scalar(operand) for operand in op.operands])
        coord = layout.register_coords()[number]
        match op.name:
            case "arange":
                start = b.const(op.attrs["start"], I32)
                return b.add(self.tiles.coordinate(layout, 0, coord), start)
            case "splat":
                return self.scalar(op.operands[0])
            case "broadcast" | "expand_dims" | "permute" | "reshape":
                (source,) = operand_layouts(op, layout)
                if source is None:
                    return self.scalar(op.operands[0])
                place = source_coordinate(op, op.result, layout)(coord)
                return self.register(op.operands[0], source, source.register_at[place])
            case _:
                return emit_op(b, op, [self.register(o, layout, number) for o in op.operands])


class LoopPipeline:
    """Writes the copies of one loop.

    In order: `prologue` before the loop, whose result is carried through it; each turn `begin` with
    what was carried, `refill` when the stage of the turn before is free, and `end`, which gives
    what to carry on.
    """

    def __init__(self, tiles: Tiles, plan: LoopPlan, runs: RunsOn, *, fenced: bool) -> None:
        self.tiles = tiles
        self.b = tiles.b
        self.plan = plan
        self.runs = runs
        self.fenced = fenced
        self.distance = plan.stages - 1
        start = tiles.cta.allocate(plan.stages * plan.stage_bytes, TILE_ALIGN)
        self.start = tiles.cta.shared_address(start)
        self._fixed: dict[tuple[Value, Layout | None, int], Val] = {}
        self._stage = self._free = tiles.cta.i32(0)
        self._ahead: Ahead | None = None
        self._next: list[Val] = []
        self._refilled = False

    # -- the three parts --------------------------------------------------------------------
    def prologue(self) -> list[Val]:
        """Start the copies of the first turns."""
        self.tiles.cta.wait_for_readers()
        loop = self.plan.loop
        index = self.tiles.scalar(loop.lower)
        step = self.tiles.scalar(loop.step)
        carried = [self.tiles.scalar(loop.inits[number]) for number in self.plan.carried]
        for turn in range(self.distance):
            ahead = self._at_turn(index, carried)
            self._copy(ahead, index, self.tiles.cta.i32(turn * self.plan.stage_bytes))
            carried = self._advanced(ahead)
            index = self.b.add(index, step)
        last = self.distance * self.plan.stage_bytes
        return [self.tiles.cta.i32(0), self.tiles.cta.i32(last), index, *carried]

    def begin(self, carried: Sequence[Val]) -> None:
        """Wait until this turn's tiles are there."""
        self._stage, self._free, self._index, *rest = carried
        self._ahead = self._at_turn(self._index, rest)
        self._refilled = False
        cta = self.tiles.cta
        cta.asm(f"cp.async.wait_group {self.distance - 1};", "~{memory}", [])
        if self.fenced:
            fence_async(self.tiles)
        cta.barrier()

    def refill(self) -> None:
        """Start the copies of a later turn; all threads are done with the stage before this."""
        assert self._ahead is not None
        self._copy(self._ahead, self._index, self._free)
        self._refilled = True

    def end(self) -> list[Val]:
        """What `begin` of the next turn is given."""
        assert self._ahead is not None
        assert self._refilled
        b, size = self.b, self.plan.stage_bytes
        following = b.add(self._stage, b.const(size, I32))
        wraps = b.icmp("eq", following, b.const(self.plan.stages * size, I32))
        following = b.select(wraps, b.const(0, I32), following)
        index = b.add(self._index, self.tiles.scalar(self.plan.loop.step))
        return [following, self._stage, index, *self._advanced(self._ahead)]

    def tile(self, load: AsyncLoad) -> SharedTile:
        """This turn's tile of a load."""
        return self._tile(load, self._stage)

    # -- addresses ahead --------------------------------------------------------------------
    def _at_turn(self, index: Val, carried: Sequence[Val]) -> Ahead:
        args = self.plan.loop.body.args
        known = {args[0]: index}
        for number, val in zip(self.plan.carried, carried, strict=True):
            known[args[number + 1]] = val
        return Ahead(self.tiles, self.plan, known, self._fixed)

    def _advanced(self, ahead: Ahead) -> list[Val]:
        """The carried scalars one turn on."""
        yields = self.plan.loop.body.yields
        return [ahead.scalar(yields[number]) for number in self.plan.carried]

    # -- copies -----------------------------------------------------------------------------
    def _tile(self, load: AsyncLoad, stage: Val) -> SharedTile:
        offset = self.plan.offsets[self.plan.loads.index(load)]
        base = self.b.add(self.b.add(self.start, stage), self.b.const(offset, I32))
        return SharedTile(load.format, load.op.result.type.dtype, base)

    def _copy(self, ahead: Ahead, index: Val, stage: Val) -> None:
        """Start one turn's copies if the loop has that turn, and close the group in any case."""
        sources = [self._sources(ahead, load) for load in self.plan.loads]

        def start() -> list[Val]:
            for load, (coords, pointers, sizes) in zip(self.plan.loads, sources, strict=True):
                self._start(load, self._tile(load, stage), coords, pointers, sizes)
            return []

        self.tiles.levels.branch(self.runs(index), start, list)
        self.tiles.cta.asm("cp.async.commit_group;", "~{memory}", [])

    def _sources(self, ahead: Ahead, load: AsyncLoad) -> tuple[list[Coord], list[Val], list[Val]]:
        """Where each run of elements goes to and comes from; under a mask, how many bytes of it."""
        b = self.b
        registers = range(0, load.layout.registers, load.run)
        coords = [load.layout.register_coords()[number] for number in registers]
        pointers = [ahead.register(load.pointer, load.layout, number) for number in registers]
        sizes: list[Val] = []
        if load.mask is not None:
            full = b.const(load.run * load.format.element_bytes, I32)
            masks = [ahead.register(load.mask, load.layout, number) for number in registers]
            sizes = [b.select(mask, full, b.const(0, I32)) for mask in masks]
        return coords, pointers, sizes

    def _start(
        self,
        load: AsyncLoad,
        tile: SharedTile,
        coords: Sequence[Coord],
        pointers: Sequence[Val],
        sizes: Sequence[Val],
    ) -> None:
        cta, size = self.tiles.cta, load.run * load.format.element_bytes
        places = Places(self.tiles, tile, (*load.layout.lane, *load.layout.warp))
        own = self.tiles.representative(load.layout)
        kind = "cg" if size == 16 else "ca"
        for number, (coord, pointer) in enumerate(zip(coords, pointers, strict=True)):
            place, constant = places.at(coord)
            args, letters = [place, pointer], ["r", "l"]
            text = f"cp.async.{kind}.shared.global [$0+{constant}], [$1], {size}"
            if sizes:
                args.append(sizes[number])
                letters.append("r")
                text += ", $2"
            if own is not None:
                text = f"@${len(args)} {text}"
                args.append(own)
                letters.append("b")
            cta.asm(f"{text};", ",".join([*letters, "~{memory}"]), args)
