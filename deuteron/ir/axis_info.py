"""Axis facts: how integers and addresses run along each axis of a tile.

For every integer or pointer value this tells, per axis, the length of the aligned runs over which
it grows by one element (`contiguity`) or does not change (`constancy`), and the greatest power of
two known to divide the value at the start of each run (`divisibility`; bytes for pointers).
Backends choose vector loads by it, so it must never claim too much: an unknown is 1.

Index arithmetic is taken not to overflow its type, as in Triton.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd

from deuteron.dtypes import DType
from deuteron.ir.nodes import Block, For, Function, Op, Value, walk
from deuteron.ir.signs import Signs
from deuteron.ir.types import Type

MAX_DIVISIBILITY = 1 << 30
# Ops whose elements are not made from the elements at the same place of their operands.
_FROM_ELSEWHERE = frozenset(
    {"load", "atomic_rmw", "atomic_cas", "dot", "join", "cat", "split", "gather", "histogram"}
)


@dataclass(frozen=True, slots=True)
class AxisInfo:
    """Facts of one value; the tuples are as long as its shape."""

    contiguity: tuple[int, ...]
    constancy: tuple[int, ...]
    divisibility: int
    constant: int | None = None


def _power_of_two(value: int) -> int:
    """The greatest power of two that divides a value (a cap for 0)."""
    return min(value & -value, MAX_DIVISIBILITY) if value else MAX_DIVISIBILITY


def _unknown(type: Type) -> AxisInfo:
    ones = (1,) * type.rank
    return AxisInfo(ones, ones, 1)


def _uniform(type: Type, divisibility: int, constant: int | None = None) -> AxisInfo:
    return AxisInfo((1,) * type.rank, type.shape, divisibility, constant)


class AxisFacts:
    """Answers for the values of one function, each worked out once."""

    def __init__(self, function: Function) -> None:
        self._known: dict[Value, AxisInfo] = {}
        self.signs = Signs(function)
        loops = (node for node in walk(function.body) if isinstance(node, For))
        self._loops = {loop.body: loop for loop in loops}
        for param, attrs in zip(function.params, function.param_attrs, strict=True):
            self._known[param] = AxisInfo((), (), attrs.get("divisibility", 1))

    def of(self, value: Value) -> AxisInfo:
        known = self._known.get(value)
        if known is None:
            op = value.op
            known = self._infer(op, value) if op is not None else self._argument(value)
            self._known[value] = known
        return known

    def _argument(self, value: Value) -> AxisInfo:
        """A loop's index, or a scalar that it carries: what divides the start and every step."""
        loop = self._loops.get(value.owner) if isinstance(value.owner, Block) else None
        if loop is None or value.type.shape:
            return self._default(value)
        if value.index == 0:
            bounds = (self.of(loop.lower), self.of(loop.step))
            return _uniform(value.type, gcd(*(bound.divisibility for bound in bounds)))
        self._known[value] = self._default(value)  # for steps that depend on it
        after = loop.body.yields[value.index - 1].op
        if after is None or after.name not in ("add", "sub", "addptr"):
            return self._default(value)
        left, right = after.operands
        if right is value and after.name == "add":
            left, right = right, left
        if left is not value:
            return self._default(value)
        unit = value.type.pointee.storage_bytes if value.type.is_pointer else 1
        step = min(self.of(right).divisibility * unit, MAX_DIVISIBILITY)
        return _uniform(value.type, gcd(self.of(loop.inits[value.index - 1]).divisibility, step))

    def _default(self, value: Value) -> AxisInfo:
        return _uniform(value.type, 1) if not value.type.shape else _unknown(value.type)

    def _infer(self, op: Op, value: Value) -> AxisInfo:
        rule = _RULES.get(op.name)
        if rule is None:
            return self._pointwise(op, value)
        return rule(self, op)

    def _pointwise(self, op: Op, value: Value) -> AxisInfo:
        """Any other op: constant along an axis where all its operands are."""
        if op.name in _FROM_ELSEWHERE:
            return self._default(value)
        infos = [self.of(o) for o in op.operands if o.type.shape == value.type.shape]
        if len(infos) != len(op.operands) or not infos:
            return self._default(value)
        constancy = tuple(gcd(*(i.constancy[a] for i in infos)) for a in range(value.type.rank))
        return AxisInfo((1,) * value.type.rank, constancy, 1)


