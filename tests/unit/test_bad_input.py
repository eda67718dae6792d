"""What is odd and yet no error: grids of nothing, and masked-off lanes that point anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deuteron as dn
import deuteron.language as tl
from tests.unit import wild_lanes

ROOT = Path(__file__).resolve().parents[2]


@dn.jit
def fill(out_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 1.0)


@pytest.mark.parametrize("grid", [(0,), (4, 0), (0, 2**31 - 1), (1, 1, 0), lambda meta: (0,)])
def test_a_grid_of_zero_runs_nothing(grid: Any) -> None:
    out = np.zeros(64, np.float32)
    for _ in range(2):  # the second time by machine code
        fill[grid](out, BLOCK=16)
        assert not out.any()
    fill[(4,)](out, BLOCK=16)
    assert out.all()


@pytest.mark.parametrize("interpret", ["", "1"])
def test_masked_off_lanes_are_never_touched(interpret: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", wild_lanes.__name__],
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "error",
            "DEUTERON_CACHE_DIR": str(tmp_path),
            "DEUTERON_INTERPRET": interpret,
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "unharmed\n"), done.stderr
