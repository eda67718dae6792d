"""The driver class: what it calls, and what it says when that fails."""

from __future__ import annotations

import sys
import threading

import pytest

from deuteron.backends.cuda import driver as cuda_driver
from deuteron.backends.cuda.driver import (
    MULTIPROCESSORS,
    Driver,
    device_in_use,
    driver,
    driver_problem,
    load_library,
)
from deuteron.errors import DeviceError
from tests.cuda.fake_cuda import FakeCuda, context_of


def test_what_is_known_of_a_gpu(cuda: FakeCuda) -> None:
    device = driver().device(1)
    assert (driver().version, driver().device_count) == ("13.0", 2)
    assert (device.name, device.capability) == ("NVIDIA H200", (9, 0))
    assert device.memory_bytes == 150_000_000_000
    assert device.attribute(MULTIPROCESSORS) == 132
    assert driver().device(1) is device
    assert "cuDevicePrimaryCtxRetain" not in cuda.calls
    assert str(device) == "Device(cuda:1, NVIDIA H200)"


def test_attributes_are_asked_once(cuda: FakeCuda) -> None:
    device = driver().device(0)
    cuda.calls.clear()
    for _ in range(3):
        assert device.capability == (9, 0)
    assert cuda.calls == ["cuDeviceGetAttribute"] * 2


def test_the_context_is_retained_once_and_given_back(cuda: FakeCuda) -> None:
    assert device_in_use() is None
    device = driver().device(1)
    cuda.stack.append(0xBEEF)
    with device.current():
        assert cuda.stack == [0xBEEF, context_of(1)]
    with pytest.raises(KeyError), device.current():
        raise KeyError
    assert cuda.stack.pop() == 0xBEEF
    assert cuda.calls.count("cuDevicePrimaryCtxRetain") == 1
    assert device_in_use() is device


def test_threads_have_contexts_of_their_own(cuda: FakeCuda) -> None:
    device = driver().device(0)
    seen: list[list[int]] = []

    def work() -> None:
        with device.current():
            seen.append(list(cuda.stack))

    with device.current():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert seen == [[context_of(0)]]


def test_memory(cuda: FakeCuda) -> None:
    device = driver().device(0)
    with device.current():
        address = device.allocate(16)
        assert device.read(address, 16) == bytes(16)
        device.free(address)
    assert cuda.memory == {}


def test_capture_mode_is_put_back(cuda: FakeCuda) -> None:
    with driver().capture_permitted():
        assert cuda.capture_mode == 2
    assert cuda.capture_mode == 0
    cuda.capturing.add(0x77)
    assert driver().is_capturing(0x77)
    assert not driver().is_capturing(0)


def test_a_refusal_says_where_and_why(cuda: FakeCuda) -> None:
    with pytest.raises(DeviceError) as caught:
        driver().device(5)
    assert caught.value.code == "CUDA_ERROR_INVALID_DEVICE"
    head, line, caret, *rest = str(caught.value).split("\n")
    assert head.startswith(f"{__file__}:")
    assert head.endswith(": GPU 5: the GPU's driver refused")
    assert (line.strip(), caret.strip()) == ("driver().device(5)", "^" * 18)
    assert rest == [
        "  expected: CUDA_SUCCESS",
        "  got:      CUDA_ERROR_INVALID_DEVICE: invalid device ordinal",
        "  remedy:   see the driver's documentation of this code",
    ]


def test_a_status_that_the_driver_does_not_know(cuda: FakeCuda) -> None:
    assert driver().describe(12_345) == ("status 12345", "no text")


def test_a_forked_process_is_told(cuda: FakeCuda) -> None:
    cuda.fail["cuDevicePrimaryCtxRetain"] = 3
    with pytest.raises(DeviceError, match=r"remedy: .*forked.*'spawn'"):
        _ = driver().device(0).context


def test_a_driver_without_a_function(cuda: FakeCuda) -> None:
    del cuda.cuThreadExchangeStreamCaptureMode  # type: ignore[attr-defined]
    with (
        pytest.raises(DeviceError, match=r"driver is too old\n(.*\n)*  got: .*without cuThread"),
        driver().capture_permitted(),
    ):
        pass


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCuda()
    fake.fail["cuInit"] = 100
    with pytest.raises(DeviceError, match="CUDA_VISIBLE_DEVICES"):
        Driver(fake)
    monkeypatch.setattr(cuda_driver, "load_library", lambda: fake)
    monkeypatch.delitem(cuda_driver._DRIVERS, "cuda", raising=False)
    assert driver_problem() == (
        "cuInit: the GPU's driver refused: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
    )


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match=r"no NVIDIA driver(.*\n)*  got: .*libnone\.so\.1"):
        load_library(["libnone.so.1", "libnone.so"])
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(DeviceError, match="a system without one, darwin"):
        load_library()


def test_what_is_said_of_the_driver(cuda: FakeCuda) -> None:
    assert driver_problem() == ""
    cuda.device_count = 0
    del driver().__dict__["device_count"]
    assert driver_problem() == "the NVIDIA driver sees no GPU"
