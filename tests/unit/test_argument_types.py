"""Arguments of the narrow dtypes, as users pass them, compiled and interpreted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import deuteron as dn
import deuteron.language as tl

GRID = (1,)
FLOAT8 = (
    torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
)  # fmt: skip
INTERPRET = pytest.mark.parametrize("interpret", [False, True], ids=["compiled", "interpreted"])


def copy_kernel(x_ptr, wide_ptr, narrow_ptr, B: tl.constexpr):
    at = tl.arange(0, B)
    wide = tl.load(x_ptr + at).to(tl.float32)
    tl.store(wide_ptr + at, wide)
    tl.store(narrow_ptr + at, (wide * 2).to(narrow_ptr.dtype.element_ty))


def numbers_kernel(out_ptr, h: tl.float16, b: tl.bfloat16, d: tl.float64, text: tl.float16):
    tl.static_assert(h.dtype == tl.float16 and text.dtype == tl.float16)
    tl.static_assert(b.dtype == tl.bfloat16)
    tl.store(out_ptr, h)
    tl.store(out_ptr + 1, b)
    tl.store(out_ptr + 2, d)
    tl.store(out_ptr + 3, h + text)


numbers_kernel.__annotations__["text"] = "fp16"  # as text, and under its short name


def make(function, interpret: bool) -> dn.JITFunction:
    kernel = dn.jit(function)
    kernel.interpret = interpret
    return kernel


@INTERPRET
@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("start", [0, 3])
def test_float8_tensors(dtype: torch.dtype, start: int, interpret: bool) -> None:
    kernel = make(copy_kernel, interpret)
    x = torch.linspace(-7, 7, 80).to(dtype)[start : start + 64]
    wide, narrow = torch.zeros(64), torch.zeros(80, dtype=dtype)[start : start + 64]
    for _ in range(2):  # the second time by machine code
        wide.zero_()
        narrow.view(torch.uint8).zero_()
        kernel[GRID](x, wide, narrow, B=64)
        assert torch.equal(wide, x.float())
        assert torch.equal(narrow.float(), (x.float() * 2).to(dtype).float())


@INTERPRET
def test_float8_of_every_bit_pattern(interpret: bool) -> None:
    bits = torch.arange(256, dtype=torch.uint8)
    for dtype in FLOAT8:
        kernel = make(copy_kernel, interpret)
        x, wide = bits.view(dtype), torch.zeros(256)
        kernel[GRID](x, wide, torch.zeros(256), B=256)
        assert torch.equal(wide.nan_to_num(-1.5), x.float().nan_to_num(-1.5))


@INTERPRET
def test_annotated_narrow_floats(interpret: bool) -> None:
    kernel = make(numbers_kernel, interpret)
    out = np.zeros(4)
    for h in (1.1, np.float16(1.1), np.float32(1.1)):
        kernel[GRID](out, h, 1.1, 1.1, 2)
        half, brain = np.float16(1.1), torch.tensor(1.1, dtype=torch.bfloat16).item()
        assert list(out) == [half, brain, 1.1, half + np.float16(2)]


@INTERPRET
def test_narrow_floats_out_of_range(interpret: bool) -> None:
    kernel = make(numbers_kernel, interpret)
    out = np.zeros(4)
    kernel[GRID](out, 1e6, -1e39, 1.0, 0)
    assert list(out) == [np.inf, -np.inf, 1.0, np.inf]