def _const(facts: AxisFacts, op: Op) -> AxisInfo:
    value = op.attrs["value"]
    if not isinstance(value, int):
        return AxisInfo((), (), 1)
    return AxisInfo((), (), _power_of_two(int(value)), int(value))


def _arange(facts: AxisFacts, op: Op) -> AxisInfo:
    length = op.result.type.shape[0]
    start = op.attrs["start"]
    run = length if start == 0 else gcd(length, _power_of_two(start))
    return AxisInfo((run,), (1,), _power_of_two(start))


def _splat(facts: AxisFacts, op: Op) -> AxisInfo:
    source = facts.of(op.operands[0])
    return _uniform(op.result.type, source.divisibility, source.constant)


def _broadcast(facts: AxisFacts, op: Op) -> AxisInfo:
    source, info = op.operands[0].type.shape, facts.of(op.operands[0])
    target = op.result.type.shape
    grown = [s == 1 and t != 1 for s, t in zip(source, target, strict=True)]
    return AxisInfo(
        tuple(1 if g else c for g, c in zip(grown, info.contiguity, strict=True)),
        tuple(t if g else c for g, c, t in zip(grown, info.constancy, target, strict=True)),
        info.divisibility,
        info.constant,
    )


def _expand_dims(facts: AxisFacts, op: Op) -> AxisInfo:
    info, axis = facts.of(op.operands[0]), op.attrs["axis"]
    contiguity, constancy = list(info.contiguity), list(info.constancy)
    contiguity.insert(axis, 1)
    constancy.insert(axis, 1)
    return AxisInfo(tuple(contiguity), tuple(constancy), info.divisibility, info.constant)


def _permute(facts: AxisFacts, op: Op) -> AxisInfo:
    info = facts.of(op.operands[0])
    order: Sequence[int] = op.attrs["order"]
    return AxisInfo(
        tuple(info.contiguity[i] for i in order),
        tuple(info.constancy[i] for i in order),
        info.divisibility,
        info.constant,
    )


def _reshape(facts: AxisFacts, op: Op) -> AxisInfo:
    source = op.operands[0]
    info = facts.of(source)
    kept = [(s, i) for i, s in enumerate(source.type.shape) if s != 1]
    target = [s for s in op.result.type.shape if s != 1]
    if [s for s, _ in kept] != target:
        return _unknown(op.result.type)
    order = iter(i for _, i in kept)
    axes = [None if s == 1 else next(order) for s in op.result.type.shape]
    return AxisInfo(
        tuple(1 if a is None else info.contiguity[a] for a in axes),
        tuple(1 if a is None else info.constancy[a] for a in axes),
        info.divisibility,
        info.constant,
    )


def _cast(facts: AxisFacts, op: Op) -> AxisInfo:
    info = facts.of(op.operands[0])
    source, target = op.operands[0].type.element, op.result.type.element
    if (
        isinstance(source, DType)
        and isinstance(target, DType)
        and (source.is_int() and target.is_int() and target.bits > 1)
    ):
        return info if target.bits >= min(source.bits, 32) else _wrapped(info, target)
    return AxisInfo((1,) * len(info.contiguity), info.constancy, 1)


def _wrapped(info: AxisInfo, target: DType) -> AxisInfo:
    """Of integers cut to 8 or 16 bits, which whole tiles do not fit: runs end where they wrap."""
    longest = 1 << (target.bits - 1)
    contiguity = [c if c == 1 else gcd(c, info.divisibility, longest) for c in info.contiguity]
    divisibility = gcd(_at_runs(info, contiguity, 1), longest)
    return AxisInfo(tuple(contiguity), info.constancy, divisibility)


