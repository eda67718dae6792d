"""The CPU backend as a jit function uses it.  What it needs is imported when first used."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING

from deuteron.backends.llvm.compile import Machine, assembly
from deuteron.errors import CompilationError
from deuteron.ir import Function
from deuteron.runtime.deep_stack import call_deeply
from deuteron.runtime.options import LaunchOptions
from deuteron.runtime.protocols import KernelImage

if TYPE_CHECKING:
    from deuteron.backends.cpu.target import CpuTarget


@dataclass(frozen=True, slots=True)
class CpuBackend:
    """Compiles for this machine."""

    def key(self) -> str:
        """The machine, LLVM's version, and this package's files by size and time of change."""
        llvmlite = import_module("llvmlite").__version__  # importlib.metadata takes 40 ms
        return f"{_target().key} llvmlite {llvmlite} {_package_stamp()}"

    def compile(self, function: Function, options: LaunchOptions) -> KernelImage:
        from deuteron.backends.cpu.compiler import compile_function

        try:
            return compile_function(function)
        except RecursionError:
            pass
        try:
            return call_deeply(partial(compile_function, function))
        except RecursionError as error:
            raise CompilationError(
                "the expressions of this kernel are too long to compile",
                function.loc,
                remedy="use tl.range instead of tl.static_range, or store parts of the result",
            ) from error

    def assembly(self, llvm: str) -> str:
        """The assembly of a kernel's LLVM text."""
        target = _target()
        return assembly(llvm, Machine(target.triple, target.cpu, target.feature_string))

    def interpret(
        self, function: Function, args: Sequence[object], grid: tuple[int, int, int]
    ) -> None:
        from deuteron.backends.interp import run

        run(function, args, grid)


def _target() -> CpuTarget:
    from deuteron.backends.cpu.target import host_target  # imports llvmlite

    return host_target()


@cache
def _package_stamp() -> str:
    """Changes when a file of the compiler does, without reading them all."""
    digest = hashlib.sha256()
    for path in sorted(_sources()):
        status = os.stat(path)
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _sources() -> Iterator[str]:
    root = os.path.dirname(os.path.dirname(__file__))
    for layer in ("ir", "passes", "backends", "lang"):
        for folder, _, names in os.walk(os.path.join(root, layer)):
            yield from (os.path.join(folder, name) for name in names if name.endswith(".py"))
