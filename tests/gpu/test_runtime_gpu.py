"""The runtime on a card: launches, streams, graphs, other libraries' arrays, errors."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deuteron as dn
from deuteron.backends.cuda.driver import L2_BYTES, MULTIPROCESSORS, Device
from deuteron.backends.llvm import object_cache
from deuteron.errors import DeviceAssertionError, LaunchError, OutOfResources
from deuteron.runtime.jit import JITFunction
from deuteron.testing import do_bench
from tests.gpu.runtime_kernels import add, positive, scalars, scale, transposed

ROOT = Path(__file__).resolve().parents[2]
N = 100_003
BLOCK = 1024
GRID = (dn.cdiv(N, BLOCK),)
SLEEP_CYCLES = 100_000_000  # of the GPU's clock: tens of milliseconds


@contextmanager
def machine_code_only(kernel: JITFunction) -> Iterator[None]:
    """Fail when a launch in this block takes the plain way."""

    def refuse(*args: object) -> None:
        raise AssertionError("the launch took the plain way")

    kernel._launch_slowly = refuse  # type: ignore[method-assign]
    try:
        yield
    finally:
        del kernel._launch_slowly


def fresh(kernel: JITFunction) -> JITFunction:
    """The same kernel, compiled and launched by nobody yet."""
    return dn.jit(kernel.fn)


# -- launching --------------------------------------------------------------------------------
def test_the_driver_and_torch_see_the_same_card(gpu: Device, torch: Any) -> None:
    properties = torch.cuda.get_device_properties(0)
    assert gpu.name == properties.name
    assert gpu.attribute(MULTIPROCESSORS) == properties.multi_processor_count
    assert gpu.capability == (properties.major, properties.minor)
    assert gpu.attribute(L2_BYTES) == properties.L2_cache_size


def test_a_launch_the_plain_way_and_by_machine_code(torch: Any) -> None:
    kernel = fresh(add)
    x, y = (torch.randn(N, device="cuda") for _ in range(2))

    def launch() -> Any:
        out = torch.full((N,), torch.nan, device="cuda")
        kernel[GRID](x, y, out, N, BLOCK=BLOCK)
        return out

    for _ in range(2):
        assert torch.equal(launch(), x + y)
    with machine_code_only(kernel):
        for _ in range(3):
            assert torch.equal(launch(), x + y)


def test_every_kind_of_scalar(torch: Any) -> None:
    kernel = fresh(scalars)
    expected = [-5.0, 2.0**40, 1.5, 1.0, 0.1, float(np.float16(0.1)), -3.0, 4.0]
    for _ in range(3):
        out = torch.zeros(8, dtype=torch.float64, device="cuda")
        kernel[(4,)](out, -5, 2**40, 1.5, True, 0.1, 0.1, -3)
        assert out.tolist() == expected


def test_three_axes_and_a_grid_of_nothing(torch: Any) -> None:
    x = torch.ones(64, device="cuda")
    out = torch.zeros(64, device="cuda")
    for _ in range(3):
        scale[(0,)](x, out, 64, 2.0, BLOCK=64)
    assert out.sum() == 0
    scale[(1, 2, 3)](x, out, 64, 2.0, BLOCK=64)
    assert torch.equal(out, 2 * x)


def test_what_is_known_of_a_kernel(torch: Any, own_cache: Path) -> None:
    x = torch.randn(64, 64, device="cuda")
    out = torch.empty_like(x)
    kernel = fresh(transposed)[(1,)](x, out, SIZE=64)
    assert torch.equal(out, x.T)
    assert kernel.n_regs > 0
    assert kernel.n_spills == 0
    assert kernel.metadata.shared >= 0
    assert f".entry {kernel.name}" in str(kernel.asm["ptx"])
    assert {"ir", "layouts", "llir", "ptx", "cubin"} <= set(kernel.asm)
    cubin = kernel.asm["cubin"]
    assert isinstance(cubin, bytes)
    assert cubin.startswith(b"\x7fELF")


def test_the_disk_keeps_ptx_and_machine_code(torch: Any, own_cache: Path) -> None:
    x = torch.ones(64, device="cuda")
    for _ in range(2):
        out = torch.zeros(64, device="cuda")
        fresh(scale)[(1,)](x, out, 64, 3.0, BLOCK=64)
        assert torch.equal(out, 3 * x)
        assert object_cache.cache_info().entries == 2


@pytest.mark.parametrize("num_warps", [1, 2, 8, 32])
def test_numbers_of_warps(torch: Any, num_warps: int) -> None:
    x, out = torch.randn(N, device="cuda"), torch.zeros(N, device="cuda")
    scale[GRID](x, out, N, 2.0, BLOCK=BLOCK, num_warps=num_warps, maxnreg=64)
    assert torch.equal(out, 2 * x)


def test_a_thread_without_a_context(torch: Any) -> None:
    x, out = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
    problems: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(4):
                scale[(1,)](x, out, 64, 2.0, BLOCK=64)
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert problems == []
    torch.cuda.synchronize()
    assert torch.equal(out, 2 * x)


def test_several_gpus(torch: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    kernel = fresh(scale)
    pairs = [
        (torch.randn(64, device=f"cuda:{i}"), torch.zeros(64, device=f"cuda:{i}")) for i in (0, 1)
    ]
    for _ in range(4):
        for x, out in pairs:  # the current device is the first all the time
            assert kernel[(1,)](x, out, 64, 2.0, BLOCK=64).spec.device == str(x.device)
    for x, out in pairs:
        assert torch.equal(out, 2 * x)
    with pytest.raises(LaunchError, match="x_ptr on cuda:0, out_ptr on cuda:1"):
        kernel[(1,)](pairs[0][0], pairs[1][1], 64, 2.0, BLOCK=64)
    assert torch.cuda.current_device() == 0


# -- streams and graphs -----------------------------------------------------------------------
def late(torch: Any, x: Any) -> None:
    """Set `x` to one on the current stream, long after this returns."""
    torch.cuda._sleep(SLEEP_CYCLES)
    x.fill_(1.0)


@pytest.mark.parametrize("launches_before", [0, 3], ids=["plain", "machine code"])
def test_the_current_stream_of_torch(torch: Any, launches_before: int) -> None:
    kernel = fresh(scale)
    x, out = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
    for _ in range(launches_before):
        kernel[(1,)](x, out, 64, 2.0, BLOCK=64)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        late(torch, x)
        kernel[(1,)](x, out, 64, 2.0, BLOCK=64)
    stream.synchronize()
    assert torch.equal(out, torch.full_like(out, 2.0))


@pytest.mark.parametrize("as_handle", [False, True])
def test_a_stream_by_option(torch: Any, as_handle: bool) -> None:
    kernel = fresh(scale)
    stream = torch.cuda.Stream()
    for _ in range(4):
        x, out = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            late(torch, x)
        handle = stream.cuda_stream if as_handle else stream
        kernel[(1,)](x, out, 64, 2.0, BLOCK=64, stream=handle)
        stream.synchronize()
        assert torch.equal(out, torch.full_like(out, 2.0))


@pytest.mark.parametrize("launches_before", [0, 1, 3])
def test_a_graph_is_captured_and_replayed(torch: Any, launches_before: int) -> None:
    kernel = fresh(add)
    x, y, out = (torch.zeros(N, device="cuda") for _ in range(3))
    for _ in range(launches_before):
        kernel[GRID](x, y, out, N, BLOCK=BLOCK)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[GRID](x, y, out, N, BLOCK=BLOCK)
        kernel[GRID](out, y, out, N, BLOCK=BLOCK)
    for value in (1.0, 2.0):
        x.fill_(value)
        y.fill_(10.0)
        graph.replay()
        assert torch.equal(out, torch.full_like(out, value + 20.0))


# -- arrays of other libraries ------------------------------------------------------------------
def test_cupy(gpu: Device) -> None:
    cupy: Any = pytest.importorskip("cupy")
    x = cupy.random.standard_normal(N).astype(cupy.float32)
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        with stream:
            for _ in range(3):
                out = cupy.zeros(N, cupy.float32)
                scale[GRID](x, out, N, 2.0, BLOCK=BLOCK)
                assert bool((out == 2 * x).all())
    rows = cupy.arange(64 * 64, dtype=cupy.float32).reshape(64, 64)
    out = cupy.zeros((64, 64), cupy.float32)
    transposed[(1,)](rows, out, SIZE=64)
    assert bool((out == rows.T).all())


@pytest.mark.filterwarnings("default")
def test_numba(gpu: Device) -> None:
    cuda: Any = pytest.importorskip("numba.cuda")
    host = np.arange(64, dtype=np.float32)
    x, out = cuda.to_device(host), cuda.to_device(np.zeros_like(host))
    scale[(1,)](x, out, 64, 2.0, BLOCK=64)
    cuda.synchronize()
    assert np.array_equal(out.copy_to_host(), 2 * host)


@pytest.mark.filterwarnings("default")
def test_jax(gpu: Device, monkeypatch: pytest.MonkeyPatch, torch: Any) -> None:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax: Any = pytest.importorskip("jax")
    try:
        device = jax.devices("cuda")[0]
    except RuntimeError as error:
        pytest.skip(f"this jax cannot use the GPU: {error}")
    x = jax.device_put(np.arange(64, dtype=np.float32), device)
    out = torch.zeros(64, device="cuda")  # arrays of jax are not to be written to
    scale[(1,)](x, out, 64, 2.0, BLOCK=64)
    assert out.tolist() == [2.0 * i for i in range(64)]


def test_dlpack(torch: Any) -> None:
    class Wrapped:
        """Another library's array: DLPack and nothing else."""

        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

        def __dlpack_device__(self) -> Any:
            return self.tensor.__dlpack_device__()

        def __dlpack__(self, **options: Any) -> Any:
            return self.tensor.__dlpack__(**options)

    x, out = torch.randn(N, device="cuda"), torch.zeros(N, device="cuda")
    scale[GRID](Wrapped(x), Wrapped(out), N, 2.0, BLOCK=BLOCK)
    assert torch.equal(out, 2 * x)


