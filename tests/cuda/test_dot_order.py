"""Every wait, fence and barrier of a dot kernel is needed: without it the simulator sees a race."""

from __future__ import annotations

import re

import numpy as np
import pytest

from deuteron.dtypes import bfloat16, float32
from tests.cuda.dot_kernels import Launch, compile_kernel, draw, loop_kernel
from tests.cuda.simt import run_kernel
from tests.cuda.simt_memory import GlobalMemory

_M, _N, _K = 64, 64, 256
_BLOCKS = {"BM": 64, "BN": 64, "BK": 32, "OUT": float32}


class Program:
    """A compiled loop of dots, whose text can be run in altered form."""

    def __init__(self, launch: Launch) -> None:
        rng = np.random.default_rng(0)
        self.launch = launch
        self.a, self.b = draw(rng, (_M, _K), bfloat16), draw(rng, (_K, _N), bfloat16)
        self.c = np.zeros((_M, _N), np.float32)
        arguments = {
            "a_ptr": (self.a, bfloat16),
            "b_ptr": (self.b, bfloat16),
            "c_ptr": (self.c, float32),
            "M": _M,
            "N": _N,
            "K": _K,
            "stride_am": _K,
            "stride_ak": 1,
            "stride_bk": _N,
            "stride_bn": 1,
        }
        self.image = compile_kernel(loop_kernel, arguments, _BLOCKS, launch)

    def run(self, text: str) -> None:
        memory = GlobalMemory()
        places = [memory.add(array) for array in (self.a, self.b, self.c)]
        shared_bytes = self.image.metadata["shared_bytes"]
        threads = 32 * self.launch.num_warps
        run_kernel(text, (1, 1, 1), threads, shared_bytes, memory, [*places, _M, _N, _K, _K, _N])

    def lines_of_loop(self, pattern: str) -> list[int]:
        lines = self.image.llvm.splitlines()
        start = next(i for i, line in enumerate(lines) if re.match(r"body\d+:", line))
        stop = next(i for i, line in enumerate(lines) if re.match(r"done\d+:", line))
        return [i for i in range(start, stop) if pattern in lines[i]]


def broken(program: Program, number: int, replaced: str, by: str) -> str:
    """The text with a part of one line replaced; the line left out when nothing takes its place."""
    lines = program.image.llvm.splitlines()
    lines[number] = lines[number].replace(replaced, by) if by else ""
    return "\n".join(lines)


@pytest.fixture(scope="module", params=["sm_80", "sm_90a"])
def program(request: pytest.FixtureRequest) -> Program:
    return Program(Launch(request.param, 4, 3))


def test_the_whole_program_is_in_order(program: Program):
    program.run(program.image.llvm)


@pytest.mark.parametrize("what", ["barrier.cta.sync", "cp.async.wait_group", "fence.proxy.async"])
def test_nothing_can_be_left_out(program: Program, what: str):
    numbers = program.lines_of_loop(what)
    on_hopper = program.launch.arch == "sm_90a"
    expected = {"barrier.cta.sync": 1 + on_hopper, "fence.proxy.async": int(on_hopper)}
    assert len(numbers) == expected.get(what, 1)
    for number in numbers:
        with pytest.raises(AssertionError):
            program.run(broken(program, number, what, ""))


def test_copies_are_waited_for_in_time(program: Program):
    (number,) = program.lines_of_loop("cp.async.wait_group 1;")
    with pytest.raises(AssertionError, match="may still write"):
        program.run(broken(program, number, "wait_group 1;", "wait_group 2;"))


def test_stages_are_not_refilled_too_early():
    program = Program(Launch("sm_90a", 4, 3))
    (number,) = program.lines_of_loop("wgmma.wait_group.sync.aligned 1;")
    with pytest.raises(AssertionError, match="may still read"):
        program.run(broken(program, number, "aligned 1;", "aligned 2;"))


def test_results_are_waited_for():
    program = Program(Launch("sm_90a", 4, 3))
    text = program.image.llvm.replace(
        "wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;"
    )
    assert text != program.image.llvm
    with pytest.raises(AssertionError, match="still being added to"):
        program.run(text)
