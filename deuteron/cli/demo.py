"""`deuteron demo`: the kernel library compiled, checked and measured on this machine.

Each case is run once to compile it, compared with NumPy in float64, then timed in turns with
NumPy's own way to do the same.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from deuteron import get_num_threads, ops
from deuteron.cli import UsageError
from deuteron.cli.cases import CASES, Case
from deuteron.cli.console import error_console, output_console, speaks_unicode
from deuteron.cli.machine import cpu_model, provenance
from deuteron.cli.measure import interleaved_medians_s
from deuteron.errors import DeuteronError

BUDGET_S, QUICK_BUDGET_S = 0.8, 0.1
NOTES = (
    "compile: the first call less an ordinary one; small when the disk cache had the kernel.",
    "max error: relative to the largest value.  NumPy has no bfloat16: there it uses float32.",
)
NEXT_COMMAND = "deuteron inspect deuteron.ops.softmax:softmax_kernel"

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Row:
    """What one case showed.

    `rate` is in `unit`; `speedup` is numpy_ms / ours_ms; `compile_ms` is what the first call took
    above an ordinary one; `max_error` is relative to the largest value of the truth.  A kernel that
    could not run has only its `failure`.
    """

    name: str
    shape: str = ""
    dtype: str = ""
    ours_ms: float = 0.0
    numpy_ms: float = 0.0
    speedup: float = 0.0
    rate: float = 0.0
    unit: str = ""
    compile_ms: float = 0.0
    max_error: float = 0.0
    ok: bool = False
    failure: str = ""


def run(arguments: argparse.Namespace) -> int:
    """Serve `deuteron demo`; 0 when every kernel agreed with NumPy, else 1."""
    console = output_console()
    if arguments.json is not None and not arguments.json.parent.is_dir():
        raise UsageError(f"no directory {arguments.json.parent} for {arguments.json.name}")
    console.print(_headline(console), style="bold")
    rows = list(_rows(QUICK_BUDGET_S if arguments.quick else BUDGET_S))
    console.print(_table(rows, console))
    for note in NOTES:
        console.print(note, style="dim")
    for row in rows:
        if row.failure:
            console.print(f"{row.name}: {row.failure}", style="red", markup=False)
    if arguments.json is not None:
        _write_json(arguments.json, rows)
    good = sum(row.ok for row in rows)
    console.print(
        f"{good} of {len(rows)} kernels agree with NumPy in float64.",
        style="green" if good == len(rows) else "bold red",
    )
    console.print(f"Next, see what became of one: {NEXT_COMMAND}", markup=False, soft_wrap=True)
    return 0 if good == len(rows) else 1


def _rows(budget_s: float) -> Iterator[Row]:
    """Run the cases one after the other, with a progress display where there is a terminal."""
    console = error_console()
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        console=console,
        auto_refresh=False,  # its thread would take time from what is measured
        transient=True,
        disable=not console.is_interactive,
    )
    with progress:
        task = progress.add_task("starting the compiler", total=len(CASES))
        one = np.ones(1, np.float32)
        ops.add(one, one)  # what a process pays once, loading LLVM, is no kernel's compile time
        for name, make in CASES:
            report = _reporter(progress, task, name)
            try:
                yield run_case(make, budget_s, report)
            except DeuteronError as error:
                yield Row(name, failure=str(error))
            progress.advance(task)


def _reporter(progress: Progress, task: TaskID, name: str) -> Report:
    return lambda stage: progress.update(task, description=f"{name}: {stage}", refresh=True)


def run_case(make: Callable[[], Case], budget_s: float, report: Report) -> Row:
    """Make, compile, check and measure one case; `report` is told each stage."""
    report("making data")
    case = make()
    report("compiling")
    begin = time.perf_counter()
    case.ours()
    first_s = time.perf_counter() - begin
    report("comparing with float64")
    error = max_error(case.got(), case.want())
    report("measuring")
    runs = (case.ours, case.numpy)
    ours_s, numpy_s = interleaved_medians_s(runs, budget_s, get_num_threads())
    return Row(
        name=case.name,
        shape=case.shape,
        dtype=case.dtype,
        ours_ms=ours_s * 1e3,
        numpy_ms=numpy_s * 1e3,
        speedup=numpy_s / ours_s,
        rate=case.work / ours_s / 1e9,
        unit=case.unit,
        compile_ms=max(0.0, first_s - ours_s) * 1e3,
        max_error=error,
        ok=error <= case.tolerance,  # false for NaN
    )


def max_error(got: Any, want: Any) -> float:
    """The largest difference between two arrays, relative to the largest value of `want`."""
    return float(np.abs(got - want).max() / np.abs(want).max())


def _headline(console: Console) -> str:
    dot = "·" if speaks_unicode(console) else "-"
    threads = get_num_threads()
    return f"deuteron on {cpu_model()} {dot} {threads} thread{'s' if threads != 1 else ''}"


def _table(rows: list[Row], console: Console) -> Table:
    """The widest layout that the console has room for."""
    unbounded = console.options.update(max_width=1000)
    dropped: list[str] = []
    table = _layout(rows, console, dropped)
    for column in ("compile", "shape", "rate", "max error", "time"):
        if Measurement.get(console, unbounded, table).maximum <= console.width:
            break
        dropped.append(column)
        table = _layout(rows, console, dropped)
    return table


def _layout(rows: list[Row], console: Console, dropped: list[str]) -> Table:
    times = "×" if speaks_unicode(console) else "x"
    columns = {
        "kernel": [row.name for row in rows],
        "shape": [row.shape.replace("×", times) for row in rows],
        "time": [f"{row.ours_ms:.2f} ms" for row in rows],
        "rate": [f"{row.rate:.1f} {row.unit}" for row in rows],
        f"{times} NumPy": [f"{row.speedup:.2f}" for row in rows],
        "compile": [f"{row.compile_ms:.0f} ms" for row in rows],
        "max error": [f"{row.max_error:.1e}" if row.ok else "wrong" for row in rows],
    }
    shown = {name: cells for name, cells in columns.items() if name not in dropped}
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for name in shown:
        table.add_column(name, justify="left" if name in ("kernel", "shape") else "right")
    for row, cells in zip(rows, zip(*shown.values(), strict=True), strict=True):
        if row.failure:
            cells = [row.name, *([""] * (len(cells) - 2)), "failed"]
        table.add_row(*map(Text, cells), style="" if row.ok else "red")
    return table


def _write_json(path: Path, rows: list[Row]) -> None:
    document = provenance() | {"rows": [asdict(row) for row in rows]}
    try:
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