def test_arrays_on_cpu_and_gpu_do_not_mix(torch: Any) -> None:
    x, out = torch.ones(64), torch.zeros(64, device="cuda")
    with pytest.raises(LaunchError, match="x_ptr on cpu, out_ptr on cuda:0"):
        scale[(1,)](x, out, 64, 2.0, BLOCK=64)
    scale[(1,)](x, out.cpu(), 64, 2.0, BLOCK=64)


# -- errors -----------------------------------------------------------------------------------
def test_a_failed_assert(torch: Any) -> None:
    kernel = dn.jit(positive.fn, debug=True)
    good, bad = torch.ones(256, device="cuda"), torch.ones(256, device="cuda")
    bad[200] = -1.0
    out = torch.zeros(256, device="cuda")
    for _ in range(2):
        kernel[(4,)](good, out, BLOCK=64)
        with pytest.raises(DeviceAssertionError, match="x is positive") as caught:
            kernel[(4,)](bad, out, BLOCK=64)
        assert "runtime_kernels.py" in str(caught.value)
        assert "program:  (3, 0, 0)" in str(caught.value)
    out.zero_()
    kernel[(4,)](good, out, BLOCK=64)
    assert torch.equal(out, good)


def test_too_much_is_refused(torch: Any) -> None:
    x = torch.ones(64, device="cuda")
    for _ in range(2):
        with pytest.raises(OutOfResources, match=r"threads(.*\n)*.*num_warps=64"):
            scale[(1,)](x, x, 64, 2.0, BLOCK=64, num_warps=64)
        with pytest.raises(LaunchError, match=r"axis 1 .*too large(.*\n)*.*65,536"):
            scale[(1, 65_536)](x, x, 64, 2.0, BLOCK=64)
        with pytest.raises(LaunchError, match="clusters are not there yet"):
            scale[(1,)](x, x, 64, 2.0, BLOCK=64, num_ctas=2)


