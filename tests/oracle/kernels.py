"""Small kernels of the tile IR for comparing backends: the building blocks and elementwise ops.

A `Case` is a function with its arguments and what may differ.  Kernels load whole tiles, or tiles
masked at the end, and write every result to an array of its own; `structures.py` and
`memory_kernels.py` have the others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deuteron import dtypes as T
from deuteron.backends.interp.values import Array, storage_dtype
from deuteron.dtypes import DType
from deuteron.ir import OPS, Block, Builder, Function, Pointer, Type, Value, verify
from tests.oracle.compare import EXACT, Tolerance
from tests.oracle.data import operand

Grid = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class View:
    """A pointer argument to element `start` of an array."""

    array: Array
    start: int


Arg = Array | View | int | float


@dataclass(frozen=True, slots=True, repr=False)
class Case:
    """A kernel to run on two backends.

    `tolerance` is by parameter name, others are exact; `labels` says what a parameter holds.
    """

    id: str
    function: Function
    args: Mapping[str, Arg]
    grid: Grid = (1, 1, 1)
    tolerance: Mapping[str, Tolerance] = field(default_factory=dict[str, Tolerance])
    labels: Mapping[str, str] = field(default_factory=dict[str, str])

    def __repr__(self) -> str:
        return f"Case({self.id!r})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # hypothesis would print every field

    def fresh_args(self) -> list[Arg]:
        """The arguments with every array copied; one array given twice stays one."""
        copies: dict[int, Array] = {}

        def copy(array: Array) -> Array:
            return copies.setdefault(id(array), array.copy())

        def fresh(arg: Arg) -> Arg:
            match arg:
                case View():
                    return View(copy(arg.array), arg.start)
                case np.ndarray():
                    return copy(arg)
                case _:
                    return arg

        return [fresh(self.args[p.name]) for p in self.function.params]

    def arrays(self, args: Sequence[Arg]) -> Iterator[tuple[str, DType, Array]]:
        """Name, dtype and bits of every array among the arguments of a run."""
        for parameter, arg in zip(self.function.params, args, strict=True):
            if isinstance(arg, np.ndarray | View):
                array = arg.array if isinstance(arg, View) else arg
                yield parameter.name, parameter.type.pointee, array


class Kernel:
    """A function under construction, with the idioms that a front end emits.

    Parameters are given by name: a DType means a pointer to it, a Type itself.
    """

    def __init__(self, **params: DType | Type) -> None:
        self.b = Builder()
        types = [p if isinstance(p, Type) else Type(Pointer(p)) for p in params.values()]
        self.params = dict(zip(params, self.b.open(types, list(params)), strict=True))

    def __getitem__(self, name: str) -> Value:
        return self.params[name]

    def finish(self, name: str, divisibility: int = 0) -> Function:
        """Close and verify; `divisibility` is claimed of every pointer."""
        body = self.b.close()
        known = {"divisibility": divisibility} if divisibility else {}
        attrs = [known if p.type.is_pointer else {} for p in body.args]
        function = self.b.function(re.sub(r"\W", "_", name), body, attrs)
        verify(function)
        return function

    # -- values -----------------------------------------------------------------------------
    def op(self, name: str, *operands: Value, **attrs: Any) -> Value:
        return self.b.op(name, *operands, **attrs)

    def const(self, value: float, dtype: DType = T.int32, shape: tuple[int, ...] = ()) -> Value:
        return self.b.full(value, Type(dtype, shape))

    def spread(self, scalar: Value, shape: tuple[int, ...]) -> Value:
        return self.op("splat", scalar, shape=shape) if shape else scalar

    def axis(self, axis: int, shape: tuple[int, ...]) -> Value:
        """Each element's index along an axis, as `tl.arange(0, n)[None, :]` broadcast gives it."""
        index = self.op("arange", start=0, end=shape[axis])
        for other in range(len(shape)):
            if other != axis:
                index = self.op("expand_dims", index, axis=other)
        return self.op("broadcast", index, shape=shape) if len(shape) > 1 else index

    def strided(self, shape: tuple[int, ...], strides: Sequence[int | Value]) -> Value:
        """Offsets i0*s0 + i1*s1 + …"""
        total = self.const(0, shape=shape)
        for axis, stride in enumerate(strides):
            scalar = stride if isinstance(stride, Value) else self.const(stride)
            step = self.op("mul", self.axis(axis, shape), self.spread(scalar, shape))
            total = step if axis == 0 else self.op("add", total, step)
        return total

    def offsets(self, shape: tuple[int, ...]) -> Value:
        """Row-major offsets of a tile."""
        return self.strided(shape, [math.prod(shape[a + 1 :]) for a in range(len(shape))])

    def program_offsets(self, shape: tuple[int, ...]) -> Value:
        """Row-major offsets of this program's tile, when tiles lie one after the other."""
        program = self.op("program_id", axis=0)
        start = self.op("mul", program, self.const(math.prod(shape)))
        return self.op("add", self.spread(start, shape), self.offsets(shape)) if shape else start

    # -- memory -----------------------------------------------------------------------------
    def at(self, pointer: str | Value, offsets: Value) -> Value:
        base = self[pointer] if isinstance(pointer, str) else pointer
        return self.op("addptr", self.spread(base, offsets.type.shape), offsets)

    def load(self, pointer: str, offsets: Value, *rest: Value) -> Value:
        return self.op("load", self.at(pointer, offsets), *rest)

    def store(self, pointer: str, offsets: Value, value: Value, *mask: Value) -> None:
        self.b.ops("store", self.at(pointer, offsets), value, *mask)

    # -- blocks -----------------------------------------------------------------------------
    def block(
        self, types: Sequence[Type], body: Callable[..., Sequence[Value]], *names: str
    ) -> Block:
        """A block whose arguments go to `body`, which returns what it yields."""
        args = self.b.open(types, names)
        return self.b.close(tuple(body(*args)))

    def combine(self, dtypes: Sequence[DType], body: Callable[..., Sequence[Value]]) -> Block:
        """A combine block: `body(*left, *right)` yields."""
        return self.block([Type(d) for d in dtypes] * 2, body)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Nodes built inside run only when the scalar condition holds."""
        self.b.open()
        yield
        then = self.b.close()
        self.b.open()
        self.b.if_(condition, then, self.b.close())


def output(dtype: DType, count: int) -> Array:
    """An array to store into, full of a pattern that no result is likely to leave."""
    return np.full(count * dtype.storage_bytes, 0x5B, np.uint8).view(storage_dtype(dtype))


# -- elementwise ops ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Operand:
    """What an operand is: its dtype, the values it takes (`data.operand`) and its place."""

    dtype: DType
    domain: str
    slot: int

    @property
    def name(self) -> str:
        return f"{self.domain.replace(':', '_')}_{self.dtype.short}_{self.slot}"


@dataclass(frozen=True, slots=True)
class Spec:
    """One elementwise op at one dtype."""

    op: str
    operands: tuple[Operand, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tolerance: Tolerance = EXACT

    @property
    def id(self) -> str:
        shown = [getattr(v, "short", v) for v in self.attrs.values()]
        return "-".join(map(str, (self.op, self.operands[0].dtype.short, *shown)))

    @property
    def result(self) -> DType:
        (result,) = OPS[self.op].infer([Type(o.dtype) for o in self.operands], self.attrs)
        return result.dtype


def spec(op: str, dtype: DType, *domains: str, tolerance: Tolerance = EXACT, **attrs: Any) -> Spec:
    """A spec whose operands all have one dtype."""
    operands = tuple(Operand(dtype, domain, slot) for slot, domain in enumerate(domains))
    return Spec(op, operands, attrs, tolerance)


def elementwise(id: str, specs: Sequence[Spec], shape: tuple[int, ...], *, masked: bool) -> Case:
    """A kernel of several ops, each on its own operands and with its own result.

    When masked, the arrays end inside the last tile, pointers are not aligned, and masked-off
    lanes read as 1 (or as nothing, for every other operand).
    """
    numel = math.prod(shape)
    programs = {1: 40, 16: 8}.get(numel, max(1, 1024 // numel))
    count = numel * programs - (numel // 3 + 1 if masked else 0)
    inputs = list(dict.fromkeys(o for s in specs for o in s.operands))
    dtypes = {o.name: o.dtype for o in inputs} | {f"out{i}": s.result for i, s in enumerate(specs)}
    kernel = Kernel(**dtypes, n=Type(T.int32))
    offsets = kernel.program_offsets(shape)
    mask = [kernel.op("lt", offsets, kernel.spread(kernel["n"], shape))] if masked else []
    loaded: dict[Operand, Value] = {}
    for index, o in enumerate(inputs):
        other = [kernel.const(1, o.dtype, shape)] if masked and index % 2 == 0 else []
        loaded[o] = kernel.load(o.name, offsets, *mask, *other)
    for index, s in enumerate(specs):
        value = kernel.op(s.op, *(loaded[o] for o in s.operands), **s.attrs)
        kernel.store(f"out{index}", offsets, value, *mask)
    arrays = {o.name: operand(o.dtype, o.domain, count, o.slot) for o in inputs}
    arrays |= {f"out{i}": output(s.result, count) for i, s in enumerate(specs)}
    args: dict[str, Arg] = {k: _unaligned(v) if masked else v for k, v in arrays.items()}
    tolerance = {f"out{i}": s.tolerance for i, s in enumerate(specs)}
    labels = {f"out{i}": s.id for i, s in enumerate(specs)}
    function = kernel.finish(id, 0 if masked else 16)
    return Case(id, function, args | {"n": count}, (programs, 1, 1), tolerance, labels)


def _unaligned(bits: Array) -> View:
    """The same elements behind one that nothing may touch."""
    return View(np.concatenate((np.zeros_like(bits[:1]), bits)), 1)
