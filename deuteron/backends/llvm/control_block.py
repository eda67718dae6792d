"""The control block of a launch: where a kernel says that a `device_assert` did not hold.

It is eight i64, zero before the launch: the number of the first failed assert, and the ids of the
program it failed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deuteron.backends.llvm.builder import I1, Val
from deuteron.backends.llvm.levels import Levels


def emit_failure(
    levels: Levels, control: Val, number: int, program: Callable[[], Sequence[Val]]
) -> list[Val]:
    """Record assert `number`, from 1, unless another failed before; `program` gives the ids."""
    b = levels.b
    text = f"cmpxchg {control}, i64 0, i64 {number} acq_rel acquire, align 8"
    pair = b.emit(text, I1)
    first = b.emit(f"extractvalue {{ i64, i1 }} {pair.text}, 1", I1)

    def record() -> list[Val]:
        for axis, pid in enumerate(program()):
            b.store(pid, b.gep("i64", control, 1 + axis), 8)
        return []

    levels.branch(first, record, list)
    return []
