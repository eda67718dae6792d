"""Parts of the language beyond its core: `from deuteron.language.extra import libdevice`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from deuteron.language.extra import cpu, cuda

if TYPE_CHECKING:
    from deuteron.language.extra import libdevice

__all__ = ["cpu", "cuda", "libdevice"]


def __getattr__(name: str) -> Any:
    """`tl.extra.libdevice` when it is first asked for: few kernels need it."""
    if name == "libdevice":
        return import_module(f"{__name__}.libdevice")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
