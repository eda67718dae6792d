"""What is loaded ahead of a GPU's first kernel: where there is one, once, in any process's way."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys, threading
import deuteron as dn, deuteron.language as tl
import deuteron.runtime.preparation as preparation
def loaded():
    return {{"llvmlite.binding", "deuteron.backends.cuda.compiler"}} & set(sys.modules)
def threads():
    return [t for t in threading.enumerate() if t.name == "deuteron-preparation"]
assert not loaded() and not threads(), "import deuteron must be light"
preparation._GPU_FILES = {files!r}
@dn.jit
def kernel(out, B: tl.constexpr):
    tl.store(out + tl.arange(0, B), 7)
{rest}
"""
PRESENT, ABSENT = (sys.executable,), ("/nowhere/nvidia",)


def run(rest: str, files: tuple[str, ...] = PRESENT) -> None:
    program = PROGRAM.format(files=files, rest=rest)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_thread_loads_what_the_first_kernel_needs() -> None:
    run("for thread in threads(): thread.join()\nassert len(loaded()) == 2")


def test_nothing_is_loaded_without_a_gpu() -> None:
    run("assert not threads() and not loaded()", ABSENT)


def test_a_process_may_end_at_once() -> None:
    run("")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_process_may_fork_at_once() -> None:
    run(
        """
child = os.fork()
if not child:
    import llvmlite.binding, deuteron.backends.cuda.compiler
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    )
