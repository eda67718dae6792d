"""The names of `triton.language.standard`."""

from deuteron.lang.standard import *  # noqa: F403
