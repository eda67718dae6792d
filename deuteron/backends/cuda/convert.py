"""A tile from one layout to another, the cheapest way.

`plan` decides, on the layouts alone; `emit` writes what was decided.  If each thread holds what it
needs already, registers are renamed.  If each warp does, lanes exchange words by shuffles, unless
shared memory is cheaper.  All else goes through shared memory.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import assert_never

from deuteron.backends.cuda import gf2
from deuteron.backends.cuda.convert_shared import SCRATCH_LIMIT, Move, Shared, Side, plan_shared
from deuteron.backends.cuda.convert_shuffles import Shuffles, plan_shuffles
from deuteron.backends.cuda.cta import Cta
from deuteron.backends.cuda.layout import Layout
from deuteron.backends.cuda.linear_code import Turned, emit_linear
from deuteron.backends.llvm.builder import Builder, LType, Val


@dataclass(frozen=True, slots=True)
class Registers:
    """Nothing moves: register i of the target is register `picks[i]` of the source."""

    picks: tuple[int, ...]


Plan = Registers | Shuffles | Shared


@cache
def plan(source: Layout, target: Layout, element_bits: int, limit: int = SCRATCH_LIMIT) -> Plan:
    """How to convert tiles of elements of 8, 16, 32 or 64 bits.

    Takes at most `limit` bytes of shared memory, with the exception that `plan_shared` names.
    """
    assert source.shape == target.shape
    assert source.num_warps == target.num_warps
    picks = _same_thread(source, target)
    if picks is not None:
        return Registers(picks)
    shuffles = plan_shuffles(source, target, element_bits)
    shared = plan_shared(source, target, element_bits, limit)
    if shuffles is not None and shuffles.cost <= shared.cost:
        return shuffles
    return shared


def _same_thread(source: Layout, target: Layout) -> tuple[int, ...] | None:
    if (source.lane, source.warp) != (target.lane, target.warp):
        return None
    span = gf2.Span(source.flat_register)
    origins = [span.solve(vector) for vector in target.flat_register]
    known = [origin for origin in origins if origin is not None]
    return tuple(gf2.images(known)) if len(known) == len(origins) else None


def emit(cta: Cta, plan: Plan, values: Sequence[Val]) -> list[Val]:
    """Write a conversion of the source's registers; returns the target's.

    Values are of any one scalar type that registers hold; i1 takes 8 bits on the way.
    """
    match plan:
        case Registers():
            return [values[pick] for pick in plan.picks]
        case Shuffles():
            moved = _shuffle(cta, plan, _to_moved(cta.b, values))
        case Shared():
            moved = _through_memory(cta, plan, _to_moved(cta.b, values))
        case _:
            assert_never(plan)
    return _from_moved(cta.b, moved, values[0].type)


def _to_moved(b: Builder, values: Sequence[Val]) -> list[Val]:
    """Values as they are put into words and vectors."""
    match values[0].type.elem:
        case "i1":
            return [b.convert("zext", value, "i8") for value in values]
        case "ptr":
            return [b.convert("ptrtoint", value, "i64") for value in values]
        case _:
            return list(values)


def _from_moved(b: Builder, moved: Sequence[Val], type: LType) -> list[Val]:
    match type.elem:
        case "i1":
            return [b.convert("trunc", value, "i1") for value in moved]
        case "ptr":
            return [b.convert("inttoptr", value, "ptr") for value in moved]
        case _:
            return list(moved)


def _scatter(b: Builder, vector: Val, registers: Sequence[int], into: dict[int, Val]) -> None:
    """Make known what a vector holds: by place, the numbers of registers."""
    if len(registers) == 1:
        into[registers[0]] = vector
        return
    for place, register in enumerate(registers):
        into[register] = b.extract(vector, place)


def _in_order(registers: dict[int, Val]) -> list[Val]:
    return [registers[number] for number in range(len(registers))]


# -- shuffles -------------------------------------------------------------------------------
def _shuffle(cta: Cta, plan: Shuffles, values: Sequence[Val]) -> list[Val]:
    b = cta.b
    packed = LType(values[0].type.elem, len(plan.source_words[0]))
    word = f"i{packed.bits * packed.lanes}" if packed.lanes > 1 else packed.elem
    words = [b.vector_of([values[r] for r in registers]) for registers in plan.source_words]
    if packed.lanes > 1:
        words = [b.emit(f"bitcast {vector} to {word}", LType(word)) for vector in words]
    sent = Turned(b, words, cta.thread, plan.pick)
    sender = cta.lane if plan.by_own_lane else emit_linear(b, cta.thread, plan.sender)
    received: list[Val] = []
    for round in plan.rounds:
        value = sent[round.word]
        if plan.by_own_lane:
            received.append(cta.shuffle_xor(value, round.lane) if round.lane else value)
        else:
            lane = b.xor(sender, cta.i32(round.lane)) if round.lane else sender
            received.append(cta.shuffle_index(value, lane))
    wanted = Turned(b, received, cta.thread, plan.turn)
    result: dict[int, Val] = {}
    for number, registers in enumerate(plan.target_words):
        whole = wanted[number]
        if packed.lanes > 1:
            whole = b.emit(f"bitcast {whole} to {packed}", packed)
        _scatter(b, whole, registers, result)
    return _in_order(result)


# -- shared memory --------------------------------------------------------------------------
def _through_memory(cta: Cta, plan: Shared, values: Sequence[Val]) -> list[Val]:
    b = cta.b
    type = values[0].type
    result: dict[int, Val] = {}
    for stores, loads in zip(plan.stores.rounds, plan.loads.rounds, strict=True):
        base = cta.scratch(plan.size)
        with _unless(cta, plan.redundant):
            place = _Places(cta, base, plan.stores)
            for move in stores:
                vector = b.vector_of([values[register] for register in move.registers])
                b.store(vector, place(move), _size(move, type))
        cta.barrier()
        place = _Places(cta, base, plan.loads)
        for move in loads:
            lanes = len(move.registers)
            whole = LType(type.elem, lanes if lanes > 1 else 0)
            vector = b.load(whole, place(move), _size(move, type))
            _scatter(b, vector, move.registers, result)
    return _in_order(result)


def _size(move: Move, type: LType) -> int:
    return len(move.registers) * type.bits // 8


@contextmanager
def _unless(cta: Cta, redundant: int) -> Generator[None]:
    """Code that threads with one of these bits of their number leave out."""
    if not redundant:
        yield
        return
    b = cta.b
    masked = b.and_(cta.thread, cta.i32(redundant))
    inside, join = b.name("store"), b.name("stored")
    b.branch_if(b.icmp("eq", masked, cta.i32(0)), inside, join)
    b.label(inside)
    yield
    b.branch(join)
    b.label(join)


class _Places:
    """Pointers to where a thread's accesses go.

    Offsets are XORed to the thread's where they have bits in common and added where not: sums are
    part of the instruction that accesses.
    """

    def __init__(self, cta: Cta, base: Val, side: Side) -> None:
        self._cta = cta
        self._base = base
        self._offset = emit_linear(cta.b, cta.thread, side.thread)
        self._variable = side.thread_bits
        self._starts: dict[int, Val] = {}

    def __call__(self, move: Move) -> Val:
        turned = move.offset & self._variable
        if turned not in self._starts:
            b = self._cta.b
            offset = b.xor(self._offset, self._cta.i32(turned)) if turned else self._offset
            self._starts[turned] = b.add(self._base, offset)
        return self._cta.shared(self._starts[turned], move.offset & ~self._variable)
