"""Layouts and PTX of small kernels for GPUs.

Of the PTX only what makes a kernel fast or slow is kept: instructions on memory, between threads
and on matrices, without their registers, which are named otherwise by every version of LLVM.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import pytest

from deuteron.backends.cuda.kernel_info import KernelInfo
from deuteron.dtypes import float16, float32
from deuteron.runtime.jit import JITFunction
from tests.cuda.lowering import image_of, lower
from tests.golden import gpu_kernels, kernels

ESSENTIAL = re.compile(
    r"^\s*(?:@!?%p\d+\s+)?"
    r"((?:ld|st)\.(?:global|shared)|atom|red|shfl|bar|barrier|mma|wgmma|ldmatrix|cp|fence|ex2)"
    r"([\w.:]*)"
)
F16, F32 = float16, float32
MATMUL = (F16, F16, F32, 256)
CASES: dict[str, tuple[JITFunction, str, tuple[Any, ...], dict[str, Any], int]] = {
    "vector_add": (kernels.vector_add, "sm_80", (F32, F32, F32, 1 << 20), {"BLOCK": 1024}, 4),
    "vector_add_odd": (kernels.vector_add, "sm_80", (F32, F32, F32, 1001), {"BLOCK": 1024}, 4),
    "softmax_row": (kernels.softmax_row, "sm_80", (F32, F32, 1000), {"N": 1024}, 4),
    "centre_rows": (gpu_kernels.centre_rows, "sm_80", (F16, F16, 128), {"M": 32, "N": 128}, 4),
    "transposed_copy": (
        gpu_kernels.transposed_copy, "sm_80", (F32, F32, 64, 32), {"M": 32, "N": 64}, 4,
    ),
    "running_sum": (gpu_kernels.running_sum, "sm_80", (F32, F32), {"N": 512}, 2),
    "product_ampere": (
        gpu_kernels.product, "sm_80", MATMUL, {"M": 64, "N": 64, "BLOCK": 32}, 4,
    ),
    "product_hopper": (
        gpu_kernels.product, "sm_90a", MATMUL, {"M": 64, "N": 128, "BLOCK": 64}, 4,
    ),
}  # fmt: skip


def essentials(ptx: str) -> Iterator[str]:
    """The instructions that matter, equal ones in a row as one line."""
    found = filter(None, map(ESSENTIAL.match, ptx.splitlines()))
    for instruction, group in groupby(f"{m.group(1)}{m.group(2)}" for m in found):
        count = len(list(group))
        yield f"{count} × {instruction}" if count > 1 else instruction


def named_tiles(layouts: str) -> Iterator[str]:
    """The layouts of tiles that have a name in the source, each once."""
    return iter(dict.fromkeys(line for line in layouts.splitlines() if "%?" not in line))


@pytest.mark.parametrize("name", CASES)
def test_layouts_and_ptx(name: str, golden: Callable[[str, str], None]) -> None:
    kernel, arch, args, constants, num_warps = CASES[name]
    image = image_of(lower(kernel, *args, **constants), arch, num_warps=num_warps, num_stages=3)
    info = KernelInfo.from_json(image.metadata)
    text = [
        f"{arch}, {num_warps} warps, {info.shared_bytes} bytes of shared memory",
        "", *named_tiles(info.layouts), "", *essentials(info.ptx), "",
    ]  # fmt: skip
    golden(f"cuda/{name}.txt", "\n".join(text))
