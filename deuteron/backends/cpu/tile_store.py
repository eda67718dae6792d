"""Packed operands of dots that are kept for the other programs of a launch.

A tile of A in a matrix product is wanted by every program in its row of blocks, and a tile of B by
every one in its column; packing it each time is what a large product spends most of its time on
beside multiplying.  So each thread keeps what it packed, until its next launch, in its *store*.

What a tile holds depends on a few scalars that differ between programs and turns of a loop, the
tile's *keys*: an operand that is loaded and moved, converted or computed from loads, and nothing
else.  Where nothing in the kernel can change what is loaded, two tiles with equal keys are equal.
Two arguments may still be one array (ADR 0007): then the kernel does without the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deuteron.backends.cpu.dot_plan import round_up
from deuteron.backends.cpu.loops import either
from deuteron.backends.cpu.prefetch import PrefetchRows
from deuteron.backends.cpu.steps import Group, Pack
from deuteron.backends.cpu.tile_store_ir import LINE_BYTES, site_bytes, tile_store_ir
from deuteron.backends.llvm.builder import I1, I64, PTR, Builder, Val
from deuteron.backends.llvm.levels import Placed
from deuteron.ir import Value

if TYPE_CHECKING:
    from deuteron.backends.cpu.planner import Plan

STORE = "%store"  # the kernel's parameter
# What one thread may keep.  Pages that are never written cost nothing.
STORE_BYTES = 64 << 20
# More slots would make the index of a small problem costly to clear.
MAX_SLOTS = 1024
# A smaller tile is packed in the time it takes to look for it.
MIN_TILE_BYTES = 2048
MAX_TILE_BYTES = 2 << 20
PAGE_BYTES = 4096


def keys_of(plan: Plan, pack: Pack) -> tuple[Value, ...]:
    """The scalars that tell a packed operand's tiles apart; none when they may not be kept."""
    op = pack.value.op
    in_loop = op is not None and plan.depth[plan.block_of[op]] > 0
    if not in_loop or not plan.demand.is_virtual(pack.value) or not _is_worth_keeping(pack):
        return ()
    scalars: dict[Value, None] = {}
    for tile in _tiles(plan, pack.value):
        op = tile.op
        is_load = op is not None and op.name == "load"
        if op is None or not (plan.is_steady(op) if is_load else plan.demand.is_virtual(tile)):
            return ()
        scalars.update(dict.fromkeys(o for o in op.operands if not o.type.shape))
    return tuple(value for value in scalars if _varies(plan, value))


def _tiles(plan: Plan, value: Value) -> Iterator[Value]:
    """A tile and all tiles it is computed from, each once: loads that were kept before it, too."""
    seen: set[Value] = set()
    stack = [value]
    while stack:
        tile = stack.pop()
        if tile in seen or not tile.type.shape:
            continue
        seen.add(tile)
        yield tile
        if tile.op is not None:
            stack.extend(tile.op.operands)


def _is_worth_keeping(pack: Pack) -> bool:
    return MIN_TILE_BYTES <= pack.packed_bytes <= MAX_TILE_BYTES


def _varies(plan: Plan, scalar: Value) -> bool:
    """Whether a scalar may differ between two places of one launch."""
    same = plan.function.params
    return any(
        not (source in same or source.is_op("num_programs"))
        for source in plan.demand.sources(scalar)
    )


@dataclass(frozen=True, slots=True)
class Site:
    """Where the tiles of one operand are kept: how many of which size, and offsets in the store."""

    key_count: int
    slots: int
    tile_bytes: int
    index_at: int
    keys_at: int
    tiles_at: int


