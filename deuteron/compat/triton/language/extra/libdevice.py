"""The names of `triton.language.extra.libdevice`."""

from deuteron.language.extra.libdevice import *  # noqa: F403
