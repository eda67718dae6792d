"""A disk cache that fails: one warning, word for word, and kernels that compute rightly."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden import compile_twice

ROOT = Path(__file__).resolve().parents[2]
Golden = Callable[[str, str], None]


def warnings_of_a_run(cache: Path, *arguments: str) -> str:
    """What a process with this cache, whose kernels must be right, writes to its error stream."""
    done = subprocess.run(
        [sys.executable, "-m", compile_twice.__name__, *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT), "DEUTERON_CACHE_DIR": str(cache)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
    text = done.stderr.replace(str(cache), "CACHE")
    text = text.replace(str(Path(compile_twice.__file__).parent), "…")
    return re.sub(r"[0-9a-f]{64}", "HASH", text)


def entries(cache: Path) -> list[Path]:
    return sorted((cache / "objects").glob("*.dobj"))


def test_a_good_cache_is_silent(tmp_path: Path) -> None:
    for _ in range(2):
        assert warnings_of_a_run(tmp_path) == ""
    assert len(entries(tmp_path)) >= 2  # the launcher's own code is there too


def test_a_cache_that_cannot_be_written(tmp_path: Path, golden: Golden) -> None:
    cache = tmp_path / "cache"
    cache.write_text("a file where the folder should be")
    golden("cache_warnings/unwritable.txt", warnings_of_a_run(cache))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_cache_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "cannot be written" in warnings_of_a_run(tmp_path)


def test_a_full_disk(tmp_path: Path, golden: Golden) -> None:
    golden("cache_warnings/full.txt", warnings_of_a_run(tmp_path, "1000"))
    assert list((tmp_path / "objects").iterdir()) == []


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[: len(data) // 2],
    "overwritten": lambda data: data[:-999] + bytes(byte ^ 1 for byte in data[-999:]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_entries(damage: str, tmp_path: Path, golden: Golden) -> None:
    assert warnings_of_a_run(tmp_path) == ""
    for path in entries(tmp_path):
        whole = path.read_bytes()
        path.write_bytes(DAMAGES[damage](whole))
        assert path.read_bytes() != whole
    golden("cache_warnings/damaged.txt", warnings_of_a_run(tmp_path))
    assert warnings_of_a_run(tmp_path) == ""  # they were replaced


def test_entries_of_other_kernels(tmp_path: Path, golden: Golden) -> None:
    """Files under each other's names are damage too: nothing runs that was not asked for."""
    assert warnings_of_a_run(tmp_path) == ""
    paths = entries(tmp_path)
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)
    golden("cache_warnings/damaged.txt", warnings_of_a_run(tmp_path))
