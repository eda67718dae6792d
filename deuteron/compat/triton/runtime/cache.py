"""The names of `triton.runtime.cache`."""

from deuteron.compat import absent
from deuteron.runtime.compiler_stamp import compiler_stamp as triton_key

__all__ = ["triton_key"]


def __getattr__(name: str) -> object:
    absent(__name__, name)
