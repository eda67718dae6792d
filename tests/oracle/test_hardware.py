"""What kernels say to the hardware: atomics, assembly, questions about the target."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as dn
import deuteron.language as tl
from deuteron.language.extra import cpu
from tests.oracle.two_ways import both_ways, run_both


# -- atomics -----------------------------------------------------------------------------------
def exchange(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    if n == 0:
        tl.store(out + i, tl.atomic_load(x + i))
    else:
        tl.store(out + i, tl.atomic_load(x + i, mask=i < n, sem="relaxed"))
    tl.atomic_store(x + i, tl.full((B,), 7, x.dtype.element_ty), mask=i < n)
    tl.atomic_store(x, 9)


@pytest.mark.parametrize("dtype", ["int32", "uint64", "float32", "float64"])
def test_atomic_load_and_store(dtype):
    x = np.arange(1, 17).astype(dtype)
    for n in (0, 5):
        for after, out, _ in run_both(exchange, x, np.full_like(x, 3), n, B=16):
            np.testing.assert_array_equal(out, x if n == 0 else np.where(np.arange(16) < n, x, 0))
            want = np.where(np.arange(16) < n, 7, x)
            want[0] = 9
            np.testing.assert_array_equal(after, want.astype(dtype))


def load_half(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.atomic_load(x + i))


@pytest.mark.parametrize("dtype", ["int16", "float16"])
def test_atomic_load_of_16_bits(dtype):
    x = np.arange(-8, 8).astype(dtype)
    for _, out in run_both(load_half, x, np.zeros_like(x), B=16):
        np.testing.assert_array_equal(out, x)


def poll(flag, out, timeout):
    if timeout < 0:
        tl.store(out, tl.atomic_poll(flag, 3))
    else:
        tl.store(out, tl.atomic_poll(flag, 3, sem="relaxed", scope="sys", timeout_ns=timeout))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint16"])
def test_atomic_poll(dtype):
    for value, timeout, want in ((3, -1, 1), (3, 0, 1), (2, 0, 0), (2, 200, 0)):
        flag = np.array([value], dtype)
        for after, out, _ in run_both(poll, flag, np.full(1, 9, np.int32), timeout):
            assert (out[0], after[0]) == (want, value)


def hand_over(flag, data, out):
    """Each program waits for the one before it."""
    at = tl.program_id(0)
    seen = tl.atomic_poll(flag, at)
    tl.store(out + at, tl.load(data) * 2 + seen)
    tl.store(data, at + 1)
    tl.atomic_xchg(flag, at + 1, sem="release")


def test_programs_wait_for_each_other():
    want = [1] + [2 * at + 1 for at in range(1, 64)]
    arrays = (np.zeros(n, np.int32) for n in (1, 1, 64))
    for _, _, out in run_both(hand_over, *arrays, grid=(64,)):
        np.testing.assert_array_equal(out, want)


# -- assembly ----------------------------------------------------------------------------------
ROUND = tl.constexpr("cvt.rna.tf32.f32   $0, $1;")
SPLIT = tl.constexpr("split $0, $1, $2;")


@cpu.asm_body("cvt.rna.tf32.f32 $0, $1;")
@dn.jit
def round_to_tf32(x):
    bits = x.to(tl.uint32, bitcast=True) + 0x1000
    return (bits & 0xFFFFE000).to(tl.float32, bitcast=True)


@cpu.asm_body("split $0, $1, $2;")
@dn.jit
def parts(x, y):
    return x // y, x % y


def assembly(x, out, whole, rest, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(
        out + i, tl.inline_asm_elementwise(ROUND, "=r,r", [tl.load(x + i)], tl.float32, True, 1)
    )
    q, r = tl.inline_asm_elementwise(
        asm=SPLIT,
        constraints="=r,=r,r,r",
        args=[i[:, None], tl.full((1, 4), 3, tl.int32)],
        dtype=(tl.int64, tl.uint8),
        is_pure=False,
        pack=4,
    )
    tl.static_assert(q.dtype == tl.int64)
    at = i[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(whole + at, q)
    tl.store(rest + at, r)


def test_assembly_with_a_body():
    x = np.random.default_rng(0).standard_normal(16).astype(np.float32)
    want = ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)
    q, r = (np.broadcast_to(v[:, None], (16, 4)) for v in np.divmod(np.arange(16), 3))
    results = (np.zeros(16, np.float32), np.zeros((16, 4), np.int64), np.zeros((16, 4), np.uint8))
    for _, out, whole, rest in run_both(assembly, x, *results, B=16):
        np.testing.assert_array_equal(out, want)
        np.testing.assert_array_equal(whole, q)
        np.testing.assert_array_equal(rest, r)


def test_a_body_belongs_to_the_key_of_kernels():
    _, kernel = both_ways(assembly)
    before = kernel.cache_key

    @cpu.asm_body("another $0, $1;")
    @dn.jit
    def body(x):
        return x

    assert kernel.cache_key != before


def test_only_jit_functions_are_bodies():
    with pytest.raises(dn.UserError, match="asm_body decorates jit functions"):
        cpu.asm_body("nop;")(abs)


def unknown_assembly(x, B: tl.constexpr):
    i = tl.arange(0, B)
    y = tl.inline_asm_elementwise("mystery $0, $1;", "=r,r", [tl.load(x + i)], tl.float32, True, 1)
    tl.store(x + i, y)


def test_assembly_without_a_body_is_refused():
    for kernel in both_ways(unknown_assembly):
        with pytest.raises(dn.CompilationError, match=r"test_hardware.py:\d+:\d+: inline assembly"):
            kernel[(1,)](np.zeros(16, np.float32), B=16)


# -- hints and questions -----------------------------------------------------------------------
def ask(out):
    if tl.target_info.is_cuda() or tl.target_info.cuda_capability_geq(9, 0):
        tl.store(out, 1)
    elif tl.target_info.is_hip() or tl.target_info.is_xpu():
        tl.store(out, 2)
    elif tl.target_info.current_target().backend == "cpu":
        tl.store(out, 3)


def test_target_info():
    for (out,) in run_both(ask, np.zeros(1, np.int32)):
        assert out[0] == 3
    assert tl.target_info.current_target().backend == "cpu"
    assert not tl.target_info.cuda_capability_geq(8, minor=0)
    assert not tl.target_info.is_hip_cdna3() | tl.target_info.is_hip_cdna4()
    assert not tl.target_info.is_hip_gfx1250()


def count_down(out, n):
    turns = 0
    while tl.condition(n > 0, disable_licm=True):
        n -= 3
        turns += 1
        tl.debug_barrier()
    tl.store(out, turns)


def test_condition():
    for out, _ in run_both(count_down, np.zeros(1, np.int32), 10):
        assert out[0] == 4


def expected_zeros(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.expect_zero(tl.load(x + i), i >= 8))


def test_expect_zero():
    x = np.where(np.arange(16) < 8, 1, 0).astype(np.float32)
    for kernel in both_ways(expected_zeros):
        out = np.zeros_like(x)
        kernel[(1,)](x, out, B=16, debug=True)
        np.testing.assert_array_equal(out, x)
        x[12] = 1
        kernel[(1,)](x, out, B=16)
        with pytest.raises(dn.DeviceAssertionError, match="expect_zero"):
            kernel[(1,)](x, out, B=16, debug=True)
        x[12] = 0
