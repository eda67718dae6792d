"""Our kernels against Triton's own NumPy interpreter, at shapes of its tutorials 01 to 03.

    python benchmarks/interpreter.py --triton FOLDER [--json FILE]

FOLDER is where `pip install --no-deps --target FOLDER triton` put the original, which runs the same
file of kernels in a process of its own.  The two take turns; ours is the median of many launches
before and after each of the interpreter's, which take seconds.  Both must fill the same sum.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch

from deuteron import compat
from deuteron.cli.machine import provenance

HERE = Path(__file__).parent
ROUNDS, LAUNCHES = 3, 10
TOLERANCE = 1e-3
# Of each tutorial's own benchmark, the smallest shapes, which favour the interpreter, and larger.
SIZES = {
    "01 vector add": (2**12, 2**16, 2**20),
    "02 softmax": (256, 1024, 4096),
    "03 matmul": (256, 512, 1024),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One shape; milliseconds of one launch."""

    name: str
    size: int
    ours_ms: float
    interpreter_ms: float
    ratio: float


def measure(name: str, size: int, peer: subprocess.Popen[str]) -> Row:
    """Both sides in turns.  Raises ValueError when their results differ."""
    compat.install("triton")
    from tutorial_kernels import PROBLEMS

    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    launch, out = PROBLEMS[name](size)
    launch()
    total = float(out.double().sum())
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(ROUNDS):
        ours += [_seconds(launch) for _ in range(LAUNCHES)]
        seconds, sum_there = _ask(peer, f"{name}|{size}")
        theirs.append(seconds)
        if not math.isclose(total, sum_there, rel_tol=TOLERANCE, abs_tol=TOLERANCE * out.numel()):
            raise ValueError(f"{name} {size}: the sum is {total} here, {sum_there} there")
        ours += [_seconds(launch) for _ in range(LAUNCHES)]
    ours_s, theirs_s = median(ours), median(theirs)
    return Row(name, size, ours_s * 1e3, theirs_s * 1e3, theirs_s / ours_s)


def _seconds(launch: Callable[[], object]) -> float:
    begin = time.perf_counter()
    launch()
    return time.perf_counter() - begin


def _ask(peer: subprocess.Popen[str], question: str) -> tuple[float, float]:
    assert peer.stdin is not None
    assert peer.stdout is not None
    print(question, file=peer.stdin, flush=True)
    seconds, total = peer.stdout.readline().split()
    return float(seconds), float(total)


def main() -> None:
    """Measure every shape, print the rows, and keep them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--triton", type=Path, required=True, help="a folder with the original")
    parser.add_argument("--json", type=Path, help="keep the rows here")
    arguments = parser.parse_args()
    command = [sys.executable, str(HERE / "interpreter_peer.py")]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(arguments.triton)}
    pipe = subprocess.PIPE
    rows: list[Row] = []
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as peer:
        for name, sizes in SIZES.items():
            for size in sizes:
                row = measure(name, size, peer)
                print(
                    f"{name:14} {size:8}  ours {row.ours_ms:9.4f} ms  "
                    f"interpreter {row.interpreter_ms:10.1f} ms  {row.ratio:10,.0f}x",
                    flush=True,
                )
                rows.append(row)
        assert peer.stdin is not None
        peer.stdin.close()
    if arguments.json:
        result = {**provenance(), "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
