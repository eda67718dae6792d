"""The names of `triton.tools`."""

from deuteron.compat.triton.tools import tensor_descriptor

__all__ = ["tensor_descriptor"]
