"""The names of `triton.runtime.autotuner`."""

from deuteron.errors import InternalError as PTXASError
from deuteron.errors import OutOfResources
from deuteron.runtime.autotune import Autotuner, Heuristics, autotune, heuristics
from deuteron.runtime.tuned_configs import Config

__all__ = [
    "Autotuner", "Config", "Heuristics", "OutOfResources", "PTXASError", "autotune", "heuristics",
]  # fmt: skip
