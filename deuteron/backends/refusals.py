"""Ops that a backend refuses by name, with what to do instead."""

from __future__ import annotations

from deuteron.errors import CompilationError
from deuteron.ir import Op


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
