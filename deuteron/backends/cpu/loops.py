"""Counted loops over a `Builder`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deuteron.backends.llvm.builder import I64, Builder, Val

LoopBody = Callable[[Val, list[Val]], Sequence[Val]]


def either(
    b: Builder,
    tag: str,
    condition: Val,
    then: Callable[[], Sequence[Val]],
    otherwise: Callable[[], Sequence[Val]],
) -> list[Val]:
    """Emit both sides of a branch on an i1; returns what the side taken gives."""
    labels = b.name(f"{tag}.then"), b.name(f"{tag}.else")
    join = b.name(f"{tag}.join")
    b.branch_if(condition, *labels)
    sides: list[tuple[str, Sequence[Val]]] = []
    for label, side in zip(labels, (then, otherwise), strict=True):
        b.label(label)
        values = side()
        sides.append((b.code.block, values))
        b.branch(join)
    b.label(join)
    (left, xs), (right, ys) = sides
    return [b.phi(x.type, [(x, left), (y, right)]) for x, y in zip(xs, ys, strict=True)]


def counted_loop(
    b: Builder,
    tag: str,
    trips: int | Val,
    body: LoopBody,
    carried: Sequence[Val] = (),
) -> list[Val]:
    """Emit `body(i, carried)` for i in 0 .. trips-1 and return the carried values after it.

    `trips` must be at least 1 when the loop runs: the test stands at the end.  A constant single
    trip emits no loop.  `tag` begins the names of the loop's blocks.
    """
    if trips == 1:
        return list(body(b.const(0, I64), list(carried)))
    head, exit_ = b.name(f"{tag}.loop"), b.name(f"{tag}.exit")
    entry = b.code.block
    b.branch(head)
    b.label(head)
    index = Val(f"%{b.name('i')}", I64)
    inside = [Val(f"%{b.name('c')}", v.type) for v in carried]
    code, place = b.code, len(b.code.lines)

    after = list(body(index, inside))
    following = b.emit(f"add nuw nsw i64 {index.text}, 1", I64)
    bound = trips if isinstance(trips, Val) else b.const(trips, I64)
    more = b.icmp("ult", following, bound)
    latch = b.code.block
    b.branch_if(more, head, exit_)

    # The phis could not be written before the values of the back edge were known.
    phis = zip([index, *inside], [b.const(0, I64), *carried], [following, *after], strict=True)
    code.lines[place:place] = [
        f"  {phi.text} = phi {phi.type} [ {first.text}, %{entry} ], [ {next_.text}, %{latch} ]"
        for phi, first, next_ in phis
    ]
    b.label(exit_)
    return after
