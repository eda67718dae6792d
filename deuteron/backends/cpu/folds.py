"""Reductions on chunks: accumulators in registers, and lanes folded into one at the end."""

from __future__ import annotations

from collections.abc import Sequence

from deuteron.backends.cpu.chunks import Chunks
from deuteron.backends.cpu.index import Index
from deuteron.backends.llvm.builder import LType, Val
from deuteron.backends.llvm.registers import register_elem
from deuteron.dtypes import int_range
from deuteron.ir import Op, Reduce

_NEUTRAL = {"add": 0, "mul": 1, "or": 0, "xor": 0, "and": -1}


class Accumulators:
    """The running values of one reduction, for one chunk column."""

    def __init__(self, chunks: Chunks, node: Reduce) -> None:
        self.chunks = chunks
        self.b = chunks.b
        self.node = node
        self.width = len(node.operands)
        self.neutral = _neutral(node)

    def initial(self, lanes: int) -> list[Val]:
        """What to start from: the neutral element, or anything when there is none."""
        start = self.neutral if self.neutral is not None else 0
        types = (LType(register_elem(o.type.element), lanes) for o in self.node.operands)
        return [self.b.const(start, type) for type in types]

    def step(self, index: Index, before: Sequence[Val], turn: Val | None) -> list[Val]:
        """Fold the chunk at a place in; in the first turn of all it is taken as it is."""
        new = [self.chunks.vector(o, index).val for o in self.node.operands]
        if turn is None:
            return new
        folded = self.chunks.combine(self.node.combine, [*before, *new])
        if self.neutral is not None:
            return folded
        first = self.b.icmp("eq", turn, self.b.const(0, turn.type))
        return [self.b.select(first, n, f) for n, f in zip(new, folded, strict=True)]

    def merge(self, columns: Sequence[Sequence[Val]]) -> list[Val]:
        """Fold side-by-side accumulators, then their lanes, into scalars."""
        sets = [list(c) for c in columns]
        while len(sets) > 1:
            half = (len(sets) + 1) // 2
            pairs = zip(sets[:half], sets[half:], strict=False)
            merged = [self.chunks.combine(self.node.combine, [*x, *y]) for x, y in pairs]
            sets = merged + sets[len(sets) // 2 : half]
        values = sets[0]
        while values[0].type.lanes > 1:
            half = values[0].type.lanes // 2
            low = [self.b.shuffle(v, None, range(half)) for v in values]
            high = [self.b.shuffle(v, None, range(half, 2 * half)) for v in values]
            values = self.chunks.combine(self.node.combine, [*low, *high])
        if values[0].type.lanes:
            values = [self.b.extract(v, 0) for v in values]
        return values


def _neutral(node: Reduce) -> int | None:
    """The neutral element of a combine block that is one well-known op."""
    if len(node.combine.nodes) != 1 or len(node.operands) != 1:
        return None
    op = node.combine.nodes[0]
    if not isinstance(op, Op) or op.result is not node.combine.yields[0]:
        return None
    if set(op.operands) != set(node.combine.args):
        return None
    dtype = op.result.type.dtype
    if op.name in ("min", "max") and dtype.is_int():
        low, high = int_range(dtype)
        return high if op.name == "min" else low
    return _NEUTRAL.get(op.name)
