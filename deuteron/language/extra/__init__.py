"""Parts of the language beyond its core: `from deuteron.language.extra import libdevice`."""

from deuteron.lang import libdevice
from deuteron.language.extra import cpu

__all__ = ["cpu", "libdevice"]
