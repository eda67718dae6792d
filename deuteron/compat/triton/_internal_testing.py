"""The names of `triton._internal_testing`."""

from deuteron.testing import arrays
from deuteron.testing.arrays import *  # noqa: F403

_fresh_knobs_impl = arrays.fresh_knobs
