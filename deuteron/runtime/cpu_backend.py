"""The CPU backend as a jit function uses it.  What it needs is imported when first used."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from deuteron.backends.llvm.compile import Machine, assembly
from deuteron.ir import Function
from deuteron.runtime.options import LaunchOptions
from deuteron.runtime.protocols import KernelImage

if TYPE_CHECKING:
    from deuteron.backends.cpu.target import CpuTarget


@dataclass(frozen=True, slots=True)
class CpuBackend:
    """Compiles for this machine."""

    def key(self) -> str:
        """The machine, LLVM's version, and this package's files by size and time of change."""
        return f"{_target().key} llvmlite {_llvmlite_version()} {_package_stamp()}"

    def compile(self, function: Function, options: LaunchOptions) -> KernelImage:
        from deuteron.backends.cpu.compiler import compile_function

        return compile_function(function, options)

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
def _llvmlite_version() -> str:
    from importlib.metadata import version  # 20 ms that most programs never need

    return version("llvmlite")


@cache
def _package_stamp() -> str:
    """Changes when a file of the compiler does, without reading them all."""
    digest = hashlib.sha256()
    for path in sorted(_sources()):
        status = path.stat()
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _sources() -> Iterator[Path]:
    root = Path(__file__).parents[1]
    for layer in ("ir", "passes", "backends", "lang"):
        yield from (root / layer).rglob("*.py")
