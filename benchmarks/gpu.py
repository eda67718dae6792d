"""This package's kernels on the GPU at hand against torch, in one run.

    python -m benchmarks.gpu [--json FILE] [--rows matmul,softmax]

Both sides are timed by CUDA events, interleaved, 20 rounds after warming up; a row tells medians in
milliseconds and the ratio, peer ÷ ours.  `launch` is host time of a warm launch, in microseconds;
it has no peer here.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch

from deuteron import ops
from deuteron.errors import DeuteronError
from deuteron.ops.elementwise import add_kernel
from deuteron.ops.matmul import Blocks, matmul

ROUNDS, CALLS = 20, 5
Row = dict[str, Any]
Call = Callable[[], object]


def time_ms(call: Call) -> float:
    """Mean time on the GPU of a few calls, in milliseconds."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(CALLS):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / CALLS


def compare(name: str, ours: Call, peer: Call) -> Row:
    """Interleaved medians of both sides."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(3):
        ours()
        peer()
    for _ in range(ROUNDS):
        for side, call in zip(times, (ours, peer), strict=True):
            side.append(time_ms(call))
    own, other = (statistics.median(side) for side in times)
    return {"name": name, "ours_ms": own, "peer_ms": other, "ratio": other / own}


def vector_add() -> list[Row]:
    """Two arrays of 2^28 floats."""
    x, y = (torch.rand(2**28, device="cuda") for _ in range(2))
    out = torch.empty_like(x)
    row = compare(
        "vector_add 2^28 fp32", lambda: ops.add(x, y, out), lambda: torch.add(x, y, out=out)
    )
    return [row]


def softmax() -> list[Row]:
    """Rows of 8192 halves."""
    x = torch.randn(4096, 8192, device="cuda", dtype=torch.float16)
    fused = lambda: ops.softmax(x)  # noqa: E731
    eager = lambda: _eager_softmax(x)  # noqa: E731
    return [
        compare("softmax 4096x8192 fp16, torch.softmax", fused, lambda: torch.softmax(x, 1)),
        compare("softmax 4096x8192 fp16, op by op", fused, eager),
    ]


def _eager_softmax(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x - x.max(1, keepdim=True).values)
    return e / e.sum(1, keepdim=True)


def layer_norm() -> list[Row]:
    """Rows of 8192 halves."""
    x = torch.randn(4096, 8192, device="cuda", dtype=torch.float16)
    w, b = (torch.randn(8192, device="cuda", dtype=torch.float16) for _ in range(2))
    peer = lambda: torch.nn.functional.layer_norm(x, (8192,), w, b)  # noqa: E731
    return [compare("layer_norm 4096x8192 fp16", lambda: ops.layer_norm(x, w, b), peer)]


def multiply() -> list[Row]:
    """Square matrices, in several block sizes."""
    a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    rows: list[Row] = []
    for blocks in (
        Blocks(128, 256, 64, 8, 4),
        Blocks(128, 256, 64, 8, 3),
        Blocks(128, 128, 64, 4, 4),
    ):
        name = f"matmul 4096^3 bf16, {blocks}"
        rows.append(
            compare(name, lambda s=blocks: matmul(a, b, out, s), lambda: torch.mm(a, b, out=out))
        )
    return rows


def attention() -> list[Row]:
    """Forward, without a mask."""
    q, k, v = (torch.randn(4, 32, 4096, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    peer = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)  # noqa: E731
    return [compare("attention 4x32x4096x128 bf16", lambda: ops.attention(q, k, v), peer)]


def launch() -> list[Row]:
    """Host time of a warm launch."""
    x, y, out = (torch.rand(128, device="cuda") for _ in range(3))
    run = add_kernel[(1,)]
    times: list[float] = []
    for _ in range(2000):
        start = time.perf_counter_ns()
        run(x, y, out, 128, BLOCK=128)
        times.append((time.perf_counter_ns() - start) / 1e3)
    torch.cuda.synchronize()
    return [{"name": "launch, 3 arrays and 1 int", "ours_us": statistics.median(times)}]


ROWS: dict[str, Callable[[], list[Row]]] = {
    "vector_add": vector_add,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "matmul": multiply,
    "attention": attention,
    "launch": launch,
}


def main() -> None:
    """Run the rows asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--rows", default=",".join(ROWS), help="which rows, by comma")
    options = parser.parse_args()
    rows: list[Row] = []
    for name in options.rows.split(","):
        try:
            rows += ROWS[name]()
        except DeuteronError as error:
            rows.append({"name": name, "error": str(error)})
    for row in rows:
        print("  ".join(f"{k}={v:.4g}" if isinstance(v, float) else str(v) for k, v in row.items()))
    if options.json:
        about = {
            "date": str(date.today()),
            "card": torch.cuda.get_device_name(),
            "torch": torch.__version__,
        }
        options.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
