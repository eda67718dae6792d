"""The benchmark scripts: what a row says, and that the picture shows the rows."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from deuteron.cli import measure
from deuteron.errors import DeuteronError

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> ModuleType:
    path = ROOT / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def instant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "TURN_S", 0.0)
    monkeypatch.setattr(measure, "SETTLE_LIMIT_S", 0.0)


@pytest.mark.usefixtures("instant")
def test_a_row_for_each_peer_with_its_share_of_the_work() -> None:
    cpu = load("cpu")
    checked: list[bool] = []
    problem = cpu.Problem(
        "name", "2^3", "float32", lambda: None, {"torch": lambda: None, "half": lambda: None},
        lambda: checked.append(True), scale={"half": 0.5},
    )  # fmt: skip
    torch_row, half_row = cpu.measure(problem, threads=1, budget_s=0.0)
    assert checked == [True]
    assert (torch_row.peer, half_row.peer) == ("torch", "half")
    assert torch_row.ours_ms == half_row.ours_ms
    for row in (torch_row, half_row):
        assert row.ratio == pytest.approx(row.peer_ms / row.ours_ms)


@pytest.mark.usefixtures("instant")
def test_a_wrong_result_is_not_measured() -> None:
    cpu = load("cpu")

    def differ() -> None:
        raise AssertionError("ours and theirs differ")

    problem = cpu.Problem("name", "", "", lambda: None, {}, differ)
    with pytest.raises(AssertionError, match="ours and theirs differ"):
        list(cpu.measure(problem, threads=1, budget_s=0.0))


def test_every_example_kernel_is_launched_for_the_first_time() -> None:
    """A new example must be entered in first_launch.py."""
    first_launch = load("first_launch")
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        names = [name for name, _ in first_launch.launches()]
    finally:
        sys.path.pop(0)
    examples = {path.name[:2] for path in (ROOT / "examples").glob("[0-9][0-9]_*.py")}
    assert {name[:2] for name in names} == examples
    assert len(names) == len(set(names))


def row(name: str, peer: str, ratio: float) -> dict[str, Any]:
    return {
        "name": name, "shape": "2^24", "dtype": "float32", "threads": 1, "ours_ms": 1.0,
        "peer": peer, "peer_ms": ratio, "ratio": ratio,
    }  # fmt: skip


def test_the_picture_shows_kernels_only(tmp_path: Path) -> None:
    plot = load("plot")
    document = {
        "date": "2026-01-01T00:00:00+00:00",
        "machine": {"cpu": "A CPU"},
        "versions": {"deuteron": "0.1.0", "numpy": "2.0", "torch": "2.0"},
        "rows": [
            row("vector_add", "torch", 1.5),
            row("vector_add", "numpy", 2.5),
            row("launch", "bar", 3.0),
            row("matmul_edge", "deuteron 1024^3", 0.9),
        ],
    }
    shown = [(r["name"], r["peer"]) for r in plot.kernel_rows(document)]
    assert shown == [("vector_add", "torch"), ("vector_add", "numpy")]
    path = tmp_path / "rows.png"
    plot.draw(document, path)
    assert path.read_bytes().startswith(b"\x89PNG")


# -- on a GPU -------------------------------------------------------------------------------------
@pytest.fixture
def gpu_timing(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Replays that take as many milliseconds as what they run says, or fail as that fails."""
    timing = load("gpu_timing")

    class Replay:
        def __init__(self, runs: list[Any]) -> None:
            self.times = [run() for run in runs]

        def ms(self) -> float:
            return sum(self.times) / len(self.times)

    monkeypatch.setattr(timing, "Replay", Replay)
    return timing


def gpu_problem(timing: ModuleType, **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "ours": {"small": [lambda: 4.0], "large": [lambda: 2.0, lambda: 3.0]},
        "peers": {"torch": {"": [lambda: 5.0]}, "triton": {"8 warps": [lambda: 1.0]}},
        "check": lambda: None,
    }
    return timing.Problem("name", "2^3", "float16", work=5.0, unit="GB/s", **(fields | changes))


def test_the_fastest_configuration_stands_for_its_side(gpu_timing: ModuleType) -> None:
    torch_row, triton_row = gpu_timing.measure(gpu_problem(gpu_timing), rounds=3)
    assert (torch_row.ours_ms, torch_row.peer_ms, torch_row.ratio) == (2.5, 5.0, 2.0)
    assert torch_row.rate == "2,000 GB/s"
    assert torch_row.note == "ours: large"
    assert (triton_row.peer_ms, triton_row.ratio) == (1.0, 0.4)
    assert triton_row.note == "ours: large; triton: 8 warps"


def test_what_is_missing_says_so(gpu_timing: ModuleType) -> None:
    problem = gpu_problem(gpu_timing, peers={}, missing={"triton": "not measured: not installed"})
    (row,) = gpu_timing.measure(problem, rounds=1)
    assert (row.peer, row.peer_ms, row.ratio) == ("triton", None, None)
    assert row.note == "not measured: not installed"


def test_a_wrong_result_on_a_gpu_is_not_measured(gpu_timing: ModuleType) -> None:
    def differ() -> None:
        raise AssertionError("off by 0.5")

    rows = list(gpu_timing.measure(gpu_problem(gpu_timing, check=differ), rounds=1))
    assert [row.ours_ms for row in rows] == [None, None]
    assert {row.note for row in rows} == {"not measured: off by 0.5"}


def test_a_configuration_that_does_not_fit_is_passed_over(gpu_timing: ModuleType) -> None:
    def too_large() -> float:
        raise DeuteronError("out of shared memory")

    problem = gpu_problem(gpu_timing, ours={"huge": [too_large], "small": [lambda: 4.0]})
    assert next(gpu_timing.measure(problem, rounds=1)).ours_ms == 4.0
    problem = gpu_problem(gpu_timing, ours={"huge": [too_large]})
    assert next(gpu_timing.measure(problem, rounds=1)).note.endswith("out of shared memory")
