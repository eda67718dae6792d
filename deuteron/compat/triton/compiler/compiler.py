"""The names of `triton.compiler.compiler`."""

from deuteron.runtime.compiled_kernel import CompiledKernel
from deuteron.runtime.compiler_stamp import compiler_stamp as triton_key

__all__ = ["CompiledKernel", "triton_key"]
