"""What the axis analysis claims of a tile holds for every value that the tile can have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from deuteron.backends.interp.values import Array
from deuteron.dtypes import int32
from deuteron.ir import Function, Type, Value, format_function
from deuteron.ir.axis_info import AxisFacts
from tests.oracle.kernels import Kernel

SHAPES = ((32,), (4, 16), (16, 4))
KNOWN, UNKNOWN = 16, 1  # what divides each parameter


@dataclass(frozen=True)
class Pair:
    """A value of the IR and what it is for one choice of the parameters."""

    value: Value
    array: Array


@dataclass(frozen=True)
class Scalars:
    """The two parameters: a multiple of 16, and any number."""

    known: int
    unknown: int


def _leaf(draw: st.DrawFn, k: Kernel, shape: tuple[int, ...], scalars: Scalars) -> Pair:
    kind = draw(st.sampled_from(("axis", "known", "unknown", "constant")))
    if kind == "axis":
        axis = draw(st.integers(0, len(shape) - 1))
        return Pair(k.axis(axis, shape), np.indices(shape)[axis].astype(np.int32))
    if kind == "constant":
        number = draw(st.sampled_from((0, 1, 2, 3, 4, 8, 12, 16, 64)))
        return Pair(k.const(number, shape=shape), np.full(shape, number, np.int32))
    number = scalars.known if kind == "known" else scalars.unknown
    return Pair(k.spread(k[kind], shape), np.full(shape, number, np.int32))


def _integer(draw: st.DrawFn, k: Kernel, shape: tuple[int, ...], s: Scalars, depth: int) -> Pair:
    if depth == 0:
        return _leaf(draw, k, shape, s)
    name = draw(st.sampled_from(("add", "sub", "mul", "idiv", "irem", "select", "leaf")))
    if name == "leaf":
        return _leaf(draw, k, shape, s)
    left, right = (_integer(draw, k, shape, s, depth - 1) for _ in range(2))
    a, b = left.array.astype(np.int64), right.array.astype(np.int64)
    if name == "select":
        condition = _comparison(draw, k, shape, s, depth - 1)
        result = np.where(condition.array, a, b)
        value = k.op("select", condition.value, left.value, right.value)
        return Pair(value, result.astype(np.int32))
    safe = np.where(b == 0, 1, b)
    quotient = np.trunc(a / safe).astype(np.int64)
    results = {
        "add": a + b,
        "sub": a - b,
        "mul": a * b,
        "idiv": np.where(b == 0, 0, quotient),
        "irem": np.where(b == 0, 0, a - quotient * safe),
    }
    # The analysis takes index arithmetic not to overflow, and divisors not to be 0.
    fits = np.abs(results[name]).max() < 2**31 and not (name in ("idiv", "irem") and (b == 0).any())
    if not fits:
        return left
    value = k.op(name, left.value, right.value)
    return Pair(value, results[name].astype(np.int32))


def _comparison(draw: st.DrawFn, k: Kernel, shape: tuple[int, ...], s: Scalars, depth: int) -> Pair:
    name = draw(st.sampled_from(("lt", "le", "gt", "ge")))
    left, right = (_integer(draw, k, shape, s, depth) for _ in range(2))
    compare = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
    return Pair(k.op(name, left.value, right.value), compare[name](left.array, right.array))


@dataclass(frozen=True, repr=False)
class Claim:
    """A kernel and one tile in it, an integer or the outcome of a comparison."""

    function: Function
    pair: Pair

    def __repr__(self) -> str:
        return f"{format_function(self.function)}\n{self.pair.array}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # hypothesis would print every field


@st.composite
def claims(draw: st.DrawFn) -> Claim:
    shape = draw(st.sampled_from(SHAPES))
    scalars = Scalars(KNOWN * draw(st.integers(0, 6)), draw(st.integers(0, 70)))
    k = Kernel(known=Type(int32), unknown=Type(int32))
    make = draw(st.sampled_from((_integer, _comparison)))
    pair = make(draw, k, shape, scalars, draw(st.integers(1, 3)))
    known = [{"divisibility": KNOWN}, {}]
    return Claim(k.b.function("claim", k.b.close(), known), pair)


@settings(max_examples=400, deadline=None)
@given(claims())
def test_claims_hold(claim: Claim) -> None:
    pair = claim.pair
    info = AxisFacts(claim.function).of(pair.value)
    for axis in range(pair.array.ndim):
        rows = np.moveaxis(pair.array, axis, -1)
        _assert_constant(rows, info.constancy[axis])
        if pair.array.dtype == np.int32:
            _assert_runs(rows, info.contiguity[axis])
    if pair.array.dtype == np.int32:
        starts = pair.array[tuple(slice(None, None, run) for run in info.contiguity)]
        assert not (starts % info.divisibility).any()


def _assert_constant(rows: Array, run: int) -> None:
    blocks = rows.reshape(*rows.shape[:-1], -1, run)
    assert (blocks == blocks[..., :1]).all()


def _assert_runs(rows: Array, run: int) -> None:
    blocks = rows.reshape(*rows.shape[:-1], -1, run).astype(np.int64)
    assert (np.diff(blocks, axis=-1) == 1).all() or run == 1
