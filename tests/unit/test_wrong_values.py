"""Every function of the language answers values it cannot take with an error at the call."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import deuteron.language as tl
from deuteron.errors import CompilationError, Loc
from deuteron.ir import Pointer, Type
from deuteron.ir.builder import Builder
from deuteron.lang import operators
from deuteron.lang.calls import Inliner
from deuteron.lang.context import Context, is_builtin
from deuteron.lang.jit import jit
from deuteron.lang.values import Tensor, constexpr, wrap
from deuteron.language.extra import libdevice
from deuteron.runtime.jit import JITFunction


@jit
def combine(a, b):
    return a + b


CALL = Loc("kernel.py", 3, 4, 14, "    tl.call(x)", "kernel")
TENSORS = {
    "pointer": Type(Pointer(tl.float32)),
    "const pointer": Type(Pointer(tl.int32, True)),
    "pointers": Type(Pointer(tl.float32), (16,)),
    "int scalar": Type(tl.int32),
    "float scalar": Type(tl.float32),
    "float tile": Type(tl.float32, (16,)),
    "int tile": Type(tl.int32, (16,)),
    "bool tile": Type(tl.int1, (16,)),
    "fp8 tile": Type(tl.float8e5, (16,)),
    "unsigned tile": Type(tl.uint64, (16,)),
    "matrix": Type(tl.float16, (16, 16)),
}
CONSTANTS: dict[str, object] = {
    "None": None,
    "a string": "s",
    "a tuple": (1, 2),
    "an empty tuple": (),
    "a list": [1, 2],
    "a dict": {},
    "a fraction": 1.5,
    "zero": 0,
    "a number": 16,
    "a negative": -1,
    "a bool": True,
    "too large": 2**70,
    "nan": float("nan"),
    "a dtype": tl.float32,
    "a pointer type": tl.pointer_type(tl.float32),
    "a jit function": combine,
    "a builtin": tl.exp,
    "a python function": len,
    "a module": sys,
    "a class": int,
    "an object": object(),
    "an ellipsis": ...,
    "a slice": slice(None),
    "a complex": 1j,
    "bytes": b"x",
}
VALUES = (*TENSORS, *CONSTANTS, "tiles")
# What stands at the other places while one value is tried.
FILLERS = ("float tile", "pointers", "matrix", "a number", "a jit function")
FUNCTIONS: dict[str, Any] = {
    f"{module.__name__.rpartition('.')[2]}.{name}": function
    for module in (tl, libdevice)
    for name, function in vars(module).items()
    if is_builtin(function) or isinstance(function, JITFunction)
}


def compile_call(function: Callable[..., object], symbol: object, *names: str) -> None:
    """Give values by name to `function(ctx, symbol, *values)` while a kernel is compiled.

    It must work, or complain of the place that the kernel is at.
    """
    builder = Builder()
    ctx = Context(builder)
    ctx.call_jit = Inliner(ctx).call
    params = builder.open(list(TENSORS.values()), list(TENSORS))
    builder.loc = CALL
    values: dict[str, Any] = dict(zip(TENSORS, map(Tensor, params), strict=True))
    values["tiles"] = (values["float tile"], values["int tile"])
    for name, value in CONSTANTS.items():
        values[name] = wrap(value) if isinstance(value, tuple) else constexpr(value)
    failure = None
    try:
        function(ctx, symbol, *(values[name] for name in names))
    except CompilationError as error:
        failure = error
    if failure is not None:
        assert failure.loc == CALL
        assert all((failure.error_message, failure.expected, failure.got, failure.remedy)), failure


def arguments(function: Any) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    """Calls by the names of their values, each with one value tried and fillers elsewhere."""
    signature = inspect.signature(function) if is_builtin(function) else function.signature
    parameters = signature.parameters.values()
    needed = sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    yield (), {}
    yield ("float tile",) * (len(parameters) + 1), {}
    for filler in FILLERS[: 5 if needed > 1 else 2]:
        good = (filler,) * needed
        for value in VALUES:
            for place in range(needed):
                yield (*good[:place], value, *good[place + 1 :]), {}
            for parameter in parameters:
                if parameter.kind is parameter.VAR_POSITIONAL:
                    yield (*good, value), {}
                elif parameter.default is not parameter.empty:
                    yield good, {parameter.name: value}


@pytest.mark.filterwarnings("ignore:`where` got a condition of")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    for args, kwargs in arguments(FUNCTIONS[name]):

        def call(ctx: Context, function: Any, *values: Any, keywords=tuple(kwargs)) -> object:
            positional = len(values) - len(keywords)
            named = dict(zip(keywords, values[positional:], strict=True))
            return ctx.call(function, values[:positional], named)

        try:
            compile_call(call, FUNCTIONS[name], *args, *kwargs.values())
        except Exception as error:
            raise AssertionError(f"{name}{args}{kwargs}") from error


@pytest.mark.parametrize(
    "symbol", ["+", "-", "*", "/", "//", "%", "**", "<<", ">>", "&", "|", "^", "@"]
)
def test_operators(symbol: str) -> None:
    for left in VALUES:
        for right in VALUES:
            # Python computes constants by itself, and that one would fill the memory.
            if symbol != "<<" or right != "too large":
                compile_call(operators.binary, symbol, left, right)


@pytest.mark.parametrize("symbol", ["<", "<=", "==", "!="])
def test_comparisons(symbol: str) -> None:
    for left in VALUES:
        for right in VALUES:
            compile_call(operators.compare, symbol, left, right)


def test_operators_of_one_operand() -> None:
    for value in VALUES:
        for symbol in ("+", "-", "~", "not"):
            compile_call(operators.unary, symbol, value)


def test_logic_and_brackets() -> None:
    for left in VALUES:
        for right in VALUES:
            compile_call(operators.logical, "and", left, right)
            compile_call(
                lambda ctx, _, x, items: operators.subscript(ctx, x, items), "", left, right
            )


@pytest.mark.parametrize("name", ["T", "shape", "dtype", "type", "value", "sum", "nothing"])
def test_attributes(name: str) -> None:
    for value in VALUES:
        compile_call(lambda ctx, name, x: operators.attribute(ctx, x, name), name, value)
