"""Launches on a fake GPU: arguments, grids, streams, contexts and devices, both ways."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from deuteron.backends.cpu import native
from deuteron.backends.cpu.kernel_info import AssertSite
from deuteron.dtypes import bfloat16, float16, float32, float64, int8, int64
from deuteron.errors import DeviceAssertionError, LaunchError
from deuteron.runtime.arrays import MockTensor, reinterpret
from deuteron.runtime.jit import JITFunction
from tests.cuda.fake_cuda import CURRENT_STREAMS, FakeCuda, GpuArray, Launch, context_of
from tests.cuda.gpu_kernels import FakeCompiler, make
from tests.unit.launch_fakes import constexpr, four


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> FakeCompiler:
    return FakeCompiler().install(monkeypatch)


def slow_launches(kernel: JITFunction) -> list[object]:
    """Keeps account of the launches that take the plain way."""
    plain, seen = kernel._launch_slowly, list[object]()

    def counted(*args: Any) -> Any:
        seen.append(args)
        return plain(*args)

    kernel._launch_slowly = counted  # type: ignore[method-assign]
    return seen


def both_ways(cuda: FakeCuda, call: Callable[[], object], kernel: JITFunction) -> Launch:
    """The launch that a call makes, which must be the same the plain way and by machine code."""
    slow = slow_launches(kernel)
    for _ in range(3):
        call()
    assert len(slow) == 1, "machine code did not take over"
    assert cuda.launches[-1] == cuda.launches[-2] == cuda.launches[-3]
    return cuda.launches[-1]


def test_what_reaches_the_driver(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    def kernel(out, x, i, j, f, g: float64, flag, none, one, B: constexpr, last: int64):
        pass

    k, out, x = make(kernel), GpuArray(), GpuArray(dtype=np.int8)
    launch = both_ways(
        cuda,
        lambda: k[(3, 4, 5)](out, x, -5, 2**40, 1.5, 2.5, True, None, 1, 64, last=7, num_warps=8),
        k,
    )
    assert (launch.kernel, launch.grid, launch.threads) == ("kernel", (3, 4, 5), 256)
    assert (launch.shared_bytes, launch.stream, launch.context) == (0, 0, context_of(0))
    assert launch.arguments == [
        struct.pack("<Q", out.address),
        struct.pack("<Q", x.address),
        struct.pack("<i", -5),
        struct.pack("<q", 2**40),
        struct.pack("<f", 1.5),
        struct.pack("<d", 2.5),
        b"\1",
        struct.pack("<q", 7),
    ]


def test_first_launches_do_not_wait_for_the_machine_code(
    cuda: FakeCuda, compiler: FakeCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, go_on = native.code(), threading.Event()

    def load(*machine: object) -> native.Code:
        assert go_on.wait(60)
        return loaded

    monkeypatch.setattr(native, "_CODE", [])
    monkeypatch.setattr(native, "load_code", load)
    k, x = make(four), GpuArray()
    slow, bound = slow_launches(k), k[(1,)]
    for _ in range(2):
        bound(x, x, x, n=5)
    assert (len(slow), len(cuda.launches)) == (2, 2)
    go_on.set()
    native.code()  # as the thread is about to
    for _ in range(3):
        bound(x, x, x, n=5)
    assert (len(slow), len(cuda.launches)) == (3, 5)
    assert len(set(map(repr, cuda.launches))) == 1


def test_narrow_types_are_packed_the_plain_way(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    def kernel(out, m: int8, h: float16, b: bfloat16, f: float32):
        pass

    make(kernel)[(1,)](GpuArray(), -3, 1.5, 1.001, 1e39)
    assert cuda.launches[0].arguments[1:] == [
        b"\xfd", struct.pack("<e", 1.5), b"\x80\x3f", struct.pack("<f", float("inf")),
    ]  # fmt: skip


def test_options_reach_the_compiler(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    k, x = make(four), GpuArray()
    done = k[(1,)](x, x, x, 5, num_warps=2, num_stages=4, maxnreg=128)
    options = compiler.compiled[0]
    assert (options.num_warps, options.num_stages, options.maxnreg) == (2, 4, 128)
    assert (done.metadata.num_warps, done.metadata.maxnreg) == (2, 128)
    assert cuda.launches[0].threads == 64


def test_what_is_known_of_a_kernel(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    compiler.shared_bytes = 100_000
    cuda.function_attributes = {0: 1024, 3: 24, 4: 168}
    done = make(four)[(1,)](GpuArray(), 1, 2, 3)
    assert (done.metadata.shared, done.metadata.scratch_bytes) == (100_000, 0)
    assert (done.n_regs, done.n_spills) == (168, 6)
    assert set(done.asm) == {"ir", "layouts", "llir", "ptx", "cubin"}
    assert (done.asm["ir"], done.asm["layouts"]) == ("the IR", "the layouts")
    assert done.asm["cubin"] == b"cubin of " + str(done.asm["ptx"]).encode()
    assert cuda.shared_permitted == {1: 100_000}
    assert cuda.launches[0].shared_bytes == 100_000


def test_little_shared_memory_is_not_asked_for(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    compiler.shared_bytes = 49_152
    make(four)[(1,)](GpuArray(), 1, 2, 3)
    assert cuda.shared_permitted == {}


# -- devices ----------------------------------------------------------------------------------
def test_the_device_is_where_the_arrays_are(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    k = make(four)
    kernels: list[Any] = []
    for _ in range(3):
        for device in (0, 1):
            x = GpuArray(device=device)
            kernels.append(k[(1,)](x, x, x, 5))
            assert cuda.launches[-1].context == context_of(device)
    assert [kernel.spec.device for kernel in kernels] == ["cuda:0", "cuda:1"] * 3
    assert kernels[0] is kernels[2] is kernels[4]
    assert len(compiler.compiled) == 1  # the second finds it on the disk


def test_arrays_on_several_devices(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    k, near, far = make(four), GpuArray(), GpuArray(device=1)
    k[(1,)](near, near, near, 5)
    for _ in range(2):
        with pytest.raises(
            LaunchError,
            match=r"different devices\n(.*\n)*  got:      a on cuda:0, b on cuda:1, c on cuda:0\n"
            r"  remedy:   move them all to one device: x\.to\('cuda:0'\)",
        ):
            k[(1,)](near, far, near, 5)
        with pytest.raises(LaunchError, match="got:      a on cuda:0, b on cpu, c on cuda:0"):
            k[(1,)](near, np.zeros(4, np.float32), near, 5)


def test_compiled_for_another_device(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    near, far = GpuArray(), GpuArray(device=1)
    compiled = make(four).warmup(near, near, near, 5)
    compiled[(1,)](near, near, near, 5)
    with pytest.raises(LaunchError, match=r"another device\n(.*\n)*  expected: arrays on cuda:0"):
        compiled[(1,)](far, far, far, 5)


def test_stand_ins_follow_the_other_arrays(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    k = make(four)
    assert k.warmup(GpuArray(device=1), np.float32, float32, 5).spec.device == "cuda:1"
    assert k.warmup(MockTensor(float32, "cuda:0"), 1, 2, 5).spec.device == "cuda:0"
    assert cuda.launches == []


def test_the_thread_keeps_its_context(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    k, x = make(four), GpuArray(device=1)
    for stack in ([], [context_of(0)], [context_of(1)]):
        cuda.stack[:] = stack
        both_ways(cuda, lambda: k[(1,)](x, x, x, 5), k) if not stack else k[(1,)](x, x, x, 5)
        assert cuda.stack == stack
        assert cuda.launches[-1].context == context_of(1)
    cuda.stack.clear()


def test_machine_code_calls_the_driver_as_little_as_it_can(
    cuda: FakeCuda, compiler: FakeCompiler
) -> None:
    k, x = make(four), GpuArray()
    both_ways(cuda, lambda: k[(1,)](x, x, x, 5), k)
    cuda.stack.append(context_of(0))
    cuda.calls.clear()
    k[(1,)](x, x, x, 5)
    assert cuda.calls == ["cuCtxGetCurrent", "cuLaunchKernel"]
    cuda.stack.clear()


def test_a_grid_of_nothing(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    k, x = make(four), GpuArray()
    for _ in range(3):
        k[(0,)](x, x, x, 5)
        k[(4, 0)](x, x, x, 5)
    assert cuda.launches == []


def test_launches_of_several_threads(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    k, x = make(four), GpuArray()

    def work() -> None:
        for n in range(50):
            k[(n + 1,)](x, x, x, 5)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(launch.grid[0] for launch in cuda.launches) == sorted([*range(1, 51)] * 4)
    assert len(compiler.compiled) == 1


# -- streams ----------------------------------------------------------------------------------
class Stream:
    """Has its handle where a library's streams have it."""

    def __init__(self, name: str, handle: object) -> None:
        setattr(self, name, handle)


