"""The names of `triton.language.extra.cuda`."""

from deuteron.compat.triton.language.extra.cuda import libdevice

__all__ = ["libdevice"]
