"""The names of `triton.backends.driver`."""

from deuteron.runtime.active_driver import Driver as DriverBase
from deuteron.runtime.active_driver import Driver as GPUDriver

__all__ = ["DriverBase", "GPUDriver"]
