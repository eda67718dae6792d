"""Which kernel parameter a pointer is computed from: what planning knows of aliasing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deuteron.ir.nodes import For, Function, If, Op, Value, While, walk

# Pointers that these make come from elsewhere.
_OPAQUE = frozenset({"load", "int_to_ptr"})


class PointerRoots:
    """Answers for the pointers of one function, through loops and branches."""

    def __init__(self, function: Function) -> None:
        self._params = frozenset(function.params)
        self._merged: dict[Value, list[Value]] = {}
        for node in walk(function.body):
            match node:
                case For():
                    ways = (node.inits, node.body.yields)
                    self._merge(node.body.args[1:], ways)
                    self._merge(node.results, ways)
                case While():
                    ways = (node.inits, node.body.yields)
                    for targets in (node.condition.args, node.body.args, node.results):
                        self._merge(targets, ways)
                case If():
                    self._merge(node.results, (node.then.yields, node.otherwise.yields))
                case _:
                    pass

    def _merge(self, targets: Iterable[Value], ways: Sequence[Sequence[Value]]) -> None:
        for index, target in enumerate(targets):
            if target.type.is_pointer:
                self._merged[target] = [values[index] for values in ways]

    def of(self, pointer: Value) -> Value | None:
        """The parameter a pointer is computed from; None when it is none or not always the same."""
        roots = self.all_of(pointer)
        return next(iter(roots)) if len(roots) == 1 else None

    def all_of(self, pointer: Value) -> set[Value | None]:
        """The parameters a pointer may be computed from; None for an address from elsewhere."""
        roots: set[Value | None] = set()
        seen: set[Value] = set()
        stack = [pointer]
        while stack:
            value = stack.pop()
            if value in seen:
                continue
            seen.add(value)
            if value in self._params:
                roots.add(value)
            elif value in self._merged:
                stack += self._merged[value]
            elif isinstance(value.owner, Op) and value.owner.name not in _OPAQUE:
                stack += [o for o in value.owner.operands if o.type.is_pointer]
            else:
                roots.add(None)
        return roots
