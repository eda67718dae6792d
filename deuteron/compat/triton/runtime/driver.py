"""The names of `triton.runtime.driver`.

There both the module and the object in it that knows the active driver go by this name; here one
can stand for the other.
"""

from __future__ import annotations

from typing import Any

from deuteron.compat import absent
from deuteron.runtime.active_driver import driver, reset_active, set_active

__all__ = ["driver", "reset_active", "set_active"]


def __getattr__(name: str) -> Any:
    if name in ("active", "default"):
        return getattr(driver, name)
    absent(__name__, name)
