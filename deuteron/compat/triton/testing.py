"""The names of `triton.testing`."""

from deuteron.testing import *  # noqa: F403
