"""What is said when a GPU's kernel cannot be launched, or was stopped: word for word."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from deuteron.errors import DeuteronError, DeviceError, LaunchError, OutOfResources
from tests.cuda.fake_cuda import ILLEGAL_ADDRESS, FakeCuda, GpuArray
from tests.cuda.gpu_kernels import FakeCompiler, make
from tests.unit.launch_fakes import four

Launch = Callable[..., Any]


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> FakeCompiler:
    return FakeCompiler().install(monkeypatch)


@pytest.fixture
def launch(cuda: FakeCuda, compiler: FakeCompiler) -> Launch:
    """Launches one kernel, the same each time."""
    kernel, x = make(four), GpuArray()

    def run(*grid: int, **options: Any) -> Any:
        return kernel[grid or (1,)](x, x, x, 5, **options)

    return run


def said(error: type[DeuteronError], call: Callable[[], object]) -> str:
    """The message of an error without its place, which must be in this file."""
    with pytest.raises(error) as caught:
        call()
    place, _, text = str(caught.value).partition(": ")
    assert place.startswith(__file__)
    lines = text.split("\n")
    assert set(lines[2].strip()) == {"^"}
    return "\n".join([lines[0], *lines[3:]])


def warm(launch: Launch) -> None:
    """From now on machine code launches."""
    for _ in range(3):
        launch()


@pytest.mark.parametrize("way", ["plain", "machine code"])
def test_a_kernel_that_touched_foreign_memory(cuda: FakeCuda, launch: Launch, way: str) -> None:
    if way == "machine code":
        warm(launch)
    cuda.fail["cuLaunchKernel"] = ILLEGAL_ADDRESS
    assert said(DeviceError, lambda: launch()) == (
        "kernel four: a kernel touched memory outside of all arrays\n"
        "  expected: kernels that end\n"
        "  got:      CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered; this "
        "process cannot use the GPU any more\n"
        "  remedy:   launches are asynchronous, so it may be of an earlier launch;\n"
        "            run again with DEUTERON_CUDA_SYNC=1 to have it raised where it is made;\n"
        "            then mask off the lanes that lie outside of the arrays"
    )


def test_a_fault_that_is_waited_for(
    cuda: FakeCuda, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEUTERON_CUDA_SYNC", "1")
    cuda.fail["cuStreamSynchronize"] = 716
    assert said(DeviceError, lambda: launch()) == (
        "kernel four: a kernel used an address that is not aligned to its items\n"
        "  expected: kernels that end\n"
        "  got:      CUDA_ERROR_MISALIGNED_ADDRESS: misaligned address; this process cannot use "
        "the GPU any more\n"
        "  remedy:   launch it for arrays that are aligned as those it was compiled for"
    )


@pytest.mark.parametrize("way", ["plain", "machine code"])
@pytest.mark.parametrize("axis", [1, 2])
def test_a_grid_that_is_too_large(cuda: FakeCuda, launch: Launch, way: str, axis: int) -> None:
    if way == "machine code":
        warm(launch)
    grid = [1] * axis + [65_536]
    assert said(LaunchError, lambda: launch(*grid)) == (
        f"kernel four: axis {axis} of the grid is too large for a GPU\n"
        "  expected: at most 65,535\n"
        "  got:      65,536\n"
        "  remedy:   let axis 0 be the long one: it may have 2**31 - 1 programs"
    )


def test_a_long_first_axis(cuda: FakeCuda, launch: Launch) -> None:
    launch(2**31 - 1)
    assert cuda.launches[0].grid == (2**31 - 1, 1, 1)


def test_too_many_threads(cuda: FakeCuda, launch: Launch) -> None:
    assert said(OutOfResources, lambda: launch(num_warps=64)) == (
        "out of resource: threads of a program of kernel four\n"
        "  expected: at most 1,024\n"
        "  got:      2,048: num_warps=64 of 32 threads each\n"
        "  remedy:   use num_warps=32 or fewer"
    )
    assert "cuModuleLoadDataEx" not in cuda.calls


def test_too_much_shared_memory(cuda: FakeCuda, compiler: FakeCompiler, launch: Launch) -> None:
    compiler.shared_bytes = 300_000
    assert said(OutOfResources, lambda: launch()) == (
        "out of resource: shared memory bytes of kernel four\n"
        "  expected: at most 232,448\n"
        "  got:      300,000\n"
        "  remedy:   use smaller blocks, or a lower num_stages: each stage holds the tiles of one "
        "turn"
    )


def test_too_many_registers(cuda: FakeCuda, launch: Launch) -> None:
    cuda.function_attributes = {0: 256, 3: 0, 4: 255}
    assert said(OutOfResources, lambda: launch(num_warps=16)) == (
        "out of resource: registers of a program of kernel four\n"
        "  expected: at most 65,536\n"
        "  got:      130,560: 512 threads × 255\n"
        "  remedy:   use fewer num_warps, smaller blocks, or maxnreg=128"
    )


def test_a_launch_without_room(cuda: FakeCuda, launch: Launch) -> None:
    cuda.fail["cuLaunchKernel"] = 701
    text = said(LaunchError, lambda: launch(num_warps=8))
    assert text.startswith("kernel four: the GPU cannot hold one program of it\n")
    assert "256 threads a program; CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" in text


def test_clusters(cuda: FakeCuda, launch: Launch) -> None:
    for _ in range(2):
        assert said(LaunchError, lambda: launch(num_ctas=2)) == (
            "kernel four: clusters are not there yet\n"
            "  expected: num_ctas=1\n"
            "  got:      num_ctas=2\n"
            "  remedy:   leave num_ctas out"
        )


def test_a_gpu_that_is_too_old(cuda: FakeCuda, launch: Launch) -> None:
    cuda.attributes |= {75: 7, 76: 5}
    with pytest.raises(DeuteronError, match=r"compute capability 7\.5, is too old"):
        launch()


def test_a_gpu_that_is_not_there(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    x = GpuArray(device=7)
    with pytest.raises(DeviceError, match="GPU 7: the GPU's driver refused"):
        make(four)[(1,)](x, x, x, 5)


def test_a_first_launch_under_capture_that_the_driver_refuses(
    cuda: FakeCuda, launch: Launch
) -> None:
    cuda.fail["cuModuleLoadDataEx"] = 900
    text = said(DeviceError, lambda: launch())
    assert "remedy:   launch the kernel once before the capture begins" in text
    del cuda.fail["cuModuleLoadDataEx"]
    launch()


def test_code_is_loaded_in_a_mode_that_capture_permits(cuda: FakeCuda, launch: Launch) -> None:
    launch()
    first, last = [
        i for i, name in enumerate(cuda.calls) if name == "cuThreadExchangeStreamCaptureMode"
    ]
    loaded = cuda.calls.index("cuModuleLoadDataEx")
    assert first < loaded < last < cuda.calls.index("cuLaunchKernel")


def test_the_interpreter_stays_on_the_cpu(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    kernel, x = make(four, interpret=True), GpuArray()
    text = said(LaunchError, lambda: kernel[(1,)](x, x, x, 5))
    assert re.search(r"interpreter cannot read a GPU's memory\n.*\n.*NVIDIA H200", text)


def test_read_only_arrays(cuda: FakeCuda, compiler: FakeCompiler) -> None:
    class Unregistered(GpuArray):
        """Read by its CUDA array interface only."""

    compiler.written = ("c",)
    x, frozen = GpuArray(), Unregistered(read_only=True)
    kernel = make(four)
    kernel[(1,)](frozen, x, x, 5)
    with pytest.raises(LaunchError, match=r"argument 'c'.*read-only"):
        kernel[(1,)](x, x, frozen, 5)
