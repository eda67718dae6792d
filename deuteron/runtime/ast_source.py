"""Compiling a kernel for argument types instead of arguments: `ASTSource` and `compile`.

    source = ASTSource(kernel, {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 1024})
    compiled = compile(source)                                  # for this CPU
    ptx = compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]  # no GPU is needed

Under Triton's names and spellings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from deuteron import config
from deuteron.backends.cpu.kernel_info import ParamInfo
from deuteron.backends.cpu.launcher import Entry
from deuteron.backends.cpu.target import host_target
from deuteron.dtypes import BY_NAME, BY_SHORT, GPUTarget
from deuteron.errors import LaunchError
from deuteron.ir.types import Pointer
from deuteron.runtime.arrays import CPU, CUDA
from deuteron.runtime.compiled_kernel import CompiledKernel
from deuteron.runtime.compiler_stamp import compiler_stamp
from deuteron.runtime.jit import JITFunction
from deuteron.runtime.options import NAMES, LaunchOptions, parse_options
from deuteron.runtime.parameters import REQUIRED, KernelParam
from deuteron.runtime.protocols import Resources
from deuteron.runtime.specialize import (
    CONSTEXPR,
    DIVISIBILITY,
    TUPLE,
    ParamSpec,
    Request,
    Specialization,
    constant_identity,
    unwrap_constexpr,
)

Path = tuple[int, ...]
"""Where an argument stands: its parameter's number, then places in nested tuples."""


@dataclass(frozen=True, slots=True, init=False, eq=False)
class ASTSource:
    """A jit function with the types of its arguments.

    `signature` gives by parameter name a type (`"*fp32"`, `"i32"`), a tuple of types, or
    `"constexpr"`; `constexprs` the constants, by name or path; `attrs` what is known of arguments,
    by path: `{(0,): [["tt.divisibility", 16]]}`.  Parameters that are not named are constants with
    their defaults.
    """

    fn: JITFunction
    signature: Mapping[str, Any]
    constexprs: Mapping[Path, Any]
    attrs: Mapping[Path, Any]

    def __init__(
        self,
        fn: JITFunction,
        signature: Mapping[str, Any],
        constexprs: Mapping[Any, Any] | None = None,
        attrs: Mapping[Any, Any] | None = None,
    ) -> None:
        places = {name: index for index, name in enumerate(fn.arg_names)}

        def path(key: Any) -> Path:
            if isinstance(key, tuple):
                return cast(Path, key)
            return (places[key] if isinstance(key, str) else int(key),)

        object.__setattr__(self, "fn", fn)
        object.__setattr__(self, "signature", dict(signature))
        object.__setattr__(self, "constexprs", {path(k): v for k, v in (constexprs or {}).items()})
        object.__setattr__(self, "attrs", {path(k): v for k, v in (attrs or {}).items()})

    @property
    def name(self) -> str:
        return self.fn.__name__

    @property
    def ext(self) -> str:
        """What kind of text it is, under Triton's name."""
        return "ttir"

    def hash(self) -> str:
        """A text that changes with what would be compiled."""
        return f"{self.fn.cache_key} {self.specialization({}, CPU)}"

    def parse_options(self) -> dict[str, Any]:
        """The launch options that the source itself sets: none."""
        return {}

    def specialization(self, options: Mapping[str, Any], device: str) -> Specialization:
        """What is compiled for a device.  Raises LaunchError for a type that is none."""
        params = tuple(self._param(param) for param in self.fn.params)
        debug = self.fn.debug or config.device_asserts()
        known = {name: value for name, value in options.items() if name in NAMES}
        return Specialization(params, parse_options(known, debug, self._where), device=device)

    @property
    def _where(self) -> str:
        return f"compile of {self.name}"

    def _param(self, param: KernelParam) -> ParamSpec:
        kind: Any = self.signature.get(param.name, CONSTEXPR)
        default = None if param.default is REQUIRED else param.default
        return self._spec(param.name, kind, (param.num,), default)

    def _spec(self, name: str, kind: Any, path: Path, default: object = None) -> ParamSpec:
        if path in self.constexprs or kind == CONSTEXPR:
            value = unwrap_constexpr(self.constexprs.get(path, default))
            return ParamSpec(name, CONSTEXPR, identity=constant_identity(value), value=value)
        if isinstance(kind, tuple):
            kinds = cast("tuple[Any, ...]", kind)
            elements = tuple(
                self._spec(f"{name}[{i}]", element, (*path, i)) for i, element in enumerate(kinds)
            )
            cls = type(kinds)
            return ParamSpec(name, TUPLE, 1, elements, cls, cls)
        known = dict(self.attrs.get(path, ()))
        divisible = known.get("tt.divisibility", 1) % DIVISIBILITY == 0
        return ParamSpec(name, self._type(name, str(kind)), DIVISIBILITY if divisible else 1)

    def _type(self, name: str, text: str) -> str:
        rest = text.removeprefix("*")
        pointee = BY_SHORT.get(rest) or BY_NAME.get(rest)
        const = pointee is None and rest.startswith("k")
        if const:
            pointee = BY_SHORT.get(rest[1:])
        if pointee is None or (const and rest == text):
            raise LaunchError(
                f"{self._where}, argument {name!r}: `{text}` is no type\n"
                f'  expected: "*fp32", "i32", … or "constexpr"; dtypes are {", ".join(BY_SHORT)}\n'
                f"  got:      {text!r}\n"
                "  remedy:   correct it in the signature"
            )
        return str(Pointer(pointee, const)) if rest != text else pointee.short


