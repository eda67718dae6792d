"""Tile IR to an object file for a CPU: passes, planning, LLVM text, machine code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deuteron import config
from deuteron.backends.cpu.emit import emit
from deuteron.backends.cpu.kernel_info import KernelInfo, ParamInfo
from deuteron.backends.cpu.planner import Plan, is_memory_write, root_of
from deuteron.backends.cpu.target import CpuTarget, host_target
from deuteron.backends.cpu.widen_dots import widen_dots
from deuteron.backends.llvm.compile import Machine, compile_object
from deuteron.errors import OutOfResources
from deuteron.ir import Function, Op, Value, format_function, walk
from deuteron.passes import pipeline

SCRATCH_LIMIT_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class KernelImage:
    """A compiled kernel: what the launcher loads and what the disk cache keeps."""

    metadata: dict[str, Any]
    obj: bytes
    llvm: str
    ir: str


def compile_function(
    function: Function, options: object = None, target: CpuTarget | None = None
) -> KernelImage:
    """Compile a kernel for `target` (default: this machine).

    Raises OutOfResources when its tiles need more scratch than a thread is given.
    """
    target = target or host_target()
    function = widen_dots(pipeline.run(function))
    text = format_function(function)
    if "ir" in config.debug_topics():
        print(text)
    emitted = emit(Plan(function, target))
    if emitted.scratch_bytes > SCRATCH_LIMIT_BYTES:
        remedy = "use smaller blocks: every tile that is kept takes shape × element size"
        raise OutOfResources(
            f"scratch bytes of kernel `{function.name}`",
            emitted.scratch_bytes,
            SCRATCH_LIMIT_BYTES,
            remedy,
        )
    machine = Machine(target.triple, target.cpu, target.feature_string)
    compiled = compile_object(emitted.text, machine)
    info = KernelInfo(
        name=function.name,
        scratch_bytes=emitted.scratch_bytes,
        params=_parameters(function),
        print_sites=tuple(emitted.sites.prints),
        assert_sites=tuple(emitted.sites.asserts),
        target=target.key,
        ir=text,
        llvm=emitted.text,
    )
    return KernelImage(info.to_json(), compiled.obj, emitted.text, text)


def _parameters(function: Function) -> tuple[ParamInfo, ...]:
    """The run-time parameters, and through which of them the kernel may store."""
    writes = [n for n in walk(function.body) if isinstance(n, Op) and is_memory_write(n)]
    roots = {root_of(n.operands[0]) for n in writes}
    return tuple(_parameter(p, p in roots or None in roots) for p in function.params)


def _parameter(param: Value, written: bool) -> ParamInfo:
    type = param.type
    if type.is_pointer:
        return ParamInfo(param.name, "pointer", type.pointee.name, written)
    return ParamInfo(param.name, "float" if type.dtype.is_floating() else "int", type.dtype.name)
