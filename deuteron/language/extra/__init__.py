"""Parts of the language beyond its core: `from deuteron.language.extra import libdevice`."""

from deuteron.lang import libdevice

__all__ = ["libdevice"]
