"""Processes that carry out checks on the GPU, each with a context of its own.

A kernel that faults ends its process's use of the GPU, and one that hangs never returns.  So every
check runs in a worker that is replaced when it dies, falls silent, or cannot use the GPU any more.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

TIMEOUT_S = 120.0

_PROCESSES = mp.get_context("spawn")  # a fork could not use CUDA


@dataclass(frozen=True, slots=True)
class Task:
    """One check: a case of a topic, compiled for programs of `num_warps` warps."""

    topic: str
    name: str
    num_warps: int = 4

    def __str__(self) -> str:
        return f"{self.topic} {self.name} num_warps={self.num_warps}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a task: `text` says why it failed, and is empty when it did not."""

    task: Task
    text: str
    seconds: float


Check = Callable[[Task], None]


class Workers:
    """`jobs` workers that call `check`, which raises when a task fails.

    They share a disk cache that is empty at first.
    """

    def __init__(self, jobs: int, check: Check, timeout_s: float = TIMEOUT_S) -> None:
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        self._cache = tempfile.TemporaryDirectory(prefix="deuteron-gpu-")
        self._all = [_Worker(check, timeout_s, self._cache.name) for _ in range(jobs)]
        for worker in self._all:
            self._idle.put(worker)

    def run(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        """The outcome of each task, in the order of the tasks."""
        with ThreadPoolExecutor(len(self._all)) as threads:
            yield from threads.map(self._one, tasks)

    def close(self) -> None:
        """End all processes."""
        for worker in self._all:
            worker.stop()
        self._cache.cleanup()

    def _one(self, task: Task) -> Outcome:
        worker = self._idle.get()
        started = time.monotonic()
        try:
            text = worker.do(task)
        finally:
            self._idle.put(worker)
        return Outcome(task, text, time.monotonic() - started)


class _Worker:
    """One process, started when there is something to do."""

    def __init__(self, check: Check, timeout_s: float, cache: str) -> None:
        self._check, self._timeout_s, self._cache = check, timeout_s, cache
        self._process: Any = None
        self._pipe: Connection | None = None

    def do(self, task: Task) -> str:
        """Why the task failed; empty when it did not."""
        pipe = self._pipe or self._start()
        pipe.send(task)
        try:
            answered = pipe.poll(self._timeout_s)
            text, healthy = pipe.recv() if answered else (f"no end in {self._timeout_s:.0f} s", 0)
        except (EOFError, OSError):
            self._process.join(1.0)
            text, healthy = f"its process ended with exit code {self._process.exitcode}", False
        if not healthy:
            self.stop()
        return text

    def stop(self) -> None:
        """Kill the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._pipe = None

    def _start(self) -> Connection:
        self._pipe, theirs = _PROCESSES.Pipe()
        arguments = (theirs, self._check, self._cache)
        self._process = _PROCESSES.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        return self._pipe


def _serve(pipe: Connection, check: Check, cache: str) -> None:
    """Carry out tasks until the other side closes the pipe."""
    os.environ["DEUTERON_CACHE_DIR"] = cache
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        text = outcome_of(check, task)
        healthy = not text or _gpu_is_usable()
        pipe.send((text, healthy))
        if not healthy:
            os._exit(1)


def outcome_of(check: Check, task: Task) -> str:
    """Why a task fails when it is carried out here; empty when it does not."""
    try:
        check(task)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return traceback.format_exc()
    return ""


def _gpu_is_usable() -> bool:
    from deuteron.backends.cuda.driver import driver

    try:
        device = driver().device(0)
        with device.current():
            driver().call("cuStreamSynchronize", None)
    except Exception:
        return False
    return True
