"""Ops that a backend refuses by name, with what to do instead."""

from __future__ import annotations

from deuteron.errors import CompilationError
from deuteron.ir import Function, Op, Reduce, Scan, walk


def no_assembly(op: Op) -> CompilationError:
    """The error for assembly written for other hardware."""
    text = " ".join(str(op.attrs["asm"]).split())
    shown = text if len(text) <= 40 else f"{text[:37]}..."
    return CompilationError(
        "inline assembly is written for a GPU, and this kernel is compiled for a CPU",
        op.loc,
        expected="operators and functions of the language, or a body given for this assembly",
        got=f"`{shown}`",
        remedy="say what it computes: decorate a jit function with @tl.extra.cpu.asm_body(asm)",
    )


# Ops that no GPU kernel can have yet, with what the language calls them.
_NOT_ON_GPU = {
    "gather": "gather, sort, topk and flip",
    "histogram": "histogram",
    "inline_asm": "inline_asm_elementwise",
}


def require_on_gpu(function: Function) -> None:
    """Raise CompilationError, at its place, for what the GPU backend does not have."""
    for node in walk(function.body):
        what = _NOT_ON_GPU.get(node.name) if isinstance(node, Op) else None
        if isinstance(node, Reduce | Scan) and any(
            not isinstance(inner, Op) for inner in node.combine.nodes
        ):
            what = "loops and branches in the combining function of a reduction or scan"
        if what:
            raise CompilationError(
                f"{what} cannot be compiled for a GPU yet",
                node.loc,
                remedy="pass arrays in the CPU's memory to this kernel",
            )
