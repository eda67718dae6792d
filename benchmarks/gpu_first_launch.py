"""Milliseconds from the first call of the matmul to its result, in a process that has just begun.

    python benchmarks/gpu_first_launch.py deuteron|triton

`gpu.py` runs this with empty caches.  Imports, torch's start and its use of the GPU come before;
loading LLVM does not.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from deuteron.ops.matmul import Blocks

BLOCKS = Blocks(128, 256, 64, num_warps=8, num_stages=3)
SIZE = 512


def first_call_ms(multiply: Callable[..., object]) -> float:
    """Time one call, and demand the right result."""
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    expected = (a @ b).float()
    out = torch.empty_like(a)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    multiply(a, b, out, BLOCKS)
    torch.cuda.synchronize()
    elapsed_ms = (time.perf_counter() - begin) * 1e3
    torch.testing.assert_close(out.float(), expected, rtol=2e-2, atol=0.5)
    return elapsed_ms


def main() -> int:
    """Print the time."""
    name = {"deuteron": "deuteron.ops.matmul", "triton": "gpu_triton"}[sys.argv[1]]
    module: Any = import_module(name)
    print(first_call_ms(module.matmul))
    return 0


if __name__ == "__main__":
    sys.exit(main())
