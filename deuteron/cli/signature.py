"""Argument types for a kernel that nobody has called yet: `*fp32,*fp32,i32,BLOCK=1024`.

A signature names one type for each run-time argument in order, and NAME=VALUE for constexprs (or
NAME=TYPE for an argument by name).  What it leaves out is guessed from names and defaults.  Types
become stand-in arguments, which are specialised as real ones would be:

    *fp32       a pointer to float32 whose address is divisible by 16; with *fp32:1 it need not be
    i32         an int that need not be divisible by 16; i32:16 is one that is
    fp32        a float
    i8, fp64    what the annotation of the parameter says, which no other type can replace
    1, 0.5      exactly this value, built into the code
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from deuteron.cli import UsageError
from deuteron.cli.kernels import jit_function
from deuteron.dtypes import BY_SHORT, DType
from deuteron.ir.types import Pointer
from deuteron.lang.source import is_constexpr_annotation
from deuteron.lang.values import constexpr
from deuteron.runtime.arrays import MockTensor

_SEPARATOR = re.compile(r",(?![^(\[]*[)\]])")
_NAMED = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)\s*(.+)", re.DOTALL)
_INTEGERS = {"i32": 1 << 20, "i64": 1 << 40, "u64": 1 << 63}
_DIVISORS = ("", "1", "16")
_FLOAT_NAMES = frozenset({"eps", "scale", "p", "alpha", "beta", "lr", "slope", "sm_scale"})


_Forced = DType | Pointer | None

Origin = Literal["given", "preset", "guess"]
"""Where a stand-in comes from; "preset" is the kernel's own default or first config."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One parameter's stand-in: how it is written in a signature, and the value itself.

    A `constant` is built into the code although its parameter is no constexpr.
    """

    text: str
    value: Any
    origin: Origin
    constant: bool = False

    @property
    def guessed(self) -> bool:
        """True when the signature does not say it."""
        return self.origin != "given"

    @property
    def stand_in(self) -> Any:
        """What the kernel is specialised for."""
        return constexpr(self.value) if self.constant else self.value


@dataclass(frozen=True, slots=True)
class _Token:
    """One part of a signature, and where it stands there."""

    text: str
    signature: str
    start: int

    def error(self, what: str, hint: str) -> UsageError:
        """A complaint with the signature and a caret under this part."""
        line = self.signature.replace("\n", " ")
        caret = " " * self.start + "^" * max(1, len(self.text))
        return UsageError(f"--signature: {what}\n    {line}\n    {caret}\n{hint}")

    def part(self, start: int) -> _Token:
        """What begins at `start` of this one."""
        return _Token(self.text[start:], self.signature, self.start + start)


def stand_in_arguments(kernel: Any, signature: str) -> dict[str, Argument]:
    """A stand-in for every parameter, by name.

    Raises UsageError, with the place in the signature, for what cannot be parsed or does not exist.
    """
    parameters = inspect.signature(jit_function(kernel).fn).parameters
    given = _given(signature, parameters)
    preset = _first_config(kernel)
    forced = {param.name: param.forced for param in jit_function(kernel).params}
    arguments: dict[str, Argument] = {}
    for name, parameter in parameters.items():
        constexpr_parameter = is_constexpr_annotation(parameter.annotation)
        if name in given and constexpr_parameter:
            arguments[name] = _parse_constexpr(given[name])
        elif name in given:
            arguments[name] = _parse(name, given[name], forced[name])
        elif name in preset:
            arguments[name] = Argument(repr(preset[name]), preset[name], "preset")
        elif parameter.default is not inspect.Parameter.empty:
            arguments[name] = Argument(repr(parameter.default), parameter.default, "preset")
        elif constexpr_parameter:
            value = _guess_constexpr(name, parameters)
            arguments[name] = Argument(repr(value), value, "guess")
        else:
            arguments[name] = _guess(name, parameters, forced[name])
    return arguments


def render(arguments: Mapping[str, Argument]) -> str:
    """The whole signature, by name, as `--signature` would take it."""
    return ", ".join(f"{name}={argument.text}" for name, argument in arguments.items())


def _tokens(signature: str) -> Iterator[_Token]:
    """The parts between commas, without the space around them."""
    start = 0
    for part in _SEPARATOR.split(signature):
        if text := part.strip():
            yield _Token(text, signature, start + part.index(text))
        start += len(part) + 1


def _given(signature: str, parameters: Mapping[str, inspect.Parameter]) -> dict[str, _Token]:
    """What is given for each parameter."""
    positional = [
        name for name, p in parameters.items() if not is_constexpr_annotation(p.annotation)
    ]
    given: dict[str, _Token] = {}
    count = 0
    for token in _tokens(signature):
        value = token
        if named := _NAMED.fullmatch(token.text):
            name, value = named.group(1), token.part(named.start(2))
        elif count < len(positional):
            name = positional[count]
            count += 1
        else:
            expected = f"{len(positional)}: {', '.join(positional)}"
            raise token.error(
                "more types than the kernel has arguments",
                f"  expected: {expected}\n  got:      `{token.text}` beyond them",
            )
        if name not in parameters:
            raise token.error(
                f"it names `{name}`, which is no parameter of the kernel",
                f"  expected: one of {', '.join(parameters)}",
            )
        given[name] = value
    return given


def _first_config(kernel: Any) -> dict[str, Any]:
    """The meta-parameters of the first config, for an autotuned kernel."""
    while not hasattr(kernel, "configs"):
        if kernel is jit_function(kernel):
            return {}
        kernel = kernel.fn
    return dict(kernel.configs[0].kwargs) if kernel.configs else {}


def _parse_constexpr(token: _Token) -> Argument:
    text = token.text
    if text in BY_SHORT:
        return Argument(text, BY_SHORT[text], "given")
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text  # a plain word is a string: ACTIVATION=relu
    return Argument(text, value, "given")


def _parse(name: str, token: _Token, forced: _Forced) -> Argument:
    """What is given for a run-time argument; `forced` is the type that its annotation fixes."""
    text = token.text
    if (value := _type_stand_in(text, forced)) is None:
        return Argument(text, _constant(name, token), "given", constant=True)
    if isinstance(forced, DType) and text.partition(":")[0] != forced.short:
        raise token.error(
            f"the annotation of argument `{name}` fixes its type",
            f"  expected: {forced.short}, or a number\n  got:      {text}",
        )
    return Argument(text, value, "given")


def _type_stand_in(text: str, forced: _Forced) -> Any:
    """A value that specialises as the type says; None when `text` is no type."""
    type_name, _, divisor = text.partition(":")
    if divisor not in _DIVISORS:
        return None
    if text.startswith("*") and type_name[1:] in BY_SHORT:
        return MockTensor(BY_SHORT[type_name[1:]], address=8 if divisor == "1" else 0)
    odd = 0 if divisor == "16" else 3
    if type_name in _INTEGERS:
        return _INTEGERS[type_name] + odd
    if type_name in ("fp32", "i1"):
        return 0.5 if type_name == "fp32" else True
    if isinstance(forced, DType) and type_name == forced.short:
        return 0.5 if forced.is_floating() else 16 + odd
    return None


def _constant(name: str, token: _Token) -> Any:
    """The value that stands where a type could."""
    try:
        return ast.literal_eval(token.text)
    except (ValueError, SyntaxError):
        raise token.error(
            f"`{token.text}` is not a type for argument `{name}`",
            f"  expected: *TYPE for an array ({', '.join(BY_SHORT)}), *TYPE:1 for any address,\n"
            f"            {', '.join(_INTEGERS)} (or i32:16), fp32, i1 or a number for a scalar",
        ) from None


def _guess(name: str, parameters: Mapping[str, inspect.Parameter], forced: _Forced) -> Argument:
    text = _guess_type(name, parameters) if forced is None else _annotated(forced)
    value = _type_stand_in(text, forced)
    if value is None:
        return Argument(text, ast.literal_eval(text), "guess", constant=True)
    return Argument(text, value, "guess")


def _annotated(forced: DType | Pointer) -> str:
    return f"*{forced.pointee.short}" if isinstance(forced, Pointer) else forced.short


def _guess_type(name: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    if "ptr" in name:
        return "*fp32"
    if name in _FLOAT_NAMES:
        return "fp32"
    if name.startswith("stride_") and _is_last_axis(name, list(parameters)):
        return "1"
    return "i32:16"


def _is_last_axis(stride: str, names: list[str]) -> bool:
    """Of `stride_am, stride_ak, stride_bk, …` those that close an array: `stride_ak`."""
    array = stride[: len("stride_") + 1]
    axes = [name for name in names if name.startswith(array)]
    return len(axes) > 1 and axes[-1] == stride


def _guess_constexpr(name: str, parameters: Mapping[str, inspect.Parameter]) -> int:
    """A usual block size: one long axis, or several short ones.  What is no size is a switch."""
    if "GROUP" in name:
        return 8
    sizes = [
        other
        for other, parameter in parameters.items()
        if is_constexpr_annotation(parameter.annotation) and _names_a_size(other)
    ]
    if name in sizes:
        return 1024 if len(sizes) == 1 else 64
    return False


def _names_a_size(name: str) -> bool:
    return "BLOCK" in name or "SIZE" in name or (len(name) == 1 and name.isupper())
