"""The command line and GPUs: what is said of them, and kernels compiled without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from deuteron.backends.cuda import driver
from deuteron.cli import env
from deuteron.cli.main import main
from tests.cuda.fake_cuda import FakeCuda

KERNEL = f"{Path(__file__).parents[2] / 'examples' / '01_vector_add.py'}:add_kernel"


def test_env_lists_gpus(cuda: FakeCuda) -> None:
    facts = {fact.name: fact for fact in env.facts()}
    assert facts["gpu driver"].value == "CUDA 13.0"
    for name in ("cuda:0", "cuda:1"):
        assert facts[name].value == "NVIDIA H200"
        assert facts[name].note == "132 SMs, 150 GB; kernels are compiled for sm_90a"
    assert "cuDevicePrimaryCtxRetain" not in cuda.calls


def test_env_says_why_a_gpu_is_not_used(cuda: FakeCuda) -> None:
    cuda.attributes |= {75: 7, 76: 5}
    fact = {fact.name: fact for fact in env.facts()}["cuda:0"]
    assert fact.off
    assert "compute capability 7.5, is too old" in fact.note


def test_env_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(driver._DRIVERS, "cuda", raising=False)
    monkeypatch.setattr(driver, "LIBRARY_NAMES", {})
    fact = {fact.name: fact for fact in env.facts()}["gpu driver"]
    assert fact.off
    assert fact.note.startswith("no NVIDIA driver on this machine: a system without one")


def test_inspect_compiles_for_a_gpu_that_is_not_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(driver, "load_library", lambda: pytest.fail("the driver was loaded"))
    assert main(["inspect", KERNEL, "--target", "sm_90a"]) == 0
    shown = capsys.readouterr().out
    titles = [line.split(" ─")[0] for line in shown.splitlines() if line.endswith("──")]
    assert titles[:2] == ["signature", "source"]
    assert titles[-3:] == ["layouts", "LLVM IR", "PTX"]
    assert ".target sm_90a" in shown
    assert ".entry add_kernel" in shown
    assert "nvptx" not in shown.split("LLVM IR")[0]


def test_inspect_shows_no_cpus_assembly_for_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", KERNEL, "--target", "sm_80", "--show", "asm"]) == 2
    assert "--show cannot show `asm`\n  expected: source, ir, passes, layouts, llvm, ptx" in (
        capsys.readouterr().err
    )


def test_inspect_knows_its_targets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", KERNEL, "--target", "sm_70"]) == 1
    assert "unknown GPU architecture 'sm_70'" in capsys.readouterr().err
