"""The pass that stops loops from carrying what they never change."""

import deuteron.language as tl
from deuteron.dtypes import int32
from deuteron.ir import For, If, Op, While, verify, walk
from deuteron.ir.pointer_roots import PointerRoots
from deuteron.lang.jit import jit
from deuteron.passes.uncarry import uncarry
from tests.unit.lowered import F32_PTR, I32, build


@jit
def nested(x_ptr, n, B: tl.constexpr):
    block = tl.make_block_ptr(x_ptr, (n, B), (B, 1), (0, 0), (4, B), (1, 0))
    for i in range(n):
        for _ in range(i):
            tl.store(block, tl.load(block) + 1)
            block = tl.advance(block, (4, 0))
        if i > 2:
            block = tl.advance(block, (1, 0))
        else:
            block = tl.advance(block, (2, 0))
    while n > 3:
        block = tl.advance(block, (-1, 0))
        n -= 1
    tl.store(block, tl.zeros((4, B), tl.float32))


def test_only_what_changes_is_carried():
    before = build(nested, x_ptr=F32_PTR, n=I32, B=16)
    after = uncarry(before)
    verify(after)
    nodes = list(walk(after.body))
    for node in nodes:
        if isinstance(node, (For, While)):
            # One offset of two moves, and the `while` counts n.
            assert [v.type.element for v in node.inits] == [int32] * len(node.inits)
            assert len(node.inits) == (1 if isinstance(node, For) else 2)
        if isinstance(node, If):
            assert len(node.results) == 1
    roots = PointerRoots(after)
    stores = [n for n in nodes if isinstance(n, Op) and n.name == "store"]
    assert {roots.of(s.operands[0]) for s in stores} == {after.params[0]}


@jit
def swapped(x_ptr, n, B: tl.constexpr):
    a, b, c = 1, 2, 3
    for _ in range(n):
        a, b, c = b, a, c
    tl.store(x_ptr, a * 100 + b * 10 + c)


def test_values_that_change_places_stay_carried():
    after = uncarry(build(swapped, x_ptr=F32_PTR, n=I32, B=16))
    verify(after)
    (loop,) = [n for n in walk(after.body) if isinstance(n, For)]
    assert len(loop.inits) == 2