@dataclass(frozen=True, slots=True)
class KeptTile:
    """Where a packed tile lies, and whether it is yet to be packed there (an i1)."""

    place: Val
    missing: Val

    def next_tile(self, b: Builder, pack: Pack, source: PrefetchRows) -> list[PrefetchRows]:
        """What to prefetch for the loop's next turn, whose operand is loaded from `source`.

        Where this tile was found, the next one was put behind it when both were packed; else that
        is where it will be put.
        """
        behind = b.gep("i8", self.place, pack.packed_bytes)
        pitch = b.const(pack.packed_bytes // source.rows, I64)
        read = replace(
            source,
            pointer=b.select(self.missing, source.pointer, behind),
            pitch_bytes=b.select(self.missing, source.pitch_bytes, pitch),
        )
        row_bytes = pack.packed_bytes // source.rows
        written = PrefetchRows(
            behind, pitch, source.rows, row_bytes, write=True, wanted=self.missing
        )
        return [read, written]


class TileStore:
    """The store of one kernel, laid out for the operands it keeps; `size` is 0 without any."""

    def __init__(self, b: Builder, plan: Plan) -> None:
        groups = [s for p in plan.blocks.values() for s in p.steps if isinstance(s, Group)]
        packs = [group.kept_pack for group in groups if group.kept_pack is not None]
        self.b = b
        self.plan = plan
        self.size = 0
        self._sites = self._lay_out(packs)
        self._store, self._keys = Val(STORE, PTR), Val("%keys", PTR)

    def _lay_out(self, packs: Sequence[Pack]) -> dict[Pack, Site]:
        """Headers and indices first, then keys, then tiles."""
        self.size = LINE_BYTES
        share = STORE_BYTES // max(len(packs), 1)
        slots = {pack: _slots(pack, share) for pack in packs}
        index_at = {pack: self._take(site_bytes(slots[pack])) for pack in packs}
        keys_at = {pack: self._take(8 * slots[pack] * len(pack.keys)) for pack in packs}
        tiles_at = {pack: self._take(slots[pack] * pack.packed_bytes, PAGE_BYTES) for pack in packs}
        if not packs:
            self.size = 0
        return {
            pack: Site(
                len(pack.keys), slots[pack], pack.packed_bytes,
                index_at[pack], keys_at[pack], tiles_at[pack],
            )
            for pack in packs
        }  # fmt: skip

    def _take(self, count: int, align: int = LINE_BYTES) -> int:
        start = round_up(self.size, align)
        self.size = round_up(start + count, LINE_BYTES)
        return start

    @property
    def functions(self) -> str:
        """What the kernel's module needs beside the kernel."""
        return tile_store_ir() if self._sites else ""

    def open(self, arguments: Mapping[Value, Placed]) -> None:
        """Written once, where the kernel begins; `arguments` holds its parameters."""
        if not self._sites:
            return
        b = self.b
        most = max(site.key_count for site in self._sites.values())
        b.do(f"{self._keys.text} = alloca [{most} x i64]")
        begins = b.emit(f"call i1 @tile_store.open({self._store})", I1)
        either(b, "begin", begins, self._empty, list[Val])
        for read, written in self._rivals():
            same = b.icmp("eq", arguments[read].val, arguments[written].val)
            self._store = b.select(same, Val("null", PTR), self._store)

    def _empty(self) -> list[Val]:
        for site in self._sites.values():
            numbers = f"i64 {site.index_at}, i64 {site.slots}"
            kernel = f"ptr @{self.plan.function.name}"
            self.b.do(f"call void @tile_store.empty({self._store}, {numbers}, {kernel})")
        return []

    def _rivals(self) -> set[tuple[Value, Value]]:
        """The arrays that kept tiles come from, each with every array that is written."""
        roots = self.plan.roots
        tiles = (tile for pack in self._sites for tile in _tiles(self.plan, pack.value))
        loads = [tile.op for tile in tiles if tile.op and tile.op.name == "load"]
        read = {roots.of(load.operands[0]) for load in loads}
        written = {roots.of(write.operands[0]) for write in self.plan.writes}
        return {(r, w) for r in read for w in written if r is not None and w is not None}

    def find(self, pack: Pack, keys: Sequence[Val], spare: Val) -> KeptTile:
        """Find a tile by its keys; `spare` is where it goes when the store does not take it."""
        site = self._sites[pack]
        for number, key in enumerate(keys):
            self.b.store(_as_i64(self.b, key), self.b.gep("i64", self._keys, number), 8)
        numbers = (site.index_at, site.keys_at, site.tiles_at, site.slots, site.tile_bytes)
        constants = [self.b.const(number, I64) for number in numbers]
        count = self.b.const(site.key_count, I64)
        arguments = ", ".join(map(str, [self._store, *constants, self._keys, count, spare]))
        found = self.b.emit(f"call {{ ptr, i1 }} @tile_store.find({arguments})", PTR)
        place, missing = (
            self.b.emit(f"extractvalue {{ ptr, i1 }} {found.text}, {i}", type)
            for i, type in enumerate((PTR, I1))
        )
        return KeptTile(place, missing)


def _slots(pack: Pack, share_bytes: int) -> int:
    """A power of two of tiles: as many as fit into `share_bytes`."""
    fitting = max(share_bytes // pack.packed_bytes, 1)
    return min(1 << fitting.bit_length() - 1, MAX_SLOTS)


def _as_i64(b: Builder, key: Val) -> Val:
    """A scalar's bits."""
    if key.type == PTR:
        return b.convert("ptrtoint", key, "i64")
    if key.type.is_float:
        key = b.bitcast(key, f"i{key.type.bits}")
    return key if key.type == I64 else b.convert("zext", key, "i64")
