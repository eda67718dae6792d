"""The names of `triton._utils`."""

from deuteron.dtypes import canonical_name as canonicalize_dtype
from deuteron.runtime.descriptors import is_power_of_two, validate_block_shape

__all__ = ["canonicalize_dtype", "is_power_of_two", "validate_block_shape"]
