"""A compiled kernel, as `kernel[grid](...)` and `kernel.warmup(...)` return it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from deuteron.backends.image import parameters
from deuteron.errors import LaunchError
from deuteron.ir import Function, format_function
from deuteron.runtime.arrays import ArrayArgument
from deuteron.runtime.compiler_stamp import compiler_stamp
from deuteron.runtime.protocols import LoadedKernel, Resources
from deuteron.runtime.specialize import ParamSpec, Request, Specialization

if TYPE_CHECKING:
    from deuteron.runtime.hooks import LaunchMetadata
    from deuteron.runtime.jit import JITFunction


class KernelText(Mapping[str, str | bytes]):
    """`kernel.asm`: "ir" (the optimised tile IR), "llir" (LLVM), and machine code.

    That is "asm" of a CPU, "ptx" and "cubin" (bytes) of a GPU, where "layouts" tells how tiles are
    distributed over threads.  "ttir" gives "ir" too.  Assembly is made when asked for.  Texts that
    a kernel does not have, as on the interpreter, are no keys.
    """

    def __init__(self, texts: Mapping[str, Callable[[], str | bytes]]) -> None:
        self._makers = dict(texts)
        self._texts: dict[str, str | bytes] = {}

    def __getitem__(self, kind: str) -> str | bytes:
        kind = "ir" if kind == "ttir" else kind
        if kind not in self._texts:
            self._texts[kind] = self._makers[kind]()
        return self._texts[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


@dataclass(frozen=True, slots=True)
class KernelMetadata:
    """What Triton's callers read off a compiled kernel.

    `shared` are the bytes that a program keeps its tiles in: shared memory of a GPU, the scratch
    memory of a CPU's thread, which is also `scratch_bytes`.
    """

    name: str
    num_warps: int
    num_stages: int
    scratch_bytes: int
    num_ctas: int = 1
    shared: int = 0
    maxnreg: int | None = None


@dataclass(frozen=True, slots=True)
class KernelSource:
    """The jit function of a compiled kernel."""

    fn: JITFunction

    @property
    def name(self) -> str:
        return self.fn.__name__


LaunchHook = Callable[[object], object]


class CompiledKernel:
    """One specialisation of a kernel, ready to run: `code` is in memory, or for the interpreter.

    `kernel[grid](*args)` launches it, with all parameters or the run-time ones only; arguments
    that it was not compiled for are an error.  `n_regs` are the registers of a GPU's thread and
    `n_spills` the words that did not fit in them; of a CPU, its vector registers and 0.
    """

    def __init__(
        self,
        owner: JITFunction,
        spec: Specialization,
        code: LoadedKernel | Function,
    ) -> None:
        self.owner = owner
        self.spec = spec
        self.code = code
        self.name = owner.__name__
        self.asm = KernelText(_texts(code))
        taken = Resources() if isinstance(code, Function) else code.resources
        self.n_regs = taken.registers
        self.n_spills = taken.spilled_words
        options = spec.options
        self.metadata = KernelMetadata(
            self.name,
            options.num_warps,
            options.num_stages,
            taken.scratch_bytes,
            options.num_ctas,
            taken.shared_bytes or taken.scratch_bytes,
            options.maxnreg,
        )
        self._written = _written_names(spec, code)

    @property
    def src(self) -> KernelSource:
        """What it was compiled from."""
        return KernelSource(self.owner)

    @property
    def packed_metadata(self) -> KernelMetadata:
        return self.metadata

    @property
    def function(self) -> LoadedKernel | Function:
        """What `run` is given; it knows by itself."""
        return self.code

    def run(
        self,
        grid_0: int,
        grid_1: int,
        grid_2: int,
        stream: object,
        function: object,
        metadata: object,
        launch_metadata: object,
        enter_hook: LaunchHook | None,
        exit_hook: LaunchHook | None,
        *args: object,
    ) -> None:
        """Launch as programs do that generate launchers for Triton, such as torch's Inductor.

        `args` are all parameters or the run-time ones only.  A CPU has no streams; on a GPU the
        kernel is put on torch's current one.
        """
        if enter_hook is not None:
            enter_hook(launch_metadata)
        self._launch((grid_0, grid_1, grid_2), *args)
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def launch_metadata(
        self, grid: tuple[int, ...], stream: object, *args: object
    ) -> LaunchMetadata:
        """What launch hooks are told."""
        from deuteron.runtime.hooks import launch_metadata

        sizes = (*grid, 1, 1)
        arguments = dict(zip(self.owner.arg_names, args, strict=False))
        return launch_metadata(self, (sizes[0], sizes[1], sizes[2]), arguments)

    @cached_property
    def hash(self) -> str:
        """A text that changes with the source, the specialisation, or the compiler."""
        parts = (self.owner.cache_key, str(self.spec), str(self.spec.options), self.spec.device)
        return hashlib.sha256("\n".join((compiler_stamp(), *parts)).encode()).hexdigest()

    def __getitem__(self, grid: object) -> Callable[..., CompiledKernel]:
        return partial(self._launch, grid)

    def __repr__(self) -> str:
        return f"CompiledKernel({self.name}: {self.spec})"

    def check_writable(self, arrays: tuple[tuple[str, ArrayArgument], ...]) -> None:
        """Raise LaunchError when the kernel would store to a read-only array."""
        for name, array in arrays:
            if not array.writable and name in self._written:
                raise LaunchError(
                    f"kernel {self.name}, argument {name!r}: the kernel writes to this array, "
                    "which is read-only\n"
                    "  expected: a writable array\n"
                    f"  got:      a read-only {type(array.owner).__name__}\n"
                    "  remedy:   pass a copy of it"
                )

    def check_fits(self, request: Request) -> None:
        """Raise LaunchError unless this kernel is right for the arguments of a call."""
        if request.spec.device != self.spec.device:
            raise LaunchError(
                f"kernel {self.name}: it was compiled for another device\n"
                f"  expected: arrays on {self.spec.device}\n"
                f"  got:      arrays on {request.spec.device}\n"
                f"  remedy:   launch the jit function {self.name} itself"
            )
        for own, given in zip(self.spec.params, request.spec.params, strict=True):
            if not _fits(own, given):
                raise LaunchError(
                    f"kernel {self.name}: it was compiled for another argument {own.name!r}\n"
                    f"  expected: {own}\n  got:      {given}\n"
                    f"  remedy:   launch the jit function {self.name} itself"
                )

    def for_arrays_of(self, request: Request) -> CompiledKernel:
        """The same kernel for a call's arrays, of which some may be one array or overlap.

        That is no matter of types, and not for a caller to know: it is compiled when it is needed.
        """
        pairs = zip(self.spec.params, request.spec.params, strict=True)
        params = tuple(_with_places(own, given) for own, given in pairs)
        spec = replace(self.spec, params=params, aliased=request.spec.aliased)
        return self if spec == self.spec else self.owner.compile_for(spec)

    def _launch(self, grid: object, *args: object) -> CompiledKernel:
        return self.owner.launch_compiled(self, grid, args)

    def _init_handles(self) -> None:
        """Nothing to do: code is loaded from the start.  Triton's tutorials call it."""


