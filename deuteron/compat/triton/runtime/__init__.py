"""The names of `triton.runtime`."""

from deuteron.compat.triton.runtime import _async_compile, autotuner, cache, driver, errors, jit
from deuteron.errors import CompilationError as InterpreterError
from deuteron.errors import OutOfResources
from deuteron.runtime.arrays import MockTensor, TensorWrapper, reinterpret
from deuteron.runtime.autotune import Autotuner, Heuristics, autotune, heuristics
from deuteron.runtime.jit import JITFunction, KernelInterface
from deuteron.runtime.tuned_configs import Config

__all__ = [
    "Autotuner",
    "Config",
    "Heuristics",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "TensorWrapper",
    "_async_compile",
    "autotune",
    "autotuner",
    "cache",
    "driver",
    "errors",
    "heuristics",
    "jit",
    "reinterpret",
]  # fmt: skip
