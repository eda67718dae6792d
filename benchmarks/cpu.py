"""Our kernels against NumPy and torch on this CPU.

    python benchmarks/cpu.py --json FILE [--quick] [--only NAME]

Each row is {name, shape, dtype, threads, ours_ms, peer, peer_ms, ratio} with ratio = peer_ms /
ours_ms: above 1 we are faster.  Both sides take turns in one run, write into arrays made
beforehand, and are judged by their medians; results are compared before anything is measured.
Where nobody does the same thing the peer is `bar`, the time we allow ourselves, or our own kernel
on a friendlier shape.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, no_type_check

import numpy as np
import torch
from threadpoolctl import threadpool_limits

import deuteron as dn
import deuteron.language as tl
from deuteron import config, ops
from deuteron.cli.cases import numpy_attention, numpy_layer_norm, numpy_softmax
from deuteron.cli.machine import provenance
from deuteron.cli.measure import interleaved_medians_s
from deuteron.ops.matmul import Blocks

BUDGET_S, QUICK_BUDGET_S = 3.0, 0.2
LAUNCH_BAR_MS = 0.005
IMPORT_BAR_MS = 400.0
COLD_BAR_MS, ATTENTION_COLD_BAR_MS, WARM_BAR_MS = 150.0, 400.0, 10.0
FIRST_LAUNCH = Path(__file__).with_name("first_launch.py")
# Settings that make some machines' OpenBLAS slower than it has to be; see `main`.
OPENBLAS_SETTINGS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement; times are milliseconds of one call."""

    name: str
    shape: str
    dtype: str
    threads: int
    ours_ms: float
    peer: str
    peer_ms: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to do, our way and the peers' way.

    `scale` multiplies a peer's time, for peers that do another amount of work.
    """

    name: str
    shape: str
    dtype: str
    ours: Run
    peers: dict[str, Run]
    check: Callable[[], None]
    scale: dict[str, float] = field(default_factory=dict[str, float])


def vector_add() -> Iterator[Problem]:
    """out = x + y."""
    x, y = _normal(1 << 24), _normal(1 << 24)
    out, theirs = torch.empty_like(x), torch.empty_like(x)
    yield Problem(
        "vector_add", "2^24", "float32",
        ours=lambda: ops.add(x, y, out),
        peers={
            "numpy": lambda: np.add(x.numpy(), y.numpy(), out=theirs.numpy()),
            "torch": lambda: torch.add(x, y, out=theirs),
        },
        check=lambda: _agree(out, theirs),
    )  # fmt: skip


def softmax() -> Iterator[Problem]:
    """Softmax of each row."""
    x = _normal(4096, 1024)
    out, theirs = torch.empty_like(x), torch.empty_like(x)
    into: Any = torch.softmax  # takes `out`, though its annotations do not say so
    yield Problem(
        "softmax", "4096x1024", "float32",
        ours=lambda: ops.softmax(x, out),
        peers={
            "numpy": lambda: numpy_softmax(x.numpy()),
            "torch": lambda: into(x, 1, out=theirs),
        },
        check=lambda: _agree(out, theirs),
    )  # fmt: skip


def layer_norm() -> Iterator[Problem]:
    """Layer normalisation of each row."""
    x, w, b = _normal(4096, 1024), _normal(1024), _normal(1024)
    out, theirs = torch.empty_like(x), torch.empty_like(x)
    mean, rstd = torch.empty(4096, 1), torch.empty(4096, 1)
    into: Any = torch.ops.aten.native_layer_norm.out
    arrays = x.numpy(), w.numpy(), b.numpy()
    yield Problem(
        "layer_norm", "4096x1024", "float32",
        ours=lambda: ops.layer_norm(x, w, b, out=out),
        peers={
            "numpy": lambda: numpy_layer_norm(*arrays),
            "torch": lambda: into(x, [1024], w, b, 1e-5, out0=theirs, out1=mean, out2=rstd),
        },
        check=lambda: _agree(out, theirs),
    )  # fmt: skip


def matmul() -> Iterator[Problem]:
    """The tutorial-shaped product with the library's own block sizes."""
    for n in (1024, 2048):
        yield _product("matmul", n, torch.float32, None)
    for n in (1024, 2048):
        yield _product("matmul", n, torch.bfloat16, None)


