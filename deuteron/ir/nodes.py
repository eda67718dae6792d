"""The tile IR: typed, SSA, with structured control flow.

    Function  (name, params, body)
    Block     (args, nodes, yields)
    Node    = Op      (name, operands, attrs)            one row of `optable.OPS`
            | For     (lower, upper, step, inits, body)  body(iv, *carried) yields carried
            | While   (inits, condition, body)           condition(*carried) yields one i1
            | If      (condition, then, otherwise)       both yield the results
            | Reduce  (operands, axis, combine)          combine(*left, *right) yields n scalars
            | Scan    (operands, axis, reverse, combine)

Everything else is a row of the op table.  Calls of jit functions are inlined and constexprs folded
by the front end, and an early return is the other branch of an `If`, so neither exists here.
Nothing here speaks of threads, warps or vectors: hints such as `num_warps` are attributes of the
function, `num_stages` of a loop.  Nodes match by identity; a source location rides on every node.
Nodes are not changed once built: a pass builds new ones (`rewrite.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from deuteron.errors import UNKNOWN, Loc
from deuteron.ir.types import Type

Attrs = Mapping[str, Any]


@dataclass(eq=False, slots=True, repr=False)
class Value:
    """One SSA value.  `owner` is the node or block that defines it, `index` its place there."""

    type: Type
    name: str = ""
    owner: Node | Block | None = None
    index: int = 0

    def __repr__(self) -> str:
        return f"<%{self.name or '?'}: {self.type}>"

    @property
    def op(self) -> Op | None:
        """The defining op when it is a row of the table."""
        return self.owner if isinstance(self.owner, Op) else None

    def is_op(self, name: str) -> bool:
        return isinstance(self.owner, Op) and self.owner.name == name


@dataclass(eq=False, slots=True, repr=False)
class Block:
    """Straight-line nodes with arguments on entry and values yielded at the end."""

    args: tuple[Value, ...] = ()
    nodes: list[Node] = field(default_factory=list["Node"])
    yields: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        _own(self, self.args)


@dataclass(eq=False, slots=True, repr=False)
class Op:
    """One operation of the table `optable.OPS`."""

    name: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attrs: Attrs
    loc: Loc = UNKNOWN

    def __post_init__(self) -> None:
        _own(self, self.results)

    def __repr__(self) -> str:
        return f"<{self.name}({', '.join(map(repr, self.operands))})>"

    @property
    def result(self) -> Value:
        return self.results[0]


@dataclass(eq=False, slots=True, repr=False)
class For:
    """`for iv in range(lower, upper, step)`; body(iv, *carried) yields the next carried values.

    The bounds share one integer type; a negative step counts down.  `attrs` holds the hints of
    `tl.range`: num_stages, loop_unroll_factor, …
    """

    lower: Value
    upper: Value
    step: Value
    inits: tuple[Value, ...]
    body: Block
    results: tuple[Value, ...]
    attrs: Attrs
    loc: Loc = UNKNOWN

    def __post_init__(self) -> None:
        _own(self, self.results)


@dataclass(eq=False, slots=True, repr=False)
class While:
    """`while condition(*carried): carried = body(*carried)`."""

    inits: tuple[Value, ...]
    condition: Block
    body: Block
    results: tuple[Value, ...]
    loc: Loc = UNKNOWN

    def __post_init__(self) -> None:
        _own(self, self.results)


@dataclass(eq=False, slots=True, repr=False)
class If:
    """A choice by a scalar i1; both branches yield the results."""

    condition: Value
    then: Block
    otherwise: Block
    results: tuple[Value, ...]
    loc: Loc = UNKNOWN

    def __post_init__(self) -> None:
        _own(self, self.results)


@dataclass(eq=False, slots=True, repr=False)
class Reduce:
    """Fold n tiles of one shape along `axis` by an associative, commutative `combine`.

    combine takes 2n scalars (left operands, then right ones) and yields n.  The results have the
    operands' shape without the axis (a 1-D tile gives scalars).
    """

    operands: tuple[Value, ...]
    axis: int
    combine: Block
    results: tuple[Value, ...]
    loc: Loc = UNKNOWN

    def __post_init__(self) -> None:
        _own(self, self.results)


@dataclass(eq=False, slots=True, repr=False)
class Scan:
    """Inclusive prefix fold of n tiles along `axis`, from the end when `reverse`."""

    operands: tuple[Value, ...]
    axis: int
    reverse: bool
    combine: Block
    results: tuple[Value, ...]
    loc: Loc = UNKNOWN

    def __post_init__(self) -> None:
        _own(self, self.results)


Node = Op | For | While | If | Reduce | Scan


@dataclass(eq=False, slots=True, repr=False)
class Function:
    """A kernel.  Parameter i is `body.args[i]`; `param_attrs[i]` holds what is known of it.

    param attrs: `divisibility` (of an integer's value or a pointer's address, in bytes).
    attrs: `num_warps`, `num_stages`, … as given at launch, and `debug`.
    """

    name: str
    body: Block
    param_attrs: tuple[Attrs, ...]
    attrs: Attrs
    loc: Loc = UNKNOWN

    @property
    def params(self) -> tuple[Value, ...]:
        return self.body.args


def _own(owner: Node | Block, values: tuple[Value, ...]) -> None:
    for index, value in enumerate(values):
        value.owner, value.index = owner, index


def node_operands(node: Node) -> tuple[Value, ...]:
    """The values a node reads directly, not those its blocks read."""
    match node:
        case Op() | Reduce() | Scan():
            return node.operands
        case For():
            return (node.lower, node.upper, node.step, *node.inits)
        case While():
            return node.inits
        case If():
            return (node.condition,)


def node_blocks(node: Node) -> tuple[Block, ...]:
    """The blocks inside a node, in the order they are entered."""
    match node:
        case Op():
            return ()
        case For():
            return (node.body,)
        case While():
            return (node.condition, node.body)
        case If():
            return (node.then, node.otherwise)
        case Reduce() | Scan():
            return (node.combine,)


def walk(block: Block) -> Iterator[Node]:
    """Every node of a block and of the blocks inside it, in program order."""
    for node in block.nodes:
        yield node
        for inner in node_blocks(node):
            yield from walk(inner)


def free_values(block: Block) -> list[Value]:
    """Values a block (or one inside it) reads and does not define, each once, in order met."""
    defined: set[Value] = set()
    free: dict[Value, None] = {}

    def visit(inner: Block) -> None:
        defined.update(inner.args)
        for node in inner.nodes:
            for value in node_operands(node):
                if value not in defined:
                    free[value] = None
            for nested in node_blocks(node):
                visit(nested)
            defined.update(node.results)
        for value in inner.yields:
            if value not in defined:
                free[value] = None

    visit(block)
    return list(free)
