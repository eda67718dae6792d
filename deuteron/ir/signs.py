"""Which integers are never negative.

Division truncates toward zero, so a run of offsets that crosses zero is no run after `//` or `%`.
Index arithmetic is taken not to overflow, and divisors to be positive, as in Triton.
"""

from __future__ import annotations

from deuteron.dtypes import DType
from deuteron.ir.nodes import For, Function, If, Op, Value, walk

# Ops that give no negative value when none of their operands, or not the first, is negative.
_OF_ALL = frozenset({"add", "mul", "min", "or", "xor"})
_OF_FIRST = frozenset(
    {"broadcast", "expand_dims", "hint", "idiv", "irem", "permute", "reshape", "shr", "splat"}
)
_OF_ANY = frozenset({"and", "max"})


class Signs:
    """Answers for the values of one function, each worked out once."""

    def __init__(self, function: Function) -> None:
        self._known: dict[Value, bool] = {}
        self._loops: dict[Value, For] = {}
        self._branches: dict[Value, tuple[Value, Value]] = {}
        for node in walk(function.body):
            if isinstance(node, For):
                self._loops[node.body.args[0]] = node
            elif isinstance(node, If):
                ways = zip(node.then.yields, node.otherwise.yields, strict=True)
                self._branches.update(zip(node.results, ways, strict=True))

    def never_negative(self, value: Value) -> bool:
        """Whether no element of a value can be below zero; False when it cannot be told."""
        if value not in self._known:
            self._known[value] = self._find(value)
        return self._known[value]

    def _find(self, value: Value) -> bool:
        if value.type.is_pointer or not value.type.dtype.is_int():
            return False
        if not value.type.dtype.is_int_signed():
            return True
        if value in self._loops:
            loop = self._loops[value]
            return self.never_negative(loop.lower) and self.never_negative(loop.step)
        if value in self._branches:
            return all(map(self.never_negative, self._branches[value]))
        return value.op is not None and self._made_by(value.op)

    def _made_by(self, op: Op) -> bool:
        match op.name:
            case "const":
                return op.attrs["value"] >= 0
            case "arange":
                return op.attrs["start"] >= 0
            case "program_id" | "num_programs":
                return True
            case "cast":
                return self._survives_cast(op.operands[0], op.result.type.dtype)
            case "select":
                return all(map(self.never_negative, op.operands[1:]))
            case name if name in _OF_ALL:
                return all(map(self.never_negative, op.operands))
            case name if name in _OF_ANY:
                return any(map(self.never_negative, op.operands))
            case name if name in _OF_FIRST:
                return self.never_negative(op.operands[0])
            case _:
                return False

    def _survives_cast(self, source: Value, target: DType) -> bool:
        """Whether a cast to a signed type keeps what is not negative so."""
        if source.type.is_pointer or not self.never_negative(source):
            return False
        dtype = source.type.dtype
        return target.bits > dtype.bits or (dtype.is_int_signed() and target.bits >= 32)
