"""Kernels that random ones were shrunk to, each of which once gave a wrong result."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import deuteron.language as tl
from deuteron.language.extra import libdevice
from tests.oracle.two_ways import both_ways, run_both


def one_of_a_volatile_tile(x, out):
    v = tl.load(x + tl.program_id(0) * 128 + tl.arange(0, 128), volatile=True)
    tl.store(out + tl.program_id(0), v[68])


def masked_volatile_tile(x, out):
    i = tl.arange(0, 128)
    v = tl.load(x + i, mask=i < 100, other=-1, volatile=True)
    tl.store(out + i, v + 1)


def test_volatile_tiles_are_read():
    x = np.arange(256, dtype=np.int32)
    for _, out in run_both(one_of_a_volatile_tile, x, np.zeros(2, np.int32), grid=(2,)):
        assert out.tolist() == [68, 196]
    for _, out in run_both(masked_volatile_tile, x, np.zeros(128, np.int32)):
        assert out.tolist() == [*range(1, 101), *[0] * 28]


# -- one array as two arguments -----------------------------------------------------------------
def shift(source, target, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(target + 9 + i, tl.load(source + 3 + i))


def transpose(source, target, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    tl.store(target + i + j * N, tl.load(source + i * N + j))


def read_late(source, target, N: tl.constexpr):
    i = tl.arange(0, N)
    before = tl.load(source + i)
    tl.store(target + i, -before)
    tl.store(target + N + i, before)


@pytest.mark.parametrize("dtype", [np.int32, np.uint16])
def test_an_array_as_source_and_target(dtype: type):
    x = np.arange(2048).astype(dtype)
    square = x[:1024].reshape(32, 32)
    wants = {
        shift: (1024, np.concatenate((x[:9], x[3:1027], x[1033:]))),
        transpose: (32, np.concatenate((square.T.ravel(), x[1024:]))),
        read_late: (1024, np.concatenate((-x[:1024], x[:1024]))),
    }
    for kernel, (length, want) in wants.items():
        for compiled in both_ways(kernel):
            given = x.copy()
            compiled[(1,)](given, given, N=length)
            np.testing.assert_array_equal(given, want)


def test_arrays_of_two_dtypes_at_one_address():
    for compiled in both_ways(shift):
        given = np.arange(2048, dtype=np.int32)
        want = np.concatenate((given[:9], given[3:1027], given[1033:]))
        compiled[(1,)](given, given.view(np.uint32), N=1024)
        np.testing.assert_array_equal(given, want)


# -- division -----------------------------------------------------------------------------------
def quotients(x, d, out, N: tl.constexpr):
    i, divisor = tl.arange(0, N), tl.load(d)
    tl.store(out + i, tl.div_rn(tl.load(x + i), divisor))
    tl.store(out + N + i, libdevice.div_rn(tl.load(x + i), divisor))
    tl.store(out + 2 * N + i, tl.fdiv(tl.load(x + i), divisor, True))


@pytest.mark.parametrize("divisor", [3.0, 0.7, 1e20, 1e-30, 7e-40])
def test_quotients_by_a_scalar_are_rounded_once(divisor: float):
    rng = np.random.default_rng(1)
    x = np.exp2(rng.uniform(-149, 20, 512)).astype(np.float32)
    d = np.array([divisor], np.float32)
    with np.errstate(all="ignore"):
        want = np.tile(x / d, 3)
    for _, _, out in run_both(quotients, x, d, np.zeros(3 * 512, np.float32), N=512):
        np.testing.assert_array_equal(out, want)


def sums_of_products(x, y, out):
    a = tl.load(x)
    tl.store(out, tl.fma(a, a, tl.load(y)))


def test_a_product_beyond_the_greatest_double_with_an_infinity():
    for start, want in ((-np.inf, -np.inf), (np.inf, np.inf), (np.nan, np.nan)):
        for _, _, out in run_both(
            sums_of_products, np.array([1e200]), np.array([start]), np.zeros(1)
        ):
            np.testing.assert_array_equal(out, [want])


def squares_and_more(x, out, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    tl.store(out + tl.arange(0, N), tl.fma(v, v, v))


def test_fma_of_narrow_floats_is_rounded_once():
    """x² + x is no tie of bfloat16, but a float32 that rounds to one."""
    torch = pytest.importorskip("torch")
    x = torch.tensor([9.31e12, 1.0, 3.0], dtype=torch.float64).to(torch.bfloat16)
    x = torch.cat([x, torch.arange(1, 254).to(torch.bfloat16) * 2.0**40])
    exact = [Fraction(v) ** 2 + Fraction(v) for v in x.double().tolist()]
    for compiled in both_ways(squares_and_more):
        out = torch.zeros_like(x)
        compiled[(1,)](x, out, N=256)
        for got, want in zip(out, exact, strict=True):
            neighbours = torch.nextafter(got, got * 0), torch.nextafter(got, got * torch.inf)
            error = abs(Fraction(float(got)) - want)
            assert all(error <= abs(Fraction(float(n)) - want) for n in neighbours)


# -- dots ---------------------------------------------------------------------------------------
def batch_of_products(
    x, y, out, B: tl.constexpr, M: tl.constexpr, K: tl.constexpr, N: tl.constexpr
):
    b, m = tl.arange(0, B)[:, None, None], tl.arange(0, M)
    k, n = tl.arange(0, K), tl.arange(0, N)[None, None, :]
    left = tl.load(x + b * M * K + m[None, :, None] * K + k[None, None, :])
    right = tl.load(y + b * K * N + k[None, :, None] * N + n)
    tl.store(out + b * M * N + m[None, :, None] * N + n, tl.dot(left, right))


@pytest.mark.parametrize("sizes", [(2, 17, 1, 1), (4, 1, 1, 1), (8, 1, 4, 1), (2, 1, 1, 9)])
def test_batches_of_matrices_that_are_one_row_or_column(sizes: tuple[int, int, int, int]):
    """Chunks of an operand must not run along the batch."""
    b, m, k, n = sizes
    rng = np.random.default_rng(2)
    x = rng.integers(-4, 5, b * m * k).astype(np.float16)
    y = rng.integers(-4, 5, b * k * n).astype(np.float16)
    want = x.reshape(b, m, k).astype(np.float32) @ y.reshape(b, k, n).astype(np.float32)
    numbers = dict(zip("BMKN", sizes, strict=True))
    for _, _, out in run_both(batch_of_products, x, y, np.zeros(b * m * n, np.float32), **numbers):
        np.testing.assert_array_equal(out, want.ravel())


def product_with_eight_bits(x, y, out, M: tl.constexpr, K: tl.constexpr, N: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    left = tl.load(x + m * K + k[None, :]).to(tl.bfloat16)
    codes = tl.load(y + n * K + k[:, None])
    right = codes.to(tl.float8e5, bitcast=True).to(tl.bfloat16) * 2
    tl.store(out + m * N + n, tl.dot(left, right))


@pytest.mark.parametrize("sizes", [(16, 32, 32), (4, 64, 16), (8, 16, 48)])
def test_operands_that_take_much_code_are_turned_around(sizes: tuple[int, int, int]):
    """The columns of the right operand lie along K, and are not just moved."""
    m, k, n = sizes
    rng = np.random.default_rng(3)
    x = rng.integers(-4, 5, (m, k)).astype(np.float32)
    y = rng.integers(0x38, 0x44, (n, k)).astype(np.uint8)
    wide = (y.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    numbers = dict(zip("MKN", sizes, strict=True))
    for _, _, out in run_both(
        product_with_eight_bits, x, y, np.zeros((m, n), np.float32), **numbers
    ):
        np.testing.assert_array_equal(out, x @ (2 * wide).T)
