"""From a jit function and its arguments' types to the contents of files for a C program or a GPU.

The JSON says all that a caller needs who writes a launcher of its own: see `docs/aot.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any, Generic, TypeVar

from deuteron.backends.cpu.compiler import lower_to_llvm
from deuteron.backends.cpu.kernel_info import KernelInfo, ParamInfo
from deuteron.backends.cpu.target import CpuTarget
from deuteron.backends.cuda.kernel_info import KernelInfo as CudaKernelInfo
from deuteron.backends.cuda.target import WARP_SIZE, CudaTarget
from deuteron.backends.llvm.compile import Machine, compile_object, link_texts
from deuteron.dtypes import BY_NAME
from deuteron.ir import Function
from deuteron.runtime.ahead.header import c_type, header
from deuteron.runtime.ahead.interface import Interface, Specialized, Variant, merge
from deuteron.runtime.ahead.wrapper_ir import ALIGNMENT, with_own_print, wrapper_ir
from deuteron.runtime.cuda_backend import CudaBackend
from deuteron.runtime.deep_stack import compile_deeply
from deuteron.runtime.jit import JITFunction
from deuteron.runtime.options import LaunchOptions
from deuteron.runtime.specialize import specialize

FORMAT = 1
"""Of the JSON; goes up when a field changes its meaning."""

I = TypeVar("I", KernelInfo, CudaKernelInfo)  # noqa: E741


@dataclass(frozen=True, slots=True)
class Signature:
    """What to compile for: a stand-in for each parameter, and how a person writes them."""

    text: str
    stand_ins: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """A kernel to be compiled; `name` is what its functions and files are called.

    With `overlap` the arrays may overlap in any way.  `source` is a person's name for the kernel.
    """

    kernel: JITFunction
    name: str
    source: str
    signatures: tuple[Signature, ...]
    options: LaunchOptions
    overlap: bool = False


@dataclass(frozen=True, slots=True)
class CpuCode:
    """An object file, its header and its description."""

    obj: bytes
    header: str
    description: dict[str, Any]


@dataclass(frozen=True, slots=True)
class GpuCode:
    """PTX by symbol, and its description."""

    ptx: Mapping[str, str]
    description: dict[str, Any]


def build_for_cpu(job: Job, target: CpuTarget) -> CpuCode:
    """Compile for a CPU, which need not be this one.

    Raises CompilationError, OutOfResources, and UserError for signatures that have no common
    interface.
    """
    # A process must ask Linux for the tile registers, which a library should not do unasked.
    tiles = frozenset(f for f in target.features if f.startswith("amx"))
    target = replace(target, features=target.features - tiles, disabled=target.disabled | tiles)
    built = _build(job, lambda function: lower_to_llvm(function, target), lambda info: info.params)
    interface, infos = built.interface, built.infos
    kernels = [with_own_print(info.llvm, info.name) for info in infos]
    text = link_texts([wrapper_ir(interface, infos), *kernels])
    machine = Machine(target.triple, target.cpu, target.feature_string)
    about = f"{target.cpu}, {target.triple}"
    variants = [
        _variant(interface, variant)
        | {
            "scratch_bytes": info.scratch_bytes,
            "store_bytes": info.store_bytes,
            "asserts": [_site(site) for site in info.assert_sites],
            "prints": [_site(site) for site in info.print_sites],
        }
        for variant, info in zip(interface.variants, infos, strict=True)
    ]
    description = _description(job, interface, variants) | {
        "target": {
            "kind": "cpu",
            "triple": target.triple,
            "cpu": target.cpu,
            "features": sorted(target.features),
        },
        "alignment": ALIGNMENT,
        "imports": ["malloc", "free", "memcpy", "memset"],
    }
    made = header(interface, infos, job.source, about, job.overlap)
    return CpuCode(compile_object(text, machine).obj, made, description)


def build_for_gpu(job: Job, target: CudaTarget) -> GpuCode:
    """Compile to PTX; no GPU is needed.  Raises as `build_for_cpu` does."""
    backend = CudaBackend(target)

    def compile(function: Function) -> CudaKernelInfo:
        return CudaKernelInfo.from_json(backend.compile(function, job.options).metadata)

    built = _build(job, compile, lambda info: info.params)
    variants = [
        _variant(built.interface, variant)
        | {
            "num_warps": info.num_warps,
            "threads": WARP_SIZE * info.num_warps,
            "shared_bytes": info.shared_bytes,
            "has_control": info.has_control,
            "parameters": _gpu_parameters(info),
            "asserts": [_site(site) for site in info.assert_sites],
        }
        for variant, info in zip(built.interface.variants, built.infos, strict=True)
    ]
    description = _description(job, built.interface, variants) | {
        "target": {"kind": "cuda", "arch": target.arch, "ptx_version": target.ptx_version}
    }
    return GpuCode({info.name: info.ptx for info in built.infos}, description)


@dataclass(frozen=True, slots=True)
class _Built(Generic[I]):
    """The interface, and what was compiled of each of its variants, in their order."""

    interface: Interface
    infos: Sequence[I]


def _build(
    job: Job, compile: Callable[[Function], I], params: Callable[[I], tuple[ParamInfo, ...]]
) -> _Built[I]:
    """Compile every signature, and find what a caller passes."""
    found: dict[str, I] = {}
    kernels: list[Specialized] = []
    jit = job.kernel
    for number, signature in enumerate(job.signatures):
        symbol = f"{job.name}_v{number}"
        request = specialize(jit.__name__, jit.params, signature.stand_ins, job.options)
        spec = replace(request.spec, aliased=job.overlap)
        function = replace(jit.frontend.lower(jit, spec), name=symbol)
        info = found[symbol] = compile_deeply(partial(compile, function), function.loc)
        kernels.append(Specialized(symbol, signature.text, spec, params(info)))
    interface = merge(job.name, kernels)
    return _Built(interface, [found[variant.symbol] for variant in interface.variants])


def _description(
    job: Job, interface: Interface, variants: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    offsets = list(interface.offsets())
    return {
        "format": FORMAT,
        "name": job.name,
        "source": job.source,
        "overlap": job.overlap,
        "constants": {name: _plain(value) for name, value in interface.constants},
        "arguments": [
            {
                "name": field.name,
                "dtype": field.dtype,
                "pointer": field.is_pointer,
                "written": field.written,
                "c_type": c_type(field).strip(),
                "offset": offset,
                "bytes": field.bytes,
            }
            for field, offset in zip(interface.fields, offsets, strict=True)
        ],
        "variants": list(variants),
    }


def _variant(interface: Interface, variant: Variant) -> dict[str, Any]:
    """What is true of a variant on every machine."""
    names = [field.name for field in interface.fields]
    requires = [
        {"argument": names[need.field]}
        | ({"equals": need.equals} if need.is_value else {"multiple_of": need.multiple_of})
        for need in variant.requires
    ]
    return {
        "symbol": variant.symbol,
        "signature": variant.signature,
        "requires": requires,
        "slots": [names[number] for number in variant.slots],
    }


def _gpu_parameters(info: CudaKernelInfo) -> list[dict[str, Any]]:
    """The kernel's parameters as cuLaunchKernel takes them: sizes, and offsets in one buffer."""
    sizes = [8 if p.kind == "pointer" else BY_NAME[p.dtype].storage_bytes for p in info.params]
    names = [param.name for param in info.params]
    if info.has_control:
        sizes, names = [*sizes, 8], [*names, "control"]

    def place(end: int, size: int) -> int:
        return -(-end // size) * size + size

    ends = list(accumulate(sizes, place, initial=0))[1:]
    return [
        {"name": name, "bytes": size, "offset": end - size}
        for name, size, end in zip(names, sizes, ends, strict=True)
    ]


def _site(site: Any) -> dict[str, Any]:
    return {name: getattr(site, name) for name in site.__slots__}


def _plain(value: Any) -> Any:
    """A constant as JSON has it."""
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
