"""Kernels written in the language must leave the same memory compiled and on the interpreter.

The interpreter runs the IR as the front end gives it, so that passes are tested too.  Each kernel
tries a way to go wrong: variables that read each other, loads and stores of the same places in an
order that matters, dots whose buffers are shared, masks that look simpler than they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

import deuteron as dn
import deuteron.language as tl
from deuteron.lang.frontend import PythonFrontend
from deuteron.runtime.jit import JITFunction

TOLERANCE = 2e-3
LENGTH = 2048


@pytest.fixture(autouse=True)
def _compile_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEUTERON_DISABLE_CACHE", "1")


def floats(count: int = LENGTH, seed: int = 0, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(count).astype(dtype)


def whole(count: int, low: int, high: int, dtype: Any = np.int32) -> Any:
    return np.random.default_rng(count).integers(low, high, count).astype(dtype)


@cache
def both_ways(function: Callable[..., Any]) -> tuple[JITFunction, JITFunction]:
    """A kernel on the interpreter and compiled."""
    return JITFunction(function, PythonFrontend(), interpret=True), dn.jit(function)


def assert_same(
    function: Callable[..., Any],
    args: Sequence[Any],
    grid: tuple[int, ...] = (1,),
    **constants: Any,
) -> None:
    """Run a kernel both ways on copies of the arguments, and compare all arrays afterwards."""

    def copies() -> list[Any]:
        return [a.copy() if isinstance(a, np.ndarray) else a for a in args]

    want, got = copies(), copies()
    interpreted, compiled = both_ways(function)
    interpreted[grid](*want, **constants)
    compiled[grid](*got, **constants)
    for name, before, left, right in zip(
        function.__code__.co_varnames, args, want, got, strict=False
    ):
        if not isinstance(before, np.ndarray):
            continue
        if before.dtype.kind == "f":
            left, right = left.astype(np.float64), right.astype(np.float64)
            np.testing.assert_allclose(right, left, TOLERANCE, TOLERANCE, err_msg=name)
        else:
            np.testing.assert_array_equal(right, left, err_msg=name)


# -- variables of loops ------------------------------------------------------------------------
def transposed_itself(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    places = i[:, None] * B + i[None, :]
    a = tl.load(x + places)
    for _ in range(n):
        a = tl.trans(a) + 1.0
    tl.store(out + places, a)


def read_each_other(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    places = i[:, None] * B + i[None, :]
    a = tl.load(x + places)
    b = tl.load(x + places + 7)
    row = tl.load(x + i)
    column = tl.load(x + B + i)
    for _ in range(n):
        a, b = tl.trans(b) * 0.5, tl.trans(a) + b
        row, column = column, row + column * 0.5
        a, row, column = (
            a * 0.5 + row[:, None] * column[None, :] * 0.01,
            tl.sum(a, 1) * 0.1 + column * 0.1,
            row * 0.3 + tl.sum(a, 0) * 0.1,
        )
    tl.store(out + places, a + b + row[:, None] * column[None, :])


def changed_in_one_branch(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(x + B + i)
    turns = 0
    while (tl.sum(tl.abs(a)) > 1.0) & (turns < n):
        if turns % 2 == 0:
            a = a + b
        elif turns == 3:
            a, b = b, a
        else:
            b = tl.cumsum(a, 0, reverse=True) * 0.1
            if turns > 4:
                a = b - a * 0.2
        turns += 1
    tl.store(out + i, a)
    tl.store(out + B + i, b + turns)


# -- order in memory ---------------------------------------------------------------------------
def stored_where_it_was_loaded(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.load(out + i)
    for _ in range(n):
        loaded = tl.load(x + i)
        tl.store(x + i, acc)
        acc = loaded
    tl.store(out + i, acc)


def yielded_by_empty_branches(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    left = tl.load(x + i)
    right = tl.load(x + B + i)
    tl.store(x + i, right * 2)
    tl.store(x + B + i, right * 3)
    if n > 3:
        chosen = left
    else:
        chosen = right
    tl.store(out + i, chosen)


def overlapping_stores(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i))
    tl.store(out + i + n, tl.load(x + B + i))


def moving_pointers(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    scalar = x
    tile = x + i
    uneven = tl.load(x + i) > 0
    walked = x + i
    for k in range(n):
        v = tl.load(scalar + i)
        w = tl.load(tile + 1)
        tl.store(tile, v + w)
        tl.store(tile + 1, v - w)
        tl.store(x + k * 3 + i, tl.load(walked) * 0.5)
        tl.store(out + k * B + i, v + tl.load(scalar + i))
        scalar += 3
        tile += 1
        walked += uneven.to(tl.int32)


def transposed_in_place(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    places = i[:, None] * B + i[None, :]
    for _ in range(n):
        v = tl.trans(tl.load(x + places))
        tl.store(x + places, v * 0.5 + tl.sin(tl.exp(v) * 0.01))
        tl.store(out + places, v)


# -- dots --------------------------------------------------------------------------------------
def dots_that_share(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    places = i[:, None] * B + i[None, :]
    a = tl.load(x + places) * 0.1
    b = tl.load(x + 9 + places) * 0.1
    acc = tl.zeros((B, B), tl.float32)
    kept = acc
    sometimes = acc
    turned = b
    for k in range(n):
        first = tl.dot(a, b, acc)
        acc = tl.dot(b, a, first)
        kept = first
        if k == 1:
            sometimes = first
        turned = tl.dot(a, b, tl.trans(turned * a))
    left, right = tl.split(tl.join(a, b))
    tl.store(out + places, acc + tl.dot(a, b, left) + right)
    tl.store(out + B * B + places, kept + tl.trans(sometimes) + turned)


def dots_of_other_lengths(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    few = tl.arange(0, 2)
    many = tl.arange(0, 8 * B)
    a = tl.load(x + i[:, None] * 8 * B + many[None, :]) * 0.1
    b = tl.load(x + many[:, None] * B + i[None, :]) * 0.1
    c = tl.load(x + i[:, None] * 2 + few[None, :])
    acc = tl.zeros((B, B), tl.float32)
    for _ in range(n):
        acc = tl.dot(c, tl.trans(c), acc)
        acc = tl.dot(a, b, acc) * 0.5
    tl.store(out + i[:, None] * B + i[None, :], acc)


def narrow_accumulators(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    few = tl.arange(0, 4)
    a = tl.load(x + i[:, None] * B + i[None, :])
    b = tl.load(x + i[:, None] * 4 + few[None, :])
    acc = tl.dot(a, b, tl.reshape(tl.load(x + tl.arange(0, B * 4)), (B, 4)))
    for _ in range(n):
        acc = tl.dot(a, b, acc) * 0.1
    tl.store(out + i[:, None] * 4 + few[None, :], acc)
    pairs = tl.join(tl.load(x + i), tl.load(x + B + i))
    left, right = tl.split(tl.dot(a, pairs, pairs))
    tl.store(out + B * 4 + i, left)
    tl.store(out + B * 5 + i, right)


def one_operand_in_two_layouts(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    few = tl.arange(0, 4)
    narrow = i[:, None] * 4 + few[None, :]
    a = tl.load(x + i[:, None] * B + i[None, :]).to(tl.bfloat16)
    b = tl.load(x + narrow).to(tl.bfloat16)
    tl.store(out + i[:, None] * B + i[None, :], tl.dot(a, tl.trans(a)))
    tl.store(out + B * B + narrow, tl.dot(a, b))


# -- folds -------------------------------------------------------------------------------------
@dn.jit
def recurrence(a_scale, a, b_scale, b):
    return a_scale * b_scale, a * b_scale + b


@dn.jit
def moments(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    count = count_a + count_b
    delta = mean_b - mean_a
    share = tl.where(count == 0, 0.0, count_b / count)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * count_a * share, count


def folds_that_feed_each_other(x, out, n, B: tl.constexpr, AXIS: tl.constexpr):
    i = tl.arange(0, B)
    places = i[:, None] * 16 + tl.arange(0, 16)[None, :]
    a = tl.load(x + places)
    scale = a * 0.3
    for _ in range(n):
        scale, summed = tl.associative_scan((scale, a), AXIS, recurrence)
        mean, m2, count = tl.reduce((a, a * 0.0, a * 0 + 1), AXIS, moments)
        spread = mean + m2 / count + tl.argmax(summed, AXIS) + tl.min(scale, AXIS)
        if AXIS == 0:
            a = summed * 0.1 + tl.cumsum(spread, 0)[None, :] * 0.01
        else:
            a = summed * 0.1 + tl.cumsum(spread, 0)[:, None] * 0.01
    tl.store(out + places, a)


# -- masks and offsets -------------------------------------------------------------------------
def masks_of_every_form(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    inside = i < n
    within = i < 1024
    a = tl.load(x + i, mask=inside, other=1.0)
    middle = (i >= 3) & (i < n - 2)
    ends = ((i < 3) | (i >= n - 3)) & within
    tl.store(out + i, a * 2, mask=inside)
    tl.store(out + 1024 + i, tl.load(y + i, mask=middle, other=7.0), mask=middle)
    tl.store(out + 2048 + i, a + 3, mask=~inside & within)
    tl.store(out + 3072 + i, tl.load(x + i, mask=ends, other=-1.0), mask=ends)
    data = tl.load(y + i, mask=inside, other=0.0)
    tl.store(out + 4096 + i, tl.load(x + n - 1 - i, mask=(data > 0) & inside), mask=data > 0)
    tl.store(out + 5120 + n - 1 - i, a, mask=inside)
    tl.store(out + 6144 + i * 3, a + 1, mask=(i * 3 < n) & inside)
    tl.store(out + 7168 + i, tl.load(x + i // 8) + tl.load(x + i % 7), mask=n > i)
    # Unsigned wrap-around tests both ends at once.
    tl.store(out + 8192 + i, a, mask=((i.to(tl.uint32) - 5) < n) & within)
    tl.store(out + 9216 + i, a, mask=(20 - i > 0) & within)


def offsets_across_zero(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    middle = x + 512
    tl.store(out + i, tl.load(middle + (i - 16) // 16))
    tl.store(out + B + i, tl.load(middle + (i - n) % 16))
    tl.store(out + 2 * B + i, tl.load(middle + (i + B).to(tl.int8)))
    tl.store(out + 3 * B + i, tl.load(middle + (n - 1 - i) * 2))
    tl.store(out + 4 * B + i, tl.load(middle + ((i * 16) // 16) % 16))


def wrapped_rows(x, y, out, m, n, stride_m, stride_n, A: tl.constexpr, B: tl.constexpr):
    rows = tl.program_id(0) * A + tl.arange(0, A)
    columns = tl.program_id(1) * B + tl.arange(0, B)
    wrapped = (rows % m)[:, None] * stride_m + (columns % n)[None, :] * stride_n
    places = rows[:, None] * n + columns[None, :]
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    below = inside & (rows[:, None] > columns[None, :])
    tl.store(out + places, tl.load(x + wrapped), mask=inside)
    tl.store(y + columns[None, :] * m + rows[:, None], tl.load(x + wrapped) * 2, mask=below)


# -- dtypes and atomics ------------------------------------------------------------------------
def mixed_dtypes(small, byte, long, half, double, flag, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    inside = i < n
    a = tl.load(small + i, mask=inside, other=3)
    b = tl.load(byte + i, mask=inside, other=4)
    c = tl.load(long + i, mask=inside, other=5)
    d = tl.load(half + i, mask=inside, other=1.5)
    e = tl.load(double + i, mask=inside, other=2.5)
    f = tl.load(flag + i, mask=inside, other=0)
    tl.store(out + i, (a + b).to(tl.float64) + c + d + e + f)
    tl.store(small + i, (a * a - b).to(tl.int8), mask=inside)
    tl.store(byte + i, (b >> 1) + f.to(tl.uint8), mask=inside)
    tl.store(long + i, c * a + (d * 10).to(tl.int64), mask=inside)
    tl.store(half + i, d * e.to(tl.float16), mask=inside & f)
    tl.store(double + i, e / 3 + tl.cumsum(a.to(tl.int32), 0) + tl.max(b), mask=inside)
    tl.store(flag + i, (a > b) | f, mask=inside)
    # Zeros of two signs are two constants.
    tl.store(out + B + i, 1.0 / tl.where(f, 0.0, -0.0))


def atomics_in_order(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    old = tl.atomic_add(out + i, v, mask=v > 0)
    after = tl.load(out + i)
    other = tl.atomic_xchg(out + B - 1 - i, v * 2)
    tl.store(x + i, tl.where(v > 0, old, 0.0) + after + other)
    for _ in range(n):
        old = tl.atomic_add(out + i, 1.0)
        tl.store(out + B + i, old + tl.load(out + i))
    tl.atomic_max(out + 3 * B, tl.max(v))


def leaves_early(x, out, n, B: tl.constexpr):
    pid = tl.program_id(0) + tl.num_programs(0) * tl.program_id(1)
    if pid * B >= n:
        return
    i = pid * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(out + i, v + 1, mask=i < n)
    if tl.sum(v) > 0:
        tl.store(out + 2048 + pid, 1.0)
        return
    for k in range(pid):
        v = v * 0.5 + k
    tl.store(out + i, v, mask=i < n)


# -- the tests ---------------------------------------------------------------------------------
@pytest.mark.parametrize("block", [16, 64])
@pytest.mark.parametrize(
    "kernel",
    [
        transposed_itself,
        read_each_other,
        changed_in_one_branch,
        stored_where_it_was_loaded,
        moving_pointers,
        transposed_in_place,
        dots_that_share,
        narrow_accumulators,
        one_operand_in_two_layouts,
        atomics_in_order,
    ],
)
def test_square_kernels(kernel: Callable[..., Any], block: int) -> None:
    assert_same(kernel, (floats(8192), floats(16384, 1), 5), B=block)


@pytest.mark.parametrize("n", [2, 5])
def test_values_yielded_by_empty_branches(n: int) -> None:
    assert_same(yielded_by_empty_branches, (floats(), floats(), n), B=64)


@pytest.mark.parametrize("distance", [1, 7, 16])
def test_stores_that_overlap(distance: int) -> None:
    assert_same(overlapping_stores, (floats(), floats(seed=1), distance), B=1024)


def test_dots_of_other_lengths() -> None:
    assert_same(dots_of_other_lengths, (floats(1 << 15), floats(4096), 2), B=64)


@pytest.mark.parametrize("block", [1, 4, 32])
@pytest.mark.parametrize("axis", [0, 1])
def test_folds(block: int, axis: int) -> None:
    assert_same(folds_that_feed_each_other, (floats(), floats(), 2), B=block, AXIS=axis)


@pytest.mark.parametrize("block", [16, 1024])
def test_masks(block: int) -> None:
    for n in (0, 1, 15, 16, 17, 100, 1000):
        args = (floats(1024), floats(1024, 1), floats(10240, 2), n)
        assert_same(masks_of_every_form, args, (1024 // block,), B=block)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_offsets_across_zero(dtype: Any) -> None:
    args = (floats(1024, dtype=dtype), np.zeros(1024, dtype), 16)
    assert_same(offsets_across_zero, args, B=128)


@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (4, 64), (1, 16), (16, 1)])
def test_wrapped_pointers(rows: int, columns: int) -> None:
    for m, n in ((1, 1), (17, 33), (16, 64), (7, 1)):
        grid = (-(-m // rows), -(-n // columns))
        for strides in ((n, 1), (1, m)):
            arrays = (floats(m * n), floats(m * n, 1), floats(m * n, 2))
            assert_same(wrapped_rows, (*arrays, m, n, *strides), grid, A=rows, B=columns)


@pytest.mark.parametrize("block", [1, 4, 256])
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_mixed_dtypes(block: int) -> None:
    for n in (0, 1, 17, 256):
        arrays = (
            whole(256, -128, 128, np.int8),
            whole(256, 0, 256, np.uint8),
            whole(256, -(2**40), 2**40, np.int64),
            floats(256, dtype=np.float16),
            floats(256, dtype=np.float64),
            whole(256, 0, 2, np.bool_),
            floats(2 * block, dtype=np.float64),
        )
        assert_same(mixed_dtypes, (*arrays, n), B=block)


def test_early_returns() -> None:
    for n in (0, 1, 17, 1000):
        assert_same(leaves_early, (floats(), floats(2 * LENGTH, 1), n), (9, 8), B=16)


def test_arguments_that_overlap() -> None:
    """One buffer under two arguments, an element apart: as on the interpreter."""
    for left, right in ((0, 1), (1, 0), (0, 0), (0, 512)):
        results: list[Any] = []
        for kernel in both_ways(overlapping_stores):
            buffer = floats()
            kernel[(1,)](buffer[left:], buffer[right:], 3, B=512)
            results.append(buffer)
        np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("flip", [False, True])
def test_views_of_every_stride(flip: bool) -> None:
    base = floats(64 * 64).reshape(64, 64)
    _, kernel = both_ways(wrapped_rows)
    for view in (base.T, base[::2], base[:, ::3], base[5:20, 7:9]):
        view = view[::-1, ::-1] if flip else view
        m, n = view.shape
        out = np.zeros((m, n), np.float32)
        strides = (s // 4 for s in view.strides)
        kernel[(1, 1)](view, np.zeros(m * n, np.float32), out, m, n, *strides, A=64, B=64)
        np.testing.assert_array_equal(out, view)
