"""The names of `triton.language.math`."""

from deuteron.lang.math import *  # noqa: F403
from deuteron.language.extra.libdevice import tanh as tanh