def matmul_64() -> Iterator[Problem]:
    """The same kernel with the small blocks that a GPU wants."""
    for n in (1024, 2048):
        yield _product("matmul_64", n, torch.float32, Blocks(64, 64, 64))


def _product(name: str, n: int, dtype: torch.dtype, blocks: Blocks | None) -> Problem:
    a, b = _normal(n, n).to(dtype), _normal(n, n).to(dtype)
    out, theirs = torch.empty_like(a), torch.empty_like(a)
    peers: dict[str, Run] = {"torch": lambda: torch.mm(a, b, out=theirs)}
    if dtype == torch.float32:
        peers["numpy"] = lambda: np.matmul(a.numpy(), b.numpy(), out=theirs.numpy())
    return Problem(
        name, f"{n}^3", str(dtype).removeprefix("torch."),
        ours=lambda: ops.matmul(a, b, out, blocks),
        peers=peers,
        check=lambda: _agree(out, theirs),
    )  # fmt: skip


def matmul_edge() -> Iterator[Problem]:
    """A size that no block divides, per operation against our own 1024^3."""
    n, even = 1000, 1024
    a, b, even_a, even_b = _normal(n, n), _normal(n, n), _normal(even, even), _normal(even, even)
    out, even_out = torch.empty_like(a), torch.empty_like(even_a)
    yield Problem(
        "matmul_edge", f"{n}^3", "float32",
        ours=lambda: ops.matmul(a, b, out),
        peers={f"deuteron {even}^3": lambda: ops.matmul(even_a, even_b, even_out)},
        check=lambda: _agree(out, a @ b),
        scale={f"deuteron {even}^3": (n / even) ** 3},
    )  # fmt: skip


def attention() -> Iterator[Problem]:
    """softmax(q k^T) v."""
    q, k, v = (_normal(8, 1024, 64) for _ in range(3))
    out = torch.empty_like(q)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    arrays = [x.numpy() for x in (q, k, v)]
    yield Problem(
        "attention", "8x1024x64", "float32",
        ours=lambda: ops.attention(q, k, v, out=out),
        peers={
            "numpy": lambda: numpy_attention(*arrays),
            "torch": lambda: sdpa(q[None], k[None], v[None]),
        },
        check=lambda: _agree(out, sdpa(q[None], k[None], v[None])[0]),
    )  # fmt: skip


