"""`deuteron inspect FILE.py:KERNEL`: what becomes of a kernel on its way to machine code.

Nothing is run: the kernel is compiled for stand-in arguments whose types come from `--signature`
or are guessed.  It is compiled for this CPU, or with `--target` for another machine or a GPU, which
need not be here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from deuteron.backends.cpu.kernel_info import KernelInfo as CpuKernelInfo
from deuteron.backends.cpu.target import CpuTarget, machine_target
from deuteron.backends.cuda.kernel_info import KernelInfo as CudaKernelInfo
from deuteron.backends.cuda.target import CudaTarget
from deuteron.cli import UsageError
from deuteron.cli.console import output_console
from deuteron.cli.kernels import find_kernel, jit_function
from deuteron.cli.signature import Argument, render, stand_in_arguments
from deuteron.ir import Function
from deuteron.ir.text import format_function
from deuteron.passes.pipeline import trace
from deuteron.runtime import cpu_backend, cuda_backend
from deuteron.runtime.jit import JITFunction
from deuteron.runtime.options import LaunchOptions, parse_options
from deuteron.runtime.parameters import bind
from deuteron.runtime.protocols import Hardware
from deuteron.runtime.specialize import specialize


@dataclass(frozen=True)
class Subject:
    """The kernel that is inspected, its stand-in arguments, and the machine it is compiled for."""

    kernel: JITFunction
    stand_ins: Mapping[str, Argument]
    target: CudaTarget | CpuTarget | None

    @property
    def values(self) -> tuple[Any, ...]:
        return tuple(argument.stand_in for argument in self.stand_ins.values())

    @cached_property
    def lowered(self) -> tuple[Function, LaunchOptions]:
        """The front end's IR.  Nothing is compiled, so that it can be seen when that fails."""
        name, params = self.kernel.__name__, self.kernel.params
        bound = bind(name, params, self.values, {})
        options = parse_options(bound.options, self.kernel.debug, f"kernel {name}")
        request = specialize(name, params, bound.values, options)
        hardware = Hardware()
        if isinstance(self.target, CudaTarget):
            hardware = cuda_backend.CudaBackend(self.target).hardware
        return self.kernel.frontend.lower(self.kernel, request.spec, hardware), options

    @cached_property
    def compiled(self) -> Mapping[str, str | bytes]:
        """What `kernel.asm` has; of another machine's kernel without loading it anywhere."""
        match self.target:
            case None:
                return self.kernel.warmup(*self.values, grid=(1,)).asm
            case CpuTarget() as target:
                image = cpu_backend.CpuBackend(target).compile(*self.lowered)
                info = CpuKernelInfo.from_json(image.metadata)
                texts = cpu_backend.texts_of(info, target)
            case CudaTarget() as target:
                image = cuda_backend.CudaBackend(target).compile(*self.lowered)
                texts = cuda_backend.texts_of(CudaKernelInfo.from_json(image.metadata))
        return {kind: make() for kind, make in texts.items()}


Show = Callable[[Console, Subject], None]


def run(arguments: argparse.Namespace) -> int:
    """Serve `deuteron inspect`."""
    target = _target(arguments.target)
    shows = GPU_PARTS if isinstance(target, CudaTarget) else CPU_PARTS
    parts = _parts(arguments.show, shows)
    kernel = find_kernel(arguments.kernel)
    stand_ins = stand_in_arguments(kernel, arguments.signature)
    console = output_console()
    _title(console, "signature")
    _note(console, render(stand_ins))
    if guessed := [name for name, argument in stand_ins.items() if argument.guessed]:
        _note(console, f"guessed: {', '.join(guessed)}; --signature sets them")
    subject = Subject(jit_function(kernel), stand_ins, target)
    for part in parts:
        shows[part](console, subject)
    return 0


def _target(name: str) -> CudaTarget | CpuTarget | None:
    """What `--target` names; None for this machine."""
    if not name:
        return None
    return CudaTarget(name) if name.startswith("sm_") else machine_target(name)


def _parts(text: str | None, shows: Mapping[str, Show]) -> list[str]:
    """The parts asked for; all but the final IR, which is the last of `passes`, by default."""
    if text is None:
        return [part for part in shows if part != "ir"]
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if part not in shows:
            raise UsageError(f"--show cannot show `{part}`\n  expected: {', '.join(shows)}")
    return parts


def _show_source(console: Console, subject: Subject) -> None:
    _title(console, "source")
    _code(console, subject.kernel.src, "python")


def _show_passes(console: Console, subject: Subject) -> None:
    before = ""
    for name, function in trace(subject.lowered[0]):
        text = format_function(function)
        _title(console, f"IR after {name}")
        _code(console, text if text != before else "unchanged", "")
        before = text


def _show_compiled(kind: str, title: str, lexer: str, console: Console, subject: Subject) -> None:
    text = subject.compiled[kind]
    _title(console, title)
    _code(console, str(text), lexer)


CPU_PARTS: dict[str, Show] = {
    "source": _show_source,
    "ir": partial(_show_compiled, "ir", "IR", ""),
    "passes": _show_passes,
    "llvm": partial(_show_compiled, "llir", "LLVM IR", "llvm"),
    "asm": partial(_show_compiled, "asm", "assembly", "gas"),
}
GPU_PARTS: dict[str, Show] = {
    "source": _show_source,
    "ir": partial(_show_compiled, "ir", "IR", ""),
    "passes": _show_passes,
    "layouts": partial(_show_compiled, "layouts", "layouts", ""),
    "llvm": partial(_show_compiled, "llir", "LLVM IR", "llvm"),
    "ptx": partial(_show_compiled, "ptx", "PTX", "ptx"),
}


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
