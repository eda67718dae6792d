"""Runs compiled kernels on arrays beside pages that nobody may touch.

    python -m tests.oracle.guarded

A load or store one byte outside an array ends the process, so this is a program of its own: it
prints each kernel's name before it runs it, and `done` in the end.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from itertools import count

import numpy as np

from tests.oracle.elementwise import Recipe, elementwise_recipes
from tests.oracle.memory_kernels import memory_recipes
from tests.oracle.runners import Arena, CpuRunner
from tests.oracle.structures import fold_recipes
from tests.oracle.tile_kernels import product_recipes

PAGE = mmap.PAGESIZE
FORBIDDEN, ALLOWED = 0, mmap.PROT_READ | mmap.PROT_WRITE
DTYPES = ("fp32", "bf16", "fp16", "i8", "i64", "i1")


class GuardedArena(Arena):
    """An array whose last byte (or first one, for every other array) is its page's."""

    _numbers = count()

    def __init__(self, size: int) -> None:
        room = -(-max(size, 1) // PAGE) * PAGE
        self._map = mmap.mmap(-1, room + 2 * PAGE)
        whole = np.frombuffer(self._map, np.uint8)
        self._protect(whole[:PAGE], FORBIDDEN)
        self._protect(whole[PAGE + room :], FORBIDDEN)
        start = PAGE if next(self._numbers) % 2 else PAGE + room - size
        self.inside = whole[start : start + size]
        self.address = self.inside.ctypes.data

    def check(self, what: str) -> None:
        """Nothing to look for: a write outside has ended the process."""

    @staticmethod
    def _protect(pages: np.ndarray, protection: int) -> None:
        address, size = ctypes.c_void_p(pages.ctypes.data), ctypes.c_size_t(pages.nbytes)
        if ctypes.CDLL(None).mprotect(address, size, protection):
            raise OSError("mprotect failed")


def recipes() -> Iterator[Recipe]:
    """Kernels with masks, and those whose addresses are computed in unusual ways."""
    for recipe in elementwise_recipes():
        topic, dtype = recipe.id.split("-")[:2]
        if recipe.id.endswith("masked") and topic != "cast" and dtype in DTYPES:
            yield recipe
    yield from memory_recipes()
    yield from (r for r in fold_recipes() if "-8x32-" in r.id or r.id.startswith("softmax"))
    yield from (r for r in product_recipes() if r.id.startswith("matmul"))


def main() -> None:
    """Run every kernel; results are compared elsewhere."""
    runner = CpuRunner(place=GuardedArena)
    for recipe in recipes():
        print(recipe.id, flush=True)
        case = recipe.make()
        runner.run(case.function, case.fresh_args(), case.grid)
    print("done")


if __name__ == "__main__":
    sys.exit(main())
