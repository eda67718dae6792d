"""Grids: how many programs a launch runs along each axis."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any, cast

from deuteron.errors import LaunchError

MAX_AXIS = 2**31 - 1
MAX_PROGRAMS = 2**62  # program ids are computed in 64 bits


def resolve_grid(kernel: str, grid: object, meta: Mapping[str, object]) -> tuple[int, int, int]:
    """The grid's three sizes; a callable is asked with the call's arguments by name.

    A size of 0 is good and runs nothing.  Raises LaunchError for what is no grid.
    """
    if callable(grid):
        grid = cast(Callable[[Mapping[str, object]], object], grid)(meta)
    if not isinstance(grid, Iterable) or isinstance(grid, (str, bytes)):
        raise _bad(kernel, grid, type(grid).__name__)
    given = tuple(cast("Iterable[Any]", grid))
    if not 1 <= len(given) <= 3:
        raise _bad(kernel, given, f"{len(given)} sizes")
    sizes = [_size(kernel, given, axis, size) for axis, size in enumerate(given)]
    if prod(sizes) >= MAX_PROGRAMS:
        raise LaunchError(
            f"kernel {kernel}: the grid has too many programs\n"
            f"  expected: fewer than 2**62\n  got:      {tuple(sizes)}, that is {prod(sizes):,}\n"
            "  remedy:   give each program more work"
        )
    first, second, third = [*sizes, 1, 1][:3]
    return first, second, third


def _size(kernel: str, grid: object, axis: int, size: Any) -> int:
    try:
        number = operator.index(size)
    except TypeError as error:
        raise _bad(kernel, grid, f"{size!r} ({type(size).__name__}) for axis {axis}") from error
    if not 0 <= number <= MAX_AXIS:
        remedy = "a grid of 0 programs runs nothing" if number < 0 else "use a second axis as well"
        raise LaunchError(
            f"kernel {kernel}: axis {axis} of the grid is out of range\n"
            f"  expected: 0 to 2**31 - 1\n  got:      {number}\n"
            f"  remedy:   {remedy}"
        )
    return number


def _bad(kernel: str, grid: object, got: str) -> LaunchError:
    return LaunchError(
        f"kernel {kernel}: {grid!r} is no grid\n"
        "  expected: a tuple of 1 to 3 ints, or a callable that returns one\n"
        f"  got:      {got}\n"
        f"  remedy:   write {kernel}[(programs,)](…); divide sizes with //, or with deuteron.cdiv"
    )
