"""Builds tile IR node by node, inferring every result type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deuteron.dtypes import DType, int1, int32
from deuteron.errors import UNKNOWN, Loc
from deuteron.ir.nodes import Attrs, Block, For, Function, If, Node, Op, Reduce, Scan, Value, While
from deuteron.ir.optable import OPS, OpTypeError
from deuteron.ir.types import Type


class Builder:
    """Appends nodes to the innermost open block.

    `loc` is given to every node built until it is changed.  Blocks nest: `open` starts one and
    returns its arguments, `close` ends it with its yields and returns the Block.
    """

    def __init__(self) -> None:
        self.loc: Loc = UNKNOWN
        self._blocks: list[Block] = []

    # -- blocks -----------------------------------------------------------------------------
    @property
    def block(self) -> Block:
        return self._blocks[-1]

    def open(self, arg_types: Sequence[Type] = (), names: Sequence[str] = ()) -> tuple[Value, ...]:
        padded = [*names, *[""] * (len(arg_types) - len(names))]
        args = tuple(Value(t, n) for t, n in zip(arg_types, padded, strict=True))
        self._blocks.append(Block(args))
        return args

    def close(self, yields: Sequence[Value] = ()) -> Block:
        block = self._blocks.pop()
        block.yields = tuple(yields)
        return block

    def append(self, node: Node) -> Node:
        self.block.nodes.append(node)
        return node

    # -- operations -------------------------------------------------------------------------
    def ops(self, name: str, *operands: Value, **attrs: Any) -> tuple[Value, ...]:
        """Append a table op; returns all its results.  Raises OpTypeError when it does not fit."""
        row = OPS[name]
        low, high = row.arity
        if len(operands) < low or (high >= 0 and len(operands) > high):
            raise OpTypeError(f"{name} takes {low} to {high} operands, not {len(operands)}")
        types = row.infer([o.type for o in operands], attrs)
        results = tuple(Value(t) for t in types)
        self.append(Op(name, operands, results, attrs, self.loc))
        return results

    def op(self, name: str, *operands: Value, **attrs: Any) -> Value:
        """Append a table op that has one result."""
        return self.ops(name, *operands, **attrs)[0]

    def const(self, value: int | float | bool, dtype: DType = int32) -> Value:
        if dtype.is_floating():
            value = float(value)
        elif dtype is int1:
            value = bool(value)
        else:
            value = int(value)
        return self.op("const", value=value, dtype=dtype)

    def full(self, value: int | float | bool, type: Type) -> Value:
        """A constant of that type, in every element of a tile."""
        scalar = self.const(value, type.dtype)
        return self.op("splat", scalar, shape=type.shape) if type.shape else scalar

    # -- structure --------------------------------------------------------------------------
    def for_(
        self, bounds: tuple[Value, Value, Value], inits: Sequence[Value], body: Block, attrs: Attrs
    ) -> tuple[Value, ...]:
        """Append `for iv in range(*bounds)`; body's args are the iv and the carried values."""
        results = tuple(Value(v.type) for v in inits)
        self.append(For(*bounds, tuple(inits), body, results, attrs, self.loc))
        return results

    def while_(self, inits: Sequence[Value], condition: Block, body: Block) -> tuple[Value, ...]:
        results = tuple(Value(v.type) for v in inits)
        self.append(While(tuple(inits), condition, body, results, self.loc))
        return results

    def if_(self, condition: Value, then: Block, otherwise: Block) -> tuple[Value, ...]:
        results = tuple(Value(v.type) for v in then.yields)
        self.append(If(condition, then, otherwise, results, self.loc))
        return results

    def reduce(self, operands: Sequence[Value], axis: int, combine: Block) -> tuple[Value, ...]:
        results = tuple(
            Value(o.type.with_shape(o.type.shape[:axis] + o.type.shape[axis + 1 :]))
            for o in operands
        )
        self.append(Reduce(tuple(operands), axis, combine, results, self.loc))
        return results

    def scan(
        self, operands: Sequence[Value], axis: int, combine: Block, *, reverse: bool = False
    ) -> tuple[Value, ...]:
        results = tuple(Value(o.type) for o in operands)
        self.append(Scan(tuple(operands), axis, reverse, combine, results, self.loc))
        return results

    def function(
        self,
        name: str,
        body: Block,
        param_attrs: Sequence[Attrs] = (),
        attrs: Attrs | None = None,
    ) -> Function:
        """Wrap a closed block whose arguments are the kernel's parameters."""
        filled = tuple(param_attrs) or tuple({} for _ in body.args)
        return Function(name, body, filled, attrs or {}, self.loc)
