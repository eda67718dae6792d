"""Loops of dots on the simulator: loads that run ahead, dots that run on, chains of dots."""

from __future__ import annotations

from typing import no_type_check

import numpy as np
import pytest

import deuteron.language as tl
from deuteron import jit
from deuteron.dtypes import bfloat16, float8e4nv, float16, float32, int8, int32
from deuteron.ops.attention import attention_kernel
from tests.cuda.dot_kernels import (
    Launch,
    chain_kernel,
    draw,
    loop_kernel,
    numbers,
    scaled_kernel,
    simulate,
    stored,
)

ARCHS = ("sm_80", "sm_90a")


def check_loop(
    dtype,
    sizes,
    blocks,
    launch,
    *,
    a_transposed=False,
    b_transposed=False,
    out=float32,
    tolerance=1e-5,
):
    """Compare a blocked matrix product with NumPy; the compiled kernel."""
    (m, n, k), (bm, bn, bk) = sizes, blocks
    rng = np.random.default_rng(k)
    a, b = draw(rng, (m, k), dtype), draw(rng, (k, n), dtype)
    c = stored(np.full((m, n), 77.0), out)
    arguments = {
        "a_ptr": (np.ascontiguousarray(a.T) if a_transposed else a, dtype),
        "b_ptr": (np.ascontiguousarray(b.T) if b_transposed else b, dtype),
        "c_ptr": (c, out),
        "M": m,
        "N": n,
        "K": k,
        "stride_am": 1 if a_transposed else k,
        "stride_ak": m if a_transposed else 1,
        "stride_bk": 1 if b_transposed else n,
        "stride_bn": k if b_transposed else 1,
    }
    constants = {"BM": bm, "BN": bn, "BK": bk, "OUT": out}
    grid = (-(-m // bm), -(-n // bn), 1)
    image = simulate(loop_kernel, arguments, constants, launch, grid)
    expected = numbers(a, dtype) @ numbers(b, dtype)
    np.testing.assert_allclose(
        numbers(c, out), expected, rtol=tolerance, atol=tolerance * np.sqrt(max(k, 1))
    )
    return image


LAYOUTS = [(False, False), (True, False), (False, True), (True, True)]


@pytest.mark.parametrize(("a_transposed", "b_transposed"), LAYOUTS)
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("num_stages", [2, 3, 4])
def test_stages(num_stages, arch, a_transposed, b_transposed):
    image = check_loop(
        bfloat16,
        (64, 128, 160),
        (64, 64, 32),
        Launch(arch, 4, num_stages),
        a_transposed=a_transposed,
        b_transposed=b_transposed,
    )
    stage = 2 * (64 * 32 + 32 * 64)
    assert image.metadata["shared_bytes"] >= num_stages * stage
    assert f"cp.async.wait_group {num_stages - 2};" in image.obj.decode()
    assert image.obj.decode().count("wgmma.wait_group.sync.aligned 1;") == (arch == "sm_90a")


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("num_stages", [0, 1])
def test_one_stage_copies_nothing_ahead(arch, num_stages):
    image = check_loop(float16, (64, 64, 96), (64, 64, 32), Launch(arch, 4, num_stages))
    assert "cp.async" not in image.obj.decode()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("trips", [0, 1, 2, 3, 9])
def test_trip_counts(arch, trips):
    check_loop(float16, (64, 32, 32 * trips), (64, 32, 32), Launch(arch, 4, 4))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("num_warps", [1, 2, 4, 8])
def test_ragged_sizes_and_warps(arch, num_warps):
    image = check_loop(bfloat16, (80, 48, 80), (64, 64, 32), Launch(arch, num_warps, 3))
    assert "cp.async.cg.shared.global" in image.obj.decode()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("k", [50, 51])
def test_rows_that_are_not_aligned(arch, k):
    """Rows of A begin at multiples of 4 bytes, which cp.async can copy, or of 2."""
    image = check_loop(float16, (64, 50, k), (64, 32, 32), Launch(arch, 4, 3))
    assert "cp.async.cg" not in image.obj.decode()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("a_transposed", "b_transposed"), LAYOUTS)
@pytest.mark.parametrize(
    ("dtype", "out", "tolerance"),
    [(float32, float32, 5e-3), (int8, int32, 0), (float8e4nv, float32, 1e-5)],
)
def test_other_types(dtype, out, tolerance, arch, a_transposed, b_transposed):
    image = check_loop(
        dtype,
        (64, 32, 192),
        (64, 32, 64),
        Launch(arch, 4, 3),
        a_transposed=a_transposed,
        b_transposed=b_transposed,
        out=out,
        tolerance=tolerance,
    )
    text = image.obj.decode()
    assert "cp.async.cg" in text
    assert ("wgmma" in text) == (arch == "sm_90a" and b_transposed and not a_transposed)


@pytest.mark.parametrize("arch", ARCHS)
def test_two_warpgroups_and_large_tiles(arch):
    check_loop(bfloat16, (128, 256, 192), (128, 256, 64), Launch(arch, 8, 4))


def test_fewer_stages_when_memory_is_short():
    image = check_loop(bfloat16, (128, 128, 256), (128, 128, 64), Launch("sm_80", 8, 9))
    assert image.metadata["shared_bytes"] <= 166_912
    assert "cp.async.wait_group 3;" in image.obj.decode()


# -- chains -------------------------------------------------------------------------------------
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("num_warps", [4, 8])
@pytest.mark.parametrize("dtype", [bfloat16, float16])
def test_a_dot_of_a_dot(arch, num_warps, dtype):
    m, n, k, x, steps = 16 * num_warps, 32, 64, 64, 3
    rng = np.random.default_rng(1)
    a, b = draw(rng, (m, k), dtype), draw(rng, (steps, k, n), dtype)
    d = draw(rng, (steps, n, x), dtype)
    c = np.zeros((m, x), np.float32)
    arguments = {
        "a_ptr": (a, dtype),
        "b_ptr": (b, dtype),
        "d_ptr": (d, dtype),
        "c_ptr": (c, float32),
        "steps": steps,
    }
    constants = {"M": m, "N": n, "K": k, "L": x}
    image = simulate(chain_kernel, arguments, constants, Launch(arch, num_warps, 3))
    expected = np.zeros((m, x))
    for step in range(steps):
        p = stored(2 * (numbers(a, dtype) @ numbers(b[step], dtype)), dtype)
        expected += numbers(p, dtype) @ numbers(d[step], dtype)
    np.testing.assert_allclose(c, expected, rtol=1e-2, atol=0.2)
    # Only `a`, which the loop does not change, is written to shared memory, before the loop: the
    # first dot's result is in the registers where the second one wants it.
    loop = image.llvm[image.llvm.index("\nhead") : image.llvm.index("\ndone")]
    assert "store" not in loop
    assert "shfl" not in loop


@pytest.mark.parametrize("arch", ARCHS)
def test_an_operand_that_is_converted_on_the_way(arch):
    m, n, k, steps = 64, 32, 32, 3
    rng = np.random.default_rng(2)
    a, w = draw(rng, (m, k * steps), float16), draw(rng, (k * steps, n), int8)
    c = np.zeros((m, n), np.float32)
    arguments = {"a_ptr": (a, float16), "w_ptr": (w, int8), "c_ptr": (c, float32), "steps": steps}
    image = simulate(scaled_kernel, arguments, {"M": m, "N": n, "K": k}, Launch(arch))
    np.testing.assert_allclose(c, numbers(a, float16) @ w, rtol=1e-5, atol=1e-4)
    assert "cp.async.cg" in image.obj.decode()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("arch", "num_warps"), [("sm_80", 4), ("sm_90a", 4), ("sm_90a", 8)])
