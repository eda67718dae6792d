"""`deuteron.testing`: the stopwatch, the comparison and the report."""

from __future__ import annotations

import csv
import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from deuteron.runtime import benchmark
from deuteron.testing import Benchmark, assert_close, do_bench, perf_report


def f32(values: list[float]) -> Any:
    return np.array(values, np.float32)


class FakeTime:
    """A clock that only advances when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(benchmark.time, "perf_counter", lambda: self.now_s)

    def work(self, *durations_ms: float):
        """A function that takes these times in turn, the last one ever after."""
        left = list(durations_ms)
        calls: list[float] = []

        def fn() -> None:
            duration_ms = left.pop(0) if len(left) > 1 else left[0]
            calls.append(duration_ms)
            self.now_s += duration_ms / 1e3

        return fn, calls


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    return FakeTime(monkeypatch)


# -- do_bench -------------------------------------------------------------------------------
def test_mean_of_the_measured_calls_only(clock: FakeTime):
    fn, calls = clock.work(1000, 50, 1, 2, 3, 4)
    # A first call, one warm-up call (longer than the 25 ms), then 1 + 2 + 3 + 4 ms.
    assert do_bench(fn, warmup=25, rep=9.5) == pytest.approx(2.5)
    assert calls == [1000, 50, 1, 2, 3, 4]


def test_periods_are_counted_in_calls(clock: FakeTime):
    fn, calls = clock.work(10)
    assert do_bench(fn) == pytest.approx(10)
    assert len(calls) == pytest.approx(1 + 3 + 10, abs=1)  # 25 and 100 ms of 10 ms calls


def test_no_warmup_and_one_measurement_at_least(clock: FakeTime):
    fn, calls = clock.work(7, 5)
    assert do_bench(fn, warmup=0, rep=0) == pytest.approx(5)
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("mode", "expected"), [("mean", 4), ("median", 3), ("min", 1), ("max", 8), ("all", [1, 8, 3])]
)
def test_return_modes(mode: str, expected: Any, clock: FakeTime):
    fn, _ = clock.work(99, 1, 8, 3)
    assert do_bench(fn, warmup=0, rep=11.5, return_mode=mode) == pytest.approx(expected)


def test_quantiles(clock: FakeTime):
    fn, _ = clock.work(99, 1, 2, 3, 4, 5)
    assert do_bench(fn, 0, 14.5, quantiles=[0.5, 0.25, 1.0]) == pytest.approx([3, 2, 5])
    fn, _ = clock.work(99, 1, 2, 3)
    assert do_bench(fn, 0, 5.5, quantiles=[0.5]) == pytest.approx(2)


def test_unknown_return_mode():
    with pytest.raises(ValueError, match="unknown return_mode 'avg'; expected mean"):
        do_bench(lambda: None, return_mode="avg")


def test_gradients_are_dropped_before_every_call():
    tensor = SimpleNamespace(grad="from before")

    def fn() -> None:
        assert tensor.grad is None
        tensor.grad = "from this call"

    do_bench(fn, warmup=0, rep=0, grad_to_none=[tensor])


# -- assert_close ---------------------------------------------------------------------------
def close(x: Any, y: Any, **options: Any) -> bool:
    try:
        assert_close(x, y, **options)
    except AssertionError:
        return False
    return True


def test_default_tolerances_follow_the_dtype():
    for dtype, good, bad in [("f8", 1e-8, 1e-6), ("f4", 5e-3, 2e-2), ("f2", 5e-3, 2e-2)]:
        x = np.ones(3, dtype)
        assert close(x, (x + good).astype(dtype)), dtype
        assert not close(x, (x + bad).astype(dtype)), dtype


def test_the_less_exact_dtype_decides():
    exact = np.array([1000.0])
    assert close(exact, np.array([1000.5], np.float16))
    assert not close(exact, np.array([1000.5], np.float32))


def test_given_tolerances():
    x, y = f32([1, 2]), f32([1.05, 2.05])
    assert not close(x, y)
    assert close(x, y, atol=0.1)
    assert close(x, y, rtol=0.1)
    assert not close(x, y, atol=0.01, rtol=0.01)
    assert close(x, y, atol=lambda dtype: 0.1 if dtype == np.float32 else 0)
    assert not close(f32([1]), f32([1.0000002]), atol=0, rtol=0)


def test_integers_must_be_equal():
    big = 2**53
    assert close(np.array([big]), np.array([big]))
    assert not close(np.array([big]), np.array([big + 1]))
    assert close(np.array([True, False]), np.array([1, 0]))
    assert close(np.array([5]), np.array([6]), atol=1)


def test_special_values_and_shapes():
    special = f32([np.nan, np.inf, -np.inf])
    assert close(special, special)
    assert not close(special, f32([0, np.inf, -np.inf]))
    assert not close(special, -special)
    assert not close(np.zeros(3), np.zeros(4))
    assert close(1.0, [1.0, 1.0])


def test_the_message_tells_where():
    with pytest.raises(AssertionError, match=r"softmax of row 3(.|\n)*1 / 2") as caught:
        assert_close(np.zeros(2), np.array([0.0, 1.0]), err_msg="softmax of row 3")
    assert "ACTUAL" in str(caught.value)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float8_e5m2"])
def test_torch_tensors(name: str):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    x = torch.tensor([1.0, -2.0, 0.5]).to(dtype)
    assert close(x, x.clone())
    assert close(x, f32([1.0, -2.0, 0.5]))
    assert not close(x, f32([2.0, -2.0, 0.5]))


def test_bfloat16_is_given_room():
    torch = pytest.importorskip("torch")
    x = torch.tensor([100.0])
    assert close(x.bfloat16(), x + 1)
    assert not close(x, x + 1)


def test_torch_tensors_with_gradients_and_integers():
    torch = pytest.importorskip("torch")
    assert close(torch.ones(2, requires_grad=True), np.ones(2, np.float32))
    assert not close(torch.tensor([2**53]), torch.tensor([2**53 + 1]))


# -- perf_report ----------------------------------------------------------------------------
SWEEP = Benchmark(
    x_names=["M", "N"],
    x_vals=[128, (256, 512)],
    line_arg="provider",
    line_vals=["ours", "theirs"],
    line_names=["Ours", "Theirs"],
    plot_name="speed",
    args={"scale": 10},
    xlabel="size",
    x_log=True,
    styles=[("blue", "-"), ("green", "--")],
)


def measured(M: int, N: int, provider: str, scale: int, extra: int = 0) -> Any:
    middle = (M + N) * scale + extra
    return (float(middle), middle - 1.0, middle + 1.0) if provider == "ours" else middle / 3


def test_the_table(capsys: pytest.CaptureFixture[str]):
    assert perf_report(SWEEP)(measured).run(print_data=True, extra=1) is None
    assert capsys.readouterr().out.splitlines() == [
        "speed:",
        "  M    N  Ours   Theirs",
        "128  128  2561  853.667",
        "256  512  7681  2560.33",
    ]


def test_nothing_is_printed_unasked(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    perf_report(SWEEP)(measured).run()
    assert capsys.readouterr().out == ""


def test_saved_files(tmp_path: Path):
    pytest.importorskip("matplotlib")
    folder = tmp_path / "new" / "folder"
    perf_report([SWEEP])(measured).run(save_path=str(folder), show_plots=True)
    with open(folder / "speed.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["M", "N", "Ours", "Theirs"]
    assert [[float(cell) for cell in row] for row in rows] == [
        [128, 128, 2560, 2560 / 3],
        [256, 512, 7680, 7680 / 3],
    ]
    assert (folder / "speed.png").read_bytes().startswith(b"\x89PNG")


def test_a_plot_needs_no_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    perf_report(SWEEP)(measured).run(save_path=str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["speed.csv"]


def test_data_frames(monkeypatch: pytest.MonkeyPatch):
    pandas = SimpleNamespace(DataFrame=lambda data, columns: (columns, data))
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    frame = perf_report(SWEEP)(measured).run(return_df=True)
    assert frame == (
        ["M", "N", "Ours", "Theirs"],
        [[128, 128, 2560.0, 2560 / 3], [256, 512, 7680.0, 2560.0]],
    )
    assert perf_report([SWEEP, SWEEP])(measured).run(return_df=True) == [frame, frame]


def test_a_point_of_the_wrong_size():
    sweep = Benchmark(["M", "N"], [(1, 2, 3)], "provider", ["ours"], ["Ours"], "speed")
    with pytest.raises(
        ValueError, match=r"'speed': expected 2 values for M, N, got 3: \(1, 2, 3\)"
    ):
        perf_report(sweep)(measured).run()


def test_torch_and_matplotlib_are_not_imported():
    program = (
        "import sys, deuteron.testing; "
        "assert not {'torch', 'matplotlib', 'pandas'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_names():
    module = importlib.import_module("deuteron.testing")
    assert sorted(module.__all__) == [
        "Benchmark",
        "Mark",
        "assert_close",
        "do_bench",
        "perf_report",
    ]
