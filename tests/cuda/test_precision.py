"""How precise float arithmetic is on a GPU: fast, rounded as IEEE 754 asks, or fused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any, no_type_check

import numpy as np
import pytest

import deuteron as dn
import deuteron.language as tl
from deuteron.dtypes import DType, bfloat16, float16, float32, float64
from deuteron.language.extra import libdevice
from tests.cuda.lowering import image_of, lower, ptx_of
from tests.cuda.simt import run_kernel
from tests.cuda.simt_memory import GlobalMemory

N = 1024


@dn.jit
@no_type_check
def quotient(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.load(x_ptr + at) / tl.load(y_ptr + at))


@dn.jit
@no_type_check
def root(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.sqrt(tl.load(x_ptr + at)))


@dn.jit
@no_type_check
def power(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.exp(tl.load(x_ptr + at)))


@dn.jit
@no_type_check
def exact_forms(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    total = tl.sqrt_rn(tl.div_rn(x, y)) + libdevice.rcp_rn(y) + tl.fdiv(y, x, ieee_rounding=True)
    tl.store(out_ptr + at, total)


@dn.jit
@no_type_check
def multiply_add(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(out_ptr + at, x * y + 1.0)


@dn.jit
@no_type_check
def rounded_product(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(out_ptr + at, libdevice.mul_rn(x, y) + 1.0)


@dn.jit
@no_type_check
def rounded_up(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(out_ptr + at, libdevice.add_ru(x, y))


@dn.jit
@no_type_check
def quotient_rounded_up(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(out_ptr + at, libdevice.div_ru(x, y))


def arithmetic(kernel: dn.JITFunction, dtype: DType, **options: Any) -> Counter[str]:
    """How often the PTX of a kernel has each float instruction."""
    function = lower(kernel, dtype, dtype, dtype, N=N, **options)
    ptx = ptx_of(function, "sm_90a")
    pattern = r"^\s+((?:add|sub|mul|fma|div|sqrt|rcp)\.[\w.]*f(?:32|64))\b"
    return Counter(re.findall(pattern, ptx, re.MULTILINE))


# -- which instructions ----------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [float16, bfloat16, float32])
def test_division_and_roots_are_fast(dtype: DType) -> None:
    assert "rcp.approx.ftz.f32" in arithmetic(quotient, dtype)
    assert "sqrt.approx.f32" in arithmetic(root, dtype)
    assert not {"div.rn.f32", "sqrt.rn.f32"} & {*arithmetic(quotient, dtype)}


def test_doubles_are_rounded_to_nearest() -> None:
    assert arithmetic(quotient, float64)["div.rn.f64"] == N // 128
    assert arithmetic(root, float64)["sqrt.rn.f64"] == N // 128


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32])
def test_what_is_asked_to_be_rounded_to_nearest(dtype: DType) -> None:
    found = arithmetic(exact_forms, dtype)
    divisions = found["div.rn.f32"] + found["rcp.rn.f32"]
    assert (divisions, found["sqrt.rn.f32"]) == (3 * N // 128, N // 128)
    assert not any("approx" in name for name in found)


@pytest.mark.parametrize("dtype", [float32, float64])
def test_products_are_fused_with_sums(dtype: DType) -> None:
    short = "f32" if dtype is float32 else "f64"
    fused, apart = f"fma.rn.{short}", {f"mul.rn.{short}", f"add.rn.{short}"}
    assert {*arithmetic(multiply_add, dtype)} == {fused}
    # An instruction that says how it rounds is not fused by ptxas either.
    assert {*arithmetic(multiply_add, dtype, enable_fp_fusion=False)} == apart
    assert {*arithmetic(rounded_product, dtype)} == {f"mul.rn.{short}", f"add.{short}"}


def test_library_code_is_neither_fused_nor_approximate() -> None:
    assert not any("fma" in name for name in arithmetic(rounded_up, float64))
    found = arithmetic(quotient_rounded_up, float32)
    assert found["div.rn.f32"] == N // 128
    assert not any("approx" in name for name in found)


# -- how far off, where the special function unit is exact ------------------------------------
def ulps_off(
    kernel: dn.JITFunction, exact: Callable[..., Any], x: np.ndarray, y: np.ndarray
) -> float:
    """The largest distance from the exact result, in units of its last place."""
    out, memory = np.empty_like(x), GlobalMemory()
    image = image_of(lower(kernel, float32, float32, float32, N=N), "sm_90a")
    addresses = [memory.add(a) for a in (x, y, out)]
    run_kernel(image.llvm, (1, 1, 1), 128, 1 << 14, memory, addresses)
    with np.errstate(all="ignore"):
        want = exact(x.astype(np.float64), y.astype(np.float64))
        rounded = want.astype(np.float32)
        place = np.spacing(np.abs(rounded)).astype(np.float64)
        distance = np.abs(out.astype(np.float64) - want) / place
    settled = ~np.isfinite(rounded)
    np.testing.assert_array_equal(out[settled], rounded[settled])
    return float(distance[~settled].max())


def floats(seed: int) -> np.ndarray:
    """Floats of every exponent and sign, and the special ones."""
    bits = np.random.default_rng(seed).integers(0, 1 << 32, N, np.uint64).astype(np.uint32)
    ends = np.array([0.0, -0.0, 1.0, 2.0**-149, 3e38, np.inf, -np.inf, np.nan], np.float32)
    bits[:64] = np.repeat(ends, 8).view(np.uint32) if seed else np.tile(ends, 8).view(np.uint32)
    numbers = bits.view(np.float32)
    numbers[np.isnan(numbers)] = np.nan  # quiet ones
    return numbers


def test_quotients_over_the_whole_range() -> None:
    for seed in (0, 2, 4):
        x, y = floats(seed), floats(seed + 1)
        assert ulps_off(quotient, np.divide, x, y) <= 2
        # Quotients near 1, of operands near both ends of the range.
        assert ulps_off(quotient, np.divide, x, np.roll(x, 1) * np.float32(0.75)) <= 2


def test_exponentials_over_the_whole_range() -> None:
    x = np.linspace(-105, 89, N).astype(np.float32)
    assert ulps_off(power, lambda x, _: np.exp(x), x, x) <= 2
    assert ulps_off(power, lambda x, _: np.exp(x), floats(1), x) <= 2
