"""`deuteron inspect FILE.py:KERNEL`: what becomes of a kernel on its way to machine code.

Nothing is run: the kernel is compiled for stand-in arguments whose types come from `--signature`
or are guessed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from deuteron.cli import UsageError
from deuteron.cli.console import output_console
from deuteron.cli.kernels import find_kernel, jit_function
from deuteron.cli.signature import Argument, render, stand_in_arguments
from deuteron.ir import Function
from deuteron.ir.text import format_function
from deuteron.passes.pipeline import trace
from deuteron.runtime.jit import JITFunction
from deuteron.runtime.options import parse_options
from deuteron.runtime.parameters import bind
from deuteron.runtime.specialize import specialize

Show = Callable[[Console, JITFunction, Mapping[str, Argument]], None]


def run(arguments: argparse.Namespace) -> int:
    """Serve `deuteron inspect`."""
    parts = _parts(arguments.show)
    kernel = find_kernel(arguments.kernel)
    stand_ins = stand_in_arguments(kernel, arguments.signature)
    console = output_console()
    _title(console, "signature")
    _note(console, render(stand_ins))
    if guessed := [name for name, argument in stand_ins.items() if argument.guessed]:
        _note(console, f"guessed: {', '.join(guessed)}; --signature sets them")
    for part in parts:
        PARTS[part](console, jit_function(kernel), stand_ins)
    return 0


def _parts(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if part not in PARTS:
            raise UsageError(f"--show cannot show `{part}`\n  expected: {', '.join(PARTS)}")
    return parts


def _show_source(console: Console, kernel: JITFunction, stand_ins: Mapping[str, Argument]) -> None:
    _title(console, "source")
    _code(console, kernel.src, "python")


def _show_passes(console: Console, kernel: JITFunction, stand_ins: Mapping[str, Argument]) -> None:
    before = ""
    for name, function in trace(_lower(kernel, stand_ins)):
        text = format_function(function)
        _title(console, f"IR after {name}")
        _code(console, text if text != before else "unchanged", "")
        before = text


def _lower(kernel: JITFunction, stand_ins: Mapping[str, Argument]) -> Function:
    """The front end's IR.  Nothing is compiled, so that it can be seen when that fails."""
    bound = bind(kernel.__name__, kernel.params, _values(stand_ins), {})
    options = parse_options(bound.options, kernel.debug, f"kernel {kernel.__name__}")
    request = specialize(kernel.__name__, kernel.params, bound.values, options)
    return kernel.frontend.lower(kernel, request.spec)


def _show_asm(part: str, title: str, lexer: str) -> Show:
    def show(console: Console, kernel: JITFunction, stand_ins: Mapping[str, Argument]) -> None:
        compiled = kernel.warmup(*_values(stand_ins), grid=(1,))
        _title(console, title)
        _code(console, compiled.asm[part], lexer)

    return show


PARTS: dict[str, Show] = {
    "source": _show_source,
    "ir": _show_asm("ir", "IR", ""),
    "passes": _show_passes,
    "llvm": _show_asm("llir", "LLVM IR", "llvm"),
    "asm": _show_asm("asm", "assembly", "gas"),
}


def _values(stand_ins: Mapping[str, Argument]) -> tuple[Any, ...]:
    return tuple(argument.value for argument in stand_ins.values())


def _title(console: Console, title: str) -> None:
    console.rule(title, align="left", characters="-" if console.options.ascii_only else "─")


def _note(console: Console, text: str) -> None:
    console.print(Text(text, style="dim"), soft_wrap=True)


def _code(console: Console, code: str, lexer: str) -> None:
    """Code as it is, lines unbroken; coloured where there is a terminal."""
    text = Text(code.rstrip("\n"))
    if lexer and console.is_terminal:
        text = Syntax("", lexer, background_color="default").highlight(code.rstrip("\n"))
    console.print(text, soft_wrap=True)
