"""The names of `triton.language.core`."""

from __future__ import annotations

from typing import Any

import deuteron.language
from deuteron.compat import absent
from deuteron.language import constexpr

CONSTEXPR_0 = constexpr(0)


def __getattr__(name: str) -> Any:
    """What stands in `triton.language` stands in its core too."""
    try:
        return getattr(deuteron.language, name)
    except AttributeError:
        absent(__name__, name)
