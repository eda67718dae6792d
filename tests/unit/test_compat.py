"""The doors: other packages' names on ours, by `install`, `deuteron run` and pytest's option."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from deuteron import compat
from deuteron.errors import UserError
from deuteron.runtime import knobs
from deuteron.testing.mxfp import MXFP4Tensor, MXScaleTensor

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import sys
import torch
import triton
import triton.language as tl
import triton.runtime.driver as driver_module
from triton.language.extra import libdevice
from triton.language.extra.cuda.libdevice import rsqrt
from triton.runtime import driver
from triton.runtime.driver import driver as same
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = triton.runtime.driver.active.get_active_torch_device()
assert driver.active is driver_module.active is same.active
assert driver.active.get_current_target().backend == DEVICE.type

@triton.autotune([triton.Config({"BLOCK": 128}, num_warps=4)], key=["n"])
@triton.jit
def roots(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=1.0).to(tl.dtype("fp32"))
    tl.store(out_ptr + at, rsqrt(x) + libdevice.exp(x), mask=at < n)

x = torch.rand(1000, device=DEVICE) + 0.5
out = torch.empty_like(x)
roots[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, out, 1000)
triton.testing.assert_close(out, x.rsqrt() + x.exp())
print("right", *sys.argv[1:], __name__)
"""


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd, env={"PYTHONPATH": str(ROOT), "PATH": "", "HOME": str(cwd)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_a_script_runs_unchanged(tmp_path: Path):
    (tmp_path / "script.py").write_text(SCRIPT)
    by_file = run("-m", "deuteron", "run", "script.py", "--an", "option", cwd=tmp_path)
    assert by_file.stdout == "right --an option __main__\n", by_file.stderr
    by_module = run("-m", "deuteron", "run", "-m", "script", "x", cwd=tmp_path)
    assert by_module.stdout == "right x __main__\n", by_module.stderr


def test_processes_that_a_script_starts_find_the_door_open(tmp_path: Path):
    (tmp_path / "child.py").write_text("import triton.language as tl; print(tl.__name__)")
    (tmp_path / "script.py").write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, 'child.py'], check=True)\n"
    )
    result = run("-m", "deuteron", "run", "script.py", cwd=tmp_path)
    assert result.stdout == "deuteron.compat.triton.language\n", result.stderr


def test_processes_given_the_path_of_a_script_find_the_door_open(tmp_path: Path):
    (tmp_path / "child.py").write_text("import triton.language as tl; print(tl.__name__)")
    (tmp_path / "script.py").write_text(
        "import os, subprocess, sys\n"
        "environment = os.environ | {'PYTHONPATH': os.pathsep.join(sys.path)}\n"
        "subprocess.run([sys.executable, 'child.py'], check=True, env=environment)\n"
    )
    result = run("-m", "deuteron", "run", "script.py", cwd=tmp_path)
    assert result.stdout == "deuteron.compat.triton.language\n", result.stderr


def test_a_script_that_is_not_there(tmp_path: Path):
    result = run("-m", "deuteron", "run", "nothing.py", cwd=tmp_path)
    assert result.returncode == 2
    assert "there is no file nothing.py" in result.stderr


def test_tests_run_unchanged(tmp_path: Path):
    (tmp_path / "test_it.py").write_text(f"{SCRIPT}\ndef test_it():\n    assert x is not out\n")
    (tmp_path / "conftest.py").write_text("import triton\nassert 'deuteron' in triton.__file__\n")
    result = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--deuteron", cwd=tmp_path)
    assert "1 passed" in result.stdout, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("import triton.ops", "No module named 'triton.ops': Deuteron stands for triton here"),
        ("import triton; triton.nonsense", "triton.nonsense is not there: Deuteron stands for"),
        ("import triton.language as tl; tl.nonsense", "language.nonsense is not there"),
        ("from triton.runtime.cache import nonsense", "cannot import name 'nonsense'"),
    ],
)
def test_what_is_not_there_is_named(tmp_path: Path, statement: str, error: str):
    (tmp_path / "script.py").write_text(statement)
    result = run("-m", "deuteron", "run", "script.py", cwd=tmp_path)
    assert result.returncode != 0
    assert error in result.stderr


def test_the_original_must_not_be_there_yet(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "triton", type(sys)("triton", "the original"))
    monkeypatch.setattr(sys.modules["triton"], "__file__", "/elsewhere", raising=False)
    with pytest.raises(UserError, match="imported already, from /elsewhere"):
        compat.install("triton")
    assert not compat.installed("triton")
    with pytest.raises(UserError, match="no door for 'tritn'"):
        compat.install("tritn")


# -- what stands behind the names ----------------------------------------------------------
def test_knobs_hold_within_a_scope():
    with knobs.compilation.scope():
        knobs.compilation.always_compile = True
        assert knobs.compilation.always_compile
    assert not knobs.compilation.always_compile
    with pytest.raises(AttributeError, match="no knob `always_compiles`; did you mean `always_c"):
        knobs.compilation.always_compiles = True


def test_four_bit_floats():
    values = torch.tensor([0.0, 0.25, 0.26, 0.75, 2.5, 5.0, 5.1, 100.0, -0.3, float("nan")])
    coded = MXFP4Tensor(data=values)
    wanted = [0.0, 0.0, 0.5, 1.0, 2.0, 4.0, 6.0, 6.0, -0.5, 6.0]
    assert coded.to(torch.float32).tolist() == wanted
    packed = coded.to_packed_tensor(0)
    assert packed.shape == (5,)
    with pytest.raises(AssertionError, match="1 axes, and no axis 1"):
        coded.to_packed_tensor(1)
    assert torch.equal(coded.unpack_packed_tensor(packed, 0, (10,)), coded.data)
    every = MXFP4Tensor(size=(64,)).random().to(torch.float32)
    assert torch.equal(MXFP4Tensor(data=every).to(torch.float32), every)


def test_scales_are_powers_of_two():
    values = torch.tensor([1.0, 1.5, 2.0, 0.3, 0.0, -1.0, float("inf"), 2.0**-126])
    scales = MXScaleTensor(data=values).to(torch.float32)
    wanted = np.array([1, 1, 2, 0.25, np.nan, np.nan, np.nan, 2.0**-126])
    np.testing.assert_array_equal(scales.numpy(), wanted)
    drawn = MXScaleTensor(size=(100,)).random(low=0.25, high=8.0).to(torch.float32)
    assert drawn.min() >= 0.25
    assert drawn.max() <= 8
