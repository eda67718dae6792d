"""The thread pool a grid is spread over: memory, worker threads, fork and exit.

The claiming and sleeping is machine code (`pool_ir.py`).  Workers are daemon threads of Python
inside one call into it, with the GIL released, so that no thread library is needed.  They are made
when a launch first wants them, and again after a fork.  A launch that finds the workers taken (by
another thread, or because it comes from inside a kernel) runs alone on its caller's thread; every
caller has scratch memory of its own.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import os
import threading
import time
from ctypes import c_char, c_double

from deuteron import config
from deuteron.backends.cpu import native
from deuteron.backends.cpu.pool_ir import (
    MAX_THREADS,
    POOL,
    SPINS,
    STATUS_NO_MEMORY,
    STATUS_OVER_LIMIT,
    WORKER_PARKED,
    WORKER_RETIRED,
)
from deuteron.errors import LaunchError, OutOfResources

# Of all threads together.
SCRATCH_LIMIT_BYTES = 1 << 30
STORE_LIMIT_BYTES = 4 << 30
_CACHE_LINE = 64
_PATIENCE_S = 1.0  # at exit, for a launch in progress and for each worker


class Pool:
    """The workers and their scratch memory.  There is one per process: `pool()`.

    `threads` counts the caller; `workers` are the others, by number.  The memory is never freed,
    so that machine code may hold its address.
    """

    def __init__(self, threads: int, code: native.Code) -> None:
        self._code = code
        self._buffer = (c_char * (ctypes.sizeof(POOL.mirror) + _CACHE_LINE))()
        self.address = -(-ctypes.addressof(self._buffer) // _CACHE_LINE) * _CACHE_LINE
        self._memory = POOL.mirror.from_address(self.address)
        self.workers: dict[int, threading.Thread] = {}
        self._lock = threading.Lock()
        self._parked = threading.Condition()
        self._functions = (self._start, self._notify)
        memory = self._memory
        memory.spins = SPINS
        memory.threads = _checked_threads(threads)
        memory.started = 1
        memory.scratch_limit = SCRATCH_LIMIT_BYTES
        memory.store_limit = STORE_LIMIT_BYTES
        memory.start, memory.notify = map(id, self._functions)

    @property
    def threads(self) -> int:
        return self._memory.threads

    def run(
        self,
        kernel: int,
        args: int,
        programs: int,
        scratch_bytes: int,
        pace: c_double,
        store_bytes: int = 0,
    ) -> None:
        """Run the kernel at address `kernel` on the args block at `args` for 0..programs.

        `pace` is the kernel's, 0 at first, and outlives the call.  Releases the GIL.  Raises
        OutOfResources when there is no memory for the scratch; without memory for the tile store
        the kernel runs without one.
        """
        status = self._code.pool_run(
            self.address,
            kernel,
            args,
            programs,
            scratch_bytes,
            store_bytes,
            ctypes.addressof(pace),
        )
        if status:
            raise self.scratch_error(status, scratch_bytes)

    def scratch_error(self, status: int, scratch_bytes: int) -> OutOfResources:
        """What a nonzero status of `pool_run` means."""
        assert status in (STATUS_NO_MEMORY, STATUS_OVER_LIMIT), status
        threads = self.threads
        return OutOfResources(
            "scratch memory, bytes",
            scratch_bytes * threads,
            self._memory.scratch_limit,
            f"each of {threads} threads needs {scratch_bytes:,}: make the kernel's blocks smaller,"
            " or use fewer threads (deuteron.set_num_threads)",
        )

    def set_threads(self, threads: int) -> None:
        """Spread grids over so many threads from now on.  Waits for a launch in progress.

        Raises LaunchError for a count below 1 or above 1024.
        """
        self._resize(_checked_threads(threads), math.inf)

    def close(self) -> None:
        """End the workers; launches still work, on their caller's thread alone.

        Gives up on a kernel that runs on for a second: at exit nothing may hang.
        """
        if self._resize(1, _PATIENCE_S):
            for worker in list(self.workers.values()):
                worker.join(_PATIENCE_S)

    def reset_after_fork(self) -> None:
        """In the child there are no workers, and whatever another thread held is free again."""
        memory = self._memory
        memory.state = memory.done = memory.waiting = 0
        memory.sleepers = memory.busy = 0
        memory.started = 1
        ctypes.memset(memory.arenas, 0, ctypes.sizeof(memory.arenas))
        self.workers.clear()
        self._lock = threading.Lock()
        self._parked = threading.Condition()

    def _resize(self, threads: int, patience_s: float) -> bool:
        deadline = time.monotonic() + patience_s
        while not self._code.pool_set_threads(self.address, threads):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.0002)
        self._code.pool_wake(self.address, MAX_THREADS)  # those no longer wanted retire
        self._notify()
        return True

    # -- called by machine code, with the GIL held -------------------------------------------
    def _start(self) -> None:
        """Make the workers that are missing."""
        with self._lock:
            try:
                for tid in range(1, self.threads):
                    if tid not in self.workers:
                        self.workers[tid] = self._new_worker(tid)
            except RuntimeError:  # no more threads from the system: do with those there are
                pass
            self._memory.started = self.threads

    def _notify(self) -> None:
        """Wake the workers that park in Python."""
        with self._parked:
            self._parked.notify_all()

    # -- workers ------------------------------------------------------------------------------
    def _new_worker(self, tid: int) -> threading.Thread:
        worker = threading.Thread(
            target=self._work, args=(tid,), name=f"deuteron-{tid}", daemon=True
        )
        worker.start()
        return worker

    def _work(self, tid: int) -> None:
        why = WORKER_RETIRED
        while True:
            why = self._code.pool_worker(self.address, tid, why)
            if why == WORKER_PARKED:
                with self._parked:
                    if not self._has_work() and tid < self.threads:
                        self._parked.wait()
                continue
            with self._lock:
                if tid >= self.threads:  # may have been wanted again meanwhile
                    del self.workers[tid]
                    self._memory.started = min(self._memory.started, tid)
                    return

    def _has_work(self) -> bool:
        state = self._memory.state
        return state & 0xFFFF < state >> 16 & 0xFFFF


def _checked_threads(threads: int) -> int:
    if not 1 <= threads <= MAX_THREADS:
        raise LaunchError(
            f"cannot run on {threads} threads\n"
            f"  expected: 1 to {MAX_THREADS}\n  got:      {threads}\n"
            "  remedy:   choose at most the number of CPUs"
        )
    return threads


_POOLS: dict[str, Pool] = {}  # the one of this process, once made


def pool() -> Pool:
    """The pool of this process, with as many threads as `config.num_threads()` says."""
    if made := _POOLS.get("cpu"):
        return made
    fresh = Pool(min(config.num_threads(), MAX_THREADS), native.code())
    made = _POOLS.setdefault("cpu", fresh)  # two threads may come here at once
    if made is fresh:
        atexit.register(made.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=made.reset_after_fork)
    return made


def set_num_threads(threads: int) -> None:
    """Spread every later launch over `threads` threads, the caller included (1 to 1024)."""
    pool().set_threads(threads)


def get_num_threads() -> int:
    """How many threads a launch is spread over, the caller included."""
    return pool().threads
