"""Fixtures of the tests that need a card; without one they are skipped, and say why."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deuteron.backends.cpu import native
from deuteron.backends.cuda.driver import Device, driver, driver_problem
from tests.gpu.checks import tasks_of, workers
from tests.gpu.workers import Workers


@pytest.fixture(scope="session")
def gpu() -> Device:
    """The first GPU."""
    if problem := driver_problem():
        pytest.skip(problem)
    native.code()  # or the first launches would do without it
    return driver().device(0)


@pytest.fixture
def torch(gpu: Device) -> Any:
    """torch, built for CUDA."""
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this torch cannot use the GPU")
    return module


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A disk cache of the test's own."""
    monkeypatch.setenv("DEUTERON_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="session")
def gpu_workers(gpu: Device) -> Iterator[Workers]:
    """A process for each core, to carry out checks."""
    pool = workers(os.cpu_count() or 1)
    yield pool
    pool.close()


@pytest.fixture
def pass_all(gpu_workers: Workers) -> Callable[[str], None]:
    """Demand that every check of a topic passes."""

    def demand(topic: str) -> None:
        failures = [o for o in gpu_workers.run(list(tasks_of(topic))) if o.text]
        shown = "\n\n".join(f"== {o.task}\n{o.text}" for o in failures[:10])
        assert not failures, f"{len(failures)} checks failed:\n{shown}"

    return demand
