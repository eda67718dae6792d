"""The passes every kernel goes through, in order, with the reasons for the order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from deuteron.ir import Function
from deuteron.passes.accumulate_dots import accumulate_dots
from deuteron.passes.simplify import simplify
from deuteron.passes.split_carried import split_carried
from deuteron.passes.uncarry import uncarry

Pass = Callable[[Function], Function]

PIPELINE: tuple[Pass, ...] = (
    uncarry,  # before anything is asked of pointers and offsets that loops carry
    simplify,  # before the next, so that uniform steps show as splats
    split_carried,  # turns carried pointer tiles into scalars
    accumulate_dots,  # an accumulator is then updated in place
    simplify,  # shares the address arithmetic that split_carried wrote out, drops fused dots
)


def trace(function: Function) -> Iterator[tuple[str, Function]]:
    """The function as given, then after each pass, with the pass's name."""
    yield "front end", function
    for transform in PIPELINE:
        function = transform(function)
        yield transform.__name__, function


def run(function: Function) -> Function:
    """The function after all passes."""
    for transform in PIPELINE:
        function = transform(function)
    return function
