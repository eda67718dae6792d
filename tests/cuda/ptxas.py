"""NVIDIA's assembler as a judge of PTX, from PyPI's nvidia-cuda-nvcc or from a CUDA toolkit."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from functools import cache
from pathlib import Path

import pytest


@cache
def find() -> str | None:
    """The assembler's path, if it is installed."""
    packages = Path(sysconfig.get_paths()["purelib"])
    found = sorted(packages.glob("nvidia/*/bin/ptxas"))
    return str(found[-1]) if found else shutil.which("ptxas")


def accept(ptx: str, arch: str) -> str:
    """Assemble, and return what ptxas says of registers and spills; fail with its errors.

    Skips the test when there is no ptxas.
    """
    program = find()
    if program is None:
        pytest.skip("no ptxas: pip install nvidia-cuda-nvcc")
    command = [program, f"-arch={arch}", "-v", "-o", "/dev/null", "-"]
    result = subprocess.run(command, input=ptx, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{result.stderr}\n{ptx}"
    return result.stderr
