"""NVIDIA's assembler takes the PTX of dot kernels, and finds registers for the large ones."""

from __future__ import annotations

import re
from typing import Any

import pytest

from deuteron.backends.cuda.compiler import compile_function
from deuteron.backends.cuda.target import CudaTarget
from deuteron.dtypes import DType, bfloat16, float8e4nv, float16, float32, int8, int32
from deuteron.ir import Pointer, Type
from deuteron.lang.codegen import Argument, lower_kernel
from deuteron.ops.attention import attention_kernel
from deuteron.ops.matmul import matmul_kernel
from tests.cuda import ptxas
from tests.cuda.dot_kernels import Launch, loop_kernel

_INT = Argument(Type(int32), {"divisibility": 16})
_FLOAT = Argument(Type(float32))


def pointer(dtype: DType) -> Argument:
    return Argument(Type(Pointer(dtype)), {"divisibility": 16})


def assemble(kernel: Any, arguments: dict[str, object], launch: Launch) -> tuple[str, str]:
    """The PTX, and what ptxas says of it."""
    image = compile_function(
        lower_kernel(kernel, arguments),
        CudaTarget(launch.arch),
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )
    ptx = image.obj.decode()
    report = ptxas.accept(ptx, launch.arch)
    assert "serialized" not in report, report
    return ptx, report


def matmul_arguments(dtype: DType, blocks: tuple[int, int, int]) -> dict[str, object]:
    return {
        **{name: pointer(dtype) for name in ("a_ptr", "b_ptr", "c_ptr")},
        **dict.fromkeys(("M", "N", "K", "stride_am", "stride_bk", "stride_cm"), _INT),
        **dict.fromkeys(("stride_ak", "stride_bn", "stride_cn"), 1),
        **dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), blocks, strict=True)),
        "GROUP_M": 8,
    }


@pytest.mark.parametrize(
    ("blocks", "launch"),
    [
        ((128, 256, 64), Launch("sm_90a", 8, 4)),
        ((128, 128, 64), Launch("sm_90a", 4, 4)),
        ((128, 128, 32), Launch("sm_80", 4, 4)),
        ((128, 256, 32), Launch("sm_80", 8, 3)),
        ((128, 128, 32), Launch("sm_100a", 4, 4)),
    ],
)
def test_large_matrix_products_do_not_spill(blocks, launch):
    ptx, report = assemble(matmul_kernel, matmul_arguments(bfloat16, blocks), launch)
    assert "0 bytes spill stores, 0 bytes spill loads" in report
    wide = blocks[1]
    count = blocks[2] // 16 * (1 if launch.num_warps == 8 else 2)
    wgmma = f"wgmma.mma_async.sync.aligned.m64n{wide}k16.f32.bf16.bf16"
    assert ptx.count(wgmma) == (count if launch.arch == "sm_90a" else 0)


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_120"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("dtype", "out"),
    [(float16, float32), (float32, float32), (float8e4nv, float32), (int8, int32)],
)
def test_every_type_is_accepted(dtype, out, transposed, arch):
    arguments: dict[str, object] = {
        "a_ptr": pointer(dtype),
        "b_ptr": pointer(dtype),
        "c_ptr": pointer(out),
        **dict.fromkeys(("M", "N", "K", "stride_am"), _INT),
        "stride_ak": 1,
        "stride_bk": 1 if transposed else _INT,
        "stride_bn": _INT if transposed else 1,
        "BM": 64,
        "BN": 64,
        "BK": 64,
        "OUT": out,
    }
    assemble(loop_kernel, arguments, Launch(arch, 4, 3))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("block_m", "block_n", "launch"),
    [
        (128, 128, Launch("sm_90a", 8, 2)),
        (64, 64, Launch("sm_90a", 4, 3)),
        (64, 64, Launch("sm_80", 4, 3)),
    ],
)
def test_attention_does_not_spill(block_m, block_n, launch, causal):
    arguments: dict[str, object] = {
        **{name: pointer(bfloat16) for name in ("q_ptr", "k_ptr", "v_ptr", "out_ptr")},
        **dict.fromkeys(("n_queries", "n_keys"), _INT),
        "scale_log2": _FLOAT,
        "CAUSAL": causal,
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "D": 128,
    }
    _, report = assemble(attention_kernel, arguments, launch)
    spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", report)
    assert spilled is not None
    # A word that only the code after the loop needs may wait in memory: stored and loaded once.
    assert spilled.groups() in (("0", "0"), ("4", "4"))
