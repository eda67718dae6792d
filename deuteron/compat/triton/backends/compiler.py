"""The names of `triton.backends.compiler`."""

from deuteron.lang.target_info import GPUTarget

__all__ = ["GPUTarget"]
