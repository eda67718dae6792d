"""Where the operands of dots come from: what planning a dot needs to know besides its types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deuteron.backends.cuda.coalesce import Coalescing
from deuteron.backends.cuda.dot_plan import DotKind, DotPlan, Source
from deuteron.backends.cuda.layout import Layout
from deuteron.backends.cuda.pipeline_plan import LoopPlan
from deuteron.backends.cuda.tile_format import TileFormat
from deuteron.dtypes import float16
from deuteron.ir import Function, Op, Value, walk
from deuteron.ir.nodes import For, While
from deuteron.ir.optable import OPS


def strip_views(value: Value) -> tuple[Value, tuple[int, ...]]:
    """The value that a tile is a transposition of, and which of its axes each axis of it is."""
    order = tuple(range(value.type.rank))
    while value.op is not None and value.op.name in ("permute", "hint"):
        if value.op.name == "permute":
            inner: Sequence[int] = value.op.attrs["order"]
            order = tuple(inner[axis] for axis in order)
        value = value.op.operands[0]
    return value, order


def find_source(
    operand: Value,
    homes: Mapping[Value, Layout],
    coalescing: Coalescing,
    copied: Mapping[Value, TileFormat],
) -> Source:
    """What is known of a dot's operand; `copied` are the values that cp.async brings."""
    value, order = strip_views(operand)
    places = {axis: place for place, axis in enumerate(order)}

    def seen(axes: Sequence[int]) -> tuple[int, ...]:
        return tuple(places[axis] for axis in axes)

    if value in copied:
        return Source(seen(copied[value].order), fixed=True)
    home = homes.get(operand)
    if value.is_op("load"):
        assert value.op is not None
        return Source(seen(coalescing.order(value.op.operands[0])), home=home)
    return Source(_run_order(operand, home), home=home)


def _run_order(operand: Value, home: Layout | None) -> tuple[int, ...]:
    """The axes of a computed tile, first the one along which registers run."""
    axes = sorted(range(operand.type.rank), reverse=True)
    if home is not None:
        axes.sort(key=lambda axis: -home.run_length(axis))
    return tuple(axes)


def chained_dots(function: Function) -> set[Op]:
    """The dots whose result becomes another's A elementwise, and those others."""
    chained: set[Op] = set()
    for node in walk(function.body):
        if isinstance(node, Op) and node.name == "dot":
            makers = _dots_behind(node.operands[0])
            if makers:
                chained |= {node, *makers}
    return chained


def _dots_behind(value: Value) -> set[Op]:
    """The dots that a tile is computed from, element by element."""
    found: set[Op] = set()
    seen: set[Value] = set()
    stack = [value]
    while stack:
        value = stack.pop()
        if value in seen or value.op is None:
            continue
        seen.add(value)
        if value.op.name == "dot":
            found.add(value.op)
        elif OPS[value.op.name].elementwise:
            stack += value.op.operands
    return found


def defined_in(loop: For | While) -> set[Value]:
    """Every value that is new in each turn of a loop."""
    blocks = [loop.body] if isinstance(loop, For) else [loop.condition, loop.body]
    found: set[Value] = set()
    while blocks:
        block = blocks.pop()
        found.update(block.args)
        for node in walk(block):
            found.update(node.results)
            match node:
                case For():
                    found.update(node.body.args)
                case While():
                    found.update(node.condition.args, node.body.args)
                case _:
                    pass
    return found


def running_dots(
    plan: LoopPlan, dots: Mapping[Op, DotPlan], uses: Mapping[Value, int]
) -> dict[Op, int]:
    """The dots of a loop that may run on into its next turn, with the number of what they carry.

    Such a dot only adds to an accumulator that nothing else in the loop looks at, and nobody writes
    its operands' memory before its turn is over.
    """
    loop = plan.loop
    inside = defined_in(loop)
    copied = {load.op.result for load in plan.loads}

    def stays(operand: Value) -> bool:
        value, _ = strip_views(operand)
        return value in copied or value not in inside

    found: dict[Op, int] = {}
    for number, after in enumerate(loop.body.yields):
        op, carried = after.op, loop.body.args[number + 1]
        if op is None or op not in dots or op not in loop.body.nodes:
            continue
        dot = dots[op]
        fits = dot.kind is DotKind.WGMMA and dot.acc is not float16 and not dot.a.from_registers
        alone = op.operands[2] is carried and uses.get(carried) == 1 and uses.get(after) == 1
        if fits and alone and all(stays(operand) for operand in op.operands[:2]):
            found[op] = number
    return found
