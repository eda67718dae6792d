"""The tile IR: nodes, op table, builder, verifier, text form, rewrite driver."""

from deuteron.ir.builder import Builder
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
    free_values,
    node_blocks,
    node_operands,
    walk,
)
from deuteron.ir.optable import OPS, Effect, OpInfo, OpTypeError
from deuteron.ir.rewrite import Rewriter
from deuteron.ir.text import format_function
from deuteron.ir.types import BOOL, Element, Pointer, Type
from deuteron.ir.verify import verify

__all__ = [
    "BOOL", "OPS", "Block", "Builder", "Effect", "Element", "For", "Function", "If", "Node", "Op",
    "OpInfo", "OpTypeError", "Pointer", "Reduce", "Rewriter", "Scan", "Type", "Value", "While",
    "format_function", "free_values", "node_blocks", "node_operands", "verify", "walk",
]  # fmt: skip
