"""The strategy: random kernels, as cases."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from tests.fuzz import access, dots, elementwise, flow, tiles
from tests.fuzz.author import Author
from tests.fuzz.case import Case

LONGEST = 14


def _weighted(steps: tuple) -> list:
    return [step for step, weight in steps for _ in range(weight)]


KINDS = {
    "elementwise": _weighted(elementwise.STEPS),
    "tiles": _weighted(tiles.STEPS),
    "access": _weighted(access.STEPS),
    "dots": _weighted(dots.STEPS),
    "flow": _weighted(flow.STEPS),
}
MIXTURES = (
    ("elementwise", "elementwise", "tiles", "access", "flow"),
    ("elementwise", "elementwise", "elementwise", "tiles", "access"),
    ("elementwise", "tiles", "tiles", "access"),
    ("elementwise", "access", "access", "flow"),
    ("elementwise", "tiles", "dots", "dots", "flow"),
    ("elementwise", "tiles", "access", "flow", "flow"),
)


def _step(a: Author, mixture: tuple[str, ...]) -> None:
    kind = a.choice(mixture)
    step = a.choice(KINDS[kind])
    if kind != "flow":
        step(a)
    elif a.depth < flow.DEEPEST:
        step(a, lambda author, count: _steps(author, count, mixture))


def _steps(a: Author, count: int, mixture: tuple[str, ...]) -> None:
    for _ in range(count):
        _step(a, mixture)


def write_case(random: Random) -> Case:
    """A kernel with its arguments."""
    a = Author(random)
    mixture = a.choice(MIXTURES)
    _steps(a, a.int(2, LONGEST), mixture)
    return a.finish()


def cases() -> st.SearchStrategy[Case]:
    """Random kernels; `shrink.py` makes them small, by rules that know statements."""
    return st.randoms(use_true_random=True).map(write_case)
