"""Fair timing: the candidates take turns in one run, and each is judged by its median."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

MIN_TURNS = 3
# How long a candidate's calls are repeated before the next one's turn.
TURN_S = 0.02
# Idle threads of OpenBLAS and OpenMP spin on the cores that the next candidate needs, for up to a
# quarter of a second.  They have gone to sleep when the process takes no CPU time any more.
SETTLE_STEP_S = 0.01
SETTLE_LIMIT_S = 1.0
IDLE_SHARE = 0.1


def interleaved_medians_s(
    runs: Sequence[Callable[[], object]], budget_s: float, threads: int = 1
) -> list[float]:
    """Median wall seconds of one call of each of `runs`, which take turns for about `budget_s`.

    Taking turns spreads a busy machine's hiccups over all candidates.  A turn begins with an
    unmeasured call, which brings data and threads into place; with more than one of `threads` it
    waits first until the threads of the candidate before have gone to sleep.
    """
    times: list[list[float]] = [[] for _ in runs]
    started = time.perf_counter()
    turns = 0
    while turns < MIN_TURNS or time.perf_counter() - started < budget_s:
        for run, own in zip(runs, times, strict=True):
            if threads > 1:
                _settle()
            run()
            own += _turn(run)
        turns += 1
    return [median(own) for own in times]


def _settle() -> None:
    """Wait until no thread of this process runs."""
    started = time.perf_counter()
    while time.perf_counter() - started < SETTLE_LIMIT_S:
        cpu, wall = time.process_time(), time.perf_counter()
        time.sleep(SETTLE_STEP_S)
        spent = time.process_time() - cpu
        if spent < IDLE_SHARE * (time.perf_counter() - wall):
            return


def _turn(run: Callable[[], object]) -> list[float]:
    """Wall seconds of the calls of one turn, at least one."""
    times: list[float] = []
    started = time.perf_counter()
    while True:
        begin = time.perf_counter()
        run()
        end = time.perf_counter()
        times.append(end - begin)
        if end - started >= TURN_S:
            return times