@dataclass(frozen=True, slots=True)
class UnloadedKernel:
    """A kernel for a GPU that is not here: its texts can be read."""

    name: str
    target: str
    texts: Mapping[str, Callable[[], str | bytes]]
    params: Sequence[ParamInfo]
    resources: Resources

    def launch(self, grid: tuple[int, int, int], request: Request) -> None:
        """Refuse."""
        raise LaunchError(
            f"kernel {self.name} was compiled for {self.target} without a GPU to run it on\n"
            "  expected: a kernel compiled by a call, for the device of its arguments\n"
            f"  got:      one compiled for another machine\n"
            f"  remedy:   launch the jit function {self.name} itself"
        )

    def entry(self, request: Request) -> Entry | None:
        return None

    def raise_failure(self, status: int, details: bytes) -> NoReturn:
        raise AssertionError("it is never run")


@dataclass(frozen=True, slots=True)
class Compiler:
    """The compiler for one target, as programs ask for it that keep what was compiled."""

    target: GPUTarget

    def hash(self) -> str:
        """A text that changes with the compiler or its target."""
        machine = host_target().key if self.target.backend == CPU else ""
        return f"{compiler_stamp()} {self.target} {machine}"

    def parse_options(self, options: Mapping[str, Any]) -> LaunchOptions:
        """Launch options by name; those of other compilers are left out."""
        known = {name: value for name, value in options.items() if name in NAMES}
        return parse_options(known, config.device_asserts(), f"compiler for {self.target.backend}")


def make_backend(target: GPUTarget) -> Compiler:
    """The compiler for a target.  Raises LaunchError when there is none."""
    if target.backend not in (CPU, CUDA):
        raise _no_code("make_backend", target)
    return Compiler(target)


def compile(
    src: ASTSource, target: Any = None, options: Mapping[str, Any] | None = None
) -> CompiledKernel:
    """Compile for types.

    `target` is a `GPUTarget`: this CPU when left out; a GPU of any architecture that is supported,
    which need not be here.  `options` are launch options by name; those of other compilers change
    nothing.  Raises CompilationError, LaunchError.
    """
    if target is None or target.backend == CPU:
        return src.fn.compile_for(src.specialization(options or {}, CPU))
    if target.backend != CUDA:
        raise _no_code(f"compile of {src.name}", target)
    return _for_gpu(src, src.specialization(options or {}, CUDA), target.arch)


def _no_code(where: str, target: GPUTarget) -> LaunchError:
    return LaunchError(
        f"{where}: there is no code for {target.backend}\n"
        "  expected: a GPUTarget of cpu or cuda\n"
        f"  got:      {target}\n"
        "  remedy:   leave the target out for this CPU"
    )


def _for_gpu(src: ASTSource, spec: Specialization, capability: int) -> CompiledKernel:
    from deuteron.backends.cuda.kernel_info import KernelInfo
    from deuteron.backends.cuda.target import CudaTarget
    from deuteron.runtime.cuda_backend import CudaBackend, texts_of

    target = CudaTarget.of_capability(*divmod(capability, 10))
    image = CudaBackend(target).compile(src.fn.frontend.lower(src.fn, spec), spec.options)
    info = KernelInfo.from_json(image.metadata)
    shared = Resources(shared_bytes=info.shared_bytes)
    kernel = UnloadedKernel(src.name, target.key, texts_of(info), info.params, shared)
    return CompiledKernel(src.fn, spec, kernel)
