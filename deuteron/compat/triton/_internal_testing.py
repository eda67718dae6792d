"""The names of `triton._internal_testing`."""

from deuteron.testing.arrays import *  # noqa: F403
