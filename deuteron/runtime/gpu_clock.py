"""Timing a callable on a GPU, between two events on the current stream.

A launch returns before its kernel has run, so that a wall clock sees neither.  Before each call the
GPU's L2 cache is filled with something else, as Triton's `do_bench` does.  While the GPU is busy
with that the host has time to launch, so that launching is not measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from ctypes import byref, c_float, c_void_p
from typing import Any

from deuteron.backends.cuda.driver import Device, device_in_use, driver
from deuteron.runtime.streams import torch_stream

FLUSH_BYTES = 256 << 20
"""More than the L2 cache of any GPU; Triton's number, so that results compare."""

_ESTIMATE_CALLS = 5


def clock_device() -> Device | None:
    """The GPU that this process uses: torch's current one, or one that has run a kernel."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.version.cuda and torch.cuda.is_initialized():
        return driver().device(torch.cuda.current_device())
    return device_in_use()


def measure_gpu_ms(
    device: Device,
    fn: Callable[[], object],
    warmup_ms: float,
    rep_ms: float,
    before: Callable[[], object] | None = None,
    after: Callable[[], object] | None = None,
) -> list[float]:
    """Milliseconds of each measured call of `fn`, which has been called before.

    `before` and `after` frame every measured call, untimed.  Both periods count the time on the
    GPU, with the flushing in between.
    """
    stream = torch_stream(device.ordinal)
    with _flushing(device, stream) as flush:
        estimate_ms = _estimate_ms(device, stream, fn, flush)
        for _ in range(_count(warmup_ms, estimate_ms)):
            fn()
        pairs = [
            (_Event(device), _Event(device)) for _ in range(max(1, _count(rep_ms, estimate_ms)))
        ]
        for start, end in pairs:
            if before is not None:
                before()
            flush()
            start.record(stream)
            fn()
            end.record(stream)
            if after is not None:
                after()
        device.driver.call("cuStreamSynchronize", stream)
        return [end.since(start) for start, end in pairs]


class _Event:
    """A moment on a stream; destroyed with the object."""

    def __init__(self, device: Device) -> None:
        self._driver = device.driver
        event = c_void_p()
        self._driver.call("cuEventCreate", byref(event), 0)
        self._handle = event.value

    def record(self, stream: int) -> None:
        self._driver.call("cuEventRecord", self._handle, stream)

    def since(self, start: _Event) -> float:
        """Milliseconds between two events that have happened."""
        elapsed = c_float()
        self._driver.call("cuEventElapsedTime", byref(elapsed), start._handle, self._handle)
        return elapsed.value

    def __del__(self) -> None:
        if self._handle is not None:
            self._driver.function("cuEventDestroy_v2")(self._handle)


@contextmanager
def _flushing(device: Device, stream: int) -> Generator[Callable[[], None]]:
    """A function that fills the L2 cache, in the context of the GPU."""
    with device.current():
        memory = device.allocate(FLUSH_BYTES)

        def flush() -> None:
            device.driver.call("cuMemsetD8Async", memory, 0, FLUSH_BYTES, stream)

        try:
            yield flush
        finally:
            device.free(memory)


def _estimate_ms(
    device: Device, stream: int, fn: Callable[[], object], flush: Callable[[], None]
) -> float:
    start, end = _Event(device), _Event(device)
    start.record(stream)
    for _ in range(_ESTIMATE_CALLS):
        flush()
        fn()
    end.record(stream)
    device.driver.call("cuStreamSynchronize", stream)
    return end.since(start) / _ESTIMATE_CALLS


def _count(period_ms: float, call_ms: float) -> int:
    return int(period_ms / call_ms) if call_ms > 0 else 0
