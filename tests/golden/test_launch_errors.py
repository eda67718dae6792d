"""What is said about each mistake of `bad_launches.py`, word for word, compiled and interpreted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden import bad_launches

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(bad_launches.MISTAKES)

Messages = dict[str, list[str]]


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def run_mistakes(cache_dir: Path, interpret: str) -> tuple[Messages, Messages]:
    """The messages of a process that makes all mistakes, before and after a good launch."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "error",
        "DEUTERON_CACHE_DIR": str(cache_dir),
        "DEUTERON_INTERPRET": interpret,
    }
    done = subprocess.run(
        [sys.executable, "-m", bad_launches.__name__],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    first, second = json.loads(done.stdout)
    return first, second


@pytest.fixture(scope="module")
def compiled(cache_dir: Path) -> tuple[Messages, Messages]:
    return run_mistakes(cache_dir, "")


@pytest.fixture(scope="module")
def interpreted(cache_dir: Path) -> tuple[Messages, Messages]:
    return run_mistakes(cache_dir, "1")


def shown(message: list[str]) -> str:
    """A message as it is kept: without what differs from machine to machine."""
    text = ": ".join(message).replace(str(Path(bad_launches.__file__).parent), "…")
    return re.sub(r"0x[0-9a-f]{6,}", "0x…", text) + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_error_text(
    name: str, compiled: tuple[Messages, Messages], golden: Callable[[str, str], None]
) -> None:
    first, second = compiled
    golden(f"launch_errors/{name}.txt", shown(first[name]))
    assert shown(second[name]) == shown(first[name])
    for part in ("\n  expected: ", "\n  got:      ", "\n  remedy:   "):
        assert part in first[name][1]


@pytest.mark.parametrize("name", sorted(set(NAMES) - bad_launches.COMPILED_ONLY))
def test_the_interpreter_says_the_same(
    name: str, interpreted: tuple[Messages, Messages], compiled: tuple[Messages, Messages]
) -> None:
    for messages in interpreted:
        assert shown(messages[name]) == shown(compiled[0][name])


def test_every_golden_file_has_its_launch() -> None:
    files = (Path(__file__).parent / "launch_errors").iterdir()
    assert sorted(path.stem for path in files) == NAMES
