"""Gathers, histograms and what is made of them: ptxas accepts all, shuffles do what they can."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, no_type_check

import pytest

import deuteron.language as tl
from deuteron import jit
from deuteron.dtypes import bfloat16, float16, float32, float64, int1, int8, int32, int64, uint32
from tests.cuda.lowering import lower, ptx_of
from tests.cuda.test_ptx import assemble

DTYPES = (int8, int32, int64, uint32, float16, bfloat16, float32, float64)


@jit
@no_type_check
def sorts(x, out, M: tl.constexpr, N: tl.constexpr, DIM: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.sort(tl.load(x + at), DIM))


@jit
@no_type_check
def selects(x, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.arange(0, M)[:, None]
    best = tl.topk(tl.load(x + rows * N + tl.arange(0, N)[None, :]), K)
    tl.store(out + rows * K + tl.arange(0, K)[None, :], best)


@jit
@no_type_check
def flips(x, out, M: tl.constexpr, N: tl.constexpr, DIM: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.flip(tl.load(x + at), DIM))


@jit
@no_type_check
def gathers(x, index, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.arange(0, M)[:, None]
    at = rows * K + tl.arange(0, K)[None, :]
    source = tl.load(x + rows * N + tl.arange(0, N)[None, :])
    tl.store(out + at, tl.gather(source, tl.load(index + at), 1))


@jit
@no_type_check
def counts(x, mask, out, N: tl.constexpr, BINS: tl.constexpr):
    at = tl.arange(0, N)
    counted = tl.histogram(tl.load(x + at), BINS, mask=tl.load(mask + at))
    tl.store(out + tl.arange(0, BINS), counted)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_ptxas_accepts_them(arch: str, tmp_path: Path) -> None:
    ptx: dict[str, str] = {}

    def add(name: str, kernel: Any, *args: Any, num_warps: int = 4, **constants: Any) -> None:
        function = lower(kernel, *args, **constants)
        ptx[name] = ptx_of(function, arch, f"kernel_{len(ptx)}", num_warps=num_warps)

    for number, dtype in enumerate(DTYPES):
        warps = (1, 4, 8)[number % 3]
        add(f"sort {dtype}", sorts, dtype, dtype, M=4, N=32, DIM=number % 2, num_warps=warps)
        add(f"topk {dtype}", selects, dtype, dtype, M=4, N=32, K=4, num_warps=warps)
        add(f"flip {dtype}", flips, dtype, dtype, M=8, N=64, DIM=number % 2, num_warps=warps)
        index = (int8, int32, int64)[number % 3]
        add(f"gather {dtype}", gathers, dtype, index, dtype, M=4, N=64, K=16, num_warps=warps)
        if dtype.is_int():
            add(f"histogram {dtype}", counts, dtype, int1, int32, N=256, BINS=32, num_warps=warps)
    add("gather bool", gathers, int1, int32, int1, M=4, N=16, K=16)
    assemble(ptx, arch, tmp_path)


def instructions(kernel: Any, *args: Any, num_warps: int, **constants: Any) -> list[str]:
    ptx = ptx_of(lower(kernel, *args, **constants), "sm_90a", num_warps=num_warps)
    return re.findall(r"^\s*(?:@\S+ )?(shfl|ld\.shared|st\.shared|bar)\b", ptx, re.M)


def test_rows_within_a_warp_are_sorted_by_shuffles() -> None:
    found = instructions(sorts, float32, float32, M=16, N=32, DIM=1, num_warps=4)
    assert set(found) == {"shfl"}


def test_registers_are_renamed() -> None:
    """Elements that one thread holds trade places without any instruction between threads."""
    assert not instructions(flips, float32, float32, M=128, N=4, DIM=1, num_warps=4)


def test_only_far_exchanges_use_shared_memory() -> None:
    found = instructions(sorts, int32, int32, M=1, N=256, DIM=1, num_warps=2)
    stages = range(1, 9)
    far = sum(step == 1 << 7 for stage in stages for step in (1 << s for s in range(stage)))
    assert 0 < found.count("bar") <= 4 * far
    assert found.count("shfl") > 4 * found.count("st.shared")


def test_an_index_of_lanes_is_a_shuffle() -> None:
    found = instructions(gathers, float32, int32, float32, M=32, N=16, K=16, num_warps=4)
    assert "shfl" in found
    assert "st.shared" not in found
