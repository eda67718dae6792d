"""The meaning of the language: checks operands, promotes, broadcasts, and builds IR.

Functions take the Context first and operands with constexprs unwrapped: tensors, or Python
numbers where an operand may be one.  Every misuse is a CompilationError at the builder's place.
"""

from deuteron.lang.semantic import arith, casts, contract, debug, memory, shape
from deuteron.lang.semantic.casts import bitcast, cast, constant, to_tensor

__all__ = [
    "arith", "bitcast", "cast", "casts", "constant", "contract", "debug", "memory", "shape",
    "to_tensor",
]  # fmt: skip
