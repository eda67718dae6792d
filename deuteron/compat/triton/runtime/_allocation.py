"""The names of `triton.runtime._allocation`."""

from deuteron.runtime.allocation import NullAllocator, set_allocator

__all__ = ["NullAllocator", "set_allocator"]
