"""Tile IR to PTX for an NVIDIA GPU: passes, layouts, LLVM text, LLVM's NVPTX code generator."""

from __future__ import annotations

import sys

from deuteron import config
from deuteron.backends.cuda.assign import Assignment
from deuteron.backends.cuda.emit import emit
from deuteron.backends.cuda.failures import too_much_shared_memory
from deuteron.backends.cuda.kernel_info import KernelInfo
from deuteron.backends.cuda.pad_tiles import pad_tiles
from deuteron.backends.cuda.pipeline_plan import asked_stages
from deuteron.backends.cuda.target import CudaTarget
from deuteron.backends.image import KernelImage, parameters
from deuteron.backends.llvm.compile import assembly
from deuteron.ir import Function, Op, format_function, walk
from deuteron.passes import pipeline


def compile_function(
    function: Function,
    target: CudaTarget,
    *,
    num_warps: int = 4,
    num_stages: int = 3,
    maxnreg: int | None = None,
) -> KernelImage:
    """Compile a kernel for `target`; no GPU is needed.  The image holds PTX text in UTF-8.

    Raises CompilationError for tiles that no GPU kernel can hold, OutOfResources when they need
    more shared memory than a program is given.
    """
    function = pad_tiles(pipeline.run(function))
    text = format_function(function)
    topics = config.debug_topics()
    if "ir" in topics:
        print(text, file=sys.stderr)
    stages = max(1, num_stages)
    emitted = emit(Assignment(function, target, num_warps, stages), maxnreg=maxnreg)
    most = max([stages, *asked_stages(function)])
    while emitted.shared_bytes > target.shared_limit and most > 1:  # stages are a hint
        most -= 1
        fewer = Assignment(function, target, num_warps, min(stages, most), most_stages=most)
        emitted = emit(fewer, maxnreg=maxnreg)
    if emitted.shared_bytes > target.shared_limit:
        raise too_much_shared_memory(
            function.name, emitted.shared_bytes, target.shared_limit, function.loc
        )
    if "llvm" in topics:
        print(emitted.text, file=sys.stderr)
    ptx = assembly(emitted.text, target.machine)
    info = KernelInfo(
        name=function.name,
        shared_bytes=emitted.shared_bytes,
        num_warps=num_warps,
        params=parameters(function),
        assert_sites=emitted.asserts,
        has_control=bool(emitted.asserts),
        registers_open=maxnreg is None and not _has_dots(function),
        target=target.key,
        ir=text,
        layouts=emitted.layouts,
        llvm=emitted.text,
        ptx=ptx,
    )
    return KernelImage(info.to_json(), ptx.encode(), emitted.text, text)


def _has_dots(function: Function) -> bool:
    """True for kernels that are fast by what they keep in registers."""
    return any(isinstance(node, Op) and node.name == "dot" for node in walk(function.body))
