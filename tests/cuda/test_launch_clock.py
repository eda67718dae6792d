"""Timing on a GPU: whose clock counts, and what is called how often."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deuteron.backends.cuda.driver import driver
from deuteron.errors import DeviceError
from deuteron.runtime.arrays import lies_on_gpu, reinterpret
from deuteron.runtime.autotune import autotune
from deuteron.runtime.benchmark import do_bench, measure_ms
from deuteron.runtime.tuned_configs import Config
from tests.cuda.fake_cuda import FakeCuda, GpuArray
from tests.cuda.gpu_kernels import FakeCompiler, make
from tests.unit.launch_fakes import Backend, four

CALL_MS = 0.25  # as the fake's events say


def use_gpu() -> None:
    assert driver().device(0).context


def test_events_frame_each_call(cuda: FakeCuda) -> None:
    use_gpu()
    order: list[str] = []
    times_ms = measure_ms(
        lambda: order.append("fn"),
        1.0,
        0.5,
        lambda: order.append("before"),
        lambda: order.append("after"),
        "cuda",
    )
    # Five calls in 0.25 ms: 0.05 ms each, so that 20 warm up and 10 are measured.
    assert times_ms == [CALL_MS] * 10
    assert order == ["before", "fn", "after"] + ["fn"] * 25 + ["before", "fn", "after"] * 10
    assert cuda.memory == {}
    created = cuda.calls.count("cuEventCreate")
    assert created == cuda.calls.count("cuEventDestroy_v2") == 22


def test_a_process_that_uses_a_gpu_is_timed_there(cuda: FakeCuda) -> None:
    assert do_bench(lambda: None, 0, 0) < CALL_MS
    assert "cuEventCreate" not in cuda.calls
    with pytest.raises(DeviceError, match="nothing was run on a GPU"):
        do_bench(lambda: None, 0, 0, device="cuda")
    use_gpu()
    assert do_bench(lambda: None, 0, 0) == CALL_MS
    assert do_bench(lambda: None, 0, 0, device="cpu") < CALL_MS


def test_an_exception_frees_the_memory(cuda: FakeCuda) -> None:
    use_gpu()
    calls = iter("ok")

    def fn() -> None:
        next(calls)

    with pytest.raises(StopIteration):
        do_bench(fn, 0, 1, device="cuda")
    assert cuda.memory == {}


def test_where_an_array_lies(cuda: FakeCuda) -> None:
    x = GpuArray(dtype=np.uint8)
    assert lies_on_gpu(x)
    assert lies_on_gpu(reinterpret(x, "int8"))
    assert not lies_on_gpu(np.zeros(3))
    assert not lies_on_gpu(3)


@pytest.mark.parametrize("on_gpu", [True, False])
def test_the_autotuner_times_a_kernel_where_it_runs(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, on_gpu: bool
) -> None:
    FakeCompiler().install(monkeypatch)
    use_gpu()
    configs = [Config({}, num_warps=2), Config({}, num_warps=4)]
    backend: Any = None if on_gpu else Backend()
    tuned = autotune(configs, [], warmup=0, rep=0)(make(four, backend=backend))
    x = GpuArray() if on_gpu else np.zeros(4, np.float32)
    tuned.run(x, x, x, 5, grid=(1,))
    measured = [times[0] == CALL_MS for times in tuned.configs_timings.values()]
    assert measured == [on_gpu] * 2
