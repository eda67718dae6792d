"""No compiled kernel touches memory outside of its arrays, not even for masked-off lanes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform == "win32", reason="mprotect is POSIX's")
def test_nothing_beyond_the_arrays_is_touched() -> None:
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.oracle.guarded"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    names = result.stdout.splitlines()
    last = names[-1] if names else "nothing"
    assert result.returncode == 0, f"ended in kernel {last}:\n{result.stderr[-3000:]}"
    assert last == "done"
    assert len(names) > 80
