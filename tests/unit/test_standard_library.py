"""What is written in the kernel language itself, compiled and run on the interpreter."""

import numpy as np
import pytest

import deuteron.language as tl
from deuteron import dtypes as dt
from deuteron.backends.interp import run
from deuteron.errors import CompilationError
from deuteron.ir import Pointer, Type, verify
from deuteron.lang.codegen import Argument, lower_kernel
from deuteron.lang.jit import jit
from deuteron.language.extra import libdevice


def launch(kernel, *arrays, grid=1, **constants):
    """Compile a kernel for NumPy arrays and constants, and run it on the interpreter."""
    names = list(kernel.fn.__code__.co_varnames[: len(arrays)])
    arguments = {
        name: Argument(Type(Pointer(dt.BY_ARRAY_NAME[array.dtype.name])))
        for name, array in zip(names, arrays, strict=True)
    }
    function = lower_kernel(kernel, arguments | constants)
    verify(function)
    run(function, arrays, (grid, 1, 1))


# -- reductions ----------------------------------------------------------------------------
@jit
def sum_kernel(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, RESULT: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    total = tl.sum(tl.load(x_ptr + at), axis=1)
    tl.static_assert(total.dtype == RESULT)
    tl.store(out_ptr + tl.arange(0, M), total)


@pytest.mark.parametrize(
    ("dtype", "result"),
    [
        ("bool", "uint32"), ("int8", "int32"), ("int16", "int32"), ("int32", "int32"),
        ("int64", "int64"), ("uint8", "uint32"), ("uint16", "uint32"), ("uint64", "uint64"),
        ("float16", "float16"), ("float32", "float32"), ("float64", "float64"),
    ],
)  # fmt: skip
def test_sum_widens_narrow_integers(dtype, result):
    rng = np.random.default_rng(0)
    x = (100 * rng.random((4, 64))).astype(dtype)
    out = np.zeros(4, result)
    launch(sum_kernel, x, out, M=4, N=64, RESULT=dt.BY_NAME[result])
    np.testing.assert_allclose(out, x.sum(axis=1, dtype=np.float64), rtol=1e-3)


def test_a_sum_of_float16_does_not_round_at_every_step():
    x = np.ones((1, 4096), np.float16)
    x[0, 0] = 2048  # from here on float16 cannot count by ones
    out = np.zeros(1, np.float32)
    launch(sum_kernel, x, out, M=1, N=4096, RESULT=dt.float16)
    assert out[0] == np.float16(2048 + 4095)


@jit
def extremes_kernel(
    x_ptr, out_ptr, index_ptr, AXIS: tl.constexpr, M: tl.constexpr, N: tl.constexpr
):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    greatest, first = tl.max(x, AXIS, return_indices=True)
    least, last = tl.min(x, AXIS, return_indices=True)
    K: tl.constexpr = greatest.shape[0]
    k = tl.arange(0, K)
    tl.store(out_ptr + k, greatest)
    tl.store(out_ptr + K + k, least)
    tl.store(out_ptr + 2 * K + k, x.max(AXIS))
    tl.store(out_ptr + 3 * K + k, x.min(AXIS))
    tl.store(index_ptr + k, first)
    tl.store(index_ptr + K + k, last)
    tl.store(index_ptr + 2 * K + k, tl.argmax(x, AXIS))
    tl.store(index_ptr + 3 * K + k, tl.argmin(x, AXIS))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_extremes_and_the_first_of_their_places(axis):
    # Few different values, so that every row and column has ties.
    x = np.random.default_rng(1).integers(-2, 3, (8, 32)).astype(np.float32)
    size = 32 if axis == 0 else 8
    out, index = np.zeros((4, size), np.float32), np.zeros((4, size), np.int32)
    launch(extremes_kernel, x, out, index, AXIS=axis, M=8, N=32)
    np.testing.assert_array_equal(out[::2], [x.max(axis)] * 2)
    np.testing.assert_array_equal(out[1::2], [x.min(axis)] * 2)
    np.testing.assert_array_equal(index[::2], [x.argmax(axis)] * 2)
    np.testing.assert_array_equal(index[1::2], [x.argmin(axis)] * 2)


@jit
def extreme_types_kernel(x_ptr, PLAIN: tl.constexpr, INDEXED: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, 8))
    tl.static_assert(tl.max(x, 0).dtype == PLAIN)
    tl.static_assert(tl.min(x).dtype == PLAIN)
    value, index = tl.min(x, 0, return_indices=True, return_indices_tie_break_left=False)
    tl.static_assert(value.dtype == INDEXED)
    tl.static_assert(index.dtype == tl.int32)
    tl.static_assert(tl.max(x, 0, keep_dims=True).shape == (1,))


