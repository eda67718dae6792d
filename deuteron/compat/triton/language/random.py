"""The names of `triton.language.random`."""

from deuteron.lang.random import *  # noqa: F403
