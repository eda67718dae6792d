"""What conversions do, on arrays: their definition, and their plans carried out step by step.

A tile in a layout is an array of element numbers, indexed by (warp, lane, register).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deuteron.backends.cuda.convert import Plan, Registers
from deuteron.backends.cuda.convert_shared import Move, Shared, Side
from deuteron.backends.cuda.convert_shuffles import Shuffles
from deuteron.backends.cuda.layout import Layout

Elements = NDArray[np.int64]
EMPTY = -1


def elements(layout: Layout) -> Elements:
    """The row-major number of each element, from the definition of a layout."""
    sizes = (layout.num_warps, 32, layout.registers)
    warp, lane, register = np.meshgrid(*map(np.arange, sizes), indexing="ij")
    coords = np.zeros((len(layout.shape), *sizes), np.int64)
    vectors = ((warp, layout.warp), (lane, layout.lane), (register, layout.register))
    for index, columns in vectors:
        for bit, column in enumerate(columns):
            for axis, entry in enumerate(column):
                coords[axis] ^= (index >> bit & 1) * entry
    if not layout.shape:
        return np.zeros(sizes, np.int64)
    return np.ravel_multi_index(tuple(coords), layout.shape).astype(np.int64)


def linear(columns: Sequence[int], index: int) -> int:
    """The XOR of the columns that the set bits of an index select."""
    result = 0
    for bit, column in enumerate(columns):
        result ^= column if index >> bit & 1 else 0
    return result


def run(plan: Plan, held: Elements) -> Elements:
    """What threads hold after a plan; shared memory must be large enough and nothing read early."""
    match plan:
        case Registers():
            return held[:, :, list(plan.picks)]
        case Shuffles():
            return _run_shuffles(plan, held)
        case Shared():
            return _run_shared(plan, held)


def _run_shuffles(plan: Shuffles, held: Elements) -> Elements:
    warps = held.shape[0]
    registers = max(r for word in plan.target_words for r in word) + 1
    result = np.full((warps, 32, registers), EMPTY)
    source, target = np.array(plan.source_words), np.array(plan.target_words)
    for warp in range(warps):
        threads = [lane + 32 * warp for lane in range(32)]
        received: list[list[Elements]] = [[] for _ in threads]
        for step in plan.rounds:
            sent = [
                held[warp, lane, source[step.word ^ linear(plan.pick, thread)]]
                for lane, thread in enumerate(threads)
            ]
            for lane, thread in enumerate(threads):
                received[lane].append(sent[step.lane ^ linear(plan.sender, thread)])
        for lane, thread in enumerate(threads):
            for number, word in enumerate(target):
                result[warp, lane, word] = received[lane][number ^ linear(plan.turn, thread)]
    return result


def _run_shared(plan: Shared, held: Elements) -> Elements:
    warps = held.shape[0]
    size = plan.element_bits // 8
    registers = max(r for moves in plan.loads.rounds for m in moves for r in m.registers) + 1
    result = np.full((warps, 32, registers), EMPTY)
    threads = [(warp, lane) for warp in range(warps) for lane in range(32)]
    for stores, loads in zip(plan.stores.rounds, plan.loads.rounds, strict=True):
        memory = np.full(plan.size // size, EMPTY)
        for warp, lane in threads:
            if not lane + 32 * warp & plan.redundant:
                for move in stores:
                    place = _place(plan.stores, move, lane + 32 * warp, size)
                    assert (memory[place] == EMPTY).all(), "two threads store one element"
                    memory[place] = held[warp, lane, list(move.registers)]
        for warp, lane in threads:
            for move in loads:
                place = _place(plan.loads, move, lane + 32 * warp, size)
                result[warp, lane, list(move.registers)] = memory[place]
    return result


def _place(side: Side, move: Move, thread: int, element_bytes: int) -> slice:
    """The elements of shared memory that an access touches."""
    offset = move.offset ^ linear(side.thread, thread)
    width = len(move.registers)
    assert offset % (width * element_bytes) == 0, "an access is not aligned"
    start = offset // element_bytes
    return slice(start, start + width)


def trips(plan: Shared, side: Side, *, storing: bool) -> int:
    """How often warp 0 visits all banks of shared memory, by the rules of the hardware.

    Each access is served in groups of lanes that ask for at most 128 bytes together.  A group takes
    as many trips as there are different words asked of the busiest bank.
    """
    total = 0
    for moves in side.rounds:
        for move in moves:
            width = len(move.registers) * plan.element_bits // 8
            lanes_served = min(32, 128 // width)
            for first in range(0, 32, lanes_served):
                words_of_bank: dict[int, set[int]] = defaultdict(set)
                for lane in range(first, first + lanes_served):
                    if not (storing and lane & plan.redundant):
                        start = move.offset ^ linear(side.thread, lane)
                        for word in range(start // 4, (start + width + 3) // 4):
                            words_of_bank[word % 32].add(word)
                total += max(map(len, words_of_bank.values()), default=0)
    return total
