"""The oracle: tile IR on NumPy, slow and plain; the base of the sanitizers."""

from deuteron.backends.interp.memory import CheckedMemory, Memory, RawMemory, Region, Site
from deuteron.backends.interp.ops import RULES
from deuteron.backends.interp.run import run

__all__ = ["RULES", "CheckedMemory", "Memory", "RawMemory", "Region", "Site", "run"]
