"""The names of `triton.language.extra.cuda.libdevice`."""

from deuteron.language.extra.libdevice import *  # noqa: F403
