"""Accumulators that the first turn of a loop writes, so that nobody has to zero them before it.

`acc = zeros; for …: acc = dot(a, b, acc)` would write zeros, read them again and add to them.  The
dot stores its product in the first turn instead, and zeros are written only where there is no turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deuteron.backends.cpu.steps import Assign, Group, Single
from deuteron.ir import For, Op, Value
from deuteron.passes.simplify import constant_of

if TYPE_CHECKING:
    from deuteron.backends.cpu.planner import Plan


def begin_accumulators(plan: Plan) -> dict[For, list[Assign]]:
    """Take the zeroing of such accumulators out of the plan; returns it by loop."""
    found: dict[For, list[Assign]] = {}
    for node in plan.order:
        if not isinstance(node, For):
            continue
        variables = zip(node.body.args[1:], node.inits, node.results, strict=True)
        for variable, start, result in variables:
            if constant_of(start) == 0 and _first_dot(plan, node, variable) is not None:
                found.setdefault(node, []).append(_take_out(plan, node, result))
    return found


def begins_accumulator(plan: Plan, loop: For, dot: Op) -> bool:
    """Whether a dot of the loop's body is to store, not add, in the first turn."""
    homes = {assign.home for assign in plan.begun.get(loop, ())}
    pairs = zip(loop.body.args[1:], loop.results, strict=True)
    return any(dot.operands[2] is variable and home in homes for variable, home in pairs)


def _first_dot(plan: Plan, loop: For, variable: Value) -> Op | None:
    """The dot that adds to a loop's variable where it lies, if nothing else reads that."""
    dot: Op | None = None
    for step in plan.blocks[loop.body].steps:
        if isinstance(step, Single) and isinstance(step.node, Op) and step.in_place is variable:
            dot = step.node
        elif plan.reads(step, variable):
            return None
    return dot


def _take_out(plan: Plan, loop: For, home: Value) -> Assign:
    steps = plan.blocks[plan.block_of[loop]].steps
    for group in (step for step in steps if isinstance(step, Group)):
        for sink in group.sinks:
            if isinstance(sink, Assign) and sink.home is home:
                group.sinks.remove(sink)
                if not group.sinks:
                    steps.remove(group)
                return sink
    raise AssertionError("every tile that a loop carries is put into its home before")