def _hint(facts: AxisFacts, op: Op) -> AxisInfo:
    info = facts.of(op.operands[0])

    def widened(known: tuple[int, ...], name: str) -> tuple[int, ...]:
        said = _said(op, name, len(known))
        return tuple(max(k, _power_of_two(v)) for k, v in zip(known, said, strict=False))

    divisibility = _said(op, "divisibility", 1)[-1]
    return AxisInfo(
        widened(info.contiguity, "contiguity"),
        widened(info.constancy, "constancy"),
        max(info.divisibility, _power_of_two(divisibility)),
        info.constant,
    )


def _said(op: Op, name: str, count: int) -> tuple[int, ...]:
    """What a hint says of each axis; 1, which is always true, where it says nothing."""
    said: int | Sequence[int] | None = op.attrs.get(name)
    if not said:
        return (1,) * count
    return (said,) * count if isinstance(said, int) else tuple(said)


def _additive(facts: AxisFacts, op: Op) -> AxisInfo:
    """add, sub and addptr: a run survives where the other side stays the same."""
    left, right = (facts.of(o) for o in op.operands)
    unit = 1
    if op.name == "addptr":
        unit = op.result.type.pointee.storage_bytes
    contiguity: list[int] = []
    for a in range(op.result.type.rank):
        runs = gcd(left.contiguity[a], right.constancy[a])
        if op.name != "sub":
            runs = max(runs, gcd(left.constancy[a], right.contiguity[a]))
        contiguity.append(runs)
    constancy = tuple(gcd(x, y) for x, y in zip(left.constancy, right.constancy, strict=True))
    constant = None
    if left.constant is not None and right.constant is not None and op.name != "addptr":
        sign = -1 if op.name == "sub" else 1
        constant = left.constant + sign * right.constant
    runs_left = _at_runs(left, contiguity, unit)
    runs_right = min(_at_runs(right, contiguity, 1) * unit, MAX_DIVISIBILITY)
    return AxisInfo(tuple(contiguity), constancy, gcd(runs_left, runs_right), constant)


def _at_runs(info: AxisInfo, contiguity: list[int], unit: int) -> int:
    """What divides a value at the starts of the shorter runs of a result made from it."""
    divisibility = info.divisibility
    for own, run in zip(info.contiguity, contiguity, strict=True):
        if own > run:
            divisibility = gcd(divisibility, _power_of_two(run * unit))
    return divisibility


def _mul(facts: AxisFacts, op: Op) -> AxisInfo:
    left, right = (facts.of(o) for o in op.operands)
    contiguity = tuple(
        max(
            left.contiguity[a] if right.constant == 1 else 1,
            right.contiguity[a] if left.constant == 1 else 1,
        )
        for a in range(op.result.type.rank)
    )
    constancy = tuple(gcd(x, y) for x, y in zip(left.constancy, right.constancy, strict=True))
    constant = None
    if left.constant is not None and right.constant is not None:
        constant = left.constant * right.constant
    divisibility = min(_start(left) * _start(right), MAX_DIVISIBILITY)
    return AxisInfo(contiguity, constancy, divisibility, constant)


def _start(info: AxisInfo) -> int:
    """What divides every element, not just the run starts."""
    return info.divisibility if all(c == 1 for c in info.contiguity) else 1


def _shl(facts: AxisFacts, op: Op) -> AxisInfo:
    left, right = (facts.of(o) for o in op.operands)
    ones = (1,) * op.result.type.rank
    constancy = tuple(gcd(x, y) for x, y in zip(left.constancy, right.constancy, strict=True))
    shift = right.constant if right.constant is not None and 0 <= right.constant < 31 else 0
    return AxisInfo(ones, constancy, min(_start(left) << shift, MAX_DIVISIBILITY))


def _idiv(facts: AxisFacts, op: Op) -> AxisInfo:
    left, right = (facts.of(o) for o in op.operands)
    constancy: list[int] = []
    for a in range(op.result.type.rank):
        run = gcd(left.constancy[a], right.constancy[a])
        if left.contiguity[a] > 1 and _divides_runs(facts, op, a):
            grown = gcd(left.contiguity[a], left.divisibility, right.divisibility)
            run = max(run, _power_of_two(grown))
        constancy.append(run)
    return AxisInfo((1,) * op.result.type.rank, tuple(constancy), 1)


