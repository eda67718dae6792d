"""What the compilers of all backends give out: the image of a kernel, and its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deuteron.backends.cpu.kernel_info import ParamInfo
from deuteron.ir import OPS, Effect, Function, Op, Value, walk
from deuteron.ir.pointer_roots import PointerRoots

_NO_MEMORY = frozenset({"print", "assert", "assume", "barrier"})  # that stay where they are


@dataclass(frozen=True, slots=True)
class KernelImage:
    """A compiled kernel: what its backend loads and what the disk cache keeps."""

    metadata: dict[str, Any]
    obj: bytes
    llvm: str
    ir: str


def is_memory_write(op: Op) -> bool:
    """Whether an op changes memory that loads can see."""
    return OPS[op.name].effect is Effect.WRITE and op.name not in _NO_MEMORY


def parameters(function: Function) -> tuple[ParamInfo, ...]:
    """The run-time parameters, and through which of them the kernel may store."""
    writes = [n for n in walk(function.body) if isinstance(n, Op) and is_memory_write(n)]
    pointers = PointerRoots(function)
    written = {root for n in writes for root in pointers.all_of(n.operands[0])}
    return tuple(_parameter(p, p in written) for p in function.params)


def _parameter(param: Value, written: bool) -> ParamInfo:
    type = param.type
    if type.is_pointer:
        return ParamInfo(param.name, "pointer", type.pointee.name, written)
    return ParamInfo(param.name, "float" if type.dtype.is_floating() else "int", type.dtype.name)
