"""What a jit function is given from outside: a front end above this layer, and a backend below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from deuteron.ir import Function
from deuteron.runtime.options import LaunchOptions
from deuteron.runtime.specialize import Specialization

if TYPE_CHECKING:
    from deuteron.runtime.jit import JITFunction


class Frontend(Protocol):
    """Python source to tile IR."""

    def cache_key(self, fn: JITFunction) -> str:
        """A hash of the source of `fn`, of all it calls, and of the constant globals they read."""
        ...

    def globals_changed(self, fn: JITFunction) -> str | None:
        """The name of a global that is not what it was when `fn` was first compiled, else None.

        Asked at every launch.
        """
        ...

    def replace_source(self, fn: JITFunction, text: str) -> None:
        """Compile `fn` from another text from now on.  Raises CompilationError."""
        ...

    def lower(self, fn: JITFunction, spec: Specialization) -> Function:
        """The tile IR of `fn` for a specialisation.  Raises CompilationError."""
        ...


class KernelImage(Protocol):
    """A compiled kernel: an object file, and the JSON form of its KernelInfo."""

    @property
    def metadata(self) -> Mapping[str, Any]: ...

    @property
    def obj(self) -> bytes: ...


class Backend(Protocol):
    """Tile IR to machine code."""

    def key(self) -> str:
        """A text that changes with the compiler and with the machine it compiles for."""
        ...

    def compile(self, function: Function, options: LaunchOptions) -> KernelImage: ...

    def assembly(self, llvm: str) -> str:
        """The assembly of a kernel's LLVM text."""
        ...

    def interpret(
        self, function: Function, args: Sequence[object], grid: tuple[int, int, int]
    ) -> None:
        """Run a function on the interpreter; `args` are addresses and numbers."""
        ...
