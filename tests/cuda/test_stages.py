"""Stages of software pipelines are a hint: fewer are taken before shared memory runs out."""

from __future__ import annotations

from typing import no_type_check

import pytest

import deuteron.language as tl
from deuteron import jit
from deuteron.backends.cuda.kernel_info import KernelInfo
from deuteron.backends.cuda.target import CudaTarget
from deuteron.dtypes import float32
from deuteron.ops.attention import attention_kernel
from tests.cuda.lowering import image_of, lower


@jit
@no_type_check
def many_stages(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    rows, cols, ks = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    acc = tl.zeros((M, N), tl.float32)
    for start in tl.range(0, K, BLOCK, num_stages=6):
        x = tl.load(a + rows[:, None] * K + (start + ks)[None, :])
        y = tl.load(b + (start + ks)[:, None] * N + cols[None, :])
        acc = tl.dot(tl.exp2(tl.dot(x, y)), y.T, acc)
    tl.store(c + rows[:, None] * N + cols[None, :], acc)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_what_loops_ask_for_is_a_hint(arch: str) -> None:
    function = lower(many_stages, float32, float32, float32, 4096, M=64, N=128, BLOCK=128)
    info = KernelInfo.from_json(image_of(function, arch, num_warps=8).metadata)
    assert info.shared_bytes <= CudaTarget(arch).shared_limit


@pytest.mark.parametrize("num_stages", [1, 2, 4])
def test_attention_in_float32_fits(num_stages: int) -> None:
    function = lower(
        attention_kernel, float32, float32, float32, float32, 4096, 4096, 0.1,
        CAUSAL=False, BLOCK_M=128, BLOCK_N=128, D=64,
    )  # fmt: skip
    image = image_of(function, "sm_90a", num_warps=8, num_stages=num_stages)
    info = KernelInfo.from_json(image.metadata)
    assert info.shared_bytes <= CudaTarget("sm_90a").shared_limit
