"""The names of `triton.compiler.compiler`."""

from deuteron.runtime.ast_source import ASTSource, compile, make_backend
from deuteron.runtime.compiled_kernel import CompiledKernel
from deuteron.runtime.compiler_stamp import compiler_stamp as triton_key

__all__ = ["ASTSource", "CompiledKernel", "compile", "make_backend", "triton_key"]
