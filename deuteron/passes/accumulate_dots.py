"""accumulate_dots: `acc + dot(a, b)` becomes `dot(a, b, acc)`.

Requires: simplified IR.
Ensures: no dot of a zero accumulator whose only use is an addition of the same type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from deuteron.ir import Function, Op, Rewriter, Value, node_operands, walk
from deuteron.ir.nodes import node_blocks
from deuteron.passes.simplify import constant_of


def accumulate_dots(function: Function) -> Function:
    """The function with additions to dots done by the dots."""
    uses: Counter[Value] = Counter(function.body.yields)
    for node in walk(function.body):
        uses.update(node_operands(node))
        for block in node_blocks(node):
            uses.update(block.yields)
    return _Fuser(uses).function(function)


class _Fuser(Rewriter):
    def __init__(self, uses: Counter[Value]) -> None:
        super().__init__()
        self.uses = uses

    def op(self, node: Op, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        if node.name != "add" or node.attrs.get("ieee"):
            return None
        for product, acc in (node.operands, node.operands[::-1]):
            dot = product.op
            if dot is None or dot.name != "dot" or self.uses[product] != 1:
                continue
            if constant_of(dot.operands[2]) == 0 and acc.type == product.type:
                a, b = self.values(dot.operands[:2])
                return self.b.ops("dot", a, b, self.value(acc), **dot.attrs)
        return None
