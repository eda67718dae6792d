"""Scalar functions on tiles: `if` and loops of one element, carried out for all of them at once.

A block over scalars becomes ops over tiles.  Where it branches both sides are computed and each
element keeps its own; a loop goes on until no element wants another turn, and those that are done
stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn
from typing import cast as typing_cast

from deuteron.dtypes import int1
from deuteron.ir.nodes import Block, For, If, Node, Op, Reduce, Scan, Value, While
from deuteron.ir.optable import OPS
from deuteron.ir.types import Type
from deuteron.lang.context import Context
from deuteron.lang.semantic.casts import to_tensor
from deuteron.lang.semantic.shape import broadcast_together, check_shape, join, reshape, split
from deuteron.lang.values import Tensor, describe, unwrap

_UNIFORM = frozenset({"const", "program_id", "num_programs"})


class Lanes:
    """Writes a block's ops over tiles of one shape, `()` for scalars.

    `who` names the function of the language, for errors.
    """

    def __init__(self, ctx: Context, shape: tuple[int, ...], who: str) -> None:
        self.ctx = ctx
        self.b = ctx.builder
        self.shape = shape
        self.who = who
        self.map: dict[Value, Value] = {}
        # The elements that are here at all; None for every one.
        self.mask: Value | None = None

    def run(self, block: Block, args: Sequence[Value]) -> list[Value]:
        """The block's yields, given its arguments."""
        self.map.update(zip(block.args, args, strict=True))
        for node in block.nodes:
            self.b.loc = node.loc
            self._node(node)
        return [self.value(v) for v in block.yields]

    def value(self, value: Value) -> Value:
        """A value as a tile: what comes from outside is the same for all elements."""
        known = self.map.get(value)
        if known is None:
            known = self.b.op("splat", value, shape=self.shape) if self.shape else value
        return known

    def _node(self, node: Node) -> None:
        match node:
            case Op():
                self._op(node)
            case If():
                self._if(node)
            case While():
                self._while(node)
            case For():
                self._for(node)
            case Reduce() | Scan():
                self._refuse(node)

    def _op(self, node: Op) -> None:
        if node.name in _UNIFORM:
            scalar = self.b.op(node.name, **node.attrs)
            self.map[node.result] = self.value(scalar)
        elif OPS[node.name].elementwise:
            operands = [self.value(o) for o in node.operands]
            self.map[node.result] = self.b.op(node.name, *operands, **node.attrs)
        else:
            self._refuse(node)

    def _refuse(self, node: Node) -> NoReturn:
        self.b.loc = node.loc
        what = node.name if isinstance(node, Op) else type(node).__name__.lower()
        raise self.ctx.error(
            f"the function of {self.who} does more than arithmetic on one element",
            expected="operators, mathematics, `if` and loops",
            got=f"`{what}`",
            remedy="load before and store after, on whole tiles",
        )

    # -- control flow -----------------------------------------------------------------------
    def _if(self, node: If) -> None:
        condition = self.value(node.condition)
        before = self.mask
        self.mask = self._both(condition)
        then = self.run(node.then, ())
        self.mask = before
        self.mask = self._both(self.b.op("not", condition))
        otherwise = self.run(node.otherwise, ())
        self.mask = before
        for result, left, right in zip(node.results, then, otherwise, strict=True):
            self.map[result] = self.b.op("select", condition, left, right)

    def _both(self, condition: Value) -> Value:
        return condition if self.mask is None else self.b.op("and", self.mask, condition)

    def _while(self, node: While) -> None:
        inits = [self.value(v) for v in node.inits]

        def again(values: Sequence[Value]) -> Value:
            return self.run(node.condition, values)[0]

        def turn(values: Sequence[Value]) -> list[Value]:
            return self.run(node.body, values)

        results = self._loop(inits, again, turn)
        self.map.update(zip(node.results, results, strict=True))

    def _for(self, node: For) -> None:
        upper, step = self.value(node.upper), self.value(node.step)
        up = self.b.op("gt", step, self.b.full(0, step.type))

        def again(values: Sequence[Value]) -> Value:
            below, above = (self.b.op(op, values[0], upper) for op in ("lt", "gt"))
            return self.b.op("select", up, below, above)

        def turn(values: Sequence[Value]) -> list[Value]:
            after = self.run(node.body, values)
            return [self.b.op("add", values[0], step), *after]

        inits = [self.value(v) for v in (node.lower, *node.inits)]
        results = self._loop(inits, again, turn)
        self.map.update(zip(node.results, results[1:], strict=True))

    def _loop(
        self,
        inits: Sequence[Value],
        again: Callable[[Sequence[Value]], Value],
        turn: Callable[[Sequence[Value]], list[Value]],
    ) -> list[Value]:
        """Turns while `again` holds for any element; the others keep their values meanwhile."""
        outside = self.mask
        live = self._both(again(inits))
        types = [live.type, *(v.type for v in inits)]
        args = self.b.open(types)
        condition = self.b.close([self._any(args[0])])
        args = self.b.open(types)
        self.mask = args[0]
        after = [
            self.b.op("select", args[0], new, old)
            for new, old in zip(turn(args[1:]), args[1:], strict=True)
        ]
        still = self._both(again(after))
        body = self.b.close([still, *after])
        self.mask = outside
        return list(self.b.while_([live, *inits], condition, body))[1:]

    def _any(self, flags: Value) -> Value:
        """Whether a flag of any element is set, as a scalar."""
        if not flags.type.shape:
            return flags
        line = self.b.op("reshape", flags, shape=(flags.type.numel,))
        pair = self.b.open([Type(int1), Type(int1)])
        combine = self.b.close([self.b.op("or", *pair)])
        return self.b.reduce([line], 0, combine)[0]


