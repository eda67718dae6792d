"""split_carried: a loop-carried tile that only moves by a uniform step becomes a carried scalar.

    for ... carry (%ptrs = %init):            for ... carry (%moved = 0):
        ...                            =>         %ptrs = addptr %init, splat %moved
        yield addptr %ptrs, splat %step           yield add %moved, %step

`a_ptrs += BLOCK_K * stride` is how kernels walk memory; carried as a tile it would cost a buffer of
addresses, and would hide from the axis analysis that the tile is still contiguous.

Requires: simplified IR (uniform steps are splats).
Ensures: no carried value of a `For` is its own argument plus a splat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deuteron.dtypes import int64
from deuteron.ir import Function, Op, Rewriter, Type, Value
from deuteron.ir.nodes import For


def split_carried(function: Function) -> Function:
    """The function with uniformly moving tiles carried as scalars."""
    return _Splitter().function(function)


@dataclass(frozen=True, slots=True)
class _Step:
    """How carried value `index` moves: by scalar `amount` of the old function."""

    index: int
    amount: Value
    op: Op


def _step_of(node: For, index: int) -> _Step | None:
    carried, moved = node.body.args[index + 1], node.body.yields[index]
    op = moved.op
    if op is None or op.name not in ("add", "addptr") or not carried.type.shape:
        return None
    if op.name == "add" and not carried.type.dtype.is_int():
        return None
    left, right = op.operands
    if right is carried and op.name == "add":
        left, right = right, left
    if left is not carried or not right.is_op("splat"):
        return None
    assert right.op is not None
    return _Step(index, right.op.operands[0], op)


class _Splitter(Rewriter):
    def for_(self, node: For) -> Sequence[Value]:
        found = (_step_of(node, i) for i in range(len(node.inits)))
        steps = {s.index: s for s in found if s is not None}
        if not steps:
            return super().for_(node)
        bounds = (self.value(node.lower), self.value(node.upper), self.value(node.step))
        inits = [self.value(v) for v in node.inits]
        scalar = {i: self._offset_type(s) for i, s in steps.items()}
        starts = [
            self.b.const(0, scalar[i].dtype) if i in steps else inits[i] for i in range(len(inits))
        ]
        types = [bounds[0].type, *(v.type for v in starts)]
        args = self.b.open(types, [a.name for a in node.body.args])
        self.map[node.body.args[0]] = args[0]
        for i, old in enumerate(node.body.args[1:]):
            new = args[i + 1]
            self.map[old] = self._moved(steps[i], inits[i], new) if i in steps else new
        self.nodes(node.body)
        yields = [
            self._advance(steps[i], args[i + 1]) if i in steps else self.value(y)
            for i, y in enumerate(node.body.yields)
        ]
        body = self.b.close(yields)
        self.b.loc = node.loc
        results = list(self.b.for_(bounds, starts, body, node.attrs))
        for i, step in steps.items():
            results[i] = self._moved(step, inits[i], results[i])
        return results

    def _offset_type(self, step: _Step) -> Type:
        """Pointers move by 64-bit offsets: a sum of 32-bit ones could overflow."""
        dtype = step.amount.type.dtype
        if step.op.name == "addptr" and dtype.bits <= 64 and dtype.is_int_signed():
            return Type(int64)
        return Type(dtype)

    def _moved(self, step: _Step, start: Value, moved: Value) -> Value:
        tile = self.b.op("splat", moved, shape=start.type.shape)
        return self.b.op(step.op.name, start, tile)

    def _advance(self, step: _Step, moved: Value) -> Value:
        amount = self.value(step.amount)
        if amount.type != moved.type:
            amount = self.b.op("cast", amount, to=moved.type.dtype, rounding=None)
        return self.b.op("add", moved, amount)
