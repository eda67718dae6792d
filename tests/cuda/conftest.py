"""Fixtures of the tests without a card: a fake driver in place of NVIDIA's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deuteron.backends.cpu import native
from deuteron.backends.cpu.launcher import register_array_type
from deuteron.backends.cuda import driver
from deuteron.runtime.devices import backend_of
from tests.cuda.fake_cuda import CURRENT_STREAMS, FakeCuda, GpuArray


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeCuda]:
    """A driver with two GPUs, and a disk cache of the test's own."""
    monkeypatch.setenv("DEUTERON_CACHE_DIR", str(tmp_path))
    for name in ("DEUTERON_CUDA_SYNC", "CUDA_LAUNCH_BLOCKING"):
        monkeypatch.delenv(name, raising=False)
    fake = FakeCuda(device_count=2)
    monkeypatch.setitem(driver._DRIVERS, "cuda", driver.Driver(fake))
    backend_of.cache_clear()
    CURRENT_STREAMS.clear()
    assert register_array_type(GpuArray)
    native.code()  # or the first launches would do without it
    yield fake
    backend_of.cache_clear()
    assert fake.problems == []
    assert fake.stack == []
    assert fake.capture_mode == 0
