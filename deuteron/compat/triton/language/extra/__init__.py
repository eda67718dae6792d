"""The names of `triton.language.extra`."""

from deuteron.compat.triton.language.extra import cuda, libdevice

__all__ = ["cuda", "libdevice"]
