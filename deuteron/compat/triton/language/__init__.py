"""The names of `triton.language`."""

from __future__ import annotations

from typing import Any

from deuteron.compat import absent
from deuteron.compat.triton.language import core, extra, math, random, standard
from deuteron.dtypes import int32
from deuteron.ir.types import Pointer as pointer_type  # noqa: N813 - Triton's spelling
from deuteron.language import *  # noqa: F403

__all__ = ["core", "extra", "math", "pi32_t", "pointer_type", "random", "standard"]

pi32_t = pointer_type(int32)


def __getattr__(name: str) -> Any:
    import deuteron.language

    try:
        return getattr(deuteron.language, name)
    except AttributeError:
        absent(__name__, name)
