"""Argument types for a kernel that nobody has called yet: `*fp32,*fp32,i32,BLOCK=1024`.

A signature names one type for each run-time argument in order, and NAME=VALUE for constexprs (or
NAME=TYPE for an argument by name).  What it leaves out is guessed from names and defaults.  Types
become stand-in arguments, which are specialised as real ones would be:

    *fp32       a pointer to float32, aligned to 16 bytes
    i32         an int that is not divisible by 16; i32:16 is one that is
    fp32        a float
    1, 0.5      exactly this value (1 is built into the code)
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deuteron.cli import UsageError
from deuteron.cli.kernels import jit_function
from deuteron.dtypes import BY_SHORT
from deuteron.lang.source import is_constexpr_annotation
from deuteron.runtime.arrays import MockTensor

_SEPARATOR = re.compile(r",(?![^(\[]*[)\]])")
_NAMED = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)\s*(.+)", re.DOTALL)
_INTEGERS = {"i32": 1 << 20, "i64": 1 << 40, "u64": 1 << 63}
_FLOAT_NAMES = frozenset({"eps", "scale", "p", "alpha", "beta", "lr", "slope", "sm_scale"})


@dataclass(frozen=True, slots=True)
class Argument:
    """One parameter's stand-in: how it is written in a signature, and the value itself."""

    text: str
    value: Any
    guessed: bool


def stand_in_arguments(kernel: Any, signature: str) -> dict[str, Argument]:
    """A stand-in for every parameter, by name.

    Raises UsageError for what cannot be parsed or does not exist.
    """
    parameters = inspect.signature(jit_function(kernel).fn).parameters
    given = _given(signature, parameters)
    preset = _first_config(kernel)
    arguments: dict[str, Argument] = {}
    for name, parameter in parameters.items():
        constexpr = is_constexpr_annotation(parameter.annotation)
        if name in given:
            arguments[name] = _parse(name, given[name], constexpr)
        elif name in preset:
            arguments[name] = Argument(repr(preset[name]), preset[name], guessed=True)
        elif parameter.default is not inspect.Parameter.empty:
            arguments[name] = Argument(repr(parameter.default), parameter.default, guessed=True)
        elif constexpr:
            value = _guess_constexpr(name, parameters)
            arguments[name] = Argument(repr(value), value, guessed=True)
        else:
            text = _guess_type(name, parameters)
            arguments[name] = Argument(text, _stand_in(name, text), guessed=True)
    return arguments


def render(arguments: Mapping[str, Argument]) -> str:
    """The whole signature, by name, as `--signature` would take it."""
    return ", ".join(f"{name}={argument.text}" for name, argument in arguments.items())


def _given(signature: str, parameters: Mapping[str, inspect.Parameter]) -> dict[str, str]:
    """The text given for each parameter."""
    positional = [
        name for name, p in parameters.items() if not is_constexpr_annotation(p.annotation)
    ]
    given: dict[str, str] = {}
    count = 0
    for token in filter(None, (part.strip() for part in _SEPARATOR.split(signature))):
        if named := _NAMED.fullmatch(token):
            name, text = named.groups()
        elif count < len(positional):
            name, text = positional[count], token
            count += 1
        else:
            raise UsageError(
                f"--signature has more types than the kernel has arguments\n"
                f"  expected: {len(positional)}: {', '.join(positional)}\n"
                f"  got:      `{token}` beyond them"
            )
        if name not in parameters:
            raise UsageError(
                f"--signature names `{name}`, which is no parameter of the kernel\n"
                f"  expected: one of {', '.join(parameters)}"
            )
        given[name] = text
    return given


def _first_config(kernel: Any) -> dict[str, Any]:
    """The meta-parameters of the first config, for an autotuned kernel."""
    while not hasattr(kernel, "configs"):
        if kernel is jit_function(kernel):
            return {}
        kernel = kernel.fn
    return dict(kernel.configs[0].kwargs) if kernel.configs else {}


def _parse(name: str, text: str, constexpr: bool) -> Argument:
    if not constexpr:
        return Argument(text, _stand_in(name, text), guessed=False)
    if text in BY_SHORT:
        return Argument(text, BY_SHORT[text], guessed=False)
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text  # a plain word is a string: ACTIVATION=relu
    return Argument(text, value, guessed=False)


def _stand_in(name: str, text: str) -> Any:
    """A value that specialises as the type says."""
    type_name, _, divisor = text.partition(":")
    if text.startswith("*") and type_name[1:] in BY_SHORT:
        return MockTensor(BY_SHORT[type_name[1:]])
    if type_name in _INTEGERS and divisor in ("", "16"):
        return _INTEGERS[type_name] + (0 if divisor else 3)
    if text == "fp32":
        return 0.5
    if text == "i1":
        return True
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise UsageError(
            f"`{text}` is not a type for argument `{name}`\n"
            f"  expected: *TYPE for an array ({', '.join(BY_SHORT)}),\n"
            f"            {', '.join(_INTEGERS)} (or i32:16), fp32, i1 or a number for a scalar"
        ) from None


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
