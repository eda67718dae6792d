"""What a jit function is given from outside: a front end above this layer, and backends below.

A backend serves one device.  Its `compile` makes an image that the disk cache can keep, its `load`
makes of it a kernel in memory that can be launched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from deuteron.backends.cpu.kernel_info import ParamInfo
from deuteron.backends.cpu.launcher import Entry
from deuteron.ir import Function
from deuteron.runtime.options import LaunchOptions
from deuteron.runtime.specialize import Request, Specialization

if TYPE_CHECKING:
    from deuteron.runtime.jit import JITFunction


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a kernel is compiled for, as far as it may ask: "cpu" or "cuda".

    `arch` is the compute capability of CUDA (90 for 9.0), and 0 for a CPU.
    """

    kind: str = "cpu"
    arch: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """A name outside of a kernel, with what it stood for and stands for."""

    name: str
    before: object
    now: object


class Frontend(Protocol):
    """Python source to tile IR."""

    def cache_key(self, fn: JITFunction) -> str:
        """A hash of the source of `fn`, of all it calls, and of the constant globals they read."""
        ...

    def globals_changed(self, fn: JITFunction) -> Change | None:
        """A global that is not what it was when `fn` was first compiled, else None.

        Asked at every launch.
        """
        ...

    def replace_source(self, fn: JITFunction, text: str) -> None:
        """Compile `fn` from another text from now on.  Raises CompilationError."""
        ...

    def forget(self) -> None:
        """What is known of sources and globals may have changed."""
        ...

    def lower(self, fn: JITFunction, spec: Specialization, hardware: Hardware = ...) -> Function:
        """The tile IR of `fn` for a specialisation and hardware.  Raises CompilationError."""
        ...


@dataclass(frozen=True, slots=True)
class Resources:
    """What a kernel takes: scratch bytes a thread of a CPU; shared bytes a program on a GPU, and
    registers and words that did not fit in them, a thread there.
    """

    scratch_bytes: int = 0
    shared_bytes: int = 0
    registers: int = 0
    spilled_words: int = 0


class KernelImage(Protocol):
    """A compiled kernel: its code, and the JSON form of what is known of it."""

    @property
    def metadata(self) -> Mapping[str, Any]: ...

    @property
    def obj(self) -> bytes: ...


class LoadedKernel(Protocol):
    """A kernel in the memory of its backend's device."""

    @property
    def params(self) -> Sequence[ParamInfo]: ...

    @property
    def resources(self) -> Resources: ...

    @property
    def texts(self) -> Mapping[str, Callable[[], str | bytes]]:
        """What `kernel.asm` shows, made when asked for."""
        ...

    def launch(self, grid: tuple[int, int, int], request: Request) -> None:
        """Run the kernel for a call it was compiled for, or put it on the call's stream."""
        ...

    def entry(self, request: Request) -> Entry | None:
        """How machine code runs it for calls like this one; None when it must not."""
        ...

    def raise_failure(self, status: int, details: bytes) -> NoReturn:
        """Raise what a run by machine code ended in."""
        ...


class Backend(Protocol):
    """Tile IR to kernels of one device."""

    @property
    def hardware(self) -> Hardware: ...

    def key(self) -> str:
        """A text that changes with the compiler and with the device it compiles for."""
        ...

    def compile(self, function: Function, options: LaunchOptions) -> KernelImage: ...

    def load(self, name: str, metadata: Mapping[str, Any], obj: bytes) -> LoadedKernel:
        """Load an image that `compile` made, in this or another process, of the kernel `name`."""
        ...

    def interpret(
        self, function: Function, args: Sequence[object], grid: tuple[int, int, int]
    ) -> None:
        """Run a function on the interpreter; `args` are addresses and numbers."""
        ...
