"""The names of `triton.runtime.jit`."""

from deuteron.lang.constexpr_function import constexpr_function
from deuteron.lang.jit import jit
from deuteron.runtime.arrays import MockTensor, TensorWrapper, reinterpret
from deuteron.runtime.jit import JITFunction, KernelInterface
from deuteron.runtime.parameters import KernelParam

JITCallable = JITFunction

__all__ = [
    "JITCallable", "JITFunction", "KernelInterface", "KernelParam", "MockTensor", "TensorWrapper",
    "constexpr_function", "jit", "reinterpret",
]  # fmt: skip