@pytest.mark.parametrize(
    ("dtype", "plain", "indexed"),
    [
        (dt.int8, dt.int32, dt.int8), (dt.uint16, dt.int32, dt.uint16),
        (dt.uint32, dt.uint32, dt.uint32), (dt.int64, dt.int64, dt.int64),
        (dt.float16, dt.float32, dt.float16), (dt.bfloat16, dt.float32, dt.float32),
        (dt.float64, dt.float64, dt.float64),
    ],
)  # fmt: skip
def test_the_dtypes_of_extremes(dtype, plain, indexed):
    argument = Argument(Type(Pointer(dtype)))
    constants = {"PLAIN": plain, "INDEXED": indexed}
    verify(lower_kernel(extreme_types_kernel, {"x_ptr": argument} | constants))


@jit
def all_kernel(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N)).reshape(2, N // 2)
    tl.store(out_ptr, tl.max(x))
    value, index = tl.max(x, return_indices=True)
    tl.store(out_ptr + 1, value)
    tl.store(out_ptr + 2, index)
    tl.store(out_ptr + 3, tl.sum(x, keep_dims=True).item())


def test_a_fold_over_all_axes_and_nan_loses():
    x = np.arange(16, dtype=np.float32)
    x[11], x[3] = 100, np.nan
    out = np.zeros(4, np.float32)
    launch(all_kernel, x, out, N=16)
    np.testing.assert_array_equal(out, [100, 100, 11, np.nan])


@jit
def bits_kernel(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr, tl.xor_sum(x, 0))
    tl.store(out_ptr + 1, x.reduce_or(0))


def test_folds_of_bits():
    x = np.random.default_rng(2).integers(0, 1 << 31, 64).astype(np.uint32)
    out = np.zeros(2, np.uint32)
    launch(bits_kernel, x, out, N=64)
    assert list(out) == [np.bitwise_xor.reduce(x), np.bitwise_or.reduce(x)]


@jit
def scans_kernel(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.cumsum(x, 0))
    tl.store(out_ptr + M * N + at, tl.cumsum(x, 1, reverse=True))
    tl.store(out_ptr + 2 * M * N + at, x.cumprod(1))
    tl.static_assert(tl.cumsum(x.to(tl.int8)).dtype == tl.int32)
    tl.static_assert(tl.cumsum(x.to(tl.bfloat16)).dtype == tl.float32)
    tl.static_assert(tl.cumprod(x.to(tl.float16)).dtype == tl.float16)


def test_scans():
    x = np.random.default_rng(3).uniform(0.5, 1.5, (4, 16)).astype(np.float32)
    out = np.zeros((3, 4, 16), np.float32)
    launch(scans_kernel, x, out, M=4, N=16)
    np.testing.assert_allclose(out[0], x.cumsum(0), rtol=1e-6)
    np.testing.assert_allclose(out[1], x[:, ::-1].cumsum(1)[:, ::-1], rtol=1e-6)
    np.testing.assert_allclose(out[2], x.cumprod(1), rtol=1e-6)


# -- elementwise ---------------------------------------------------------------------------
@jit
def softmax_kernel(x_ptr, out_ptr, AXIS: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.softmax(x, AXIS))
    tl.store(out_ptr + M * N + at, tl.sigmoid(x))


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_softmax_and_sigmoid(axis):
    x = 8 * np.random.default_rng(4).standard_normal((8, 16)).astype(np.float32)
    out = np.zeros((2, 8, 16), np.float32)
    launch(softmax_kernel, x, out, AXIS=axis, M=8, N=16)
    powers = np.exp(x.astype(np.float64) - x.max(axis or 0, keepdims=True))
    np.testing.assert_allclose(out[0], powers / powers.sum(axis or 0, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(out[1], 1 / (1 + np.exp(-x.astype(np.float64))), rtol=1e-5)


@jit
def swizzle_kernel(out_ptr, M: tl.constexpr, N: tl.constexpr, GROUP: tl.constexpr):
    i = tl.arange(0, M)[:, None]
    j = tl.arange(0, N)[None, :]
    new_i, new_j = tl.swizzle2d(i, j, M, N, GROUP)
    tl.store(out_ptr + i * N + j, new_i * N + new_j)


@pytest.mark.parametrize(("rows", "columns", "group"), [(4, 4, 2), (8, 4, 4), (8, 2, 8)])
def test_swizzle2d_walks_groups_by_columns(rows, columns, group):
    out = np.zeros((rows, columns), np.int32)
    launch(swizzle_kernel, out, M=rows, N=columns, GROUP=group)
    walk = [
        (first + row) * columns + column
        for first in range(0, rows, group)
        for column in range(columns)
        for row in range(group)
    ]
    assert list(out.ravel()) == walk


@jit
def cdiv_kernel(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr + tl.arange(0, N), tl.cdiv(x, 8))
    BLOCKS: tl.constexpr = tl.cdiv(N * 9, 8 * 9 - 1)
    tl.static_assert(BLOCKS == 3)


def test_cdiv_of_tensors_and_constants():
    x = np.arange(16, dtype=np.int32)
    out = np.zeros(16, np.int32)
    launch(cdiv_kernel, x, out, N=16)
    np.testing.assert_array_equal(out, -(-x // 8))


@jit
def reorder_kernel(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + tl.arange(0, 2 * N), tl.interleave(x, -x))
    even, odd = tl.join(x, -x).split()
    tl.store(out_ptr + 2 * N + tl.arange(0, 2 * N), tl.cat(even, odd))
    square = x.reshape(N // 4, 4)
    tl.store(out_ptr + 4 * N + at, square.T.ravel())
    tl.store(out_ptr + 5 * N + at, tl.permute(square[None, :, :], 2, 0, 1).reshape([N]))


def test_reordering():
    x = np.arange(1, 17, dtype=np.int32)
    out = np.zeros((6, 16), np.int32)
    launch(reorder_kernel, x, out, N=16)
    np.testing.assert_array_equal(out[:2].ravel(), np.stack([x, -x], 1).ravel())
    np.testing.assert_array_equal(out[2:4].ravel(), np.concatenate([x, -x]))
    np.testing.assert_array_equal(out[4], x.reshape(4, 4).T.ravel())
    np.testing.assert_array_equal(out[5], x.reshape(4, 4).T.ravel())


@jit
def clamp_kernel(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.clamp(x, -1.0, 1.0))
    tl.store(out_ptr + N + at, tl.clamp(x, -1.0, 1.0, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out_ptr + 2 * N + at, tl.maximum(x, 0.0))
    tl.store(out_ptr + 3 * N + at, tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL))


def test_nan_in_extremes():
    x = np.array([-2, -0.5, np.nan, np.inf, 0.25, -np.inf, 3, 0], np.float32)
    out = np.zeros((4, 8), np.float32)
    launch(clamp_kernel, x, out, N=8)
    known = ~np.isnan(x)
    np.testing.assert_array_equal(out[0][known], np.clip(x, -1, 1)[known])
    assert -1 <= out[0][2] <= 1
    np.testing.assert_array_equal(out[1], np.clip(x, -1, 1))
    np.testing.assert_array_equal(out[2], np.fmax(x, 0))
    np.testing.assert_array_equal(out[3], np.maximum(x, 0))


# -- libdevice -----------------------------------------------------------------------------
@jit
def libdevice_kernel(x_ptr, y_ptr, out_ptr, flag_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(out_ptr + at, libdevice.fdim(x, y))
    tl.store(out_ptr + N + at, libdevice.saturatef(x))
    tl.store(out_ptr + 2 * N + at, libdevice.pow(libdevice.abs(x), y))
    tl.store(out_ptr + 3 * N + at, libdevice.int_as_float(libdevice.float_as_int(x)))
    tl.store(out_ptr + 4 * N + at, libdevice.float2int_rn(x))
    tl.store(out_ptr + 5 * N + at, libdevice.llround(x))
    tl.store(flag_ptr + at, libdevice.isnan(x))
    tl.store(flag_ptr + N + at, libdevice.isinf(x))
    tl.store(flag_ptr + 2 * N + at, libdevice.isfinited(x))
    tl.store(flag_ptr + 3 * N + at, libdevice.signbit(x))


def test_libdevice():
    x = np.array([0.5, -1.5, 2.5, -0.0, np.nan, np.inf, -np.inf, 3.5], np.float32)
    y = np.array([1.0, -2.0, 2.0, 0.0, 1.0, np.inf, 0.0, 0.5], np.float32)
    out, flags = np.zeros((6, 8), np.float32), np.zeros((4, 8), np.bool_)
    launch(libdevice_kernel, x, y, out, flags, N=8)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(out[0], np.where(x <= y, 0, x - y))
        np.testing.assert_allclose(out[2], np.power(np.abs(x), y), rtol=1e-6)
    np.testing.assert_array_equal(out[1], [0.5, 0, 1, 0, 0, 1, 0, 1])
    np.testing.assert_array_equal(out[3], x)
    finite = np.isfinite(x)
    np.testing.assert_array_equal(out[4][finite], [0, -2, 2, 0, 4])
    np.testing.assert_array_equal(out[5][finite], [1, -2, 3, 0, 4])
    np.testing.assert_array_equal(flags, [np.isnan(x), np.isinf(x), finite, np.signbit(x)])


# -- errors --------------------------------------------------------------------------------
@jit
def narrow_dot_kernel(x_ptr):
    a = tl.zeros((16, 32), tl.float32)
    tl.store(x_ptr, tl.sum(tl.dot(a, a)))


def test_an_error_shows_the_users_line():
    with pytest.raises(CompilationError) as caught:
        launch(narrow_dot_kernel, np.zeros(1, np.float32))
    text = str(caught.value)
    assert "the shapes of dot do not fit" in text
    assert "(16, 32) @ (16, 32)" in text
    assert "tl.dot(a, a)" in text
    assert "test_standard_library.py:" in text


@jit
def bad_fold_kernel(x_ptr):
    tl.store(x_ptr, tl.xor_sum(tl.load(x_ptr + tl.arange(0, 4)), 0))


def test_an_error_inside_the_library_is_the_callers():
    with pytest.raises(CompilationError) as caught:
        launch(bad_fold_kernel, np.zeros(4, np.float32))
    text = str(caught.value)
    assert "`^` got invalid operands of type" in text
    assert "tl.xor_sum(tl.load" in text
    assert text.startswith(__file__)
    assert "called from" not in text
