"""Block-scaled products against NumPy, compiled and on the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import deuteron.language as tl
from tests.oracle.two_ways import run_both

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E2M1 = np.concatenate((E2M1, -E2M1))
BYTES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
WORDS = {"bf16": torch.bfloat16, "fp16": torch.float16}


def elements(form: str, rows: int, length: int, seed: int, axis: int = 1) -> tuple[Any, Any]:
    """Bits as dot_scaled takes them (rows along K), and their values."""
    rng = np.random.default_rng(seed)
    if form == "e2m1":
        codes = rng.integers(0, 16, (rows, length), np.uint8)
        low, high = (codes.take(range(start, codes.shape[axis], 2), axis) for start in (0, 1))
        return low | (high << 4), E2M1[codes]
    x = torch.from_numpy(rng.standard_normal((rows, length)).astype(np.float32))
    if form in BYTES:
        narrow = x.to(BYTES[form])
        return narrow.view(torch.uint8).numpy(), narrow.float().numpy()
    narrow = x.to(WORDS[form])
    return narrow.view(torch.int16).numpy().view(np.uint16), narrow.float().numpy()


def scales(rows: int, groups: int, seed: int) -> tuple[Any, Any]:
    codes = np.random.default_rng(seed).integers(120, 134, (rows, groups), np.uint8)
    return codes, np.exp2(codes.astype(np.float32) - 127)


def product(
    a, a_scale, b, b_scale, out, AF: tl.constexpr, BF: tl.constexpr, AP: tl.constexpr,
    BP: tl.constexpr, SCALED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    G: tl.constexpr,
):  # fmt: skip
    AM: tl.constexpr = M // 2 if AF == "e2m1" and not AP else M
    AK: tl.constexpr = K // 2 if AF == "e2m1" and AP else K
    BN: tl.constexpr = N // 2 if BF == "e2m1" and not BP else N
    BK: tl.constexpr = K // 2 if BF == "e2m1" and BP else K
    x = tl.load(a + tl.arange(0, AM)[:, None] * AK + tl.arange(0, AK)[None, :])
    y = tl.load(b + tl.arange(0, BN)[None, :] * BK + tl.arange(0, BK)[:, None])
    groups = tl.arange(0, K // G)[None, :]
    sx = tl.load(a_scale + tl.arange(0, M)[:, None] * (K // G) + groups)
    sy = tl.load(b_scale + tl.arange(0, N)[:, None] * (K // G) + groups)
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    acc = tl.load(out + at)
    if SCALED:
        acc = tl.dot_scaled(x, sx, AF, y, sy, BF, acc, lhs_k_pack=AP, rhs_k_pack=BP)
    else:
        acc = tl.dot_scaled(x, sx, AF, y, None, BF, acc=acc, lhs_k_pack=AP, rhs_k_pack=BP)
    tl.store(out + at, acc)


def check(
    left: str, right: str, *, pack: bool = True, group: int = 32, scaled: bool = True
) -> None:
    m, n, k = 32, 16, 128
    a, a_values = elements(left, m, k, 0, axis=1 if pack else 0)
    b, b_values = elements(right, n, k, 1, axis=1 if pack else 0)
    sa, sa_values = scales(m, k // group, 2)
    sb, sb_values = scales(n, k // group, 3)
    start = np.random.default_rng(4).standard_normal((m, n)).astype(np.float32)
    x = a_values * sa_values.repeat(group, 1)
    y = b_values * (sb_values.repeat(group, 1) if scaled else 1)
    want = x.astype(np.float64) @ y.T + start
    constants = {"AF": left, "BF": right, "AP": pack, "BP": pack, "SCALED": scaled}
    constants |= {"M": m, "N": n, "K": k, "G": group}
    for *_, out in run_both(product, a, sa, b, sb, start, **constants):
        np.testing.assert_allclose(out, want, 1e-4, 1e-3)


@pytest.mark.parametrize("left", ["e2m1", "e4m3", "e5m2", "bf16", "fp16"])
@pytest.mark.parametrize("right", ["e2m1", "e4m3", "bf16", "fp16"])
def test_every_pair_of_formats(left, right):
    check(left, right)


def test_packed_along_the_other_axes():
    check("e2m1", "e2m1", pack=False)


@pytest.mark.parametrize("scaled", [False, True])
def test_groups_of_16(scaled):
    check("e2m1", "e4m3", group=16, scaled=scaled)


def extremes(scale, out, N: tl.constexpr):
    """Four times each scale; subnormal products would be zero on some CPUs."""
    ones = (tl.arange(0, 32)[:, None] == tl.arange(0, 32)[None, :]).to(tl.bfloat16)
    rows = tl.load(scale + tl.arange(0, 32))[:, None]
    product = tl.dot_scaled(ones * 4, rows, "bf16", ones, None, "bf16")
    tl.store(out + tl.arange(0, 32), tl.sum(product, 1))


def test_scales_at_the_ends():
    codes = np.resize(np.array([0, 1, 127, 252, 255], np.uint8), 32)
    want = 4 * np.exp2(codes.astype(np.float64) - 127)
    want[codes == 255] = np.nan
    for _, out in run_both(extremes, codes, np.zeros(32, np.float32), N=32):
        got = np.where(np.isnan(out), np.nan, out.astype(np.float64))
        # NaN times zero spreads within its row only.
        np.testing.assert_array_equal(got, want)
