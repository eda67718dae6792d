"""Checks a function against the rules of the IR: our own invariants, not the user's mistakes."""

from __future__ import annotations

from deuteron.errors import InternalError
from deuteron.ir.nodes import (
    Block,
    For,
    Function,
    If,
    Node,
    Op,
    Reduce,
    Scan,
    Value,
    While,
    node_operands,
)
from deuteron.ir.optable import OPS, OpTypeError
from deuteron.ir.types import BOOL, Type


def verify(function: Function) -> None:
    """Raise InternalError unless every value is defined before use and every type fits."""
    if len(function.param_attrs) != len(function.params):
        raise InternalError(f"{function.name}: {len(function.param_attrs)} param attrs")
    _block(function.body, set())
    if function.body.yields:
        raise InternalError(f"{function.name}: a kernel yields nothing")


def _fail(node: Node, message: str) -> None:
    name = node.name if isinstance(node, Op) else type(node).__name__.lower()
    raise InternalError(f"{node.loc}: invalid IR at `{name}`: {message}")


def _types(values: tuple[Value, ...]) -> list[Type]:
    return [v.type for v in values]


def _block(block: Block, outer: set[Value]) -> None:
    known = outer | set(block.args)
    for node in block.nodes:
        for operand in node_operands(node):
            if operand not in known:
                _fail(node, "an operand is used before it is defined")
        _node(node, known)
        known.update(node.results)
    for value in block.yields:
        if value not in known:
            raise InternalError("a block yields a value it does not know")


def _node(node: Node, known: set[Value]) -> None:
    match node:
        case Op():
            _op(node)
        case For():
            bound_types = {node.lower.type, node.upper.type, node.step.type}
            if len(bound_types) != 1 or node.lower.type.shape:
                _fail(node, "the bounds are not three scalars of one type")
            _carried(node, node.inits, node.body, skip=1)
            _block(node.body, known)
        case While():
            _carried(node, node.inits, node.body)
            if _types(node.condition.args) != _types(node.inits):
                _fail(node, "the condition takes other values than are carried")
            if _types(node.condition.yields) != [BOOL]:
                _fail(node, "the condition does not yield one i1")
            _block(node.condition, known)
            _block(node.body, known)
        case If():
            if node.condition.type != BOOL:
                _fail(node, "the condition is no i1")
            for branch in (node.then, node.otherwise):
                if _types(branch.yields) != _types(node.results):
                    _fail(node, "a branch yields other types than the results")
                _block(branch, known)
        case Reduce() | Scan():
            _combine(node)


def _carried(node: For | While, inits: tuple[Value, ...], body: Block, skip: int = 0) -> None:
    want = _types(inits)
    if _types(body.args)[skip:] != want or _types(body.yields) != want:
        _fail(node, "carried values change type")
    if _types(node.results) != want:
        _fail(node, "results differ from the carried values")


def _op(node: Op) -> None:
    row = OPS.get(node.name)
    if row is None:
        _fail(node, "unknown op")
        return
    try:
        types = row.infer(_types(node.operands), node.attrs)
    except OpTypeError as error:
        _fail(node, str(error))
        return
    if list(types) != _types(node.results):
        _fail(node, f"results {_types(node.results)} should be {list(types)}")


def _combine(node: Reduce | Scan) -> None:
    scalars = [o.type.scalar for o in node.operands]
    if len({o.type.shape for o in node.operands}) != 1:
        _fail(node, "operands of different shapes")
    if not 0 <= node.axis < node.operands[0].type.rank:
        _fail(node, f"axis {node.axis} of {node.operands[0].type}")
    if _types(node.combine.args) != scalars * 2 or _types(node.combine.yields) != scalars:
        _fail(node, "combine does not take 2n scalars and yield n")
    for inner in node.combine.nodes:
        pure = isinstance(inner, Op) and (OPS[inner.name].elementwise or inner.name == "const")
        if not pure:
            _fail(node, "combine holds more than elementwise ops")
    _block(node.combine, set())