def _texts(code: LoadedKernel | Function) -> Mapping[str, Callable[[], str | bytes]]:
    if isinstance(code, Function):
        return {"ir": partial(format_function, code)}
    return code.texts


def _written_names(spec: Specialization, code: LoadedKernel | Function) -> frozenset[str]:
    if isinstance(code, Function):
        params = parameters(code)
    else:
        params = code.params
    leaves = zip(spec.leaves(), params, strict=True)
    return frozenset(leaf.name for leaf, param in leaves if param.written)


def _with_places(own: ParamSpec, given: ParamSpec) -> ParamSpec:
    """`own`, the same array as an earlier argument where `given` is."""
    pairs = zip(own.elements, given.elements, strict=True)
    elements = tuple(_with_places(*pair) for pair in pairs)
    return replace(own, elements=elements, same_as=given.same_as)


def _fits(own: ParamSpec, given: ParamSpec) -> bool:
    """True when code for `own` is right for an argument described by `given`."""
    if own.elements or given.elements:
        pairs = zip(own.elements, given.elements, strict=False)
        same = own.identity == given.identity and len(own.elements) == len(given.elements)
        return same and all(_fits(*pair) for pair in pairs)
    if own.is_constexpr:
        return own.identity == given.identity and given.is_constexpr
    wider = own.type == "i64" and given.type == "i32"
    known = given.divisibility % own.divisibility == 0
    return known and (wider or own.type == given.type)