@pytest.mark.parametrize("dtype", [bfloat16, float16])
def test_attention(dtype, arch, num_warps, causal):
    heads, length, size = 2, 112, 64
    rng = np.random.default_rng(3)
    q, k, v = (draw(rng, (heads, length, size), dtype) for _ in range(3))
    out = stored(np.zeros(q.shape), dtype)
    arguments = {
        "q_ptr": (q, dtype),
        "k_ptr": (k, dtype),
        "v_ptr": (v, dtype),
        "out_ptr": (out, dtype),
        "n_queries": length,
        "n_keys": length,
        "scale_log2": 1.4426950408889634 / 8,
    }
    blocks = {"CAUSAL": causal, "BLOCK_M": 16 * num_warps, "BLOCK_N": 32, "D": size}
    grid = (-(-length // (16 * num_warps)), heads, 1)
    image = simulate(attention_kernel, arguments, blocks, Launch(arch, num_warps, 3), grid)
    scores = numbers(q, dtype) @ numbers(k, dtype).swapaxes(1, 2) / 8
    if causal:
        scores[:, np.triu(np.ones((length, length), bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(2, keepdims=True))
    weights /= weights.sum(2, keepdims=True)
    np.testing.assert_allclose(numbers(out, dtype), weights @ numbers(v, dtype), atol=2e-2)
    assert "cp.async.cg" in image.obj.decode()


# -- loops in loops -----------------------------------------------------------------------------
@jit
@no_type_check
def persistent_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """c = a @ b, block after block in one program; blocks on the diagonal are negated."""
    blocks_n = tl.cdiv(N, BN)
    for block in range(tl.program_id(0), tl.cdiv(M, BM) * blocks_n, tl.num_programs(0)):
        m = block // blocks_n * BM + tl.arange(0, BM)
        n = block % blocks_n * BN + tl.arange(0, BN)
        k = tl.arange(0, BK)
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            a = tl.load(a_ptr + m[:, None] * K + (start + k)[None, :])
            b = tl.load(b_ptr + (start + k)[:, None] * N + n[None, :])
            if block // blocks_n == block % blocks_n:
                acc -= tl.dot(a, b)
            else:
                acc += tl.dot(a, b)
        tl.store(c_ptr + m[:, None] * N + n[None, :], acc.to(tl.bfloat16))


@pytest.mark.parametrize("arch", ARCHS)
def test_a_loop_over_blocks(arch):
    m, n, k = 192, 128, 96
    rng = np.random.default_rng(6)
    a, b = draw(rng, (m, k), bfloat16), draw(rng, (k, n), bfloat16)
    c = stored(np.zeros((m, n)), bfloat16)
    arguments = {
        "a_ptr": (a, bfloat16),
        "b_ptr": (b, bfloat16),
        "c_ptr": (c, bfloat16),
        "M": m,
        "N": n,
        "K": k,
    }
    constants = {"BM": 64, "BN": 64, "BK": 32}
    image = simulate(persistent_kernel, arguments, constants, Launch(arch), (2, 1, 1))
    expected = numbers(a, bfloat16) @ numbers(b, bfloat16)
    for start in (0, 64):
        expected[start : start + 64, start : start + 64] *= -1
    np.testing.assert_allclose(numbers(c, bfloat16), expected, rtol=1e-2, atol=1e-2)
    assert "cp.async.cg" in image.obj.decode()


@jit
@no_type_check
def power_kernel(a_ptr, c_ptr, steps, M: tl.constexpr):
    """c = a^(steps + 1), in a `while` loop: an operand that does not change, and one that does."""
    m = tl.arange(0, M)
    a = tl.load(a_ptr + m[:, None] * M + m[None, :])
    power = a
    step = 0
    while step < steps:
        power = tl.dot(power, a).to(tl.float16)
        step += 1
    tl.store(c_ptr + m[:, None] * M + m[None, :], power.to(tl.float32))


@pytest.mark.parametrize("arch", ARCHS)
def test_a_while_loop(arch):
    rng = np.random.default_rng(7)
    a = stored(rng.standard_normal((64, 64)) / 8, float16)
    c = np.zeros((64, 64), np.float32)
    arguments = {"a_ptr": (a, float16), "c_ptr": (c, float32), "steps": 3}
    simulate(power_kernel, arguments, {"M": 64}, Launch(arch))
    expected = a.astype(np.float64)
    for _ in range(3):
        expected = (expected @ a.astype(np.float64)).astype(np.float16).astype(np.float64)
    np.testing.assert_allclose(c, expected, atol=2e-2)


# -- loops whose loads must stay where they are ---------------------------------------------------
@jit
@no_type_check
def changing_kernel(a_ptr, b_ptr, c_ptr, steps, M: tl.constexpr, K: tl.constexpr):
    """Each step reads what the step before stored."""
    m, k = tl.arange(0, M), tl.arange(0, K)
    at = m[:, None] * K + k[None, :]
    b = tl.load(b_ptr + k[:, None] * K + k[None, :])
    for step in range(steps):
        a = tl.load(a_ptr + step * (M * K) + at)
        tl.store(a_ptr + (step + 1) * (M * K) + at, tl.dot(a, b).to(tl.float16))
    tl.store(c_ptr + at, tl.load(a_ptr + steps * (M * K) + at).to(tl.float32))


@pytest.mark.parametrize("arch", ARCHS)
def test_a_loop_that_reads_what_it_stored(arch):
    m, k, steps = 64, 32, 3
    rng = np.random.default_rng(4)
    a = np.zeros((steps + 1, m, k), np.float16)
    a[0] = rng.standard_normal((m, k))
    b = stored(rng.standard_normal((k, k)) / 4, float16)
    c = np.zeros((m, k), np.float32)
    expected = a[0].astype(np.float64)
    arguments = {"a_ptr": (a, float16), "b_ptr": (b, float16), "c_ptr": (c, float32)}
    image = simulate(changing_kernel, {**arguments, "steps": steps}, {"M": m, "K": k}, Launch(arch))
    for _ in range(steps):
        expected = (expected @ b.astype(np.float64)).astype(np.float16).astype(np.float64)
    np.testing.assert_allclose(c, expected, rtol=1e-2, atol=1e-2)
    assert "cp.async" not in image.obj.decode()


@jit
@no_type_check
def indirect_kernel(a_ptr, rows_ptr, b_ptr, c_ptr, steps, M: tl.constexpr, K: tl.constexpr):
    """Which block of A a step reads is itself loaded; B's addresses count down."""
    m, k = tl.arange(0, M), tl.arange(0, K)
    acc = tl.zeros((M, K), tl.float32)
    for step in range(steps - 1, -1, -1):
        block = tl.load(rows_ptr + step)
        a = tl.load(a_ptr + block * (M * K) + m[:, None] * K + k[None, :])
        b = tl.load(b_ptr + step * (K * K) + k[:, None] * K + k[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m[:, None] * K + k[None, :], acc)


@pytest.mark.parametrize("arch", ARCHS)
def test_addresses_that_are_loaded(arch):
    m, k, steps = 64, 32, 5
    rng = np.random.default_rng(5)
    a, b = draw(rng, (4, m, k), float16), draw(rng, (steps, k, k), float16)
    rows = np.array([3, 0, 2, 2, 1], np.int32)
    c = np.zeros((m, k), np.float32)
    arguments = {
        "a_ptr": (a, float16),
        "rows_ptr": (rows, int32),
        "b_ptr": (b, float16),
        "c_ptr": (c, float32),
        "steps": steps,
    }
    image = simulate(indirect_kernel, arguments, {"M": m, "K": k}, Launch(arch))
    expected = sum(a[r].astype(np.float64) @ b[i] for i, r in enumerate(rows))
    np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-3)
    assert "cp.async" in image.obj.decode()
