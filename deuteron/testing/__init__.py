"""Measuring and checking kernels: `do_bench`, `assert_close`, `perf_report`.

Triton's names and signatures; arrays may be NumPy's or torch's, and torch is never imported.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from deuteron.runtime.benchmark import do_bench

__all__ = ["Benchmark", "Mark", "assert_close", "do_bench", "perf_report"]

# What two correct programs may differ by: relative and absolute.  The absolute part is Triton's
# default, which leaves room for float32 sums; integers must be equal.
_TOLERANCES = {
    "float64": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-2),
    "float16": (1e-3, 1e-2),
    "bfloat16": (1.6e-2, 1e-2),
}
_COARSE_FLOAT = (0.125, 1e-2)  # eight bits


def assert_close(
    x: Any,
    y: Any,
    atol: float | Callable[[Any], float] | None = None,
    rtol: float | Callable[[Any], float] | None = None,
    err_msg: str = "",
) -> None:
    """Raise AssertionError unless |x - y| <= atol + rtol * |y| everywhere; NaNs equal NaNs.

    x and y are NumPy arrays, torch tensors, sequences or numbers, of one shape unless one is a
    number.  A tolerance may be a function of x's dtype; one left out follows from the less exact
    of the two dtypes.  Integers and booleans without tolerances must be equal.
    """
    if callable(atol):
        atol = atol(getattr(x, "dtype", None))
    if callable(rtol):
        rtol = rtol(getattr(x, "dtype", None))
    defaults = zip(_tolerances(_dtype_name(x)), _tolerances(_dtype_name(y)), strict=True)
    default_rtol, default_atol = map(max, defaults)
    rtol = default_rtol if rtol is None else rtol
    atol = default_atol if atol is None else atol
    left, right = _to_numpy(x), _to_numpy(y)
    if rtol == atol == 0:
        # allclose would go through float64, which cannot tell large integers apart.
        np.testing.assert_array_equal(left, right, err_msg)
    else:
        np.testing.assert_allclose(left, right, rtol, atol, equal_nan=True, err_msg=err_msg)


def _dtype_name(x: Any) -> str:
    dtype = x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype
    return str(dtype).removeprefix("torch.")


def _tolerances(dtype_name: str) -> tuple[float, float]:
    if "float" not in dtype_name:
        return 0.0, 0.0
    return _TOLERANCES.get(dtype_name, _COARSE_FLOAT)


def _to_numpy(x: Any) -> NDArray[Any]:
    """An array that NumPy can compare; torch tensors leave the graph and the device."""
    if hasattr(x, "detach"):
        tensor = x.detach().cpu()
        # NumPy has neither bfloat16 nor float8; float32 holds both exactly.
        narrow = tensor.is_floating_point() and _dtype_name(x) not in ("float64", "float32")
        return np.asarray((tensor.float() if narrow else tensor).numpy())
    array = np.asarray(x)
    extension = array.dtype.kind == "V"  # a package such as ml_dtypes adds them to NumPy
    return array.astype(np.float32) if extension else array


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What `perf_report` varies and how its plot looks.

    The function is called with each of `x_vals` for `x_names` (one value for all of them, or a
    tuple of one each) and each of `line_vals` for `line_arg`, besides the constant `args`.
    `styles` are (colour, line style) pairs, one a line.
    """

    x_names: Sequence[str]
    x_vals: Sequence[Any]
    line_arg: str
    line_vals: Sequence[Any]
    line_names: Sequence[str]
    plot_name: str
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    xlabel: str = ""
    ylabel: str = ""
    x_log: bool = False
    y_log: bool = False
    color: Any = None
    styles: Sequence[tuple[str, str]] | None = None


def perf_report(
    benchmarks: Benchmark | Sequence[Benchmark],
) -> Callable[[Callable[..., Any]], Mark]:
    """Decorator: a function that measures one point becomes a `Mark`, whose `run` measures all.

    The function returns a number, or (middle, low, high) as `do_bench` gives with three quantiles.
    """
    return lambda fn: Mark(fn, benchmarks)


@dataclass(frozen=True, slots=True)
class _Row:
    """One x of a report: its values, then (middle, low, high) of each line."""

    x: tuple[Any, ...]
    points: tuple[tuple[float, float, float], ...]


