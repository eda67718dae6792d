"""The names of `triton.compiler.errors`."""

from deuteron.errors import CompilationError, CompileTimeAssertionFailure
from deuteron.errors import CompilationError as UnsupportedLanguageConstruct

__all__ = ["CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct"]
