"""Linear maps over GF(2) as code: of thread numbers to offsets, and as choices of registers."""

from __future__ import annotations

from collections.abc import Sequence

from deuteron.backends.cuda import gf2
from deuteron.backends.llvm.builder import I32, Builder, Val


def emit_linear(b: Builder, index: Val, vectors: Sequence[int]) -> Val:
    """The image of an i32 under the map with these columns.

    All bits that are shifted equally far move together, so that the usual maps are a few shifts.
    """
    masks: dict[int, int] = {}
    for source, vector in enumerate(vectors):
        for target in range(vector.bit_length()):
            if vector >> target & 1:
                shift = target - source
                masks[shift] = masks.get(shift, 0) | 1 << source
    result: Val | None = None
    for shift, mask in sorted(masks.items()):
        part = b.and_(index, b.const(mask, I32))
        if shift:
            part = (b.shl if shift > 0 else b.lshr)(part, b.const(abs(shift), I32))
        result = part if result is None else b.xor(result, part)
    return b.const(0, I32) if result is None else result


def emit_odd(b: Builder, index: Val, mask: int) -> Val:
    """True when an odd number of the masked bits of an i32 are set."""
    masked = b.and_(index, b.const(mask, I32))
    if mask.bit_count() > 1:
        masked = b.and_(b.intrinsic("ctpop", [masked]), b.const(1, I32))
    return b.icmp("ne", masked, b.const(0, I32))


class Turned:
    """Values in another order, which depends on the thread: number i is `values[i ^ f(thread)]`.

    f is linear.  There is one layer of selects for each dimension of its image; those that nobody
    asks for are not written.
    """

    def __init__(
        self, b: Builder, values: Sequence[Val], thread: Val, vectors: Sequence[int]
    ) -> None:
        self._b = b
        self._thread = thread
        self._terms = gf2.functionals(vectors)
        self._conditions: dict[int, Val] = {}
        self._layers: list[dict[int, Val]] = [dict(enumerate(values))]
        self._layers += [{} for _ in self._terms]

    def __getitem__(self, number: int) -> Val:
        return self._get(len(self._terms), number)

    def _get(self, layer: int, number: int) -> Val:
        known = self._layers[layer]
        if number not in known:
            mask, vector = self._terms[layer - 1]
            turned, straight = self._get(layer - 1, number ^ vector), self._get(layer - 1, number)
            known[number] = self._b.select(self._condition(mask), turned, straight)
        return known[number]

    def _condition(self, mask: int) -> Val:
        if mask not in self._conditions:
            self._conditions[mask] = emit_odd(self._b, self._thread, mask)
        return self._conditions[mask]


def count_selects(vectors: Sequence[int], wanted: set[int]) -> int:
    """How many selects `Turned` writes for the values with these numbers."""
    total = 0
    for _, vector in reversed(gf2.functionals(vectors)):
        total += len(wanted)
        wanted = wanted | {number ^ vector for number in wanted}
    return total
