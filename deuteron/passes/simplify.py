"""simplify: fold constants, drop identities, share equal values, keep scalars scalar.

Requires: a verified function.
Ensures: no pure op repeats an earlier one that dominates it; elementwise work on splats is done
once on scalars; unused pure ops are gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

from deuteron.dtypes import DType, int1, int_range
from deuteron.ir import OPS, Block, Effect, Function, Op, Rewriter, Value
from deuteron.ir.unused import drop_unused


def simplify(function: Function) -> Function:
    """The function without constant, equal, identical or unused work."""
    result = _Simplifier().function(function)
    drop_unused(result.body)
    return result


class _Simplifier(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.scopes: list[dict[object, tuple[Value, ...]]] = []

    def block(self, block: Block) -> Block:
        self.scopes.append({})
        result = super().block(block)
        self.scopes.pop()
        return result

    def combine(self, block: Block) -> Block:
        around, self.scopes = self.scopes, []
        result = super().combine(block)
        self.scopes = around
        return result

    def op(self, node: Op, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        row = OPS[node.name]
        if row.effect is not Effect.NONE or node.attrs.get("volatile"):
            return None
        folded = self.fold(node, operands)
        if folded is not None:
            return (folded,)
        return self.shared(node, operands)

    def shared(self, node: Op, operands: tuple[Value, ...]) -> tuple[Value, ...]:
        """An equal earlier op, or this one remembered."""
        attrs = tuple((k, _hashable(v)) for k, v in node.attrs.items())
        key = (node.name, operands, attrs, node.results[0].type)
        for scope in reversed(self.scopes):
            if key in scope:
                return scope[key]
        results = self.copy_op(node, operands)
        self.scopes[-1][key] = results
        return results

    # -- folding ----------------------------------------------------------------------------
    def fold(self, node: Op, operands: tuple[Value, ...]) -> Value | None:
        if node.name in ("broadcast", "expand_dims", "reshape", "permute", "splat"):
            return self.fold_shape(node, operands[0])
        if not OPS[node.name].elementwise or not operands:
            return None
        if node.name == "hint":
            return None
        if node.result.type.shape:
            return self.fold_splats(node, operands)
        return self.fold_scalar(node, operands)

    def make(self, node: Op, name: str, operands: tuple[Value, ...], **attrs: object) -> Value:
        """Build an op through folding and sharing again."""
        types = OPS[name].infer([o.type for o in operands], attrs)
        built = Op(name, operands, tuple(Value(t) for t in types), attrs, node.loc)
        folded = self.fold(built, operands)
        return folded if folded is not None else self.shared(built, operands)[0]

    def fold_shape(self, node: Op, source: Value) -> Value | None:
        if source.type == node.result.type and node.name != "permute":
            return source
        if node.name == "splat":
            return None
        inner = source.op
        if inner is not None and inner.name == "splat":
            return self.make(node, "splat", inner.operands, shape=node.result.type.shape)
        return None

    def fold_splats(self, node: Op, operands: tuple[Value, ...]) -> Value | None:
        """f(splat a, splat b) is splat(f(a, b)); x + splat(0) is x."""
        scalars: list[Value] = []
        for operand in operands:
            op = operand.op
            if op is None or op.name != "splat":
                break
            scalars.append(op.operands[0])
        if len(scalars) == len(operands):
            scalar = self.make(node, node.name, tuple(scalars), **node.attrs)
            return self.make(node, "splat", (scalar,), shape=node.result.type.shape)
        return self.fold_identity(node, operands)

    def fold_scalar(self, node: Op, operands: tuple[Value, ...]) -> Value | None:
        constants = [constant_of(o) for o in operands]
        if all(c is not None for c in constants):
            value = _evaluate(node, constants)
            if value is not None:
                return self.constant(value, node.result.type.dtype)
        return self.fold_identity(node, operands)

    def constant(self, value: int | float | bool, dtype: DType) -> Value:
        key = ("const", _hashable(value), dtype)
        for scope in reversed(self.scopes):
            if key in scope:
                return scope[key][0]
        result = self.b.const(value, dtype)
        self.scopes[-1][key] = (result,)
        return result

    def fold_identity(self, node: Op, operands: tuple[Value, ...]) -> Value | None:
        if node.name == "cast" and operands[0].type == node.result.type:
            return operands[0]
        if node.name == "select":
            return self.fold_select(operands)
        if len(operands) != 2 or node.name not in _IDENTITY:
            return None
        if node.name != "addptr" and not node.result.type.dtype.is_int():
            return None
        left, right = operands
        neutral = _IDENTITY[node.name](node)
        if constant_of(right) == neutral:
            return left
        if OPS[node.name].commutative and constant_of(left) == neutral:
            return right
        if node.name in ("and", "or") and left is right:
            return left
        return None

    def fold_select(self, operands: tuple[Value, ...]) -> Value | None:
        condition, left, right = operands
        known = constant_of(condition)
        if known is None:
            return left if left is right else None
        return left if known else right


def constant_of(value: Value) -> int | float | bool | None:
    """The number a value always is (in every element), if known."""
    op = value.op
    if op is not None and op.name == "splat":
        op = op.operands[0].op
    if op is not None and op.name == "const":
        constant: int | float | bool = op.attrs["value"]
        return constant
    return None


def _all_ones(node: Op) -> int | bool:
    dtype = node.result.type.dtype
    if dtype is int1:
        return True
    return -1 if dtype.is_int_signed() else int_range(dtype)[1]


_IDENTITY: dict[str, Callable[[Op], int | bool]] = {
    "add": lambda node: 0,
    "sub": lambda node: 0,
    "mul": lambda node: 1,
    "idiv": lambda node: 1,
    "shl": lambda node: 0,
    "shr": lambda node: 0,
    "or": lambda node: 0,
    "xor": lambda node: 0,
    "and": _all_ones,
    "addptr": lambda node: 0,
}


def _hashable(value: object) -> object:
    if isinstance(value, bool | int | float):
        # Equal numbers that differ in type, or zeros in their sign, are different constants.
        return repr(value)
    return tuple(cast("list[object]", value)) if isinstance(value, list) else value


def _wrap(value: int, dtype: DType) -> int | bool:
    if dtype is int1:
        return bool(value & 1)
    value &= (1 << dtype.bits) - 1
    if dtype.is_int_signed() and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    return value


_FOLD: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "min": min,
    "max": max,
    "idiv": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "irem": lambda a, b: a - abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) * b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


def _evaluate(node: Op, constants: Sequence[object]) -> int | float | bool | None:
    """The value of an integer op on constants, or of a cast of one; None where it is not ours."""
    dtype = node.operands[0].type.dtype if not node.operands[0].type.is_pointer else None
    if dtype is None:
        return None
    if dtype.is_floating():
        return _cast_float(node, constants[0])
    target = node.result.type.element
    if node.name == "cast" and isinstance(target, DType):
        value = constants[0]
        assert isinstance(value, int)
        if target is int1:
            return value != 0
        if target.is_int():
            return _wrap(int(value), target)
        exact = abs(value) <= 1 << (target.mantissa_bits + 1) and target.is_standard_floating()
        return float(value) if exact else None
    fold = _FOLD.get(node.name)
    if fold is None or not isinstance(target, DType):
        return None
    left, right = constants
    assert isinstance(left, int)
    assert isinstance(right, int)
    if node.name in ("idiv", "irem") and right == 0:
        return None
    return _wrap(int(fold(int(left), int(right))), target)


def _cast_float(node: Op, value: object) -> float | None:
    """A float constant cast to a float dtype that holds it exactly for sure."""
    target = node.result.type.element
    if node.name != "cast" or not isinstance(target, DType) or not isinstance(value, float):
        return None
    if not target.is_standard_floating():
        return None
    whole = value.is_integer() and abs(value) <= 1 << (target.mantissa_bits + 1)
    return value if whole or math.isinf(value) else None
