"""Compiling in the background: within `AsyncCompileMode`, `warmup` only hands the work over.

    with ThreadPoolExecutor(8) as pool, AsyncCompileMode(pool):
        for block in (64, 128, 256):
            kernel.warmup(x, n, BLOCK=block, grid=(1,))

A launch waits for the kernel that it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deuteron.runtime.compiled_kernel import CompiledKernel

active_mode: ContextVar[AsyncCompileMode | None] = ContextVar("active_mode", default=None)


class FutureKernel:
    """A kernel that is being compiled; `result` waits for it."""

    def __init__(self, future: Future[CompiledKernel]) -> None:
        self._future = future

    def result(self) -> CompiledKernel:
        """The kernel.  Raises what compiling it raised."""
        return self._future.result()


class AsyncCompileMode:
    """Has `warmup` compile on `executor`; at its end all of that is done.

    Raises what one of the kernels raised, unless `ignore_errors`.
    """

    def __init__(self, executor: Executor, *, ignore_errors: bool = False) -> None:
        self.executor = executor
        self.ignore_errors = ignore_errors
        self._kernels: list[FutureKernel] = []
        self._token: Token[AsyncCompileMode | None] | None = None

    def submit(self, compile: Callable[[], CompiledKernel]) -> FutureKernel:
        """Have a kernel compiled."""
        kernel = FutureKernel(self.executor.submit(compile))
        self._kernels.append(kernel)
        return kernel

    def __enter__(self) -> AsyncCompileMode:
        self._token = active_mode.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._token is not None
        active_mode.reset(self._token)
        kernels, self._kernels = self._kernels, []
        for kernel in kernels:
            try:
                kernel.result()
            except Exception:
                if not self.ignore_errors and error is None:
                    raise
