"""The benchmark scripts: what a row says, and that the picture shows the rows."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from deuteron.cli import measure

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
