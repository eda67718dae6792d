"""The rewrite driver: rebuilds a function, letting a rule replace nodes on the way.

A pass is a `Rewriter` subclass that overrides `op` (for table ops) or `node` (for anything); the
driver copies what the rule leaves alone, so a pass never changes the function it was given.
"""

from __future__ import annotations

from collections.abc import Sequence

from deuteron.ir.builder import Builder
from deuteron.ir.nodes import (
    Block,
    For,
    Function,
    If,
    Node,
    Op,
    Reduce,
    Scan,
    Value,
    While,
)


class Rewriter:
    """Copies a function.  `self.map` takes old values to new ones."""

    def __init__(self) -> None:
        self.map: dict[Value, Value] = {}
        self.b = Builder()

    # -- what a pass overrides --------------------------------------------------------------
    def op(self, node: Op, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        """New results for a table op given its new operands; None copies it."""
        return None

    def node(self, node: Node) -> Sequence[Value]:
        """New results for a node; the default dispatches on its class."""
        match node:
            case Op():
                operands = self.values(node.operands)
                replaced = self.op(node, operands)
                return self.copy_op(node, operands) if replaced is None else replaced
            case For():
                return self.for_(node)
            case While():
                return self.while_(node)
            case If():
                return self.if_(node)
            case Reduce():
                combine = self.combine(node.combine)
                return self.b.reduce(self.values(node.operands), node.axis, combine)
            case Scan():
                combine = self.combine(node.combine)
                operands = self.values(node.operands)
                return self.b.scan(operands, node.axis, combine, reverse=node.reverse)

    # -- the driver -------------------------------------------------------------------------
    def function(self, function: Function) -> Function:
        body = self.block(function.body)
        self.b.loc = function.loc
        return self.b.function(function.name, body, function.param_attrs, function.attrs)

    def value(self, value: Value) -> Value:
        return self.map[value]

    def values(self, values: Sequence[Value]) -> tuple[Value, ...]:
        return tuple(self.map[v] for v in values)

    def block(self, block: Block) -> Block:
        args = self.b.open([a.type for a in block.args], [a.name for a in block.args])
        self.map.update(zip(block.args, args, strict=True))
        self.nodes(block)
        return self.b.close(self.values(block.yields))

    def combine(self, block: Block) -> Block:
        """The combine block of a reduction or scan, which reads nothing from outside."""
        return self.block(block)

    def nodes(self, block: Block) -> None:
        for node in block.nodes:
            self.b.loc = node.loc
            results = self.node(node)
            for old, new in zip(node.results, results, strict=True):
                new.name = new.name or old.name
                self.map[old] = new

    def copy_op(self, node: Op, operands: tuple[Value, ...]) -> tuple[Value, ...]:
        results = tuple(Value(r.type, r.name) for r in node.results)
        self.b.append(Op(node.name, operands, results, node.attrs, node.loc))
        return results

    def for_(self, node: For) -> Sequence[Value]:
        bounds = (self.value(node.lower), self.value(node.upper), self.value(node.step))
        inits = self.values(node.inits)
        body = self.block(node.body)
        self.b.loc = node.loc
        return self.b.for_(bounds, inits, body, node.attrs)

    def while_(self, node: While) -> Sequence[Value]:
        inits = self.values(node.inits)
        condition, body = self.block(node.condition), self.block(node.body)
        self.b.loc = node.loc
        return self.b.while_(inits, condition, body)

    def if_(self, node: If) -> Sequence[Value]:
        condition = self.value(node.condition)
        then, otherwise = self.block(node.then), self.block(node.otherwise)
        self.b.loc = node.loc
        return self.b.if_(condition, then, otherwise)
