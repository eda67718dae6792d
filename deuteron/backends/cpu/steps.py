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
    """Put a dot's operand (`side` "a" or "b") into the layout its plan wants.

    With `keys`, tiles are kept for programs that want one with the same keys (`tile_store.py`).
    """

    value: Value
    plan: DotPlan
    side: str
    keys: tuple[Value, ...] = ()

    @property
    def layout(self) -> tuple[object, ...]:
        """What tells packings of one value apart."""
        plan = self.plan
        if self.side == "a":
            return ("a", plan.lda, plan.a_elem, plan.a_bias)
        return ("b", plan.nr, plan.b_elem, plan.pack)

    @property
    def packed_bytes(self) -> int:
        """What a packed tile takes."""
        one = self.plan.a_bytes if self.side == "a" else self.plan.b_bytes
        return one * (self.shape[0] if len(self.shape) == 3 else 1)

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

    @property
    def kept_pack(self) -> Pack | None:
        """The operand that the group, then its only sink, packs for the tile store."""
        first = self.sinks[0]
        return first if isinstance(first, Pack) and first.keys else None


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
