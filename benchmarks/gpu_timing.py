"""Timing on a GPU: candidates take turns replaying CUDA graphs, and are judged by their medians."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch

from deuteron.errors import DeuteronError

REPLAY_MS = 3.0  # what one replay lasts at least, so that beginning it does not count

Run = Callable[[], object]
Runs = Sequence[Run]


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement; times are milliseconds of one call."""

    name: str
    shape: str
    dtype: str
    ours_ms: float | None
    peer: str
    peer_ms: float | None
    ratio: float | None = None
    rate: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to do, our way and the peers' way: a call for each set of arrays.

    Candidates are by a name that says how they are configured; the fastest stands for its side.
    `work` is what a call moves or computes, in units of 1e9 or 1e12 of `unit`.
    """

    name: str
    shape: str
    dtype: str
    ours: Mapping[str, Runs]
    peers: Mapping[str, Mapping[str, Runs]]
    check: Callable[[], None]
    work: float
    unit: str
    missing: Mapping[str, str] = field(default_factory=dict[str, str])


class Replay:
    """Calls in a CUDA graph, each set of arrays in turn, often enough to last."""

    def __init__(self, runs: Runs) -> None:
        for run in runs:
            run()  # compiles
        torch.cuda.synchronize()
        once = self._capture(runs)
        once.replay()
        repeats = max(1, round(REPLAY_MS / max(1e-3, self._replay_ms(once))))
        self._calls = repeats * len(runs)
        self._graph = self._capture(list(runs) * repeats)

    def ms(self) -> float:
        """Mean milliseconds of a call, in one replay."""
        return self._replay_ms(self._graph) / self._calls

    @staticmethod
    def _capture(runs: Runs) -> Any:
        graph: Any = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for run in runs:
                run()
        return graph

    @staticmethod
    def _replay_ms(graph: Any) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))


def fastest(candidates: Mapping[str, Runs]) -> tuple[str, Replay]:
    """The candidate of the least median of a few replays.  Raises what stops all of them."""
    timed: dict[str, tuple[float, Replay]] = {}
    problem: Exception | None = None
    for name, runs in candidates.items():
        try:
            replay = Replay(runs)
        except Exception as error:  # a configuration that does not fit this GPU
            problem = error
            continue
        timed[name] = median(replay.ms() for _ in range(3)), replay
    if not timed:
        raise problem or ValueError("no candidates")
    best = min(timed, key=lambda name: timed[name][0])
    return best, timed[best][1]


def measure(problem: Problem, rounds: int) -> Iterator[Row]:
    """One row for each peer, all measured in turns."""
    title = (problem.name, problem.shape, problem.dtype)
    try:
        config, ours = fastest(problem.ours)
        problem.check()
    except (DeuteronError, AssertionError) as error:  # AssertionError: a wrong result
        note = f"not measured: {str(error).splitlines()[0]}"
        yield from (Row(*title, None, peer, None, note=note) for peer in problem.peers)
        return
    peers = {name: fastest(candidates) for name, candidates in problem.peers.items()}
    replays = [ours, *(replay for _, replay in peers.values())]
    times: list[list[float]] = [[] for _ in replays]
    for _ in range(rounds):
        for replay, own in zip(replays, times, strict=True):
            own.append(replay.ms())
    ours_ms, *others = map(median, times)
    rate = f"{problem.work / ours_ms * 1e3:,.0f} {problem.unit}"
    for (name, (peer_config, _)), peer_ms in zip(peers.items(), others, strict=True):
        configs = ((config, "ours"), (peer_config, name))
        note = "; ".join(f"{whose}: {shown}" for shown, whose in configs if shown)
        yield Row(*title, ours_ms, name, peer_ms, peer_ms / ours_ms, rate, note)
    for name, note in problem.missing.items():
        yield Row(*title, ours_ms, name, None, rate=rate, note=note)
