"""Padded tiles: on the interpreter a padded function leaves the memory that it leaves unpadded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, no_type_check

import numpy as np
import pytest

import deuteron.language as tl
from deuteron import jit
from deuteron.backends import interp
from deuteron.backends.cuda.pad_tiles import pad_tiles
from deuteron.dtypes import int32
from deuteron.ir import Function, verify, walk
from deuteron.passes import pipeline
from deuteron.runtime.jit import JITFunction
from tests.cuda.lowering import lower, ptx_of
from tests.cuda.test_ptx import assemble
from tests.oracle.compare import EXACT, mismatch
from tests.oracle.runners import InterpRunner
from tests.oracle.topics import TOPICS


def is_padded(function: Function) -> bool:
    sizes = [n for node in walk(function.body) for v in node.results for n in v.type.shape]
    return all(size & (size - 1) == 0 for size in sizes)


# -- the oracle's tiles ----------------------------------------------------------------------------
@pytest.mark.parametrize("topic", TOPICS)
def test_the_oracles_kernels(topic: str) -> None:
    for recipe in TOPICS[topic]():
        case = recipe.make()
        if is_padded(case.function):
            assert pad_tiles(case.function) is case.function
            continue
        function = pad_tiles(case.function)
        verify(function)
        assert is_padded(function)
        expected, got = case.fresh_args(), case.fresh_args()
        InterpRunner().run(case.function, expected, case.grid)
        InterpRunner().run(function, got, case.grid)
        pairs = zip(case.arrays(expected), case.arrays(got), strict=True)
        for (name, dtype, want), (_, _, have) in pairs:
            assert not mismatch(want, have, dtype, case.tolerance.get(name, EXACT)), recipe.id


# -- kernels whose tiles have parts beyond -------------------------------------------------------
@jit
@no_type_check
def greater(a, i, b, j):
    if a > b or (a == b and i < j):
        return a, i
    return b, j


@jit
@no_type_check
def later(a, b):
    return b * 1


@jit
@no_type_check
def folds(x, out, M: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    at = rows[:, None] * N + columns[None, :]
    v = tl.load(x + at)
    places = tl.broadcast_to(columns[None, :], (M, N))
    best, where = tl.reduce((v, places), 1, greater)
    tl.store(out + rows, best)
    tl.store(out + M + rows, where)
    tl.store(out + 2 * M + rows, tl.sum(v, 1))
    tl.store(out + 3 * M + rows, tl.min(v, 1))
    tl.store(out + 4 * M + columns, tl.max(v, 0))
    tl.store(out + 4 * M + N + columns, tl.xor_sum(v, 0))
    tl.store(out + 4 * M + 2 * N, tl.sum(v))
    tl.store(out + 4 * M + 2 * N + 1, tl.argmin(tl.reshape(v, (M * N,)), 0))


@jit
@no_type_check
def scans(x, out, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x + at)
    tl.store(out + at, tl.cumsum(v, 1))
    tl.store(out + M * N + at, tl.cumsum(v, 0, reverse=True))
    tl.store(out + 2 * M * N + at, tl.associative_scan(v, 1, later, reverse=True))


@jit
@no_type_check
def shapes(x, out, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x + at)
    turned = tl.reshape(v, (N, M))
    tl.store(out + tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :], turned)
    line = tl.arange(0, M * N)
    tl.store(out + M * N + line, tl.reshape(v.T, (M * N,)))
    tl.store(out + 2 * M * N + line, tl.reshape(tl.flip(v, 0), (M * N,)))
    tl.store(out + 3 * M * N + at, tl.sort(v, 1))
    wide = tl.cat(v, v[:, 1:N], dim=1)
    at = tl.arange(0, M)[:, None] * (2 * N - 1) + tl.arange(0, 2 * N - 1)[None, :]
    tl.store(out + 4 * M * N + at, wide)


@jit
@no_type_check
def memory(x, out, M: tl.constexpr, N: tl.constexpr):
    line = tl.arange(0, M * N)
    v = tl.load(x + line, mask=line % 2 == 0, other=3)
    tl.atomic_add(out + line % 4, v)
    old = tl.atomic_cas(out + 4 + line, line * 0, v)
    tl.store(out + 4 + M * N + line, old)
    tl.store(out + 4 + 2 * M * N + tl.arange(0, N), tl.histogram(v, N))


@pytest.mark.parametrize("shape", [(3, 5), (7, 12), (4, 9), (1, 6), (20, 2)])
@pytest.mark.parametrize("kernel", [folds, scans, shapes, memory])
def test_kernels(kernel: JITFunction, shape: tuple[int, int]) -> None:
    m, n = shape
    x = np.random.default_rng(m).integers(0, 2 * n, m * n, np.int32)
    function = pipeline.run(_lowered(kernel, shape))
    padded = pad_tiles(function)
    verify(padded)
    assert is_padded(padded)
    want, got = (_run(f, x, 6 * (m + 2) * (n + 2)) for f in (function, padded))
    np.testing.assert_array_equal(got, want)


def _lowered(kernel: JITFunction, shape: Sequence[int]) -> Function:
    m, n = shape
    return lower(kernel, int32, int32, M=m, N=n)


def _run(function: Function, x: Any, size: int) -> Any:
    out = np.zeros(size, np.int32)
    interp.run(function, [x, out], (1, 1, 1), checked=True)
    return out


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_ptxas_accepts_them(arch: str, tmp_path: Path) -> None:
    ptx = {
        f"{kernel.__name__} {warps}": ptx_of(
            _lowered(kernel, (7, 12)), arch, f"{kernel.__name__}_{warps}", num_warps=warps
        )
        for kernel in (folds, scans, shapes, memory)
        for warps in (1, 4)
    }
    assemble(ptx, arch, tmp_path)