class Mark:
    """A benchmark function with its sweep; made by `perf_report`."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Benchmark | Sequence[Benchmark]) -> None:
        self.fn = fn
        self.benchmarks = benchmarks

    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str = "",
        return_df: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Measure every point.  `kwargs` go to the function.

        `print_data` prints a table; `save_path` names a folder for a CSV file and, if matplotlib
        is installed, a PNG plot, both called after `plot_name`.  `show_plots` opens a window where
        there is one.  With `return_df` (needs pandas) the result is a DataFrame, or a list of them
        when there are several benchmarks; otherwise None.
        """
        given = self.benchmarks
        frames: list[Any] = []
        for benchmark in [given] if isinstance(given, Benchmark) else given:
            rows = [self._measure(benchmark, x, kwargs) for x in benchmark.x_vals]
            if print_data:
                print(_table(benchmark, rows))
            if save_path:
                _save_csv(benchmark, rows, Path(save_path))
            if save_path or show_plots:
                _plot(benchmark, rows, Path(save_path) if save_path else None, show_plots)
            if return_df:
                header, *records = _records(benchmark, rows)
                frames.append(import_module("pandas").DataFrame(records, columns=header))
        if not return_df:
            return None
        return frames[0] if isinstance(given, Benchmark) else frames

    def _measure(self, benchmark: Benchmark, x: Any, kwargs: Mapping[str, Any]) -> _Row:
        names = benchmark.x_names
        values = _spread(x, len(names))
        if len(values) != len(names):
            raise ValueError(
                f"benchmark {benchmark.plot_name!r}: expected {len(names)} values for "
                f"{', '.join(names)}, got {len(values)}: {x!r}"
            )
        arguments = {**dict(zip(names, values, strict=True)), **benchmark.args, **kwargs}
        points: list[tuple[float, float, float]] = []
        for line in benchmark.line_vals:
            result = self.fn(**arguments, **{benchmark.line_arg: line})
            middle, low, high = _spread(result, 3)
            points.append((middle, low, high))
        return _Row(values, tuple(points))


def _spread(value: Any, count: int) -> tuple[Any, ...]:
    """A list's or tuple's elements, or `count` times the one value."""
    if isinstance(value, list | tuple):
        return tuple(cast("Sequence[Any]", value))
    return (value,) * count


def _records(benchmark: Benchmark, rows: Sequence[_Row]) -> list[list[Any]]:
    """The header, then one record an x: its values and the middle of each line."""
    header: list[Any] = [*benchmark.x_names, *benchmark.line_names]
    return [header, *([*row.x, *(point[0] for point in row.points)] for row in rows)]


def _table(benchmark: Benchmark, rows: Sequence[_Row]) -> str:
    cells = [
        [f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in record]
        for record in _records(benchmark, rows)
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(map(str.rjust, record, widths)) for record in cells]
    return "\n".join([f"{benchmark.plot_name}:", *lines])


def _save_csv(benchmark: Benchmark, rows: Sequence[_Row], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{benchmark.plot_name}.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(_records(benchmark, rows))


def _plot(benchmark: Benchmark, rows: Sequence[_Row], folder: Path | None, show: bool) -> None:
    """Draw the lines with their low-to-high bands over the first of the x names."""
    try:
        pyplot: Any = import_module("matplotlib.pyplot")
    except ImportError:
        return
    figure, axes = pyplot.subplots()
    xs = [row.x[0] for row in rows]
    for index, name in enumerate(benchmark.line_names):
        middle, low, high = zip(*(row.points[index] for row in rows), strict=True)
        color, style = benchmark.styles[index] if benchmark.styles else (None, None)
        axes.plot(xs, middle, label=name, color=color, linestyle=style)
        if not any(map(math.isnan, (*low, *high))):
            axes.fill_between(xs, low, high, alpha=0.15, color=color)
    axes.legend()
    axes.set_xlabel(benchmark.xlabel or benchmark.x_names[0])
    axes.set_ylabel(benchmark.ylabel)
    axes.set_xscale("log" if benchmark.x_log else "linear")
    axes.set_yscale("log" if benchmark.y_log else "linear")
    if folder:
        figure.savefig(folder / f"{benchmark.plot_name}.png")
    if show and pyplot.get_backend().lower() != "agg":
        pyplot.show()
    pyplot.close(figure)
