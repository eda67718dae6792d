"""The CUDA backend as a jit function uses it: one for each GPU, or for a target without a card."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from deuteron.backends.cpu.kernel_info import ParamInfo
from deuteron.backends.cpu.launcher import Entry
from deuteron.backends.cuda import launcher
from deuteron.backends.cuda.driver import Device, driver
from deuteron.backends.cuda.kernel_info import KernelInfo
from deuteron.backends.cuda.target import CudaTarget
from deuteron.errors import InternalError, LaunchError
from deuteron.ir import Function
from deuteron.runtime.compiler_stamp import compiler_stamp
from deuteron.runtime.deep_stack import compile_deeply
from deuteron.runtime.options import LaunchOptions
from deuteron.runtime.protocols import Hardware, KernelImage, Resources
from deuteron.runtime.specialize import Request
from deuteron.runtime.streams import launch_stream, requested_stream

_WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class CudaKernel:
    """A kernel in a GPU's memory."""

    name: str
    loaded: launcher.LoadedKernel

    @property
    def params(self) -> Sequence[ParamInfo]:
        return self.loaded.info.params

    @property
    def resources(self) -> Resources:
        return Resources(
            shared_bytes=self.loaded.info.shared_bytes,
            registers=self.loaded.registers,
            spilled_words=self.loaded.spilled_bytes // _WORD_BYTES,
        )

    @property
    def texts(self) -> Mapping[str, Callable[[], str | bytes]]:
        made = texts_of(self.loaded.info)
        cubin = self.loaded.cubin
        return made | {"cubin": lambda: cubin} if cubin else made

    def launch(self, grid: tuple[int, int, int], request: Request) -> None:
        """Put it on the call's stream.  Raises LaunchError, DeviceError, DeviceAssertionError."""
        stream = launch_stream(request, f"kernel {self.name}")
        launcher.launch(self.loaded, grid, request.values, stream)

    def entry(self, request: Request) -> Entry | None:
        return self.loaded.entry(requested_stream(request, f"kernel {self.name}"))

    def raise_failure(self, status: int, details: bytes) -> NoReturn:
        """Raise what the driver's status of a launch over the grid in `details` stands for."""
        launcher.raise_failure(self.loaded, status, launcher.read_grid(details))


@dataclass(frozen=True, slots=True)
class CudaBackend:
    """Compiles for `target`, and loads into `device`; without one it compiles only."""

    target: CudaTarget
    device: Device | None = None

    @property
    def hardware(self) -> Hardware:
        return Hardware("cuda", self.target.sm)

    def key(self) -> str:
        """The target and the compiler."""
        return f"{self.target.key} {compiler_stamp()}"

    def compile(self, function: Function, options: LaunchOptions) -> KernelImage:
        """PTX for the target.

        Raises OutOfResources for more warps than the GPU permits, LaunchError for clusters, and
        CompilationError.
        """
        from deuteron.backends.cuda.compiler import compile_function

        if options.num_ctas > 1:
            raise _no_clusters(function.name, options.num_ctas)
        if self.device is not None:
            launcher.check_threads(function.name, options.num_warps, self.device)
        compiling = partial(
            compile_function,
            function,
            self.target,
            num_warps=options.num_warps,
            num_stages=options.num_stages,
            maxnreg=options.maxnreg,
        )
        return compile_deeply(compiling, function.loc)

    def load(self, name: str, metadata: Mapping[str, Any], obj: bytes) -> CudaKernel:
        """Load PTX into the GPU.  Raises OutOfResources, DeviceError."""
        if self.device is None:
            raise InternalError(f"kernel {name}: a backend without a GPU cannot load it")
        info = KernelInfo.from_json(metadata)
        return CudaKernel(name, launcher.load_kernel(obj, info, self.device))

    def interpret(
        self, function: Function, args: Sequence[object], grid: tuple[int, int, int]
    ) -> None:
        """Refuse: the interpreter reads this process's memory only."""
        raise LaunchError(
            f"kernel {function.name}: the interpreter cannot read a GPU's memory\n"
            "  expected: arrays on the CPU\n"
            f"  got:      arrays on {self.device}\n"
            "  remedy:   unset DEUTERON_INTERPRET, or move the arrays to the CPU: x.cpu()"
        )


def gpu_backend(ordinal: int) -> CudaBackend:
    """The backend of a GPU.

    Raises DeviceError when there is none of that number, UserError when it is too old.
    """
    device = driver().device(ordinal)
    return CudaBackend(CudaTarget.of_capability(*device.capability), device)


def texts_of(info: KernelInfo) -> dict[str, Callable[[], str | bytes]]:
    """What can be read of a compiled kernel, by its key in `kernel.asm`."""
    return {
        "ir": lambda: info.ir,
        "layouts": lambda: info.layouts,
        "llir": lambda: info.llvm,
        "ptx": lambda: info.ptx,
    }


def _no_clusters(kernel: str, num_ctas: int) -> LaunchError:
    return LaunchError(
        f"kernel {kernel}: clusters are not there yet\n"
        "  expected: num_ctas=1\n"
        f"  got:      num_ctas={num_ctas}\n"
        "  remedy:   leave num_ctas out"
    )