@dn.jit
@no_type_check
def empty_kernel(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    """Does nothing, so that only the launch is left."""


def launch(quick: bool) -> Iterator[Row]:
    """One warm launch from Python: three arrays, one integer, a grid of one."""
    arrays = [np.empty(16, np.float32) for _ in range(3)]
    calls = 1000

    def ours() -> None:
        for _ in range(calls):
            empty_kernel[(1,)](*arrays, 17, BLOCK=16)

    def numpy_add() -> None:
        x, y, out = arrays
        for _ in range(calls):
            np.add(x, y, out=out)

    ours_s, numpy_s = interleaved_medians_s((ours, numpy_add), _budget_s(quick))
    ours_ms, numpy_ms = ours_s * 1e3 / calls, numpy_s * 1e3 / calls
    threads = dn.get_num_threads()
    for peer, peer_ms in (("bar", LAUNCH_BAR_MS), ("numpy add of 16", numpy_ms)):
        ratio = peer_ms / ours_ms
        yield Row("launch", "3 arrays, 1 int", "", threads, ours_ms, peer, peer_ms, ratio)


def import_time(quick: bool) -> Iterator[Row]:
    """`import deuteron` in a fresh process, NumPy's import included; bytecode is on disk."""
    modules = ("deuteron", "numpy", "torch")
    times: dict[str, list[float]] = {module: [] for module in modules}
    with tempfile.TemporaryDirectory() as folder:
        bytecode = {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        for _ in range(3 if quick else 9):
            for module in modules:
                code = (
                    f"import time; t = time.perf_counter(); import {module}; "
                    "print(time.perf_counter() - t)"
                )
                output = _python("-c", code, **bytecode)
                times[module].append(float(output) * 1e3)
    ours_ms = median(times["deuteron"])  # the first run, which writes the bytecode, is no median
    for peer in ("bar", "numpy", "torch"):
        peer_ms = IMPORT_BAR_MS if peer == "bar" else median(times[peer])
        yield Row("import", "", "", 1, ours_ms, peer, peer_ms, peer_ms / ours_ms)


def compile_time(quick: bool) -> Iterator[Row]:
    """From call to result of each example kernel on a tiny problem: no cache, then a disk cache."""
    cold: list[dict[str, float]] = []
    warm: list[dict[str, float]] = []
    for _ in range(1 if quick else 3):
        with tempfile.TemporaryDirectory() as folder:
            for runs in (cold, warm):
                runs.append(json.loads(_python(str(FIRST_LAUNCH), DEUTERON_CACHE_DIR=folder)))
    for name in cold[0]:
        bar = ATTENTION_COLD_BAR_MS if name.startswith("06") else COLD_BAR_MS
        for kind, runs, bar_ms in (("compile", cold, bar), ("compile_warm", warm, WARM_BAR_MS)):
            ours_ms = median(run[name] for run in runs)
            yield Row(kind, name, "", 1, ours_ms, "bar", bar_ms, bar_ms / ours_ms)


PROBLEMS: dict[str, Callable[[], Iterator[Problem]]] = {
    "vector_add": vector_add,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "matmul": matmul,
    "matmul_64": matmul_64,
    "matmul_edge": matmul_edge,
    "attention": attention,
}
OVERHEADS: dict[str, Callable[[bool], Iterator[Row]]] = {
    "launch": launch,
    "import": import_time,
    "compile": compile_time,
}


def measure(problem: Problem, threads: int, budget_s: float) -> Iterator[Row]:
    """One row for each peer, all measured in turns on that many threads."""
    runs = (problem.ours, *problem.peers.values())
    with _threads(threads):
        for run in runs:
            run()
        problem.check()
        times = interleaved_medians_s(runs, budget_s, threads)
    ours_ms = times[0] * 1e3
    for peer, peer_s in zip(problem.peers, times[1:], strict=True):
        peer_ms = peer_s * 1e3 * problem.scale.get(peer, 1.0)
        yield Row(
            problem.name, problem.shape, problem.dtype, threads,
            ours_ms, peer, peer_ms, peer_ms / ours_ms,
        )  # fmt: skip


def rows(only: str | None, quick: bool) -> Iterator[Row]:
    """All rows, or those of one name."""
    thread_counts = [n for n in (1, 2) if n <= config.num_threads()]
    for name, problems in PROBLEMS.items():
        if only in (None, name):
            for problem in problems():
                for threads in thread_counts:
                    yield from measure(problem, threads, _budget_s(quick))
    for name, overhead in OVERHEADS.items():
        if only in (None, name):
            yield from overhead(quick)


def _threads(count: int) -> AbstractContextManager[object]:
    dn.set_num_threads(count)
    torch.set_num_threads(count)
    return threadpool_limits(limits=count, user_api="blas")


def _budget_s(quick: bool) -> float:
    return QUICK_BUDGET_S if quick else BUDGET_S


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def _agree(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Raise AssertionError unless both are the same up to rounding."""
    tolerance = 2.0**-7 if ours.dtype == torch.bfloat16 else 1e-4
    limit = tolerance * float(theirs.abs().max())
    torch.testing.assert_close(ours, theirs, rtol=0, atol=limit)


def _python(*arguments: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, *arguments]
    run = subprocess.run(
        command, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return run.stdout


def main() -> int:
    """Measure, print each row as it comes, write the file."""
    if any(name in os.environ for name in OPENBLAS_SETTINGS):
        # OpenBLAS read them when NumPy was imported, so only a new process is without them.
        clean = {k: v for k, v in os.environ.items() if k not in OPENBLAS_SETTINGS}
        os.execve(sys.executable, [sys.executable, *sys.argv], clean)
    parser = argparse.ArgumentParser(description="Our kernels against NumPy and torch.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE")
    parser.add_argument("--quick", action="store_true", help="end within a minute")
    parser.add_argument("--only", choices=[*PROBLEMS, *OVERHEADS], help="one benchmark")
    arguments = parser.parse_args()
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    measured: list[Row] = []
    for row in rows(arguments.only, arguments.quick):
        measured.append(row)
        print(
            f"{row.name:12} {row.shape:28} {row.dtype:9} {row.threads} thread(s)  "
            f"ours {row.ours_ms:9.4f} ms  {row.peer:16} {row.peer_ms:9.4f} ms  "
            f"ratio {row.ratio:5.2f}",
            flush=True,
        )
    if arguments.json is not None:
        document = provenance() | {"rows": [asdict(row) for row in measured]}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
