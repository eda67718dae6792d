"""Reduce and Scan: a combine function carried along one axis.

`combine` takes n left and n right arrays and returns n; the axes other than the folded one are
carried along inside the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from deuteron.backends.interp.values import Array

Combine = Callable[[Sequence[Array], Sequence[Array]], Sequence[Array]]


def fold(operands: Sequence[Array], axis: int, combine: Combine) -> list[Array]:
    """Reduce along `axis`, which disappears.

    Neighbours are combined pairwise until one is left: the order of the elements is kept, so
    `combine` need only be associative.
    """
    rest = [np.moveaxis(x, axis, 0) for x in operands]
    while (count := len(rest[0])) > 1:
        even = count - count % 2
        pairs = combine([x[0:even:2] for x in rest], [x[1:even:2] for x in rest])
        shapes = [(even // 2, *x.shape[1:]) for x in rest]
        kept = [np.broadcast_to(p, s) for p, s in zip(pairs, shapes, strict=True)]
        rest = [np.concatenate((k, x[even:])) for k, x in zip(kept, rest, strict=True)]
    return [np.asarray(x[0]) for x in rest]


def prefix_fold(
    operands: Sequence[Array], axis: int, combine: Combine, *, reverse: bool
) -> list[Array]:
    """Inclusive scan along `axis`, one element after the other, from the end when `reverse`."""
    inputs = [np.moveaxis(x, axis, 0) for x in operands]
    outputs = [np.empty_like(x) for x in inputs]
    places = range(len(inputs[0]))
    carried: Sequence[Array] | None = None
    for place in reversed(places) if reverse else places:
        current = [np.asarray(x[place]) for x in inputs]
        carried = current if carried is None else combine(carried, current)
        for output, value in zip(outputs, carried, strict=True):
            output[place] = value
    return [np.moveaxis(x, 0, axis) for x in outputs]
