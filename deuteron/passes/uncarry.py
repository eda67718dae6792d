"""uncarry: a loop does not carry what it never changes, nor a branch give what both sides share.

    for ... carry (%p = %init, %i = 0):       for ... carry (%i = 0):
        ...  %p ...                    =>         ... %init ...
        yield %p, %next                           yield %next

Block pointers and tensor descriptors are carried whole, base and strides with their offsets; as
arguments of the loop's body these would hide what is known of the kernel's parameters.

Requires: a verified function.
Ensures: no carried value of a loop is yielded as it came in; no result of an `If` is one value from
outside on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence

from deuteron.ir import Function, Rewriter, Value
from deuteron.ir.nodes import Block, For, If, While, node_blocks


def uncarry(function: Function) -> Function:
    """The function without carried values that never change."""
    aliases: dict[Value, Value] = {}
    _find(function.body, aliases)
    return _Dropper(aliases).function(function) if aliases else function


def _find(block: Block, aliases: dict[Value, Value]) -> None:
    """Note for arguments and results that never change what they always are; inner loops first."""
    for node in block.nodes:
        for inner in node_blocks(node):
            _find(inner, aliases)
        match node:
            case For() | While():
                heads = [node.body.args[1:]] if isinstance(node, For) else _while_args(node)
                for i, init in enumerate(node.inits):
                    if _resolve(node.body.yields[i], aliases) is heads[0][i]:
                        always = (node.results[i], *(args[i] for args in heads))
                        aliases.update(dict.fromkeys(always, init))
            case If():
                sides = zip(node.results, node.then.yields, node.otherwise.yields, strict=True)
                for result, left, right in sides:
                    same = _resolve(left, aliases)
                    if same is _resolve(right, aliases):
                        aliases[result] = same
            case _:
                pass


def _while_args(node: While) -> list[Sequence[Value]]:
    return [node.body.args, node.condition.args]


def _resolve(value: Value, aliases: dict[Value, Value]) -> Value:
    while value in aliases:
        value = aliases[value]
    return value


class _Dropper(Rewriter):
    def __init__(self, aliases: dict[Value, Value]) -> None:
        super().__init__()
        self.aliases = aliases

    def value(self, value: Value) -> Value:
        return self.map[_resolve(value, self.aliases)]

    def values(self, values: Sequence[Value]) -> tuple[Value, ...]:
        return tuple(map(self.value, values))

    def for_(self, node: For) -> Sequence[Value]:
        kept = [i for i, result in enumerate(node.results) if result not in self.aliases]
        bounds = (self.value(node.lower), self.value(node.upper), self.value(node.step))
        inits = [self.value(node.inits[i]) for i in kept]
        args = [node.body.args[0], *(node.body.args[i + 1] for i in kept)]
        body = self._block(node.body, args, kept)
        self.b.loc = node.loc
        return self._results(node, kept, self.b.for_(bounds, inits, body, node.attrs))

    def while_(self, node: While) -> Sequence[Value]:
        kept = [i for i, result in enumerate(node.results) if result not in self.aliases]
        inits = [self.value(node.inits[i]) for i in kept]
        condition = self._block(node.condition, [node.condition.args[i] for i in kept], [0])
        body = self._block(node.body, [node.body.args[i] for i in kept], kept)
        self.b.loc = node.loc
        return self._results(node, kept, self.b.while_(inits, condition, body))

    def if_(self, node: If) -> Sequence[Value]:
        kept = [i for i, result in enumerate(node.results) if result not in self.aliases]
        condition = self.value(node.condition)
        then, otherwise = (self._block(b, (), kept) for b in (node.then, node.otherwise))
        self.b.loc = node.loc
        return self._results(node, kept, self.b.if_(condition, then, otherwise))

    def _block(self, block: Block, args: Sequence[Value], kept: Sequence[int]) -> Block:
        opened = self.b.open([a.type for a in args], [a.name for a in args])
        self.map.update(zip(args, opened, strict=True))
        self.nodes(block)
        return self.b.close([self.value(block.yields[i]) for i in kept])

    def _results(
        self, node: For | While | If, kept: Sequence[int], results: Sequence[Value]
    ) -> Sequence[Value]:
        """The new results in the old places; nobody asks for those that are gone."""
        given = dict(zip(kept, results, strict=True))
        return [given.get(i, Value(r.type)) for i, r in enumerate(node.results)]
