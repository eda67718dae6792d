"""Every example runs as a person would run it, and leaves no warning behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9][0-9]_*.py"))


def test_examples_are_numbered_without_gaps() -> None:
    numbers = [int(path.name[:2]) for path in EXAMPLES]
    assert numbers == list(range(1, len(EXAMPLES) + 1))
    assert len(numbers) >= 12


@pytest.mark.parametrize("interpret", ["", "1"], ids=["compiled", "interpreted"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_agrees_with_its_reference(
    path: Path, interpret: str, tmp_path: Path
) -> None:
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "error",
        "DEUTERON_CACHE_DIR": str(tmp_path),
        "DEUTERON_INTERPRET": interpret,
    }
    run = subprocess.run(
        [sys.executable, str(path)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stderr == ""
    assert run.stdout.startswith(path.stem[:2])
