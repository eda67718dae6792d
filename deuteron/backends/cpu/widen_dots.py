"""widen_dots: dots accumulate in 32 bits or more, the only accumulators the microkernels have.

Requires: simplified IR.
Ensures: the accumulator of every dot is float32, float64, int32 or int64.
"""

from __future__ import annotations

from collections.abc import Sequence

from deuteron.dtypes import DType, float32, int32
from deuteron.ir import Function, Op, Rewriter, Value


def widen_dots(function: Function) -> Function:
    """The function with narrow dots done wide and rounded at the end."""
    return _Widener().function(function)


def _accumulator(dtype: DType) -> DType:
    if dtype.is_floating():
        return dtype if dtype.bits >= 32 else float32
    return dtype if dtype.bits >= 32 and dtype.is_int_signed() else int32


class _Widener(Rewriter):
    def op(self, node: Op, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        if node.name != "dot":
            return None
        a, b, acc = operands
        dtype = acc.type.dtype
        wide = _accumulator(dtype)
        if wide is dtype:
            return None
        acc = self.b.op("cast", acc, to=wide, rounding=None)
        result = self.b.op("dot", a, b, acc, **node.attrs)
        return (self.b.op("cast", result, to=dtype, rounding=None),)