def _irem(facts: AxisFacts, op: Op) -> AxisInfo:
    left, right = (facts.of(o) for o in op.operands)
    contiguity: list[int] = []
    for a in range(op.result.type.rank):
        run = 1
        if left.contiguity[a] > 1 and _divides_runs(facts, op, a):
            run = _power_of_two(gcd(left.contiguity[a], left.divisibility, right.divisibility))
        contiguity.append(run)
    constancy = tuple(gcd(x, y) for x, y in zip(left.constancy, right.constancy, strict=True))
    divisibility = gcd(_at_runs(left, contiguity, 1), right.divisibility)
    return AxisInfo(tuple(contiguity), constancy, divisibility)


def _divides_runs(facts: AxisFacts, op: Op, axis: int) -> bool:
    """Whether a division by one number along an axis goes the same way on all of a run."""
    left, right = op.operands
    uniform = facts.of(right).constancy[axis] == op.result.type.shape[axis]
    return uniform and facts.signs.never_negative(left)


def _compare(facts: AxisFacts, op: Op) -> AxisInfo:
    """A run against one number goes the same way all along where both are multiples of its length.

    `x < n` and `x >= n` for a run x, `n > x` and `n <= x`; not `x <= n`, which splits the run at n.
    """
    left, right = (facts.of(o) for o in op.operands)
    constancy: list[int] = []
    for a in range(op.result.type.rank):
        same = gcd(left.constancy[a], right.constancy[a])
        if op.name in ("lt", "ge") and left.contiguity[a] > 1:
            same = max(same, _stepwise(left, right, a))
        if op.name in ("gt", "le") and right.contiguity[a] > 1:
            same = max(same, _stepwise(right, left, a))
        constancy.append(same)
    return AxisInfo((1,) * op.result.type.rank, tuple(constancy), 1)


def _stepwise(run: AxisInfo, bound: AxisInfo, axis: int) -> int:
    """How many neighbours of a run along an axis are on the same side of a bound."""
    alone = [c if a == axis else 1 for a, c in enumerate(run.contiguity)]
    known = gcd(run.contiguity[axis], _at_runs(run, alone, 1), _start(bound))
    return _power_of_two(gcd(known, bound.constancy[axis]))


def _select(facts: AxisFacts, op: Op) -> AxisInfo:
    condition, left, right = (facts.of(o) for o in op.operands)
    rank = op.result.type.rank
    if not condition.constancy and rank:
        condition = _uniform(op.result.type, 1)
    unit = op.result.type.pointee.storage_bytes if op.result.type.is_pointer else 1
    contiguity = [
        gcd(condition.constancy[a], left.contiguity[a], right.contiguity[a]) for a in range(rank)
    ]
    constancy = tuple(
        gcd(condition.constancy[a], left.constancy[a], right.constancy[a]) for a in range(rank)
    )
    divisibility = gcd(_at_runs(left, contiguity, unit), _at_runs(right, contiguity, unit))
    return AxisInfo(tuple(contiguity), constancy, divisibility)


def _program_id(facts: AxisFacts, op: Op) -> AxisInfo:
    return AxisInfo((), (), 1)


_RULES: dict[str, Callable[[AxisFacts, Op], AxisInfo]] = {
    "const": _const,
    "arange": _arange,
    "splat": _splat,
    "broadcast": _broadcast,
    "expand_dims": _expand_dims,
    "permute": _permute,
    "reshape": _reshape,
    "cast": _cast,
    "hint": _hint,
    "add": _additive,
    "sub": _additive,
    "addptr": _additive,
    "mul": _mul,
    "shl": _shl,
    "idiv": _idiv,
    "irem": _irem,
    "select": _select,
    **dict.fromkeys(("lt", "le", "gt", "ge"), _compare),
    "program_id": _program_id,
    "num_programs": _program_id,
}
