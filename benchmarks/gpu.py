"""Our kernels against torch and Triton on this machine's GPU, in one run.

    python benchmarks/gpu.py [--json FILE] [--quick] [--rows matmul,softmax]

Each row is {name, shape, dtype, ours_ms, peer, peer_ms, ratio, rate, note} with ratio = peer_ms /
ours_ms: above 1 we are faster.  The candidates take turns, each replaying a CUDA graph of calls
between two events, and are judged by their medians; results are compared before anything is
measured.  Where arrays could stay in the GPU's cache, calls rotate among several sets of them.
`compile` is the first call in a fresh process with empty caches, `compile_warm` the same with full
ones, and `launch` the host's time of a warm launch.  What could not be measured says so in `note`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, no_type_check

import torch
from gpu_timing import Problem, Row, Runs, measure

import deuteron as dn
import deuteron.language as tl
from deuteron import ops
from deuteron.backends.cuda.driver import driver, driver_problem
from deuteron.backends.cuda.target import CudaTarget
from deuteron.cli.machine import package_version, provenance
from deuteron.errors import OutOfResources
from deuteron.ops.matmul import GROUP_M, Blocks, matmul_kernel
from deuteron.runtime.cuda_backend import CudaBackend
from deuteron.runtime.jit import JITFunction

FOLDER = Path(__file__).resolve().parent
FIRST_LAUNCH = FOLDER / "gpu_first_launch.py"
ROUNDS, QUICK_ROUNDS = 40, 5
COMPILE_BAR_MS, LAUNCH_BAR_MS = 500.0, 0.008
NO_TRITON = "not measured: Triton is not installed"

# Block sizes, warps and stages that are tried; the fastest is measured, for Triton as for us.
WGMMA_BLOCKS = (
    Blocks(128, 256, 64, 8, 3), Blocks(128, 256, 64, 8, 4), Blocks(128, 128, 64, 4, 4),
    Blocks(128, 128, 64, 8, 3),
)  # fmt: skip
MMA_BLOCKS = (Blocks(128, 128, 32, 4, 4), Blocks(128, 256, 32, 8, 4), Blocks(128, 128, 64, 8, 3))
TRITON_WARPS = (4, 8, 16)


# -- problems -------------------------------------------------------------------------------------
def vector_add() -> Iterator[Problem]:
    """out = x + y, of more than any cache holds."""
    x, y = torch.rand(2**28, device="cuda"), torch.rand(2**28, device="cuda")
    out, theirs = torch.empty_like(x), torch.empty_like(x)
    peers = {"torch": {"": [lambda: torch.add(x, y, out=theirs)]}}
    if triton := _triton():
        peers["triton"] = {"": [lambda: triton.add(x, y, theirs)]}
    yield Problem(
        "vector_add", "2^28", "float32",
        ours={"": [lambda: ops.add(x, y, out)]},
        peers=peers,
        check=lambda: _agree(out, x + y),
        work=3 * 4 * 2**28 / 1e9, unit="GB/s", missing=_missing_triton(),
    )  # fmt: skip


def softmax() -> Iterator[Problem]:
    """Softmax of each row."""
    sets = [_rows(4096, 8192) for _ in range(3)]
    into: Any = torch.softmax  # takes `out`, though its annotations do not say so
    peers: dict[str, dict[str, Runs]] = {
        "torch, op by op": {"": [partial(_eager_softmax, x) for x, _ in sets]},
        "torch": {"": [partial(into, x, 1, out=out) for x, out in sets]},
    }
    if triton := _triton():
        peers["triton"] = {
            f"{n} warps": [partial(triton.softmax, x, out, n) for x, out in sets]
            for n in TRITON_WARPS
        }
    yield Problem(
        "softmax", "4096x8192", "float16",
        ours={"": [partial(ops.softmax, x, out) for x, out in sets]},
        peers=peers,
        check=lambda: _agree(sets[0][1], torch.softmax(sets[0][0].float(), 1)),
        work=2 * 2 * 4096 * 8192 / 1e9, unit="GB/s", missing=_missing_triton(),
    )  # fmt: skip


def layer_norm() -> Iterator[Problem]:
    """Layer normalisation of each row."""
    sets = [_rows(4096, 8192) for _ in range(3)]
    w, b = (torch.randn(8192, device="cuda", dtype=torch.float16) for _ in range(2))
    fused: Any = torch.nn.functional.layer_norm
    peers: dict[str, dict[str, Runs]] = {
        "torch, op by op": {"": [partial(_eager_layer_norm, x, w, b) for x, _ in sets]},
        "torch": {"": [partial(fused, x, (8192,), w, b) for x, _ in sets]},
    }
    if triton := _triton():
        peers["triton"] = {
            f"{n} warps": [partial(triton.layer_norm, x, w, b, out, n) for x, out in sets]
            for n in TRITON_WARPS
        }
    yield Problem(
        "layer_norm", "4096x8192", "float16",
        ours={"": [partial(ops.layer_norm, x, w, b, out=out) for x, out in sets]},
        peers=peers,
        check=lambda: _agree(sets[0][1], fused(sets[0][0].float(), (8192,), w.float(), b.float())),
        work=2 * 2 * 4096 * 8192 / 1e9, unit="GB/s", missing=_missing_triton(),
    )  # fmt: skip


def matmul() -> Iterator[Problem]:
    """The tutorial-shaped product, with the best instructions that the GPU has."""
    sets = [_matrices(4096) for _ in range(2)]
    peers: dict[str, dict[str, Runs]] = {
        "cublas": {"": [partial(torch.mm, a, b, out=out) for a, b, out in sets]}
    }
    if triton := _triton():
        peers["triton"] = {
            _shown(s): [partial(triton.matmul, a, b, out, s) for a, b, out in sets]
            for s in WGMMA_BLOCKS
        }
    yield _product("matmul", sets, matmul_kernel, WGMMA_BLOCKS, peers, _missing_triton())


def matmul_mma_sync() -> Iterator[Problem]:
    """The same kernel compiled for Hopper without its warpgroup instructions: mma.sync."""
    device = driver().device(torch.cuda.current_device())
    major, minor = device.capability
    target = CudaTarget(f"sm_{major}{minor}")
    plain = JITFunction(
        matmul_kernel.fn, matmul_kernel.frontend, backend=CudaBackend(target, device)
    )
    sets = [_matrices(4096) for _ in range(2)]
    peers = {"cublas": {"": [partial(torch.mm, a, b, out=out) for a, b, out in sets]}}
    yield _product("matmul_mma_sync", sets, plain, MMA_BLOCKS, peers, {})


def _product(
    name: str,
    sets: Sequence[tuple[Any, Any, Any]],
    kernel: Any,
    configs: Sequence[Blocks],
    peers: Mapping[str, Mapping[str, Runs]],
    missing: Mapping[str, str],
) -> Problem:
    def run(a: Any, b: Any, out: Any, s: Blocks) -> None:
        (m, k), n = a.shape, b.shape[1]
        kernel[(dn.cdiv(m, s.m) * dn.cdiv(n, s.n),)](
            a, b, out, m, n, k, *a.stride(), *b.stride(), *out.stride(),
            BLOCK_M=s.m, BLOCK_N=s.n, BLOCK_K=s.k, GROUP_M=GROUP_M,
            num_warps=s.num_warps, num_stages=s.num_stages,
        )  # fmt: skip

    def check() -> None:
        for s in configs:
            a, b, out = sets[0]
            out.fill_(float("nan"))
            with suppress(OutOfResources):  # on a smaller GPU
                run(a, b, out, s)
                _agree(out, a @ b)

    ours = {_shown(s): [partial(run, a, b, out, s) for a, b, out in sets] for s in configs}
    size = sets[0][0].shape[0]
    work = 2 * size**3 / 1e12
    return Problem(name, f"{size}^3", "bfloat16", ours, peers, check, work, "TFLOP/s", missing)


def attention() -> Iterator[Problem]:
    """softmax(q k^T) v, without a mask."""
    q, k, v = (torch.randn(4, 32, 4096, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    out = torch.empty_like(q)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    yield Problem(
        "attention", "4x32x4096x128", "bfloat16",
        ours={"": [lambda: ops.attention(q, k, v, out=out)]},
        peers={"torch": {"": [lambda: sdpa(q, k, v)]}},
        check=lambda: _agree(out, sdpa(q, k, v)),
        work=4 * 4 * 32 * 4096**2 * 128 / 1e12, unit="TFLOP/s",
    )  # fmt: skip


def _eager_softmax(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x - x.max(1, keepdim=True).values)
    return e / e.sum(1, keepdim=True)


def _eager_layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(1, keepdim=True)
    variance = (centred * centred).mean(1, keepdim=True)
    return centred * torch.rsqrt(variance + 1e-5) * w + b


def _rows(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(rows, columns, device="cuda", dtype=torch.float16)
    return x, torch.empty_like(x)


def _matrices(size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return a, b, torch.empty_like(a)


def _shown(blocks: Blocks) -> str:
    shape = f"{blocks.m}x{blocks.n}x{blocks.k}"
    return f"{shape}, {blocks.num_warps} warps, {blocks.num_stages} stages"


def _agree(ours: torch.Tensor, expected: torch.Tensor) -> None:
    """Raise AssertionError unless both are the same up to rounding; NaN never is."""
    limits = {torch.float32: 1e-6, torch.float16: 2e-3}
    linalg: Any = torch.linalg
    norm: Callable[[torch.Tensor], float] = linalg.vector_norm
    off = float(norm(ours.float() - expected.float()) / norm(expected.float()))
    assert off <= limits.get(ours.dtype, 1e-2), f"off by {off:.3g}"


def _triton() -> Any:
    """The peers in Triton, or None where it is not installed."""
    return import_module("gpu_triton") if find_spec("triton") else None


def _missing_triton() -> dict[str, str]:
    return {} if find_spec("triton") else {"triton": NO_TRITON}


# -- overheads ------------------------------------------------------------------------------------
def compile_time(rounds: int) -> Iterator[Row]:
    """The first call of the matmul in a fresh process: with empty caches, and with full ones."""
    times: dict[str, tuple[list[float], list[float]]] = {}
    for name in ("deuteron", "triton") if find_spec("triton") else ("deuteron",):
        times[name] = ([], [])
        with tempfile.TemporaryDirectory() as folder:
            _first_call_ms(name, folder)  # leaves bytecode on disk, as an installer does
        for _ in range(3 if rounds > QUICK_ROUNDS else 1):
            with tempfile.TemporaryDirectory() as folder:
                for own in times[name]:
                    own.append(_first_call_ms(name, folder))
    for index, row in enumerate(("compile", "compile_warm")):
        ours_ms = median(times["deuteron"][index])
        title = (row, "matmul 512^3, 128x256x64", "bfloat16")
        if row == "compile":
            yield Row(*title, ours_ms, "bar", COMPILE_BAR_MS, COMPILE_BAR_MS / ours_ms)
        if "triton" not in times:
            yield Row(*title, ours_ms, "triton", None, note=NO_TRITON)
            continue
        peer_ms = median(times["triton"][index])
        yield Row(*title, ours_ms, "triton", peer_ms, peer_ms / ours_ms)


def _first_call_ms(name: str, folder: str) -> float:
    """Of a process whose caches are in a folder; the driver's own cache is off."""
    caches = {
        "DEUTERON_CACHE_DIR": f"{folder}/deuteron",
        "TRITON_CACHE_DIR": f"{folder}/triton",
        "CUDA_CACHE_DISABLE": "1",
        "PYTHONDONTWRITEBYTECODE": "",
    }
    run = subprocess.run(
        [sys.executable, str(FIRST_LAUNCH), name],
        env=os.environ | caches, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return float(run.stdout.split()[-1])


@dn.jit
@no_type_check
def empty_kernel(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    """Does nothing, so that only the launch is left."""


def launch(rounds: int) -> Iterator[Row]:
    """The host's time of one warm launch: three arrays, one integer, a grid of one."""
    arrays = [torch.empty(16, device="cuda") for _ in range(3)]
    title = ("launch", "3 arrays, 1 int", "")
    triton = _triton()
    kernels: list[Any] = [empty_kernel, *([triton.empty_kernel] if triton else [])]
    times: list[list[float]] = [[] for _ in kernels]
    for _ in range(4 * rounds):
        for kernel, own in zip(kernels, times, strict=True):
            own.append(_launch_ms(kernel, arrays))
    ours_ms, *others = (median(own[rounds:]) for own in times)  # the first ones warm up
    yield Row(*title, ours_ms, "bar", LAUNCH_BAR_MS, LAUNCH_BAR_MS / ours_ms)
    if others:
        yield Row(*title, ours_ms, "triton", others[0], others[0] / ours_ms)
    else:
        yield Row(*title, ours_ms, "triton", None, note=NO_TRITON)


def _launch_ms(kernel: Any, arrays: Sequence[torch.Tensor], calls: int = 100) -> float:
    """Mean of some calls, which the GPU has finished before the next ones are timed."""
    begin = time.perf_counter()
    for _ in range(calls):
        kernel[(1,)](*arrays, 17, BLOCK=16)
    elapsed = time.perf_counter() - begin
    torch.cuda.synchronize()
    return elapsed * 1e3 / calls


PROBLEMS: dict[str, Callable[[], Iterator[Problem]]] = {
    "vector_add": vector_add,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "matmul": matmul,
    "matmul_mma_sync": matmul_mma_sync,
    "attention": attention,
}
OVERHEADS: dict[str, Callable[[int], Iterator[Row]]] = {
    "compile": compile_time,
    "launch": launch,
}


def rows(names: Sequence[str], rounds: int) -> Iterator[Row]:
    """The rows of these names."""
    for name in names:
        if name in OVERHEADS:
            yield from OVERHEADS[name](rounds)
            continue
        for problem in PROBLEMS[name]():
            yield from measure(problem, rounds)
        torch.cuda.empty_cache()


def about_gpu() -> dict[str, object]:
    """The card, and the driver's own version."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        told = ""
    return {
        "card": torch.cuda.get_device_name(),
        "driver": told.split()[0] if told.split() else "unknown",
        "cuda": driver().version,
        "triton": package_version("triton"),
    }


def main() -> int:
    """Measure, print each row as it comes, write the file."""
    known = [*PROBLEMS, *OVERHEADS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--rows", default=",".join(known), help="of %(default)s")
    arguments = parser.parse_args()
    names = arguments.rows.split(",")
    if unknown := [name for name in names if name not in known]:
        parser.error(f"unknown rows: {', '.join(unknown)}; expected: {', '.join(known)}")
    if problem := driver_problem():
        parser.error(problem)
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    measured: list[Row] = []
    for row in rows(names, QUICK_ROUNDS if arguments.quick else ROUNDS):
        measured.append(row)
        print(_line(row), flush=True)
    if arguments.json is not None:
        left_out = [name for name in known if name not in names]
        document = provenance() | {"gpu": about_gpu(), "not_measured": left_out}
        document |= {"quick": arguments.quick, "rows": [asdict(row) for row in measured]}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def _line(row: Row) -> str:
    def ms(value: float | None) -> str:
        return "        –" if value is None else f"{value:9.4f}"

    ratio = "    –" if row.ratio is None else f"{row.ratio:5.2f}"
    return (
        f"{row.name:16} {row.shape:24} {row.dtype:8} ours {ms(row.ours_ms)} ms  "
        f"{row.peer:16} {ms(row.peer_ms)} ms  ratio {ratio}  {row.rate}  {row.note}"
    )


if __name__ == "__main__":
    sys.exit(main())
