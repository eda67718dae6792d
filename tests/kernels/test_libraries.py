"""Kernels that other people wrote for Triton, run as they are: right on CPU tensors.

Libraries import `triton`, which is ours only where a door has been opened; that must not happen in
this process, so each group of files runs under `pytest --deuteron` in one of its own.  A file holds
tests and can be run by itself, with `LIGER_FUSED_MOE_AUTOTUNE=0` to spare a minute:

    python -m pytest --deuteron tests/kernels/liger/norms.py

Those of flash-linear-attention, in `fla`, take minutes to compile: `make conformance` runs them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

# Two processes for Liger, of about the same length: importing it takes as long as ten kernels.
GROUPS = {
    "liger_kernel": [
        ("liger/norms", "liger/activations", "liger/losses"),
        ("liger/layers", "liger/attention", "liger/linear_losses", "liger/policy_loss"),
    ],
}
SETTINGS = {"LIGER_FUSED_MOE_AUTOTUNE": "0"}  # one config a kernel instead of forty


@pytest.mark.parametrize(
    ("library", "names"),
    [
        pytest.param(library, names, id="+".join(names))
        for library, groups in GROUPS.items()
        for names in groups
    ],
)
def test_a_library_computes_what_torch_computes(library: str, names: tuple[str, ...]):
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed; `make test` does it")
    own = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    paths = [str(ROOT), *filter(None, [own.get("PYTHONPATH")])]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "--deuteron", "-q", "-p", "no:cacheprovider",
         *(str(HERE / f"{name}.py") for name in names)],
        cwd=ROOT, env={**own, **SETTINGS, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_file_is_in_a_group():
    grouped = {f"{name}.py" for groups in GROUPS.values() for names in groups for name in names}
    assert grouped == {path.relative_to(HERE).as_posix() for path in HERE.glob("liger/*.py")}
