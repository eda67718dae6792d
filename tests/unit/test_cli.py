"""The command line: what it finds, what it guesses, how it looks, and its exit codes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from deuteron.cli import UsageError, cases, demo, env, kernels, measure, signature
from deuteron.cli.cases import Case
from deuteron.cli.main import main
from deuteron.errors import InternalError

KERNELS = """
import deuteron as dn
import deuteron.language as tl

@dn.jit
def scale(x_ptr, out_ptr, n, stride_xm, stride_xn, eps, BLOCK: tl.constexpr, FAST: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x * eps, mask=at < n)

@dn.autotune([dn.Config({"BLOCK": 256}), dn.Config({"BLOCK": 512})], key=["n"])
@dn.jit
def tuned(x_ptr, n, BLOCK: tl.constexpr, POWER: tl.constexpr = 2):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, at, mask=at < n)

def plain(x):
    return x
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "my_kernels.py"
    path.write_text(KERNELS)
    return str(path)


# -- finding kernels -------------------------------------------------------------------------
def test_a_kernel_is_found_in_a_file_and_in_a_module(file: str) -> None:
    assert kernels.jit_function(kernels.find_kernel(f"{file}:scale")).__name__ == "scale"
    assert kernels.jit_function(kernels.find_kernel(f"{file}:tuned")).__name__ == "tuned"
    found = kernels.find_kernel("deuteron.ops.softmax:softmax_kernel")
    assert kernels.jit_function(found).__name__ == "softmax_kernel"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{file}", "remedy:   {file}:scale"),
        ("{file}:scal", "did you mean {file}:scale?"),
        ("{file}:nothing_like_it", "kernels:  scale, tuned"),
        ("{file}:plain", "is not a kernel"),
        ("missing.py:scale", "no file missing.py"),
        ("no_such_package.x:scale", "no module named `no_such_package`"),
    ],
)
def test_what_is_not_a_kernel_is_explained(file: str, spec: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        kernels.find_kernel(spec.format(file=file))
    assert expected.format(file=file) in str(caught.value)


def test_a_file_that_fails_to_import_says_why(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("1 / 0\n")
    with pytest.raises(UsageError, match="ZeroDivisionError: division by zero"):
        kernels.find_kernel(f"{path}:kernel")


# -- signatures ------------------------------------------------------------------------------
def stand_ins(file: str, kernel: str, text: str) -> dict[str, Any]:
    found = kernels.find_kernel(f"{file}:{kernel}")
    return signature.stand_in_arguments(found, text)


def test_a_signature_is_guessed_from_names(file: str) -> None:
    arguments = stand_ins(file, "scale", "")
    texts = {name: argument.text for name, argument in arguments.items()}
    assert texts == {
        "x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32:16", "stride_xm": "i32:16",
        "stride_xn": "1", "eps": "fp32", "BLOCK": "1024", "FAST": "False",
    }  # fmt: skip
    assert all(argument.guessed for argument in arguments.values())


def test_a_signature_takes_types_in_order_and_values_by_name(file: str) -> None:
    arguments = stand_ins(file, "scale", "*bf16, *fp16, i64, FAST=True, n=i32, eps=0.25, BLOCK=64")
    assert arguments["x_ptr"].value.dtype.name == "bfloat16"
    assert arguments["out_ptr"].value.dtype.name == "float16"
    assert arguments["n"].value % 16 != 0
    assert (arguments["eps"].value, arguments["BLOCK"].value) == (0.25, 64)
    assert arguments["FAST"].value is True
    assert not arguments["FAST"].guessed
    assert arguments["stride_xm"].guessed


def test_what_a_signature_says_is_what_the_kernel_is_specialised_for(file: str) -> None:
    text = "*bf16:1, *fp16:16, i32:16, i64, 3, 0.25, BLOCK=64, FAST=0"
    arguments = stand_ins(file, "scale", text)
    scale = kernels.jit_function(kernels.find_kernel(f"{file}:scale"))
    kernel = scale.warmup(*(argument.stand_in for argument in arguments.values()), grid=(1,))
    assert str(kernel.spec) == (
        "x_ptr: *bf16, out_ptr: *fp16:16, n: i32:16, stride_xm: i64, stride_xn=3, eps=0.25, "
        "BLOCK=64, FAST=0"
    )


def test_a_signature_survives_being_printed_and_read_again(file: str) -> None:
    first = stand_ins(file, "scale", "*bf16,FAST=relu")
    again = stand_ins(file, "scale", signature.render(first))
    assert signature.render(first) == signature.render(again)
    assert again["FAST"].value == "relu"


def test_constexprs_come_from_the_first_config_and_from_defaults(file: str) -> None:
    arguments = stand_ins(file, "tuned", "")
    assert (arguments["BLOCK"].value, arguments["POWER"].value) == (256, 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*fp31", "`*fp31` is not a type for argument `x_ptr`"),
        ("*fp32, *fp32:3", "    *fp32, *fp32:3\n           ^^^^^^^\n"),
        ("*fp32,n=i33", "    *fp32,n=i33\n            ^^^\n"),
        ("SIZE=3", "names `SIZE`, which is no parameter"),
        ("*fp32,*fp32,i32,i32,i32,fp32,i32", "more types than the kernel has arguments"),
    ],
)
def test_a_wrong_signature_is_explained(file: str, text: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        stand_ins(file, "scale", text)
    assert expected in str(caught.value)


# -- inspect ---------------------------------------------------------------------------------
def test_inspect_shows_every_stage(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", f"{file}:scale"]) == 0
    shown = capsys.readouterr().out
    for part in ("def scale(", "IR after front end", "func @scale", "define ", "assembly"):
        assert part in shown
    assert "guessed: x_ptr" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("machine", "instruction"),
    [
        ("x86-64-v3", "vmulps"),
        ("x86-64-v4", "%zmm"),
        ("aarch64", ".4s, v"),
        ("apple-m1", "fmul.4s"),
        ("windows-x86-64", "vmulps"),
    ],
)
def test_inspect_shows_code_for_other_machines(
    file: str, machine: str, instruction: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", f"{file}:scale", "--target", machine, "--show", "asm"]) == 0
    assert instruction in capsys.readouterr().out


def test_inspect_names_the_machines_it_knows(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", f"{file}:scale", "--target", "vax"]) == 1
    assert "expected: one of aarch64, windows-x86-64" in capsys.readouterr().err


def test_inspect_reports_an_error_in_the_kernel(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", f"{file}:scale", "--signature", "BLOCK=0"]) == 1
    assert "my_kernels.py:7" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["inspect", "missing.py:x"], ["inspect", "deuteron.ops.softmax:softmax_kernel", "--show=ptx"]],
)
def test_a_wrong_command_exits_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("deuteron: ")
    assert captured.out == ""


# -- env -------------------------------------------------------------------------------------
def test_env_says_why_something_is_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("DEUTERON_CACHE_DIR", str(blocked / "cache"))
    monkeypatch.setenv("DEUTERON_NUM_THREADS", "123")
    monkeypatch.setenv("DEUTERON_INTERPRET", "1")
    facts = {fact.name: fact for fact in env.facts()}
    assert facts["disk cache"].off
    assert str(blocked) in facts["disk cache"].note
    assert facts["threads"].value == "123"
    assert "DEUTERON_NUM_THREADS" in facts["threads"].note
    assert facts["compiler"].off
    monkeypatch.setenv("DEUTERON_DISABLE_CACHE", "1")
    assert "DEUTERON_DISABLE_CACHE" in {f.name: f for f in env.facts()}["disk cache"].note


def test_env_prints_without_control_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env"]) == 0
    shown = capsys.readouterr().out
    assert f"numpy         {np.__version__}" in shown
    assert "\x1b" not in shown


# -- demo ------------------------------------------------------------------------------------
def small_case(
    error: float = 0.0, fail: Callable[[], object] = lambda: None
) -> tuple[str, Callable[[], Case]]:
    """A case whose result is off by `error` of its largest value."""
    truth = np.array([1.0, -2.0])
    return "small", lambda: Case(
        "small", "2×1", "float32", 8, "GB/s", 1e-6, fail, lambda: None,
        got=lambda: truth + 2.0 * error, want=lambda: truth,
    )  # fmt: skip


def run_demo(monkeypatch: pytest.MonkeyPatch, path: Path, *rows: Any) -> tuple[int, Any]:
    monkeypatch.setattr(demo, "CASES", rows)
    monkeypatch.setattr(demo, "QUICK_BUDGET_S", 0.0)
    monkeypatch.setattr(measure, "SETTLE_LIMIT_S", 0.0)
    monkeypatch.setattr(measure, "TURN_S", 0.0)
    code = main(["demo", "--quick", "--json", str(path)])
    return code, json.loads(path.read_text())


def test_demo_succeeds_when_all_agree(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document = run_demo(monkeypatch, tmp_path / "rows.json", small_case(), small_case(1e-7))
    assert code == 0
    assert [row["ok"] for row in document["rows"]] == [True, True]
    assert document["rows"][1]["max_error"] == pytest.approx(1e-7)
    assert {"date", "machine", "versions"} <= document.keys()
    shown = capsys.readouterr().out
    assert "2 of 2 kernels agree" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("error", [1e-3, float("nan")])
def test_demo_fails_on_a_mismatch(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    error: float,
) -> None:
    code, document = run_demo(monkeypatch, tmp_path / "rows.json", small_case(error))
    assert code == 1
    assert document["rows"][0]["ok"] is False
    shown = capsys.readouterr().out
    assert "wrong" in shown
    assert "0 of 1 kernels agree" in shown


def test_demo_goes_on_after_a_kernel_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise InternalError("no code for this")

    cases_run = small_case(fail=fail), small_case()
    code, document = run_demo(monkeypatch, tmp_path / "rows.json", *cases_run)
    assert code == 1
    assert [row["ok"] for row in document["rows"]] == [False, True]
    assert "small: no code for this" in capsys.readouterr().out


def test_demo_refuses_a_place_it_cannot_write_to_before_it_starts(tmp_path: Path) -> None:
    assert main(["demo", "--json", str(tmp_path / "missing" / "rows.json")]) == 2


@pytest.mark.parametrize("width", [24, 40, 60, 80, 120])
def test_the_table_fits_the_console(width: int) -> None:
    row = demo.Row(
        "matmul bf16", "4096×1024", "bfloat16", ours_ms=1234.56, speedup=12.34, rate=1234.5,
        unit="GFLOP/s", compile_ms=1234, max_error=2e-6, ok=True,
    )  # fmt: skip
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(demo._table([row, demo.Row("softmax", failure="why")], console))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "matmul bf16" in text
    assert "12.34" in text
    assert "…" not in text
    assert "failed" in text


def test_bfloat16_bits_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    values[:4] = 0.0, -0.0, 3.3895314e38, 1.00390625  # the last two: largest value, a tie
    expected = torch.from_numpy(values).bfloat16()
    bits = cases.to_bfloat16(values)
    np.testing.assert_array_equal(bits, expected.view(torch.uint16).numpy())
    np.testing.assert_array_equal(cases.from_bfloat16(bits), expected.float().numpy())


def test_candidates_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "TURN_S", 0.0)
    calls: list[str] = []
    runs = [lambda: calls.append("a"), lambda: calls.append("b")]
    medians = measure.interleaved_medians_s(runs, budget_s=0.0)
    # A turn is one unmeasured call, then one that counts.
    assert calls == ["a", "a", "b", "b"] * measure.MIN_TURNS
    assert len(medians) == 2
    assert all(median >= 0 for median in medians)