# -- map_elementwise -----------------------------------------------------------------------
def map_elementwise(
    ctx: Context, function: object, operands: Sequence[object], pack: object
) -> Tensor | tuple[Tensor, ...]:
    """`function` of scalars on every element of tiles, `pack` neighbours in one call."""
    if not operands:
        raise ctx.error(
            "map_elementwise needs a tile",
            expected="one operand or more",
            got="none",
            remedy="pass the tiles after the function",
        )
    (count,) = check_shape(ctx, [pack])
    tensors = broadcast_together(ctx, *(to_tensor(ctx, o) for o in operands))
    shape = tensors[0].shape
    if count > 1 and (not shape or shape[-1] % count):
        raise ctx.error(
            "the tiles of map_elementwise do not divide into packs",
            expected=f"a last axis that {count} divides",
            got=describe(tensors[0]),
            remedy="leave pack out, or pass longer tiles",
        )
    parts = [part for t in tensors for part in _packs(ctx, t, count)]
    block, single = _scalar_block(ctx, function, parts)
    lanes = Lanes(ctx, parts[0].shape, "map_elementwise")
    loc = ctx.builder.loc
    results = [Tensor(v) for v in lanes.run(block, [p.handle for p in parts])]
    ctx.builder.loc = loc
    if len(results) % count:
        raise ctx.error(
            "the function of map_elementwise gives no whole packs",
            expected=f"{count} values for each result",
            got=f"{len(results)} values",
            remedy=f"return the {count} values of each result side by side",
        )
    whole = [_unpacked(ctx, results[i : i + count]) for i in range(0, len(results), count)]
    return whole[0] if single else tuple(whole)


def _scalar_block(ctx: Context, function: object, parts: Sequence[Tensor]) -> tuple[Block, bool]:
    """The function as a block over scalars, and whether it gives one value, not a tuple."""
    builder, loc = ctx.builder, ctx.builder.loc
    args = builder.open([p.handle.type.scalar for p in parts])
    outcome = unwrap(ctx.call(function, [Tensor(a) for a in args], {}))
    builder.loc = loc
    items = typing_cast("tuple[object, ...]", outcome) if isinstance(outcome, tuple) else (outcome,)
    results = [to_tensor(ctx, item) for item in items]
    for result in results:
        if result.shape:
            raise ctx.error(
                "the function of map_elementwise gives a tile",
                expected="scalars",
                got=describe(result),
                remedy="compute with its arguments, each of which is one element",
            )
    return builder.close([r.handle for r in results]), not isinstance(outcome, tuple)


def _packs(ctx: Context, x: Tensor, count: int) -> list[Tensor]:
    """Every count-th element along the last axis, from the first, from the second, …"""
    if count == 1:
        return [x]
    pairs = reshape(ctx, x, (*x.shape[:-1], x.shape[-1] // 2, 2))
    even, odd = (_packs(ctx, half, count // 2) for half in split(ctx, pairs))
    return [part for both in zip(even, odd, strict=True) for part in both]


def _unpacked(ctx: Context, parts: Sequence[Tensor]) -> Tensor:
    """The inverse of `_packs`."""
    if len(parts) == 1:
        return parts[0]
    even, odd = _unpacked(ctx, parts[::2]), _unpacked(ctx, parts[1::2])
    pairs = join(ctx, even, odd)
    return reshape(ctx, pairs, (*pairs.shape[:-2], 2 * pairs.shape[-2]))
