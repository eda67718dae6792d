"""Memory that kernels ask the host for: none do.

Triton's tensor descriptors made in a kernel need memory that an allocator gives; ours are values.
An allocator is taken so that code which sets one runs.
"""

from __future__ import annotations

from collections.abc import Callable

Allocator = Callable[[int, int, int | None], object]


class NullAllocator:
    """What stands for no allocator."""

    def __call__(self, size: int, alignment: int, stream: int | None) -> object:
        raise RuntimeError("no allocator has been set, and no kernel needs one")


def set_allocator(allocator: Allocator) -> None:
    """Take an allocator, which is never called."""
    if not callable(allocator):
        raise TypeError(f"an allocator is a function, not {type(allocator).__name__}")
