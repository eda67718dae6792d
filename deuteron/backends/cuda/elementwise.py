"""Elementwise ops where a GPU has something better than the shared code."""

from __future__ import annotations

import math
from collections.abc import Sequence

from deuteron.backends.llvm import elementwise
from deuteron.backends.llvm.builder import Builder, Val
from deuteron.backends.llvm.registers import narrow_float
from deuteron.dtypes import bfloat16, float16, float64
from deuteron.ir import Op

_LOG2_E = 1.4426950408889634
_LOG2_E_HIGH = 1.44269502162933349609375  # rounded to a float


def emit_op(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    """The result of an elementwise table op of scalars in registers."""
    if op.name in ("exp", "exp2") and op.operands[0].type.dtype is not float64:
        return _exponential(b, op, args[0])
    return elementwise.emit_op(b, op, args)


def _exponential(b: Builder, op: Op, value: Val) -> Val:
    """By the special function unit: within 3 units in the last place of a float."""
    dtype = op.operands[0].type.dtype
    wide = b.convert("fpext", value, "float") if dtype is float16 else value
    if op.name == "exp2":
        result = _exp2(b, wide)
    elif dtype.bits < 32:
        result = _exp2(b, b.fmul(wide, b.const(_LOG2_E, wide.type)))
    else:
        result = _exp(b, wide)
    return narrow_float(b, result, dtype) if dtype in (float16, bfloat16) else result


def _exp2(b: Builder, value: Val) -> Val:
    return b.call(value.type, "llvm.nvvm.ex2.approx.f", [value])


def _exp(b: Builder, value: Val) -> Val:
    """2 ** (value * log2(e)), with what rounding that product loses made good linearly."""
    type = value.type
    product = b.fmul(value, b.const(_LOG2_E_HIGH, type))
    lost = b.fma(value, b.const(_LOG2_E_HIGH, type), b.fneg(product))
    rest = b.fma(value, b.const(_LOG2_E - _LOG2_E_HIGH, type), lost)
    near = b.fcmp("olt", b.fabs(product), b.const(256.0, type))
    rest = b.select(near, rest, b.const(0.0, type))
    factor = b.fma(rest, b.const(math.log(2), type), b.const(1.0, type))
    return b.fmul(_exp2(b, product), factor)
