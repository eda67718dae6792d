"""The thread pool: every program runs once, whoever launches, forks, resizes or exits."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from ctypes import c_double, c_int64
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from deuteron.backends.cpu import native
from deuteron.backends.cpu.pool import (
    SCRATCH_LIMIT_BYTES,
    STORE_LIMIT_BYTES,
    Pool,
    get_num_threads,
    pool,
    set_num_threads,
)  # fmt: skip
from deuteron.backends.llvm.compile import host_machine
from deuteron.errors import LaunchError, OutOfResources
from tests.unit.launch_fakes import COUNT, EMPTY, NAP, STORE, address_of, together

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="futex is Linux's")


@pytest.fixture(params=["futex", "parked"])
def crew(request: pytest.FixtureRequest) -> Iterator[Pool]:
    """A pool of four threads, sleeping in a futex or parked in Python."""
    futex = request.param == "futex"
    if futex and sys.platform != "linux":
        pytest.skip("futex is Linux's")
    made = Pool(4, native.load_code(host_machine().architecture, futex))
    yield made
    made.close()


def run(
    made: Pool,
    text: str,
    programs: int,
    scratch_bytes: int = 1000,
    pace: float = 0.0,
    store_bytes: int = 0,
) -> np.ndarray:
    """How often each program ran, by the kernel's own account."""
    counts = np.zeros(programs, np.int64)
    block = (c_int64 * 8)()
    block[4] = counts.ctypes.data
    address = ctypes.addressof(block)
    made.run(address_of(text), address, programs, scratch_bytes, c_double(pace), store_bytes)
    return counts


@pytest.mark.parametrize("programs", [1, 2, 3, 31, 32, 33, 1000, 4097])
def test_each_program_runs_once(crew: Pool, programs: int) -> None:
    for _ in range(20):
        assert (run(crew, COUNT, programs) == 1).all()


def test_workers_take_part(crew: Pool) -> None:
    run(crew, NAP, 2)  # workers exist now
    names = {thread.name for thread in threading.enumerate()}
    assert {"deuteron-1", "deuteron-2", "deuteron-3"} <= names
    assert (run(crew, NAP, 40) == 1).all()


def test_sleeping_workers_wake_up(crew: Pool) -> None:
    done = threading.Event()
    for _ in range(30):
        assert (run(crew, COUNT, 64) == 1).all()
        done.wait(0.002)  # longer than they spin


@linux_only
def test_short_launches_are_not_shared() -> None:
    crew = Pool(3, native.code())
    pace = c_double()
    block = (c_int64 * 8)()
    counts = np.zeros(100, np.int64)
    block[4] = counts.ctypes.data

    def launch(text: str, programs: int) -> None:
        crew.run(address_of(text), ctypes.addressof(block), programs, 1000, pace)

    try:
        launch(COUNT, 1)
        assert (pace.value, len(crew.workers)) == (0, 0)  # one program says nothing
        pace.value = 10.0
        launch(COUNT, 100)  # expected to take 1 µs
        assert len(crew.workers) == 0
        assert pace.value > 10.0  # it took longer
        pace.value = 1e9
        launch(COUNT, 2)
        assert len(crew.workers) == 2
        assert pace.value < 1e9
        launch(NAP, 6)
        assert pace.value > 1e6  # each naps for 1 ms
    finally:
        crew.close()


def test_each_thread_begins_a_launch_with_a_closed_store(crew: Pool) -> None:
    for size in (64, 1 << 20, 4096):  # grown, then kept
        calls = np.bincount(run(crew, STORE, 32, store_bytes=size))
        assert calls.sum() == 32  # each program is a chunk
        assert calls[0] <= 4  # the threads that took part, each of which then counted on
        assert (np.diff(calls) <= 0).all()


def test_one_thread_begins_each_launch_with_a_closed_store() -> None:
    alone = Pool(1, native.code())
    for _ in range(2):
        assert (run(alone, STORE, 8, store_bytes=64) == 0).all()  # all in one call


def test_stores_that_are_not_given(crew: Pool) -> None:
    assert (run(crew, STORE, 8) == -1).all()  # not wanted
    assert (run(crew, STORE, 1, store_bytes=64) == -1).all()  # of no use
    too_large = STORE_LIMIT_BYTES // 4 + 1
    assert (run(crew, STORE, 8, store_bytes=too_large) == -1).all()


def test_each_thread_begins_with_its_own_range(crew: Pool) -> None:
    begun: dict[int, list[int]] = {}

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, c_int64, c_int64, ctypes.c_void_p)
    def kernel(args: int, begin: int, end: int, scratch: int) -> None:
        name = threading.current_thread().name
        number = int(name.removeprefix("deuteron-")) if name.startswith("deuteron-") else 0
        begun.setdefault(number, []).append(begin)

    block = (c_int64 * 8)()
    function = ctypes.cast(kernel, ctypes.c_void_p).value or 0
    for chunks in (2, 3, 5, 32):  # a program each
        for _ in range(10):
            begun.clear()
            crew.run(function, ctypes.addressof(block), chunks, 100, c_double())
            assert sorted(chain.from_iterable(begun.values())) == list(range(chunks))
            ranges = min(4, chunks)
            for number, programs in begun.items():
                home = number % ranges
                own = range(home * chunks // ranges, (home + 1) * chunks // ranges)
                mine = [program in own for program in programs]
                assert mine == sorted(mine, reverse=True)  # others' chunks come last
                assert programs[: sum(mine)] == sorted(programs[: sum(mine)])


def test_threads_launching_at_the_same_time(crew: Pool) -> None:
    def work(number: int) -> None:
        for round_ in range(40):
            assert (run(crew, COUNT, 50 + 13 * number + round_) == 1).all()

    assert together(5, work) == []


def test_launch_from_inside_a_kernel(crew: Pool) -> None:
    inner: list[np.ndarray] = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, c_int64, c_int64, ctypes.c_void_p)
    def outer(args: int, begin: int, end: int, scratch: int) -> None:
        inner.append(run(crew, COUNT, 20))

    block = (c_int64 * 8)()
    function = ctypes.cast(outer, ctypes.c_void_p).value or 0
    crew.run(function, ctypes.addressof(block), 64, 100, c_double())
    assert len(inner) > 1
    assert all((counts == 1).all() for counts in inner)


