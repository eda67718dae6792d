"""Mathematics beyond `tl.math`, under the names of CUDA's libdevice."""

from deuteron.lang.libdevice import *  # noqa: F403
from deuteron.lang.libdevice import __all__ as __all__
