"""What a block is turned into: steps, some of which are groups of sinks that share a loop nest.

A *sink* asks for every element of a tile and does something with it.  Sinks of one shape that do
not wait for each other form a group: one loop nest, each chunk computed once for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from deuteron.backends.cpu.dot_plan import DotPlan
from deuteron.ir import Op, Reduce, Value
from deuteron.ir.nodes import Node


@dataclass(eq=False, slots=True)
class Store:
    """Store a tile through a tile of pointers."""

    op: Op

    @property
    def shape(self) -> tuple[int, ...]:
        return self.op.operands[0].type.shape

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.op.operands


@dataclass(eq=False, slots=True)
class Keep:
    """Put a virtual value into a buffer of its own, or into that of `in_place`, read here last."""

    value: Value
    in_place: Value | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.type.shape

    @property
    def inputs(self) -> tuple[Value, ...]:
        """What the value is made of: it is asked for as if it were not kept."""
        assert self.value.op is not None
        return self.value.op.operands


@dataclass(eq=False, slots=True)
class Assign:
    """Put a value into the buffer of `home`, a loop's or a branch's result."""

    value: Value
    home: Value

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.type.shape

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.value,)


@dataclass(eq=False, slots=True)
class Pack:
    """Put a dot's operand (`side` "a" or "b") into the layout its plan wants."""

    value: Value
    plan: DotPlan
    side: str

    @property
    def layout(self) -> tuple[object, ...]:
        """What tells packings of one value apart."""
        plan = self.plan
        if self.side == "a":
            return ("a", plan.lda, plan.a_elem, plan.a_bias)
        return ("b", plan.nr, plan.b_elem, plan.pack)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.type.shape

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.value,)


@dataclass(eq=False, slots=True)
class Fold:
    """Reduce along an axis."""

    node: Reduce

    @property
    def shape(self) -> tuple[int, ...]:
        return self.node.operands[0].type.shape

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.node.operands


Sink = Store | Keep | Assign | Pack | Fold


@dataclass(eq=False, slots=True)
class Group:
    """Sinks in one loop nest.

    `axis` is the axis lanes run along; `folded` the axis its reductions fold, if any; `rows` how
    many neighbours along another axis a turn of the loop must hold at once (axis, count).
    """

    shape: tuple[int, ...]
    sinks: list[Sink]
    axis: int
    folded: int | None = None
    rows: tuple[int, int] | None = None
    writes: bool = False


@dataclass(eq=False, slots=True)
class Single:
    """A node carried out on its own: a loop, a branch, a dot, a scan, an atomic, a scalar load."""

    node: Node
    writes: bool = False
    # For a dot or a kept value that may be computed where an operand was: that operand.
    in_place: Value | None = None


Step = Group | Single


@dataclass(slots=True)
class BlockPlan:
    """The steps of one block, in order."""

    steps: list[Step] = field(default_factory=list["Step"])
