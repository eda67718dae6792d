"""Linear algebra over GF(2), on integers as bit vectors.

A list of integers is a linear map: it takes an index to the XOR of the entries that the index's set
bits select.  Layouts and the addresses of shared memory are such maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def apply(vectors: Sequence[int], index: int) -> int:
    """The image of an index under the map with these columns."""
    result = 0
    for bit, vector in enumerate(vectors):
        if index >> bit & 1:
            result ^= vector
    return result


def images(vectors: Sequence[int]) -> list[int]:
    """The images of all indices, in order."""
    found = [0]
    for vector in vectors:
        found += [value ^ vector for value in found]
    return found


def intersection(left: Iterable[int], right: Iterable[int]) -> list[int]:
    """A basis of the vectors that both lists span."""
    independent = Span(left).basis
    span, other = Span(independent), Span()
    common: list[int] = []
    for vector in right:
        if not other.add(vector):
            continue
        relation = span.solve(vector)
        if relation is None:
            span.add(vector)
        else:
            mixed = apply(independent, relation & ((1 << len(independent)) - 1))
            common.append(mixed)
    return common


def functionals(vectors: Sequence[int]) -> list[tuple[int, int]]:
    """The map as a sum of terms: (mask, vector) adds `vector` for indices odd under `mask`.

    The vectors are independent, so that there are as few terms as can be.
    """
    span = Span()
    made_of: list[int] = []
    independent: list[int] = []
    for vector in vectors:
        solution = span.solve(vector)
        if solution is None:
            solution = 1 << len(independent)
            span.add(vector)
            independent.append(vector)
        made_of.append(solution)
    return [
        (sum(1 << bit for bit, mask in enumerate(made_of) if mask >> term & 1), vector)
        for term, vector in enumerate(independent)
    ]


class Span:
    """The space that some vectors span, and how each of its members is made of them.

    `basis` holds those of the vectors that did not depend on the ones before them.
    """

    def __init__(self, vectors: Iterable[int] = ()) -> None:
        self.count = 0
        self.basis: list[int] = []
        # By highest set bit: the reduced vector, and the mask of the added vectors that give it.
        self._pivots: dict[int, tuple[int, int]] = {}
        for vector in vectors:
            self.add(vector)

    @property
    def dimension(self) -> int:
        return len(self.basis)

    def add(self, vector: int) -> bool:
        """Take in the next vector; False when it depends on those before it."""
        rest, mask = self._reduce(vector)
        if rest:
            self._pivots[rest.bit_length()] = rest, mask | 1 << self.count
            self.basis.append(vector)
        self.count += 1
        return rest != 0

    def __contains__(self, vector: int) -> bool:
        return self._reduce(vector)[0] == 0

    def solve(self, vector: int) -> int | None:
        """A mask of the added vectors whose XOR is `vector`; None when there is none.

        Uses only vectors that did not depend on earlier ones, which makes it unique, and a linear
        function of `vector`.
        """
        rest, mask = self._reduce(vector)
        return None if rest else mask

    def _reduce(self, vector: int) -> tuple[int, int]:
        """What is left of a vector when its highest bits are cancelled, and by which vectors."""
        mask = 0
        while vector:
            pivot = self._pivots.get(vector.bit_length())
            if pivot is None:
                break
            vector ^= pivot[0]
            mask ^= pivot[1]
        return vector, mask
