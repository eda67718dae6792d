"""No kernel calls a library function for an element: such a call costs more than all else."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from deuteron import dtypes as T
from deuteron.backends.cpu.compiler import compile_function
from deuteron.backends.cpu.target import CpuTarget, host_target, named_target
from deuteron.backends.llvm.compile import Machine, assembly
from deuteron.dtypes import DType
from deuteron.ir import OPS, Builder, Function, Pointer, Type, Value
from deuteron.ir.optable import COMPARISONS, FLOAT_BINARY, FLOAT_UNARY, INT_BINARY

BLOCK = 256
FLOATS = (T.float16, T.bfloat16, T.float32, T.float64)
INTS = (T.int8, T.uint8, T.int32, T.uint32, T.int64, T.uint64)
TARGETS: dict[str, Callable[[], CpuTarget]] = {
    "host": host_target,
    "v3": lambda: named_target("x86-64-v3", "x86_64-unknown-linux-gnu"),
    "v4": lambda: named_target("x86-64-v4", "x86_64-unknown-linux-gnu"),
    "apple": lambda: named_target("apple-m1", "aarch64-unknown-linux-gnu"),
}
CALL = re.compile(r"^\s+(?:call[ql]?|bl|jmp)\s+([A-Za-z_][\w@.]*)", re.MULTILINE)


def calls(function: Function, target: CpuTarget) -> list[str]:
    """The functions that the assembly of a kernel calls."""
    image = compile_function(function, target=target)
    machine = Machine(target.triple, target.cpu, target.feature_string)
    return CALL.findall(assembly(image.llvm, machine))


def elementwise(dtype: DType, names: tuple[str, ...]) -> Function:
    """A kernel that loads two masked tiles, applies each op to them and stores every result."""
    b = Builder()
    x, y, out, n = b.open([Type(Pointer(dtype))] * 3 + [Type(T.int32)], ["x", "y", "out", "n"])
    lanes = b.op("arange", start=0, end=BLOCK)
    mask = b.op("lt", lanes, b.op("splat", n, shape=(BLOCK,)))

    def place(pointer: Value, offset: int = 0) -> Value:
        moved = b.op("add", lanes, b.op("splat", b.const(offset), shape=(BLOCK,)))
        return b.op("addptr", b.op("splat", pointer, shape=(BLOCK,)), moved)

    operands = [b.op("load", place(p), mask) for p in (x, y)]
    for number, name in enumerate(names):
        result = b.op(name, *operands[: OPS[name].arity[0]])
        if result.type != operands[0].type:
            result = b.op("cast", result, to=dtype)
        b.ops("store", place(out, number * BLOCK), result, mask)
    return b.function("kernel", b.close())


def casts(dtype: DType) -> Function:
    """A kernel that casts a tile to every other dtype and back."""
    b = Builder()
    x, out = b.open([Type(Pointer(dtype))] * 2, ["x", "out"])
    lanes = b.op("arange", start=0, end=BLOCK)
    place = b.op("addptr", b.op("splat", out, shape=(BLOCK,)), lanes)
    value = b.op("load", b.op("addptr", b.op("splat", x, shape=(BLOCK,)), lanes))
    for other in (*FLOATS, *INTS, T.int1, *T.FLOAT8):
        if other is not dtype:
            there = b.op("cast", value, to=other)
            b.ops("store", place, b.op("cast", there, to=dtype))
    return b.function("kernel", b.close())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_arithmetic(dtype: DType, target: str) -> None:
    names = ("add", "sub", "mul", "div", "min", "max", "neg", "abs", *COMPARISONS)
    assert calls(elementwise(dtype, names), TARGETS[target]()) == []


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("start", range(0, len(FLOAT_UNARY), 8))
def test_float_functions(dtype: DType, start: int) -> None:
    names = FLOAT_UNARY[start : start + 8]
    assert calls(elementwise(dtype, names), host_target()) == []


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_functions_of_two(dtype: DType) -> None:
    assert calls(elementwise(dtype, FLOAT_BINARY), host_target()) == []


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_integers(dtype: DType, target: str) -> None:
    names = ("add", "sub", "mul", "min", "max", "abs", *INT_BINARY, *COMPARISONS)
    assert calls(elementwise(dtype, names), TARGETS[target]()) == []


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [*FLOATS, T.int8, T.uint64], ids=str)
def test_casts(dtype: DType, target: str) -> None:
    assert calls(casts(dtype), TARGETS[target]()) == []


def by_places(dtype: DType) -> Function:
    """A kernel that gathers by any indices and by neighbouring ones, and counts the indices."""
    b = Builder()
    types = [Type(Pointer(dtype)), Type(Pointer(T.int32)), Type(Pointer(T.int32))]
    x, index, out = b.open(types, ["x", "index", "out"])
    lanes = b.op("arange", start=0, end=BLOCK)

    def place(pointer: Value) -> Value:
        return b.op("addptr", b.op("splat", pointer, shape=(BLOCK,)), lanes)

    source, places = b.op("load", place(x)), b.op("load", place(index))
    first = b.op("load", index)
    run = b.op("add", lanes, b.op("splat", first, shape=(BLOCK,)))
    for chosen in (places, run):
        b.ops("store", place(x), b.op("gather", source, chosen, axis=0))
    b.ops("store", place(out), b.op("histogram", places, bins=BLOCK))
    return b.function("kernel", b.close())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [*FLOATS, T.int1, T.int8, T.float8e5], ids=str)
def test_gathers_and_histograms(dtype: DType, target: str) -> None:
    assert calls(by_places(dtype), TARGETS[target]()) == []


def test_a_call_would_be_seen() -> None:
    """The check itself: a kernel that prints does call."""
    b = Builder()
    (n,) = b.open([Type(T.int32)], ["n"])
    b.ops("print", n, prefix="n", hex=False)
    (called,) = calls(b.function("kernel", b.close()), host_target())
    assert called.startswith("deuteron_print")
