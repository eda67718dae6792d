"""torch.compile with Triton kernels on the CPU: every model of `models.py` against eager torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
MODELS = Path(__file__).with_name("models.py")
LEAST_MODELS = 10


def test_compiled_models_are_the_eager_ones(tmp_path: Path):
    command = [sys.executable, "-m", "deuteron", "run", str(MODELS)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count(": right") >= LEAST_MODELS


def test_kernels_are_compiled_here(tmp_path: Path):
    """Not by Inductor's C++ backend, which would be right as well."""
    script = tmp_path / "which.py"
    script.write_text(
        "import torch, deuteron.runtime.compiled_kernel as compiled\n"
        "runs, run = [], compiled.CompiledKernel.run\n"
        "compiled.CompiledKernel.run = lambda self, *a: (runs.append(self.name), run(self, *a))\n"
        "f = torch.compile(lambda x: x.exp().sum(-1), options={'cpu_backend': 'triton'})\n"
        "x = torch.randn(3, 5)\n"
        "torch.testing.assert_close(f(x), x.exp().sum(-1))\n"
        "assert runs and all(name.startswith('triton_') for name in runs), runs\n"
    )
    command = [sys.executable, "-m", "deuteron", "run", str(script)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
