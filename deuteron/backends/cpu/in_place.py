"""Dots that add to their accumulator where it lies, instead of to a copy of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deuteron.backends.cpu.steps import Group, Keep, Single, Step
from deuteron.ir import Block, Op, Value

if TYPE_CHECKING:
    from deuteron.backends.cpu.planner import Plan


def allow_in_place(plan: Plan, block: Block, steps: Sequence[Step]) -> None:
    """Set `in_place` of a block's dots, and of what they add to, where none reads the old value."""
    marker = _Marker(plan, block, steps)
    for at, step in enumerate(steps):
        if isinstance(step, Single) and isinstance(step.node, Op) and step.node in plan.dots:
            marker.mark_dot(at, step, step.node)


class _Marker:
    """Marks the steps of one block."""

    def __init__(self, plan: Plan, block: Block, steps: Sequence[Step]) -> None:
        self.plan = plan
        self.demand = plan.demand
        self.block = block
        self.steps = steps
        variables = plan.variables(block)
        # What each variable of the loop is in the next turn.
        self.following = {variables[h]: v for v, h in plan.homes(block) if h in variables}

    def mark_dot(self, at: int, step: Single, dot: Op) -> None:
        """Let a dot change its accumulator where it is the last to read it."""
        acc = dot.operands[2]
        if self._read_after(at, acc) or not self._is_owned(acc):
            return
        if acc in self.block.args and not self._becomes(acc, dot.result):
            return
        step.in_place = acc
        for earlier, group in enumerate(self.steps):
            if isinstance(group, Group):
                for keep in group.sinks:
                    if isinstance(keep, Keep) and keep.value is acc:
                        self._mark_keep(earlier, group, keep)

    def _mark_keep(self, at: int, group: Group, keep: Keep) -> None:
        """The accumulator itself, rescaled from the loop's variable, may take that one's place."""
        others = [value for sink in group.sinks if sink is not keep for value in sink.inputs]
        read_beside = self.demand.sources_of(others)
        assert keep.value.op is not None
        for arg, same in self.demand.ingredients(keep.value.op).items():
            fits = same and arg in self.block.args and arg.type == keep.value.type
            last = arg not in read_beside and not self._read_after(at, arg)
            if fits and last and self._becomes(arg, keep.value):
                keep.in_place = arg

    def _becomes(self, arg: Value, value: Value) -> bool:
        """Whether a value, through dots that add to it, is what the loop's variable becomes."""
        while self.following.get(arg) is not value:
            users = self.plan.users.get(value, [])
            if len(users) != 1 or value in self.plan.yielded:
                return False
            dot = users[0]
            if not isinstance(dot, Op) or dot not in self.plan.dots:
                return False
            if dot.operands[2] is not value:
                return False
            value = dot.result
        return True

    def _is_owned(self, acc: Value) -> bool:
        """Whether the buffer of a value is this block's to change."""
        if acc in self.block.args:
            return True
        op = acc.op
        if op is None or op.name in ("split", "reshape"):
            # A view, and a tile without the gaps between rows that a dot expects.
            return False
        kept = acc in self.demand.kept or not self.demand.is_virtual(acc)
        return kept and self.plan.block_of.get(op) is self.block

    def _read_after(self, at: int, value: Value) -> bool:
        return any(self.plan.reads(step, value) for step in self.steps[at + 1 :])
