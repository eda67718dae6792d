"""Aggregates, named tuples and nested tuples, compiled and on the interpreter."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import deuteron as dn
import deuteron.language as tl
from tests.oracle.two_ways import both_ways, run_both


@dn.aggregate
class Pair:
    """Two values."""

    first: tl.tensor
    second: tl.tensor

    @dn.jit
    def total(self, factor=1):
        return (self.first + self.second) * factor

    @dn.jit
    def swapped(self):
        return Pair(self.second, self.first)

    @dn.jit
    def __add__(self, other):
        if isinstance(other, Pair):
            return Pair(self.first + other.first, self.second + other.second)
        return Pair(self.first + other, self.second + other)

    @dn.jit
    def __radd__(self, other):
        return self + other

    @dn.jit
    def __neg__(self):
        return Pair(-self.first, -self.second)

    @dn.jit
    def __lt__(self, other):
        return (self.first < other.first) & (self.second < other.second)

    @dn.jit
    def __getitem__(self, index):
        return self.first if index == 0 else self.second


@dn.jit
def summed(pair):
    return pair.first + pair.second


def use_pairs(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    pair = Pair(tl.load(x + i), second=tl.load(x + B + i))
    for step in range(n):
        pair = pair.swapped() + step
        if step == 1:
            pair = Pair(pair.first * 2, pair.second)
        else:
            pair = tl.aggregate_replace(pair, second=pair.second + 1)
    pair = 1 + -pair
    less = pair < Pair(pair.first + 1, pair[1] + 1)
    tl.store(out + i, pair.total(factor=3) + summed(pair) + pair[0] + less)


def reference(x: Any, n: int) -> Any:
    a, b = x[:16], x[16:]
    for step in range(n):
        a, b = b + step, a + step
        a, b = (2 * a, b) if step == 1 else (a, b + 1)
    a, b = 1 - a, 1 - b
    return 4 * (a + b) + a + 1


@pytest.mark.parametrize("n", [0, 1, 4])
def test_aggregates_through_control_flow(n):
    x = np.random.default_rng(0).integers(-9, 9, 32).astype(np.int32)
    for _, out, _ in run_both(use_pairs, x, np.zeros(16, np.int32), n, B=16):
        np.testing.assert_array_equal(out, reference(x, n))


@dn.aggregate
class Layout:
    """A tile's shape, known at compile time, and where it lies."""

    rows: tl.constexpr
    columns: tl.constexpr = 8
    start: tl.tensor = 0

    @dn.constexpr_function
    def size(self):
        return self.rows * self.columns

    @dn.jit
    def places(self):
        at = tl.arange(0, self.rows)[:, None] * self.columns
        return self.start + at + tl.arange(0, self.columns)[None, :]


@dn.aggregate
class Shifted(Layout):
    """A layout with a shape beside it, made from less."""

    shape: tl.tuple

    def __init__(self, rows, shape, _semantic=None):
        self.rows = rows
        self.columns = tl.constexpr(4)
        self.start = tl.full((), 3, tl.int32, _semantic=_semantic)
        self.shape = shape


def use_layouts(out, n, R: tl.constexpr):
    layout = Layout(R)
    tl.static_assert(layout.columns == 8)
    for _ in range(n):  # constants stay constants in a loop
        tl.store(out + layout.places(), layout.rows)
    shifted = Shifted(R, (n, 5))
    tl.static_assert(isinstance(shifted, Layout) and shifted.shape[1] == 5)
    tl.store(out + shifted.places(), shifted.shape[0])


def use_sizes(out, R: tl.constexpr):
    shape: tl.constexpr = Sized(R, 4).size()
    tl.store(out + tl.arange(0, shape), shape)


@dn.aggregate
class Sized:
    rows: tl.constexpr
    columns: tl.constexpr

    @dn.constexpr_function
    def size(self):
        return self.rows * self.columns


def test_constants_in_aggregates():
    want = np.where(np.arange(64) < 32, 4, 0)
    want[3:19] = 2
    for out, _ in run_both(use_layouts, np.zeros(64, np.int32), 2, R=4):
        np.testing.assert_array_equal(out, want)
    for (out,) in run_both(use_sizes, np.zeros(16, np.int32), R=4):
        np.testing.assert_array_equal(out, np.full(16, 16))


def test_aggregates_outside_of_kernels():
    layout = Sized(3, columns=tl.constexpr(7))
    assert layout.rows == 3
    assert tl.aggregate_replace(layout, rows=5).rows == 5
    assert str(layout) == "the aggregate Sized(rows=3 (int), columns=7 (int))"
    for wrong in ({"rows": 1}, {"rows": 1, "columns": 2, "depth": 3}):
        with pytest.raises(TypeError):
            Sized(**wrong)
    with pytest.raises(TypeError, match="3 values for 2 fields"):
        Sized(1, 2, 3)
    with pytest.raises(dn.UserError, match="no field `depth`"):
        tl.aggregate_replace(layout, depth=1)
    with pytest.raises(dn.UserError, match="takes an aggregate"):
        tl.aggregate_replace(3, depth=1)


def test_only_aggregates_are_bases():
    with pytest.raises(dn.UserError, match="inherits from int"):
        dn.aggregate(type("Wrong", (int,), {}))


def kernel_of(factor):
    scale = tl.constexpr(factor)

    @dn.aggregate
    class Local:
        x: tl.constexpr

        @dn.jit
        def value(self):
            return self.x * scale

    def kernel(out):
        tl.store(out, Local(1).value())

    return dn.jit(kernel)


def test_methods_belong_to_the_key():
    kernels = [kernel_of(factor) for factor in (2, 3)]
    assert kernels[0].cache_key != kernels[1].cache_key
    for factor, kernel in zip((2, 3), kernels, strict=True):
        out = np.zeros(1, np.int32)
        kernel[(1,)](out)
        assert out[0] == factor


# -- tuples ------------------------------------------------------------------------------------
class Matrix(NamedTuple):
    pointer: Any
    shape: tuple
    strides: tuple


class Closure(NamedTuple):
    function: tl.constexpr
    captured: tuple


@dn.jit
def scaled(x, pointer, power):
    return x * tl.load(pointer) ** power


@dn.jit
def moved(matrix, rows):
    return Matrix(matrix.pointer + rows * matrix.strides[0], matrix.shape, matrix.strides)


def apply(closure, source, target, B: tl.constexpr):
    i = tl.arange(0, B)
    for _ in range(2):
        source = moved(source, 1)
    rows, columns = target.shape
    mask = (i[:, None] < rows) & (i[None, :] < columns)
    (down, across), pair = source.strides, (1, (2, None))
    tl.static_assert(pair[1][1] is None)
    x = tl.load(source.pointer + i[:, None] * down + i[None, :] * across, mask, other=0.0)
    y = closure.function(x, *closure.captured)
    at = i[:, None] * target.strides[0] + i[None, :] * target.strides[1]
    tl.store(target.pointer + at, y + pair[1][0], mask)


def test_named_tuples():
    x, factor = np.random.default_rng(1).standard_normal((20, 30)), np.array([1.5])
    for kernel in both_ways(apply):
        out = np.zeros((10, 12))
        matrices = (Matrix(a, a.shape, tuple(s // 8 for s in a.strides)) for a in (x, out))
        kernel[(1,)](Closure(scaled, (factor, 2)), *matrices, B=16)
        np.testing.assert_allclose(out, x[2:12, :12] * 1.5**2 + 2)
