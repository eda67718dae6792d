"""Random tile programs, drawn by hypothesis: small graphs of ops over mixed shapes and dtypes.

Only ops whose results are the same bits everywhere are drawn (no division, no rounding twice, no
float sums), so that a compiled program must agree exactly with the interpreter, but for the sign of
zero and the payload of NaN.  Values a float cannot carry into an integer are clamped away.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from hypothesis import strategies as st

from deuteron import dtypes as T
from deuteron.dtypes import DType
from deuteron.ir import Type, Value
from tests.oracle.compare import Tolerance
from tests.oracle.data import operand
from tests.oracle.kernels import Arg, Case, Kernel, output

Shape = tuple[int, ...]
Draw = Callable[[st.SearchStrategy["Drawn"]], "Drawn"]
Drawn = TypeVar("Drawn")

DTYPES = (T.float32, T.int32, T.float16, T.bfloat16, T.int8, T.uint16, T.int64, T.float64)
FLOAT_OPS = ("add", "sub", "mul", "min", "max")
INT_OPS = (*FLOAT_OPS, "and", "or", "xor", "umulhi")
BOOL_OPS = ("and", "or", "xor")
PROGRAMS = 2
MEMORY = 1024  # elements of each dtype that a program may store and load again


class Author:
    """Writes one program; `values` are all those that later steps may use."""

    def __init__(self, draw: Draw, kernel: Kernel, inputs: dict[str, DType], shape: Shape) -> None:
        self.draw, self.k, self.shape = draw, kernel, shape
        rows, columns = shape
        self.shapes: tuple[Shape, ...] = (shape, (rows,), (columns,), (), (1, columns))
        self.values: list[Value] = []
        self.args: dict[str, Arg] = {}
        for name, dtype in inputs.items():
            own = draw(st.sampled_from(self.shapes))
            self.values.append(kernel.load(name, kernel.program_offsets(own)))
            self.args[name] = operand(dtype, "any", PROGRAMS * math.prod(own), len(self.args) % 2)

    def pick(self) -> Value:
        """Any value so far, rather a late one."""
        age = self.draw(st.integers(0, len(self.values) - 1))
        return self.values[-1 - age]

    # -- making two values fit --------------------------------------------------------------
    def grow(self, value: Value, shape: Shape) -> Value | None:
        """Broadcast a value to a shape, or None when it cannot be."""
        own = value.type.shape
        if own == shape:
            return value
        if not own:
            return self.k.spread(value, shape)
        if len(own) < len(shape):
            axis = 0 if own[0] == shape[1] else 1
            return self.grow(self.k.op("expand_dims", value, axis=axis), shape)
        fits = len(own) == len(shape) and all(a in (1, b) for a, b in zip(own, shape, strict=True))
        return self.k.op("broadcast", value, shape=shape) if fits else None

    def pair(self) -> tuple[Value, Value]:
        """Two values of one type."""
        a, b = self.pick(), self.pick()
        if len(a.type.shape) < len(b.type.shape) or a.type.numel < b.type.numel:
            a, b = b, a
        grown = self.grow(b, a.type.shape)
        return (a, self.convert(grown, a.type.dtype)) if grown else (a, a)

    def convert(self, value: Value, to: DType) -> Value:
        """Cast by ways that round at most once."""
        source, shape = value.type.dtype, value.type.shape
        if source == to:
            return value
        if source.is_floating() and to.is_int() and to != T.int1:
            low = 0 if to.is_int_unsigned() else -100
            value = self.k.op("max", value, self.k.const(low, source, shape))
            value = self.k.op("min", value, self.k.const(100, source, shape))
        elif to.bits == 16 and to.is_floating() and source.bits > 16 and source != T.float32:
            value = self.k.op("cast", value, to=T.float32)
        return self.k.op("cast", value, to=to)

    # -- steps ------------------------------------------------------------------------------
    def binary(self, a: Value, b: Value) -> Value:
        dtype = a.type.dtype
        names = BOOL_OPS if dtype == T.int1 else FLOAT_OPS if dtype.is_floating() else INT_OPS
        return self.k.op(self.draw(st.sampled_from(names)), a, b)

    def step_binary(self) -> Value:
        return self.binary(*self.pair())

    def step_unary(self) -> Value:
        value = self.pick()
        names = ("not",) if value.type.dtype.is_int() else ("neg", "abs")
        return self.k.op(self.draw(st.sampled_from(names)), value)

    def step_cast(self) -> Value:
        return self.convert(self.pick(), self.draw(st.sampled_from(DTYPES)))

    def step_choose(self) -> Value:
        a, b = self.pair()
        name = self.draw(st.sampled_from(("lt", "ge", "eq", "ne")))
        return self.k.op("select", self.k.op(name, a, b), a, b)

    def step_compare(self) -> Value:
        return self.k.op(self.draw(st.sampled_from(("le", "gt"))), *self.pair())

    def step_constant(self) -> Value:
        dtype, shape = self.draw(st.sampled_from(DTYPES)), self.draw(st.sampled_from(self.shapes))
        return self.k.const(self.draw(st.integers(0, 9)), dtype, shape)

    def step_reduce(self) -> Value:
        value = self.pick()
        if not value.type.shape:
            return value
        axis = self.draw(st.integers(0, value.type.rank - 1))
        (result,) = self.k.b.reduce((value,), axis, self.k.combine(*self.fold(value.type.dtype)))
        return result

    def step_scan(self) -> Value:
        value = self.pick()
        if not value.type.shape:
            return value
        axis, reverse = self.draw(st.integers(0, value.type.rank - 1)), self.draw(st.booleans())
        combine = self.k.combine(*self.fold(value.type.dtype))
        (result,) = self.k.b.scan((value,), axis, combine, reverse=reverse)
        return result

    def fold(self, dtype: DType) -> tuple[list[DType], Callable[[Value, Value], tuple[Value]]]:
        exact = ("max", "min") if dtype.is_floating() else ("add", "xor", "max")
        name = "or" if dtype == T.int1 else self.draw(st.sampled_from(exact))
        return [dtype], lambda a, b: (self.k.op(name, a, b),)

    def step_permute(self) -> Value:
        value = self.pick()
        if value.type.rank != 2:
            return value
        turned = self.k.op("permute", value, order=(1, 0))
        return self.k.op("permute", self.binary(turned, turned), order=(1, 0))

    def step_loop(self) -> Value:
        acc, other = self.pair()
        trips = self.draw(st.integers(0, 3))

        def body(i: Value, carried: Value) -> tuple[Value]:
            turn = self.k.spread(self.convert(i, acc.type.dtype), acc.type.shape)
            return (self.binary(self.binary(carried, other), turn),)

        block = self.k.block([Type(T.int32), acc.type], body)
        bounds = (self.k.const(0), self.k.const(trips), self.k.const(1))
        return self.k.b.for_(bounds, (acc,), block, {})[0]

    def step_branch(self) -> Value:
        a, b = self.pair()
        odd = self.k.op("eq", self.k.op("program_id", axis=0), self.k.const(1))
        then = self.k.block([], lambda: (self.binary(a, b),))
        return self.k.b.if_(odd, then, self.k.block([], lambda: (b,)))[0]

    def step_reshape(self) -> Value:
        value = self.pick()
        shapes = ((value.type.numel,), tuple(reversed(value.type.shape)), (value.type.numel, 1))
        return self.k.op("reshape", value, shape=self.draw(st.sampled_from(shapes)))

    def step_split(self) -> Value:
        """Join two tiles, and take the first or the second of them apart again."""
        a, b = self.pair()
        halves = self.k.b.ops("split", self.k.op("join", a, b))
        return self.binary(halves[self.draw(st.integers(0, 1))], a)

    def step_cat(self) -> Value:
        a, b = self.pair()
        if not a.type.shape or a.type.numel > 256:
            return a
        return self.k.op("cat", a, b, axis=self.draw(st.integers(0, a.type.rank - 1)))

    def step_memory(self) -> Value:
        """Store a tile over another one and read it in another order."""
        value = self.pick()
        shape, dtype = value.type.shape, value.type.dtype
        places, name = self.k.program_offsets(shape), f"memory_{dtype.short}"
        if not shape or value.type.numel > MEMORY // PROGRAMS:
            return value
        parity = self.k.op("and", places, self.k.const(1, shape=shape))
        odd = self.k.op("eq", parity, self.k.const(1, shape=shape))
        self.k.store(name, places, self.k.const(1, dtype, shape))
        self.k.store(name, places, value, *([odd] if self.draw(st.booleans()) else []))
        if len(shape) == 2 and self.draw(st.booleans()):
            turned = self.k.program_offsets(shape[::-1])
            return self.k.op("permute", self.k.load(name, turned), order=(1, 0))
        return self.k.load(name, places, odd, value)

    def step_dot(self) -> Value:
        """A tile by its own transpose; both hold small whole numbers, so that sums are exact."""
        value = self.pick()
        if value.type.rank != 2 or value.type.numel > 256:
            return value
        rows, columns = value.type.shape
        small = self.k.op(
            "and", self.convert(value, T.int8), self.k.const(7, T.int8, (rows, columns))
        )
        dtype = self.draw(st.sampled_from((T.int8, T.float32, T.bfloat16, T.float16, T.float64)))
        a = self.convert(small, dtype)
        acc = T.int32 if dtype == T.int8 else T.float64 if dtype == T.float64 else T.float32
        turned = self.k.op("permute", a, order=(1, 0))
        return self.k.op("dot", a, turned, self.k.const(1, acc, (rows, rows)))

    def step(self) -> None:
        steps = (
            self.step_binary, self.step_binary, self.step_unary, self.step_cast, self.step_choose,
            self.step_compare, self.step_constant, self.step_reduce, self.step_scan,
            self.step_permute, self.step_loop, self.step_branch, self.step_reshape,
            self.step_split, self.step_cat, self.step_memory, self.step_dot,
        )  # fmt: skip
        self.values.append(self.draw(st.sampled_from(steps))())


@st.composite
def programs(draw: Draw) -> Case:
    """A case that stores its last value of each dtype, one of them masked at its end."""
    shape = (draw(st.sampled_from((4, 8, 5))), draw(st.sampled_from((16, 8, 7, 33))))
    inputs = {f"x{i}": draw(st.sampled_from(DTYPES)) for i in range(draw(st.integers(1, 3)))}
    stored = (T.int1, *DTYPES)
    outputs = {f"out_{d.short}": d for d in stored}
    memories = {f"memory_{d.short}": d for d in stored}
    kernel = Kernel(**inputs, **outputs, **memories)
    author = Author(draw, kernel, inputs, shape)
    for _ in range(draw(st.integers(2, 12))):
        author.step()
    last = {v.type.dtype: v for v in author.values[len(inputs) - 1 :]}
    args: dict[str, Arg] = {name: output(d, 1) for name, d in outputs.items()}
    args |= {name: output(d, MEMORY) for name, d in memories.items()}
    for dtype, value in last.items():
        own = value.type.shape
        places = kernel.program_offsets(own)
        count = PROGRAMS * value.type.numel
        mask = kernel.op("lt", places, kernel.const(count - 1, shape=own))
        kernel.store(f"out_{dtype.short}", places, value, *([mask] if dtype == T.float32 else []))
        args[f"out_{dtype.short}"] = output(dtype, count)
    tolerance = {name: Tolerance(zero_sign=False) for name in outputs | memories}
    function = kernel.finish("random")
    return Case("random", function, args | author.args, (PROGRAMS, 1, 1), tolerance)
