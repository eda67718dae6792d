"""Who needs which elements of what: the questions planning asks of the IR.

A value is *real* when it has a place of its own (a buffer, or a scalar register): results of
reductions, dots, loops, and whatever planning chose to keep.  All other values are *virtual*: they
are computed from real ones wherever they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable

from deuteron.backends.cpu.index import keeps_axes
from deuteron.backends.llvm.elementwise import ELEMENTWISE_OPS, cost
from deuteron.dtypes import bfloat16
from deuteron.ir import Op, Value, node_blocks
from deuteron.ir.axis_info import AxisFacts
from deuteron.ir.nodes import Node, free_values, node_operands
from deuteron.passes.simplify import constant_of

_SHAPE_OPS = frozenset({"splat", "broadcast", "expand_dims", "permute", "reshape"})
_SOURCES = frozenset({"const", "arange"})
_VIRTUAL_OPS = ELEMENTWISE_OPS | _SHAPE_OPS | _SOURCES | {"load", "gather"}
LOAD_COST = 2
GATHER_COST = 20


class Demand:
    """Answers for one function; `kept` grows while planning."""

    def __init__(self, facts: AxisFacts) -> None:
        self.facts = facts
        self.kept: set[Value] = set()
        self._sources: dict[Value, dict[Value, bool]] = {}
        self._cost: dict[Value, int] = {}

    def keep(self, value: Value) -> None:
        """Make a value real; answers that rested on it being virtual are dropped."""
        self.kept.add(value)
        self._sources.clear()
        self._cost.clear()

    def is_virtual(self, value: Value) -> bool:
        """Computed where it is asked for."""
        return value not in self.kept and self.is_computed(value)

    def is_computed(self, value: Value) -> bool:
        """Can be computed where it is asked for, kept or not."""
        op = value.op
        if op is None:
            return False
        if op.name == "reshape":
            # The only element of a tile is taken at once: what it is read from may change.
            return keeps_axes(op) and bool(value.type.shape)
        if op.name == "load" and (not value.type.shape or op.attrs.get("volatile")):
            return False
        return op.name in _VIRTUAL_OPS

    def sources(self, value: Value) -> dict[Value, bool]:
        """The real values and the loads that elements of a value are computed from.

        The flag tells whether element i needs only element i of the source.
        """
        known = self._sources.get(value)
        if known is None:
            known = self._find_sources(value)
            self._sources[value] = known
        return known

    def _find_sources(self, value: Value) -> dict[Value, bool]:
        op = value.op
        if op is not None and op.name == "split" and value.type.shape:
            # A view of its operand's buffer.
            return dict.fromkeys(self.sources(op.operands[0]), False)
        return self.ingredients(op) if op and self.is_virtual(value) else {value: True}

    def ingredients(self, op: Op) -> dict[Value, bool]:
        """The sources that an op's result is computed from, be it virtual or kept."""
        found: dict[Value, bool] = {}
        identity = op.name not in _SHAPE_OPS
        for number, operand in enumerate(op.operands):
            # What a gather takes elements of is read anywhere, its indices in order.
            in_order = identity and not (op.name == "gather" and number == 0)
            for source, same in self.sources(operand).items():
                found[source] = found.get(source, True) and same and in_order
        if op.name == "load":
            found[op.result] = True
        return found

    def sources_of(self, values: Iterable[Value]) -> dict[Value, bool]:
        """The sources of several values; the flag holds when it does for each of them."""
        found: dict[Value, bool] = {}
        for value in values:
            for source, same in self.sources(value).items():
                found[source] = found.get(source, True) and same
        return found

    def node_sources(self, node: Node) -> dict[Value, bool]:
        """What a whole node reads, its blocks included."""
        values = list(node_operands(node))
        for block in node_blocks(node):
            values += free_values(block)
        return self.sources_of(values)

    def cost(self, value: Value) -> int:
        """What one vector of a virtual value costs, in vector additions; 1 for a real one."""
        known = self._cost.get(value)
        if known is None:
            known = self._find_cost(value)
            self._cost[value] = known
        return known

    def _find_cost(self, value: Value) -> int:
        if not self.is_virtual(value):
            return 1
        op = value.op
        assert op is not None
        own = 0
        if op.name == "load":
            own = LOAD_COST if self.contiguous_axis(op) is not None else GATHER_COST
        elif op.name == "gather":
            own = GATHER_COST
        elif op.name in ELEMENTWISE_OPS:
            own = cost(op)
        total = own + sum(self.cost(o) for o in op.operands if o.type.shape)
        return min(total, 1000)

    # -- orientation ------------------------------------------------------------------------
    def contiguous_axis(self, op: Op) -> int | None:
        """The axis along which a load's or store's addresses run, if there is one."""
        pointer = op.operands[0]
        pairs = zip(self.facts.of(pointer).contiguity, pointer.type.shape, strict=True)
        runs = [(min(run, size), axis) for axis, (run, size) in enumerate(pairs) if run > 1]
        return max(runs)[1] if runs else None

    def preferred_axis(self, value: Value) -> int | None:
        """The axis along which chunks of a value are cheapest, if it matters."""
        op = value.op
        if op is None or not self.is_virtual(value):
            return None
        if op.name == "load":
            return self.contiguous_axis(op)
        if op.name == "permute":
            inner = self.preferred_axis(op.operands[0])
            return None if inner is None else list(op.attrs["order"]).index(inner)
        if op.name == "expand_dims":
            inner = self.preferred_axis(op.operands[0])
            return None if inner is None else inner + (inner >= op.attrs["axis"])
        if op.name in ("broadcast", *ELEMENTWISE_OPS):
            for operand in op.operands:
                axis = self.preferred_axis(operand)
                if axis is not None and operand.type.shape[axis] > 1:
                    return axis
        return None

    def raw_load(self, value: Value, axis: int, lanes: int) -> bool:
        """Whether chunks of a value along an axis are loads that need no conversion.

        So it is with bfloat16 as stored, moved at most, with zeros where it is masked off.
        """
        op = value.op
        if op is None or not self.is_virtual(value) or value.type.dtype is not bfloat16:
            return False
        if op.name == "permute":
            return self.raw_load(op.operands[0], op.attrs["order"][axis], lanes)
        if op.name != "load" or any(constant_of(other) != 0 for other in op.operands[2:]):
            return False
        info = self.facts.of(op.operands[0])
        return info.contiguity[axis] >= lanes and info.constancy[axis] < lanes

    def virtual_parts(self, value: Value) -> Iterable[Value]:
        """A virtual value and every virtual value it is computed from, each once."""
        seen: set[Value] = set()
        stack = [value]
        while stack:
            part = stack.pop()
            if part in seen or not self.is_virtual(part):
                continue
            seen.add(part)
            yield part
            if part.op is not None:
                stack.extend(part.op.operands)
