"""Single dots on the simulator: every type, instruction and way to lie in memory."""

from __future__ import annotations

import numpy as np
import pytest

from deuteron.dtypes import (
    DType,
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
    int8,
    int32,
    uint8,
)
from tests.cuda.dot_kernels import (
    Launch,
    batched_kernel,
    draw,
    numbers,
    product_kernel,
    simulate,
    stored,
)

# Besides rounding of the operands there is that of the sums.
_TOLERANCE = {float16: 2e-2, float32: 2e-5, float64: 1e-12, int32: 0}


def strides(rows: int, columns: int, transposed: bool) -> tuple[int, int]:
    return (1, rows) if transposed else (columns, 1)


def check(
    dtype: DType,
    shape: tuple[int, int, int],
    launch: Launch,
    *,
    a_transposed: bool = False,
    b_transposed: bool = False,
    out: DType = float32,
    precision: str | None = None,
    tolerance: float | None = None,
) -> str:
    """Compare a dot with NumPy; the PTX."""
    m, n, k = shape
    rng = np.random.default_rng(m + n + k)
    a, b = draw(rng, (m, k), dtype), draw(rng, (k, n), dtype)
    c = stored(np.full((m, n), 77.0), out)
    a_given = np.ascontiguousarray(a.T) if a_transposed else a
    b_given = np.ascontiguousarray(b.T) if b_transposed else b
    am, ak = strides(m, k, a_transposed)
    bk, bn = strides(k, n, b_transposed)
    arguments = {
        "a_ptr": (a_given, dtype),
        "b_ptr": (b_given, dtype),
        "c_ptr": (c, out),
        "stride_am": am,
        "stride_ak": ak,
        "stride_bk": bk,
        "stride_bn": bn,
    }
    constants = {"M": m, "N": n, "K": k, "PRECISION": precision, "OUT": out}
    image = simulate(product_kernel, arguments, constants, launch)
    expected = 2 + numbers(a, dtype) @ numbers(b, dtype)
    allowed = _TOLERANCE[out] if tolerance is None else tolerance
    np.testing.assert_allclose(numbers(c, out), expected, rtol=allowed, atol=allowed * np.sqrt(k))
    return image.obj.decode()


LAYOUTS = [(False, False), (True, False), (False, True), (True, True)]


@pytest.mark.parametrize(("a_transposed", "b_transposed"), LAYOUTS)
@pytest.mark.parametrize("dtype", [float16, bfloat16])
def test_mma_of_16_bits(dtype, a_transposed, b_transposed):
    ptx = check(dtype, (32, 64, 32), Launch(), a_transposed=a_transposed, b_transposed=b_transposed)
    name = "f16" if dtype is float16 else "bf16"
    assert f"mma.sync.aligned.m16n8k16.row.col.f32.{name}.{name}.f32" in ptx
    assert ptx.count("ldmatrix") == ptx.count(".x4")
    assert (".trans" in ptx) == (a_transposed or not b_transposed)


@pytest.mark.parametrize(("a_transposed", "b_transposed"), LAYOUTS)
@pytest.mark.parametrize("dtype", [float16, bfloat16])
def test_wgmma_of_16_bits(dtype, a_transposed, b_transposed):
    launch = Launch("sm_90a")
    ptx = check(dtype, (64, 64, 64), launch, a_transposed=a_transposed, b_transposed=b_transposed)
    name = "f16" if dtype is float16 else "bf16"
    assert ptx.count(f"wgmma.mma_async.sync.aligned.m64n64k16.f32.{name}.{name}") == 4
    assert "mma.sync" not in ptx


@pytest.mark.parametrize("shape", [(16, 8, 16), (16, 16, 128), (128, 8, 16), (64, 32, 256)])
@pytest.mark.parametrize("num_warps", [1, 2, 8])
def test_mma_of_many_shapes(shape, num_warps):
    assert "mma.sync" in check(float16, shape, Launch(num_warps=num_warps))


@pytest.mark.parametrize(
    ("shape", "num_warps"),
    [
        ((64, 16, 16), 4),
        ((64, 32, 32), 4),
        ((64, 8, 64), 4),
        ((128, 64, 32), 4),
        ((128, 256, 16), 8),
        ((256, 64, 128), 8),
        ((64, 256, 64), 8),
        ((64, 256, 64), 16),
        ((64, 128, 64), 16),
    ],
)
@pytest.mark.parametrize("b_transposed", [False, True])
def test_wgmma_of_many_shapes(shape, num_warps, b_transposed):
    launch = Launch("sm_90a", num_warps)
    ptx = check(bfloat16, shape, launch, b_transposed=b_transposed)
    # Rows of B that run along N must be 32 bytes, and a warpgroup's columns whole rows.
    narrow = shape == (64, 8, 64) or (shape == (64, 128, 64) and num_warps == 16)
    assert ("wgmma" in ptx) == (b_transposed or not narrow)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("a_transposed", "b_transposed"), LAYOUTS)