@pytest.mark.parametrize(
    "stream",
    [0x51, Stream("cuda_stream", 0x51), Stream("ptr", 0x51), Stream("__cuda_stream__", None)],
    ids=["handle", "torch", "cupy", "protocol"],
)
def test_a_stream_by_option(cuda: FakeCuda, compiler: FakeCompiler, stream: Any) -> None:
    if hasattr(stream, "__cuda_stream__"):
        stream.__cuda_stream__ = lambda: (0, 0x51)
    CURRENT_STREAMS[0] = 0x99
    k, x = make(four), GpuArray(stream=7)
    launch = both_ways(cuda, lambda: k[(1,)](x, x, x, 5, stream=stream), k)
    assert launch.stream == 0x51


def test_the_option_may_name_the_default_stream(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    CURRENT_STREAMS[0] = 0x99
    k, x = make(four), GpuArray(stream=7)
    assert both_ways(cuda, lambda: k[(1,)](x, x, x, 5, stream=0), k).stream == 0


def test_the_current_stream_of_the_arrays_library(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    k = make(four)
    streams: list[int] = []
    for current in (0x60, 0x60, 0x61, 0, 0x62):
        for device in (0, 1):
            x = GpuArray(device=device, stream=current + device)
            CURRENT_STREAMS[device] = current + device
            k[(1,)](x, x, x, 5)
            streams.append(current + device)
    assert [launch.stream for launch in cuda.launches] == streams


def test_what_is_no_stream(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    k, x = make(four), GpuArray()
    for _ in range(2):
        with pytest.raises(
            LaunchError, match=r"option stream cannot be 'fast'\n(.*\n)*.*got: +str"
        ):
            k[(1,)](x, x, x, 5, stream="fast")


# -- waiting ----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["DEUTERON_CUDA_SYNC", "CUDA_LAUNCH_BLOCKING"])
def test_launches_that_wait(
    cuda: FakeCuda, compiler: FakeCompiler, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    k, x = make(four), GpuArray()
    for count in (1, 2, 3):
        k[(1,)](x, x, x, 5)
        assert cuda.calls.count("cuStreamSynchronize") == count


def test_nothing_waits_while_a_graph_is_captured(
    cuda: FakeCuda, compiler: FakeCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEUTERON_CUDA_SYNC", "1")
    cuda.capturing.add(0x55)
    make(four)[(1,)](GpuArray(), 1, 2, 3, stream=0x55)
    assert "cuStreamSynchronize" not in cuda.calls
    assert len(cuda.launches) == 1


SITES = (AssertSite("x > 0", "kernel.py", 7), AssertSite("", "kernel.py", 9))


def failing(launch: Launch) -> None:
    """A kernel in which the second assert does not hold."""
    (control,) = struct.unpack("<Q", launch.arguments[-1])
    ctypes.memmove(control, struct.pack("<4q", 2, 3, 1, 0), 32)


def test_a_failed_assert_is_raised_by_its_launch(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    compiler.asserts = SITES
    k, x = make(four, debug=True), GpuArray()
    for _ in range(2):
        cuda.on_launch = failing
        with pytest.raises(DeviceAssertionError) as caught:
            k[(4, 2)](x, 2, 3, 5)
        assert str(caught.value) == (
            "kernel.py:9: device_assert: the condition is false\n"
            "  kernel:   four\n  program:  (3, 1, 0)"
        )
        cuda.on_launch = lambda launch: None
        k[(4, 2)](x, 2, 3, 5)
    assert cuda.calls.count("cuMemAlloc_v2") == 1
    assert cuda.calls.count("cuStreamSynchronize") == 4


def test_asserts_are_not_checked_while_a_graph_is_captured(
    cuda: FakeCuda, compiler: FakeCompiler
) -> None:
    compiler.asserts = SITES
    cuda.on_launch = failing
    cuda.capturing.add(0x55)
    make(four, debug=True)[(1,)](GpuArray(), 1, 2, 3, stream=0x55)
    assert "cuStreamSynchronize" not in cuda.calls


# -- reinterpreted arrays -----------------------------------------------------------------------
def test_reinterpreted_arrays(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    x = GpuArray(dtype=np.uint8, device=1)
    done = make(four)[(1,)](reinterpret(x, "fp8e5"), 2, 3, 5)
    assert str(done.spec).startswith("a: *fp8e5:16")
    assert done.spec.device == "cuda:1"
