"""Conversions within a warp: which lane sends which of its registers when.

In each round every lane sends one word and receives one.  With k the number of the round, the lane
that receives wants its word `k ^ turn(lane)`: were `turn` zero, two lanes that want different words
of one lane would ask in the same round.  A linear `turn` can be found that keeps them apart.  The
word that a lane sends is then a linear function of the round and of the thread, as is the lane that
one receives from.  So the code is: selects that put the words in the order of the rounds, shuffles,
selects that put them in the order of the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deuteron.backends.cuda import gf2
from deuteron.backends.cuda.layout import LANE_BITS, Layout
from deuteron.backends.cuda.linear_code import count_selects

_IDENTITY = tuple(1 << bit for bit in range(LANE_BITS))
WORD_BITS = 32
# What a select of two words costs against a shuffle of one.
_SELECT_COST = 0.5


@dataclass(frozen=True, slots=True)
class Round:
    """One word for each lane: words are numbered as for lane 0 of warp 0, before the turns."""

    word: int
    lane: int


@dataclass(frozen=True, slots=True)
class Shuffles:
    """Rounds of shuffles.

    Round k sends word `rounds[k].word ^ pick(thread)` and receives from lane
    `rounds[k].lane ^ sender(thread)`; what it brings is word `k ^ turn(thread)` of the target.
    `pick`, `sender` and `turn` are columns of linear maps of the thread's number.  Words are the
    source's and the target's registers, several narrow ones together.
    """

    element_bits: int
    source_words: tuple[tuple[int, ...], ...]
    target_words: tuple[tuple[int, ...], ...]
    rounds: tuple[Round, ...]
    pick: tuple[int, ...]
    sender: tuple[int, ...]
    turn: tuple[int, ...]

    @property
    def by_own_lane(self) -> bool:
        """Whether the lane that one receives from is the own one, but for the round's constant."""
        return self.sender[:LANE_BITS] == _IDENTITY and not any(self.sender[LANE_BITS:])

    def stays(self, round: Round) -> bool:
        """Whether each lane keeps its word, so that nothing is shuffled."""
        return self.by_own_lane and round.lane == 0

    @property
    def shuffle_count(self) -> int:
        """Instructions that shuffle, in each thread."""
        words = max(1, self.element_bits // WORD_BITS)
        return words * sum(not self.stays(round) for round in self.rounds)

    @property
    def cost(self) -> float:
        """In shuffles."""
        selects = count_selects(self.pick, {round.word for round in self.rounds})
        selects += count_selects(self.turn, set(range(len(self.rounds))))
        words = max(1, self.element_bits // WORD_BITS)
        return self.shuffle_count + _SELECT_COST * selects * words


@dataclass(frozen=True, slots=True)
class _Origins:
    """Where the source holds what the target wants: columns for the target's register, lane, warp.

    `word` is in which of its registers, or words; `lane` in which lane.
    """

    register_word: list[int]
    register_lane: list[int]
    lane_word: list[int]
    lane_lane: list[int]
    warp_word: list[int]
    warp_lane: list[int]


def plan_shuffles(source: Layout, target: Layout, element_bits: int) -> Shuffles | None:
    """A conversion in which no element leaves its warp; None when there is none in one pass."""
    origins = _find_origins(source, target)
    if origins is None:
        return None
    words = _Words(source, target, origins, element_bits)
    turn = _find_turn(words.origins)
    return None if turn is None else _schedule(words, turn, element_bits)


def _find_origins(source: Layout, target: Layout) -> _Origins | None:
    """Origins of the target's elements within each warp; in the same lane where that can be."""
    own = gf2.Span(source.flat_register)
    warp = gf2.Span((*source.flat_register, *source.flat_lane))
    count = len(source.register)

    def find(wanted: int, held: int, lane: int) -> tuple[int, int] | None:
        """Register and lane; `held` is in register 0 of `lane`."""
        register = own.solve(wanted ^ held)
        if register is not None:
            return register, lane
        solution = warp.solve(wanted)
        return None if solution is None else (solution & ((1 << count) - 1), solution >> count)

    registers = [find(v, 0, 0) for v in target.flat_register]
    lanes = [
        find(t, s, 1 << bit)
        for bit, (t, s) in enumerate(zip(target.flat_lane, source.flat_lane, strict=True))
    ]
    warps = [find(t ^ s, 0, 0) for t, s in zip(target.flat_warp, source.flat_warp, strict=True)]
    columns: list[list[int]] = []
    for found in (registers, lanes, warps):
        known = [pair for pair in found if pair is not None]
        if len(known) < len(found):
            return None
        columns += [[word for word, _ in known], [lane for _, lane in known]]
    return _Origins(*columns)


class _Words:
    """Registers put together to words, so that narrow elements are shuffled several at a time.

    The elements of a word are those that differ in register bits of both layouts.  `origins` is
    then in words instead of registers.
    """

    def __init__(
        self, source: Layout, target: Layout, origins: _Origins, element_bits: int
    ) -> None:
        apart = gf2.Span((*origins.lane_word, *origins.warp_word))
        packed: list[int] = []
        most = max(1, WORD_BITS // element_bits).bit_length() - 1
        for bit, (word, lane) in enumerate(
            zip(origins.register_word, origins.register_lane, strict=True)
        ):
            if len(packed) < most and not lane and apart.add(word):
                packed.append(bit)
        self.packed = [origins.register_word[bit] for bit in packed]
        kept = [bit for bit in range(len(target.register)) if bit not in packed]
        # Coordinates of a source register: its place in a word, then the number of the word.
        basis = gf2.Span((*self.packed, *origins.lane_word, *origins.warp_word))
        for vector in (
            *(origins.register_word[bit] for bit in kept),
            *(1 << bit for bit in range(len(source.register))),
        ):
            basis.add(vector)
        self._span = gf2.Span(basis.basis)
        self.origins = _Origins(
            [self._word(origins.register_word[bit]) for bit in kept],
            [origins.register_lane[bit] for bit in kept],
            [self._word(word) for word in origins.lane_word],
            origins.lane_lane,
            [self._word(word) for word in origins.warp_word],
            origins.warp_lane,
        )
        self.source_words = _tuples(self._span.basis, len(packed))
        self.target_words = self._target_words(origins, packed, kept)

    def _coordinates(self, register: int) -> int:
        found = self._span.solve(register)
        assert found is not None
        return found

    def _word(self, register: int) -> int:
        return self._coordinates(register) >> len(self.packed)

    def _target_words(
        self, origins: _Origins, packed: Sequence[int], kept: Sequence[int]
    ) -> tuple[tuple[int, ...], ...]:
        """The target's registers by word, in the places that the source's words give them."""
        units = [1 << bit for bit in (*packed, *kept)]
        places = (1 << len(packed)) - 1
        words: list[tuple[int, ...]] = []
        for registers in _tuples(units, len(packed)):
            first = gf2.apply(origins.register_word, registers[0])
            shift = self._coordinates(first) & places
            words.append(tuple(registers[place ^ shift] for place in range(places + 1)))
        return tuple(words)


def _tuples(basis: Sequence[int], inner: int) -> tuple[tuple[int, ...], ...]:
    """All sums of a basis, grouped by those of the vectors after the first `inner`."""
    places = gf2.images(basis[:inner])
    return tuple(tuple(word ^ place for place in places) for word in gf2.images(basis[inner:]))


def _find_turn(origins: _Origins) -> list[int] | None:
    """A turn with which no two lanes want different words of one lane in the same round.

    Best is one with which each lane receives from itself, but for a constant.
    """
    span = gf2.Span(origins.register_lane)
    own = [span.solve(lane ^ 1 << bit) for bit, lane in enumerate(origins.lane_lane)]
    turn = [solution for solution in own if solution is not None]
    return turn if len(turn) == len(own) else _find_any_turn(origins)


def _find_any_turn(origins: _Origins) -> list[int] | None:
    senders, wants = gf2.Span(), gf2.Span()
    sender_bits: list[int] = []  # the lane bits whose senders `senders` holds
    turns_of_wants: list[int] = []
    turn = [0] * LANE_BITS
    unused = list(enumerate(origins.register_lane))
    waiting: list[int] = []
    for bit, lane in enumerate(origins.lane_lane):
        if senders.add(lane):
            sender_bits.append(bit)
        else:
            waiting.append(bit)
    reached = gf2.Span(senders.basis)
    senders = gf2.Span(senders.basis)
    for bit in waiting:
        # Lanes that differ by these bits receive from the same one.
        relation = senders.solve(origins.lane_lane[bit])
        assert relation is not None
        want = origins.lane_word[bit]
        for number, other in enumerate(sender_bits):
            if relation >> number & 1:
                want ^= origins.lane_word[other]
        known = wants.solve(want)
        if known is not None:
            turn[bit] = gf2.apply(turns_of_wants, known)
            continue
        fresh = next((pair for pair in unused if pair[1] not in reached), None)
        if fresh is None:
            return None
        reached.add(fresh[1])
        wants.add(want)
        turn[bit] = 1 << fresh[0]
        turns_of_wants.append(turn[bit])
    return turn


def _schedule(words: _Words, turn: Sequence[int], element_bits: int) -> Shuffles:
    origins = words.origins
    sender = [
        lane ^ gf2.apply(origins.register_lane, turned)
        for lane, turned in zip(origins.lane_lane, turn, strict=True)
    ]
    sent = [
        word ^ gf2.apply(origins.register_word, turned)
        for word, turned in zip(origins.lane_word, turn, strict=True)
    ]
    pick = _sent_by(sender, sent)
    warp_pick = [
        word ^ gf2.apply(pick, lane)
        for word, lane in zip(origins.warp_word, origins.warp_lane, strict=True)
    ]
    first = gf2.images(origins.register_word)
    lanes = gf2.images(origins.register_lane)
    return Shuffles(
        element_bits,
        words.source_words,
        words.target_words,
        tuple(
            Round(word ^ gf2.apply(pick, lane), lane)
            for word, lane in zip(first, lanes, strict=True)
        ),
        (*pick, *warp_pick),
        (*sender, *origins.warp_lane),
        (*turn, *(0 for _ in warp_pick)),
    )


def _sent_by(sender: Sequence[int], sent: Sequence[int]) -> list[int]:
    """The map from a sending lane to its word, given both as maps of the receiving lane."""
    span = gf2.Span()
    known: list[int] = []
    for lane, word in zip(sender, sent, strict=True):
        if lane not in span:
            span.add(lane)
            known.append(word)
        else:
            solution = span.solve(lane)
            assert solution is not None
            assert gf2.apply(known, solution) == word
    for lane in _IDENTITY:
        if lane not in span:
            span.add(lane)
            known.append(0)
    return [gf2.apply(known, span.solve(lane) or 0) for lane in _IDENTITY]
