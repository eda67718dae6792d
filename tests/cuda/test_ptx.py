"""NVIDIA's assembler accepts what is compiled from every kernel of the oracle and of the library.

Many kernels go into one call of ptxas, which takes most of its time to start.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from deuteron.dtypes import bfloat16, float16, float32
from deuteron.ir import Function
from deuteron.ops.attention import attention_kernel
from deuteron.ops.elementwise import add_kernel
from deuteron.ops.layer_norm import layer_norm_kernel
from deuteron.ops.matmul import matmul_kernel
from deuteron.ops.softmax import softmax_kernel
from tests.cuda import ptxas
from tests.cuda.lowering import lower, ptx_of
from tests.oracle.elementwise import Recipe
from tests.oracle.tile_kernels import asserts, prints
from tests.oracle.topics import TOPICS

# One in so many kernels is compiled for the architectures that share their code with another.
SPREAD = 8
# Warps that share an elementwise kernel's tile: its threads' code is repeated for each element.
ELEMENTWISE_WARPS = 16


def assemble(ptx: Mapping[str, str], arch: str, folder: Path, optimize: int = 0) -> None:
    """Fail with what ptxas has against any of these modules, each named by what it is of.

    Their kernels must have names of their own.  Skips the test when there is no ptxas.
    """
    program = ptxas.find()
    if program is None:
        pytest.skip("no ptxas: pip install nvidia-cuda-nvcc")
    numbers = count()
    files = {f"{next(numbers)}.ptx": name for name in ptx}
    for file, name in files.items():
        (folder / file).write_text(ptx[name], encoding="utf-8")
    command = [program, f"-arch={arch}", f"-O{optimize}", *files, "-o", "all.cubin"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    # At -O0 there are fewer registers than some kernels' wgmma like; ptxas says so and goes on.
    complaints = [line for line in result.stderr.splitlines() if "ptxas info" not in line]
    if result.returncode or complaints:
        blamed = [name for file, name in files.items() if f"{file}," in result.stderr]
        pytest.fail(f"ptxas on {', '.join(blamed) or arch}:\n{result.stderr[:4000]}")


def functions(recipes: list[Recipe]) -> Iterator[tuple[str, Function]]:
    """The kernels, by name."""
    for recipe in recipes:
        yield recipe.id, recipe.make().function


def compile_all(recipes: list[Recipe], arch: str, **options: Any) -> dict[str, str]:
    """The PTX of kernels, which are renamed apart, by the recipes' names."""
    return {
        name: ptx_of(function, arch, f"kernel_{number}", **options)
        for number, (name, function) in enumerate(functions(recipes))
    }


@pytest.mark.parametrize("topic", TOPICS)
def test_kernels_for_hopper(topic: str, tmp_path: Path) -> None:
    num_warps = ELEMENTWISE_WARPS if topic == "elementwise" else 4
    ptx = compile_all(TOPICS[topic](), "sm_90a", num_warps=num_warps)
    assemble(ptx, "sm_90a", tmp_path)


@pytest.mark.parametrize("arch", ["sm_80", "sm_100a"])
def test_kernels_for_other_gpus(arch: str, tmp_path: Path) -> None:
    recipes = [r for make in TOPICS.values() for r in make()[::SPREAD]]
    assemble(compile_all(recipes, arch), arch, tmp_path)


@pytest.mark.parametrize("num_warps", [1, 8])
def test_kernels_of_other_sizes(num_warps: int, tmp_path: Path) -> None:
    topics = ("control", "fold", "shape", "memory", "atomic", "product")
    recipes = [r for topic in topics for r in TOPICS[topic]()[num_warps % SPREAD :: SPREAD]]
    assemble(compile_all(recipes, "sm_90a", num_warps=num_warps), "sm_90a", tmp_path)


def test_prints_and_asserts(tmp_path: Path) -> None:
    cases = (prints((2, 4)), asserts(64, masked=False), asserts(40, masked=True))
    ptx = {c.id: ptx_of(c.function, "sm_80", f"kernel_{i}") for i, c in enumerate(cases[:2])}
    assemble(ptx, "sm_80", tmp_path)
    assemble({"masked": ptx_of(cases[2].function, "sm_90a")}, "sm_90a", tmp_path)


# -- the kernels of the library -------------------------------------------------------------------
def library() -> dict[str, tuple[Function, dict[str, Any]]]:
    """Kernels as they are launched on GPUs, with their launch options."""
    half, wide = float16, bfloat16
    sizes = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
    product = lower(
        matmul_kernel, wide, wide, wide, 4096, 4096, 4096, 4096, 1, 4096, 1, 4096, 1, **sizes
    )
    strided = lower(matmul_kernel, half, half, half, 300, 170, 200, 1, 300, 7, 1, 170, 1, **sizes)
    queries = lower(
        attention_kernel, wide, wide, wide, wide, 4096, 4096, 0.1,
        CAUSAL=False, BLOCK_M=128, BLOCK_N=64, D=128,
    )  # fmt: skip
    causal = lower(
        attention_kernel, float32, float32, float32, float32, 200, 200, 0.1,
        CAUSAL=True, BLOCK_M=64, BLOCK_N=32, D=32,
    )  # fmt: skip
    return {
        "add": (lower(add_kernel, float32, float32, float32, 1 << 28, BLOCK=1024), {}),
        "softmax": (lower(softmax_kernel, half, half, 8192, BLOCK=8192), {"num_warps": 8}),
        "layer_norm": (
            lower(layer_norm_kernel, half, half, half, half, 8000, 1e-5, BLOCK=8192),
            {"num_warps": 16},
        ),
        "matmul": (product, {"num_warps": 4}),
        "matmul_8": (product, {"num_warps": 8, "num_stages": 4}),
        "matmul_strided": (strided, {"num_stages": 2}),
        "attention": (queries, {"num_warps": 8}),
        "attention_causal": (causal, {"num_stages": 2}),
    }


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_library(arch: str, tmp_path: Path) -> None:
    ptx = {
        name: ptx_of(function, arch, name, **options)
        for name, (function, options) in library().items()
    }
    assemble(ptx, arch, tmp_path, optimize=3)
