"""Tile IR to an object file for a CPU: passes, planning, LLVM text, machine code."""

from __future__ import annotations

from collections import Counter

from deuteron import config
from deuteron.backends.cpu.buffers import elem_bytes
from deuteron.backends.cpu.emit import emit
from deuteron.backends.cpu.kernel_info import KernelInfo
from deuteron.backends.cpu.planner import Plan
from deuteron.backends.cpu.target import CpuTarget, host_target
from deuteron.backends.cpu.widen_dots import widen_dots
from deuteron.backends.image import KernelImage, parameters
from deuteron.backends.llvm.compile import Machine, compile_object
from deuteron.backends.llvm.registers import storage_elem
from deuteron.errors import OutOfResources
from deuteron.ir import Function, format_function
from deuteron.passes import pipeline

SCRATCH_LIMIT_BYTES = 256 << 20
_TILES_SHOWN = 3


def compile_function(function: Function, target: CpuTarget | None = None) -> KernelImage:
    """Compile a kernel for `target` (default: this machine).

    Raises OutOfResources when its tiles need more scratch than a thread is given.
    """
    target = target or host_target()
    info = lower_to_llvm(function, target)
    machine = Machine(target.triple, target.cpu, target.feature_string)
    compiled = compile_object(info.llvm, machine)
    return KernelImage(info.to_json(), compiled.obj, info.llvm, info.ir)


def lower_to_llvm(function: Function, target: CpuTarget) -> KernelInfo:
    """All but the machine code: a module that exports the kernel is in `llvm`.  Raises as above."""
    function = widen_dots(pipeline.run(function))
    text = format_function(function)
    if "ir" in config.debug_topics():
        print(text)
    plan = Plan(function, target)
    emitted = emit(plan)
    if emitted.scratch_bytes > SCRATCH_LIMIT_BYTES:
        raise _too_much_scratch(plan, emitted.scratch_bytes)
    return KernelInfo(
        name=function.name,
        scratch_bytes=emitted.scratch_bytes,
        store_bytes=emitted.store_bytes,
        params=parameters(function),
        print_sites=tuple(emitted.sites.prints),
        assert_sites=tuple(emitted.sites.asserts),
        target=target.key,
        ir=text,
        llvm=emitted.text,
    )


def _too_much_scratch(plan: Plan, required: int) -> OutOfResources:
    """The error for a kernel whose tiles do not fit into memory, with the largest of them."""
    tiles = Counter[tuple[str, str, int]]()
    for node in plan.order:
        for value in node.results:
            if value.type.shape and not plan.demand.is_virtual(value):
                size = value.type.numel * elem_bytes(storage_elem(value.type.element))
                tiles[str(node.loc), str(value.type), size] += 1
    largest = sorted(tiles.items(), key=lambda item: item[0][2] * item[1], reverse=True)
    lines = [
        f"{count} × {type}, {count * size:,} bytes, at {place}"
        for (place, type, size), count in largest[:_TILES_SHOWN]
    ]
    return OutOfResources(
        f"scratch bytes of kernel {plan.function.name}",
        required,
        SCRATCH_LIMIT_BYTES,
        "use smaller blocks: a tile that is kept takes its shape × the size of an element",
        got="\n            ".join(["; the largest tiles that are kept:", *lines]),
        loc=plan.function.loc,
    )
