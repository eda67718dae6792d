"""The names of `triton.compiler`."""

from deuteron.compat.triton.compiler import compiler, errors
from deuteron.errors import CompilationError
from deuteron.runtime.ast_source import ASTSource, compile
from deuteron.runtime.compiled_kernel import CompiledKernel

__all__ = ["ASTSource", "CompilationError", "CompiledKernel", "compile", "compiler", "errors"]
