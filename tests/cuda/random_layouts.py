"""Strategies for layouts: any linear map onto a tile, and others that are close to a given one."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from deuteron.backends.cuda import gf2
from deuteron.backends.cuda.layout import LANE_BITS, Layout

MAX_BITS = 10
shapes = st.lists(st.integers(0, 5), min_size=1, max_size=3).map(
    lambda bits: tuple(1 << min(b, MAX_BITS // len(bits)) for b in bits)
)


def _from_flat(
    shape: tuple[int, ...], register: Sequence[int], lane: Sequence[int], warp: Sequence[int]
) -> Layout:
    return Layout(
        shape,
        *(tuple(unflat(v, shape) for v in vectors) for vectors in (register, lane, warp)),
    )


def unflat(number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Coordinates of a row-major number."""
    coord: list[int] = []
    for size in reversed(shape):
        number, entry = divmod(number, size)
        coord.insert(0, entry)
    return tuple(coord)


@st.composite
def layouts(draw: st.DrawFn, shape: tuple[int, ...], warp_bits: int) -> Layout:
    """Any layout: bits in any place, mixed with each other, threads that replicate."""
    bits = sum(size.bit_length() - 1 for size in shape)
    basis = list(draw(st.permutations([1 << bit for bit in range(bits)])))
    pairs = st.tuples(st.integers(0, bits - 1), st.integers(0, bits - 1)) if bits else st.nothing()
    for left, right in draw(st.lists(pairs, max_size=3)) if bits else ():
        if left != right:
            basis[left] ^= basis[right]
    threads = [0] * (LANE_BITS + warp_bits)
    taking = draw(st.lists(st.booleans(), min_size=len(threads), max_size=len(threads)))
    rest = list(basis)
    for place, takes in enumerate(taking):
        if takes and rest:
            threads[place] = rest.pop()
        elif draw(st.booleans()):
            threads[place] = gf2.apply(basis, draw(st.integers(0, (1 << bits) - 1)))
    return _from_flat(shape, rest, threads[:LANE_BITS], threads[LANE_BITS:])


@st.composite
def neighbours(draw: st.DrawFn, layout: Layout) -> Layout:
    """Layouts whose elements are, for the most part, in the same warps or threads."""
    vectors = [*layout.flat_register, *layout.flat_lane, *layout.flat_warp]
    inside = len(vectors) - len(layout.warp)
    kinds = st.sampled_from(["swap", "add"])
    steps = st.tuples(kinds, st.integers(0, len(vectors) - 1), st.integers(0, inside - 1))
    for kind, left, right in draw(st.lists(steps, max_size=6)):
        if kind == "swap" and left < inside:
            vectors[left], vectors[right] = vectors[right], vectors[left]
        elif left != right:
            vectors[left] ^= vectors[right]
    registers = len(layout.register)
    kept = gf2.Span(vectors[:registers]).basis
    return _from_flat(layout.shape, kept, vectors[registers:inside], vectors[inside:])


@st.composite
def pairs_of_layouts(draw: st.DrawFn) -> tuple[Layout, Layout]:
    """A source and a target of one shape and block."""
    shape, warp_bits = draw(shapes), draw(st.integers(0, 2))
    source = draw(layouts(shape, warp_bits))
    target = draw(st.one_of(layouts(shape, warp_bits), neighbours(source)))
    return source, target
