"""The CPU backend as a jit function uses it.  What it needs is imported when first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from deuteron.backends.cpu import launcher
from deuteron.backends.cpu.kernel_info import KernelInfo, ParamInfo
from deuteron.backends.cpu.launcher import Entry
from deuteron.backends.llvm.compile import Machine, assembly
from deuteron.errors import OutOfResources, call_site
from deuteron.ir import Function
from deuteron.runtime.compiler_stamp import compiler_stamp
from deuteron.runtime.deep_stack import compile_deeply
from deuteron.runtime.options import LaunchOptions
from deuteron.runtime.protocols import Hardware, KernelImage, Resources
from deuteron.runtime.specialize import Request

if TYPE_CHECKING:
    from deuteron.backends.cpu.target import CpuTarget


@dataclass(frozen=True, slots=True)
class CpuKernel:
    """A kernel in this process's memory."""

    name: str
    loaded: launcher.LoadedKernel

    @property
    def params(self) -> Sequence[ParamInfo]:
        return self.loaded.info.params

    @property
    def resources(self) -> Resources:
        registers = _resolved(None).vector_registers
        return Resources(scratch_bytes=self.loaded.info.scratch_bytes, registers=registers)

    @property
    def texts(self) -> Mapping[str, Callable[[], str | bytes]]:
        return texts_of(self.loaded.info)

    def launch(self, grid: tuple[int, int, int], request: Request) -> None:
        """Run it over a grid.  Raises OutOfResources and DeviceAssertionError."""
        try:
            launcher.launch(self.loaded, grid, request.values)
        except OutOfResources as error:
            raise self._out_of_scratch(error) from None

    def entry(self, request: Request) -> Entry:
        return self.loaded.entry()

    def raise_failure(self, status: int, details: bytes) -> NoReturn:
        """Raise what a status of the pool or a control block stands for."""
        try:
            launcher.raise_failure(self.loaded.info, status, details)
        except OutOfResources as error:
            raise self._out_of_scratch(error) from None

    def _out_of_scratch(self, error: OutOfResources) -> OutOfResources:
        """The pool's error, which knows neither kernel nor call, with both."""
        name = f"scratch bytes of kernel {self.name}"
        return OutOfResources(name, error.required, error.limit, error.remedy, loc=call_site())


@dataclass(frozen=True, slots=True)
class CpuBackend:
    """Compiles for `target`, which is this machine by default: code for no other can be loaded."""

    target: CpuTarget | None = None

    @property
    def hardware(self) -> Hardware:
        return Hardware()

    def key(self) -> str:
        """The machine and the compiler."""
        return f"{_resolved(self.target).key} {compiler_stamp()}"

    def compile(self, function: Function, options: LaunchOptions) -> KernelImage:
        from deuteron.backends.cpu.compiler import compile_function

        return compile_deeply(partial(compile_function, function, self.target), function.loc)

    def load(self, name: str, metadata: Mapping[str, Any], obj: bytes) -> CpuKernel:
        return CpuKernel(name, launcher.load_kernel(obj, KernelInfo.from_json(metadata)))

    def interpret(
        self, function: Function, args: Sequence[object], grid: tuple[int, int, int]
    ) -> None:
        from deuteron.backends.interp import run

        run(function, args, grid)


def texts_of(
    info: KernelInfo, target: CpuTarget | None = None
) -> dict[str, Callable[[], str | bytes]]:
    """What can be read of a kernel compiled for `target`, by its key in `kernel.asm`."""
    return {
        "ir": lambda: info.ir,
        "llir": lambda: info.llvm,
        "asm": partial(_assembly, info.llvm, target),
    }


def _resolved(target: CpuTarget | None) -> CpuTarget:
    """The target, this machine by default."""
    from deuteron.backends.cpu.target import host_target  # imports llvmlite

    return target or host_target()


def _assembly(llvm: str, target: CpuTarget | None) -> str:
    target = _resolved(target)
    return assembly(llvm, Machine(target.triple, target.cpu, target.feature_string))
