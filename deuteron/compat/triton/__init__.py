"""The names of `triton`, at the spellings of its versions 3.8 and 3.9."""

from __future__ import annotations

from typing import Any

import deuteron.testing as testing
from deuteron import (
    CompilationError,
    Config,
    DeuteronError,
    JITFunction,
    KernelInterface,
    OutOfResources,
    TensorWrapper,
    aggregate,
    autotune,
    cdiv,
    constexpr_function,
    heuristics,
    jit,
    next_power_of_2,
    reinterpret,
)
from deuteron.compat import absent
from deuteron.compat.triton import (
    backends,
    compiler,
    knobs,
    language,
    runtime,
    tools,
)
from deuteron.lang.must_use import must_use_result
from deuteron.runtime.allocation import set_allocator
from deuteron.runtime.arrays import MockTensor
from deuteron.runtime.ast_source import compile
from deuteron.runtime.async_compile import AsyncCompileMode, FutureKernel

__version__ = "3.9.0"

TritonError = DeuteronError
InterpreterError = CompilationError

__all__ = [
    "AsyncCompileMode", "CompilationError", "Config", "FutureKernel", "InterpreterError",
    "JITFunction", "KernelInterface", "MockTensor", "OutOfResources", "TensorWrapper",
    "TritonError", "aggregate", "autotune", "backends", "cdiv", "compile", "compiler",
    "constexpr_function", "heuristics", "jit", "knobs", "language", "must_use_result",
    "next_power_of_2", "reinterpret", "runtime", "set_allocator", "testing", "tools",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    absent(__name__, name)
