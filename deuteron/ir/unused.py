"""Removes what nobody reads."""

from __future__ import annotations

from deuteron.ir.nodes import (
    Block,
    For,
    If,
    Node,
    Op,
    Reduce,
    Scan,
    Value,
    While,
    node_blocks,
    node_operands,
)
from deuteron.ir.optable import OPS, Effect


def drop_unused(block: Block) -> None:
    """Remove pure nodes whose results are unused from a block, in place, and from those inside."""
    _drop_unused(block, set())


def _drop_unused(block: Block, used: set[Value]) -> None:
    """From the last node to the first, so that a dropped node's operands count as unused too."""
    used.update(block.yields)
    kept: list[Node] = []
    for node in reversed(block.nodes):
        if _removable(node) and not any(r in used for r in node.results):
            continue
        for inner in node_blocks(node):
            _drop_unused(inner, used)
        used.update(node_operands(node))
        kept.append(node)
    block.nodes[:] = reversed(kept)


def _removable(node: Node) -> bool:
    match node:
        case Op():
            return OPS[node.name].effect is not Effect.WRITE and not node.attrs.get("volatile")
        case Reduce() | Scan():
            return True
        case For() | If():
            return all(_removable(n) for b in node_blocks(node) for n in b.nodes)
        case While():
            return False
