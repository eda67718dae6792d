"""The names of `triton.backends`."""

from deuteron.compat.triton.backends import compiler, driver
from deuteron.runtime.active_driver import backends

__all__ = ["backends", "compiler", "driver"]
