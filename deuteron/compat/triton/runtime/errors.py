"""The names of `triton.runtime.errors`."""

from deuteron.errors import CompilationError as InterpreterError
from deuteron.errors import InternalError as PTXASError
from deuteron.errors import OutOfResources

__all__ = ["InterpreterError", "OutOfResources", "PTXASError"]