def run_fault(**environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.fault"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_foreign_memory_comes_to_light_later(torch: Any) -> None:
    first, second, third = run_fault()
    assert first == ""
    for message in (second, third):
        assert message.startswith("CUDA_ERROR_ILLEGAL_ADDRESS\n")
        assert "kernel wild: a kernel touched memory outside of all arrays" in message
        assert "DEUTERON_CUDA_SYNC=1" in message
        assert "wild[(1,)](x, 1 << 40)" in message


@pytest.mark.parametrize("name", ["DEUTERON_CUDA_SYNC", "CUDA_LAUNCH_BLOCKING"])
def test_foreign_memory_is_found_by_a_launch_that_waits(torch: Any, name: str) -> None:
    first = run_fault(**{name: "1"})[0]
    assert first.startswith("CUDA_ERROR_ILLEGAL_ADDRESS\n")
    assert "kernel wild: " in first


# -- time -------------------------------------------------------------------------------------
def test_the_gpus_clock(torch: Any) -> None:
    x, out = torch.ones(1 << 22, device="cuda"), torch.zeros(1 << 22, device="cuda")
    grid = (dn.cdiv(x.numel(), BLOCK),)
    milliseconds = do_bench(
        lambda: scale[grid](x, out, x.numel(), 2.0, BLOCK=BLOCK), 1, 5, device="cuda"
    )
    assert 0 < milliseconds < 100


def test_how_long_a_launch_takes(torch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Printed, not judged: what the host pays for one launch of a kernel that does nothing much."""
    x, out = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
    launcher = scale[(1,)]
    ways: dict[str, Callable[[], object]] = {
        "kernel[(1,)](…)": lambda: scale[(1,)](x, out, 64, 2.0, BLOCK=64),
        "kernel[lambda meta: …](…)": lambda: scale[lambda meta: (dn.cdiv(meta["n"], 64),)](
            x, out, 64, 2.0, BLOCK=64
        ),
        "bound = kernel[(1,)]; bound(…)": lambda: launcher(x, out, 64, 2.0, 64),
        "torch.mul(x, 2.0, out=out)": lambda: torch.mul(x, 2.0, out=out),
    }
    lines: list[str] = []
    for name, call in ways.items():
        lines.append(f"  {_host_us(torch, call):5.2f} us  {name}")
    with capsys.disabled():
        print("\nhost time of a launch, median of 20 × 200:", *lines, sep="\n")


def _host_us(torch: Any, call: Callable[[], object]) -> float:
    for _ in range(10):
        call()
    times: list[float] = []
    for _ in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):  # fewer than what fills the driver's queue
            call()
        times.append((time.perf_counter() - start) / 200 * 1e6)
    return statistics.median(times)