def test_resizing_while_launching(crew: Pool) -> None:
    stop = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            for threads in [1, 3, 2, 8, 1, 4, 2, 6]:
                crew.set_threads(threads)
                stop.wait(0.001)
            stop.set()
        while not stop.is_set():
            assert (run(crew, COUNT, 100) == 1).all()

    assert together(3, work) == []
    assert crew.threads == 6


def test_surplus_workers_retire(crew: Pool) -> None:
    crew.set_threads(6)
    run(crew, NAP, 8)
    crew.set_threads(2)
    for thread in list(crew.workers.values())[1:]:
        thread.join(10)
    assert set(crew.workers) == {1}


def test_scratch_grows_and_is_aligned(crew: Pool) -> None:
    seen: set[tuple[int, int]] = set()

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, c_int64, c_int64, ctypes.c_void_p)
    def kernel(args: int, begin: int, end: int, scratch: int) -> None:
        size = c_int64.from_address(args + 32).value
        ctypes.memset(scratch, 1, size)
        seen.add((threading.get_ident(), scratch % 64))

    function = ctypes.cast(kernel, ctypes.c_void_p).value or 0
    for size in (1, 100, 1 << 16, (1 << 16) + 1, 3 << 20, 10, 20 << 20):
        block = (c_int64 * 8)(0, 0, 0, 0, size)
        crew.run(function, ctypes.addressof(block), 32, size, c_double())
    assert {remainder for _, remainder in seen} == {0}


def test_scratch_beyond_the_limit(crew: Pool) -> None:
    crew.set_threads(2)
    run(crew, EMPTY, 1, SCRATCH_LIMIT_BYTES // 2)  # never touched, so it costs nothing
    with pytest.raises(OutOfResources, match="scratch memory") as caught:
        run(crew, EMPTY, 1, SCRATCH_LIMIT_BYTES // 2 + 1)
    assert caught.value.required == SCRATCH_LIMIT_BYTES + 2
    assert caught.value.limit == SCRATCH_LIMIT_BYTES


@pytest.mark.parametrize("threads", [0, -1, 1025])
def test_impossible_thread_counts(crew: Pool, threads: int) -> None:
    with pytest.raises(LaunchError, match="expected: 1 to 1024"):
        crew.set_threads(threads)


def test_the_process_wide_pool() -> None:
    before = get_num_threads()
    try:
        set_num_threads(3)
        assert get_num_threads() == 3 == pool().threads
        assert (run(pool(), COUNT, 100) == 1).all()
    finally:
        set_num_threads(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_makes_new_workers() -> None:
    script = """
        import os, sys
        sys.path.insert(0, {root!r})
        from tests.unit.launch_fakes import COUNT, NAP
        from tests.unit.test_pool import run
        from deuteron.backends.cpu.pool import pool, set_num_threads
        set_num_threads(3)
        assert (run(pool(), NAP, 6) == 1).all()
        child = os.fork()
        if child == 0:
            assert not pool().workers
            assert (run(pool(), NAP, 30) == 1).all()
            assert set(pool().workers) == {{1, 2}}
            assert (run(pool(), COUNT, 1000) == 1).all()
            os._exit(7)
        assert (run(pool(), COUNT, 1000) == 1).all()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    """
    assert run_script(script) == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_while_another_thread_launches() -> None:
    script = """
        import os, sys, threading
        sys.path.insert(0, {root!r})
        from tests.unit.launch_fakes import COUNT, NAP
        from tests.unit.test_pool import run
        from deuteron.backends.cpu.pool import pool, set_num_threads
        set_num_threads(2)
        run(pool(), NAP, 4)
        other = threading.Thread(target=lambda: run(pool(), NAP, 200))
        other.start()
        for _ in range(5):
            child = os.fork()
            if child == 0:
                assert (run(pool(), COUNT, 300) == 1).all()
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        other.join()
    """
    assert run_script(script) == ""


def test_exit_with_workers_asleep_spinning_or_busy() -> None:
    script = """
        import sys, threading, time
        sys.path.insert(0, {root!r})
        from tests.unit.launch_fakes import COUNT, NAP
        from tests.unit.test_pool import run
        from deuteron.backends.cpu.pool import pool, set_num_threads
        set_num_threads(4)
        run(pool(), COUNT, 1000)
        threading.Thread(target=lambda: run(pool(), NAP, 10000), daemon=True).start()
        time.sleep(0.05)
        print("end")
    """
    assert run_script(script) == "end\n"


def run_script(text: str) -> str:
    """What a script run by a fresh Python prints; it must end well, and soon."""
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c",
         textwrap.dedent(text).format(root=root)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