@pytest.mark.parametrize(("dtype", "name"), [(int8, "s8"), (uint8, "u8")])
def test_dots_of_bytes(arch, dtype, name, a_transposed, b_transposed):
    ptx = check(
        dtype,
        (64, 32, 64),
        Launch(arch),
        a_transposed=a_transposed,
        b_transposed=b_transposed,
        out=int32,
    )
    assert f"s32.{name}.{name}" in ptx
    assert ("wgmma" in ptx) == (arch == "sm_90a")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a", "sm_100a", "sm_120"])
@pytest.mark.parametrize(("dtype", "name"), [(float8e4nv, "e4m3"), (float8e5, "e5m2")])
def test_dots_of_8_bit_floats(arch, dtype, name):
    ptx = check(dtype, (64, 32, 64), Launch(arch), b_transposed=True)
    if arch in ("sm_80", "sm_90"):
        assert "m16n8k16.row.col.f32.f16.f16.f32" in ptx
    elif arch == "sm_90a":
        assert f"wgmma.mma_async.sync.aligned.m64n32k32.f32.{name}.{name}" in ptx
    else:
        assert f"m16n8k32.row.col.f32.{name}.{name}.f32" in ptx


@pytest.mark.parametrize("b_transposed", [False, True])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("precision", "tolerance"),
    [(None, 5e-3), ("tf32", 5e-3), ("tf32x3", 1e-5), ("ieee", 2e-6), ("bf16x6", 2e-6)],
)
def test_precisions_of_float32(arch, precision, tolerance, b_transposed):
    ptx = check(
        float32,
        (64, 32, 32),
        Launch(arch),
        precision=precision,
        tolerance=tolerance,
        b_transposed=b_transposed,
    )
    assert ("tf32" in ptx) == (precision not in ("ieee", "bf16x6"))


def test_tf32x3_takes_three_products():
    once = check(float32, (64, 32, 32), Launch(), tolerance=5e-3)
    split = check(float32, (64, 32, 32), Launch(), precision="tf32x3", tolerance=1e-5)
    assert split.count("mma.sync") == 3 * once.count("mma.sync")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_accumulators_of_float16(arch):
    ptx = check(float16, (64, 32, 32), Launch(arch), out=float16)
    assert ".f16.f16.f16" in ptx


@pytest.mark.parametrize("dtype", [float64, float32, float16, bfloat16, int8])
@pytest.mark.parametrize("shape", [(8, 8, 16), (1, 64, 32), (4, 4, 4), (16, 16, 8)])
@pytest.mark.parametrize(("a_transposed", "b_transposed"), [(False, False), (True, True)])
def test_dots_by_fma(dtype, shape, a_transposed, b_transposed):
    out = {float64: float64, int8: int32}.get(dtype, float32)
    ptx = check(
        dtype,
        shape,
        Launch(),
        a_transposed=a_transposed,
        b_transposed=b_transposed,
        out=out,
        precision="ieee",
    )
    assert "mma" not in ptx


@pytest.mark.parametrize(("a_transposed", "b_transposed"), LAYOUTS)
def test_long_dots_by_fma_loop_along_k(a_transposed, b_transposed):
    ptx = check(
        float32,
        (64, 64, 256),
        Launch(),
        a_transposed=a_transposed,
        b_transposed=b_transposed,
        precision="ieee",
    )
    assert ptx.count("fma.rn.f32") < 64 * 64 * 256 // 128


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", [float16, float32])
def test_batched_dots(arch, dtype):
    batch, m, n, k = 4, 16, 32, 16
    rng = np.random.default_rng(0)
    a, b = draw(rng, (batch, m, k), dtype), draw(rng, (batch, n, k), dtype)
    c = np.zeros((batch, m, n), np.float32)
    arguments = {"a_ptr": (a, dtype), "b_ptr": (b, dtype), "c_ptr": (c, float32)}
    constants = {"B": batch, "M": m, "N": n, "K": k}
    simulate(batched_kernel, arguments, constants, Launch(arch))
    expected = numbers(a, dtype) @ numbers(b, dtype).swapaxes(1, 2)
    np.testing.assert_allclose(c, expected, rtol=5e-3, atol=1e-2)
