"""`JITFunction`: a kernel as Python sees it, from the call to the launch.

kernel[grid](x, y, n, BLOCK=1024)
    → the machine code of backends.cpu.launcher_ir, which runs what it has a record for (a GPU's
      kernel does not wait until it is loaded)
    → else JITFunction._launch_slowly:
        parameters.bind → specialize.specialize → a CompiledKernel, from memory, from the disk
        cache, or from front end and the backend of the arrays' device → its launch, and a record
        for the next time
"""

from __future__ import annotations

import inspect
import os
import textwrap
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial, update_wrapper
from typing import Any, Final

from deuteron import config
from deuteron.backends.cpu import native
from deuteron.backends.cpu.describe_ir import CONSTEXPR, NO_DIVISIBILITY, NO_ONE
from deuteron.backends.cpu.launcher import MISSING, FastParam, FastPath, register_array_type
from deuteron.backends.llvm import object_cache
from deuteron.dtypes import float32, float64, int32, int64
from deuteron.errors import GlobalChangedError, LaunchError
from deuteron.ir import Function
from deuteron.ir.types import Pointer
from deuteron.runtime import hooks, knobs
from deuteron.runtime.arrays import MockTensor, as_dtype, is_torch_tensor, lies_on_gpu
from deuteron.runtime.async_compile import FutureKernel, active_mode
from deuteron.runtime.compiled_kernel import CompiledKernel
from deuteron.runtime.devices import backend_of
from deuteron.runtime.grid import resolve_grid
from deuteron.runtime.options import STREAM, parse_options
from deuteron.runtime.parameters import Bound, KernelParam, bind, kernel_params
from deuteron.runtime.protocols import Backend, Frontend
from deuteron.runtime.specialize import Request, Specialization, specialize

Hook = Callable[..., object]

# Annotated types that machine code packs by itself; others are always launched the plain way.
_FAST_TYPES: Final = (None, int32, int64, float32, float64)
_FLOATS: Final = (float32, float64)


# What makes the front ends of functions that are given none.
_make_frontend: list[Callable[[], Frontend]] = []


def use_frontend(make: Callable[[], Frontend]) -> None:
    """Have `make` give the front end of every function from now on that is not given one."""
    _make_frontend[:] = [make]


class _Forbidden(Exception):
    """A hook said that a kernel is not to be compiled."""


class KernelInterface:
    """What can be launched: `kernel[grid](*args, **kwargs)`."""

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch over `grid`, or with `warmup` compile only."""
        raise NotImplementedError

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return partial(self.run, grid=grid, warmup=False)


class DeviceCaches(dict[int | str, tuple[dict[Specialization, "CompiledKernel | FutureKernel"]]]):
    """The compiled kernels of a jit function, by device."""

    def __init__(self, kernels: dict[Specialization, CompiledKernel | FutureKernel]) -> None:
        super().__init__({0: (kernels,), "cpu": (kernels,)})
        self._kernels = kernels

    def clear(self) -> None:
        """Forget them all; those on disk stay."""
        self._kernels.clear()


class JITFunction(KernelInterface):
    """A kernel's Python function, compiled for each kind of arguments it is called with.

    `params` describe its parameters, `src` is its source, `cache_key` a hash of all it depends on.
    `frontend` compiles it; left out, one of the kind that `use_frontend` has set.
    `interpret` has it run on the interpreter; None leaves that to DEUTERON_INTERPRET.  `backend`
    compiles for every device; None leaves that to where the arrays lie.  Compiling is thread-safe:
    one thread compiles a specialisation, others wait for it.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        frontend: Frontend | None = None,
        *,
        backend: Backend | None = None,
        version: object = None,
        do_not_specialize: Iterable[str | int] | None = None,
        do_not_specialize_on_alignment: Iterable[str | int] | None = None,
        debug: bool | None = None,
        noinline: bool | None = None,
        strict: bool | None = None,
        interpret: bool | None = None,
        repr: Callable[..., str] | None = None,
        launch_metadata: Callable[..., object] | None = None,
    ) -> None:
        self.fn = fn
        self.frontend = frontend or _make_frontend[0]()
        self.backend = backend
        self.version = version
        self.debug = bool(debug)
        self.noinline = bool(noinline)
        self.strict = bool(strict)
        self.repr = repr
        self.launch_metadata = launch_metadata
        self.interpret = config.interpret() if interpret is None else interpret
        self.params = kernel_params(
            fn, do_not_specialize or (), do_not_specialize_on_alignment or ()
        )
        self.__name__ = fn.__name__
        self.arg_names = [param.name for param in self.params]
        self.constexprs = [param.num for param in self.params if param.is_constexpr]
        self.signature = inspect.signature(fn)
        self.pre_run_hooks: list[Hook] = []
        self._kernels: dict[Specialization, CompiledKernel | FutureKernel] = {}
        self._locks: dict[Specialization, threading.RLock] = {}
        self._fast: FastPath | None = None
        self._src: str | None = None
        update_wrapper(self, fn)
        _LIVING.add(self)

    # -- source -----------------------------------------------------------------------------
    @property
    def src(self) -> str:
        """The source from `def` on, without indentation."""
        if self._src is None:
            text = textwrap.dedent(inspect.getsource(self.fn))
            self._src = text[text.index("def ") :]
        return self._src

    def _unsafe_update_src(self, new_src: str) -> None:
        """Compile from `new_src` from now on: a `def` of the same name and parameters.

        What is compiled already is forgotten, of all kernels, for they may call this one.  Under
        Triton's name, for callers that patch kernels.  Raises CompilationError.
        """
        self.frontend.replace_source(self, new_src)
        self._src = new_src
        forget_compiled()

    @property
    def cache_key(self) -> str:
        """A hash of the source, of all it calls and of the constant globals they read."""
        strict = " strict" if self.strict else ""
        return f"{self.frontend.cache_key(self)} {self.version!r}{strict}"

    @property
    def device_caches(self) -> DeviceCaches:
        """What is compiled, by specialisation: `device_caches[0][0]`, and the same under "cpu".

        Under Triton's name; one dictionary for all devices.
        """
        return DeviceCaches(self._kernels)

    def __repr__(self) -> str:
        return f"JITFunction({self.fn.__module__}:{self.fn.__qualname__})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise LaunchError(
            f"kernel {self.__name__} was called without a grid\n"
            f"  expected: {self.__name__}[grid](…)\n"
            f"  got:      {self.__name__}(…)\n"
            "  remedy:   put the number of programs in brackets; only kernels call it without"
        )

    # -- launching --------------------------------------------------------------------------
    def __getitem__(self, grid: Any) -> Callable[..., CompiledKernel]:
        fast = self._fast
        if fast is None:
            if not native.is_loaded() and not self.interpret:
                return partial(self._launch_first, grid)
            fast = self._fast_path()
        if fast is None:
            return partial(self._launch_by_call, grid)
        return fast.bind(grid, self)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> CompiledKernel:
        """Launch over `grid`, or with `warmup` compile only."""
        if warmup:
            return self.warmup(*args, grid=grid, **kwargs)
        return self[grid](*args, **kwargs)

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> CompiledKernel:
        """Compile for these arguments without running; dtypes may stand for arrays.

        None where `knobs.runtime.jit_cache_hook` forbids it; a `FutureKernel` within
        `AsyncCompileMode`.
        """
        bound = self._bind(args, kwargs)
        values = tuple(
            value if param.is_constexpr else _mocked(value)
            for param, value in zip(self.params, bound.values, strict=True)
        )
        spec = self._specialize(Bound(values, bound.options)).spec
        mode = active_mode.get()
        if mode is not None:
            if spec not in self._kernels:
                self._kernels[spec] = mode.submit(partial(self._build_waited_for, spec))
            return self._kernels[spec]  # pyright: ignore[reportReturnType]
        try:
            return self._kernel_for(spec, True)
        except _Forbidden:
            return None  # pyright: ignore[reportReturnType]

    def compile_for(self, spec: Specialization) -> CompiledKernel:
        """The kernel of a specialisation, compiled unless it is there."""
        return self._kernel_for(spec)

    def preload(self, specialization_data: str) -> CompiledKernel:
        """Compile from what `jit_cache_hook` was told as `specialization_data`, in any process.

        Raises PreloadError for what another kernel was told.
        """
        from deuteron.runtime.specialization_text import read_specialization

        return self._kernel_for(read_specialization(self, specialization_data, _LIVING))

    def add_pre_run_hook(self, hook: Hook) -> None:
        """Call `hook(*args, **kwargs)` before each launch."""
        self.pre_run_hooks.append(hook)
        self._forget_records()

    def _forget_records(self) -> None:
        if self._fast is not None:
            self._fast.clear()

    def launch_compiled(
        self, kernel: CompiledKernel, grid: object, args: tuple[object, ...]
    ) -> CompiledKernel:
        """Launch one compiled kernel, with all parameters or the run-time ones only.

        Raises LaunchError for arguments it was not compiled for.
        """
        specs = kernel.spec.params
        if len(args) != len(specs):
            rest = iter(args)
            run_time = sum(not spec.is_constexpr for spec in specs)
            if len(args) != run_time:
                raise LaunchError(
                    f"kernel {self.__name__}: wrong number of arguments for the compiled kernel\n"
                    f"  expected: all {len(specs)}, or the {run_time} that are no constants\n"
                    f"  got:      {len(args)}\n"
                    f"  remedy:   pass {', '.join(self.arg_names)}"
                )
            args = tuple(spec.value if spec.is_constexpr else next(rest) for spec in specs)
        request = specialize(self.__name__, self.params, args, kernel.spec.options)
        kernel.check_fits(request)
        kernel.check_writable(request.arrays)
        kernel = kernel.for_arrays_of(request)
        self._run(kernel, request, resolve_grid(self.__name__, grid, self._meta(args)))
        return kernel

    def _launch_first(self, grid: object, *args: object, **kwargs: object) -> CompiledKernel:
        """Launch when the machine code was not loaded yet; kernels of a GPU do not wait for it."""
        waits = self.backend is not None or not any(map(lies_on_gpu, (*args, *kwargs.values())))
        if waits or native.is_loaded():
            native.code()
            return self[grid](*args, **kwargs)
        kernel = self._launch_slowly(grid, args, kwargs, None)
        native.load_in_background()
        return kernel

    def _launch_by_call(self, grid: object, *args: object, **kwargs: object) -> CompiledKernel:
        return self._launch_slowly(grid, args, kwargs, None)

    def _launch_slowly(
        self,
        grid: object,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        key: bytes | None,
    ) -> CompiledKernel:
        """Launch without a record, and enter one under `key` when the call has one."""
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        if changed := self.frontend.globals_changed(self):
            raise GlobalChangedError(
                f"kernel {self.__name__}: the global variable {changed.name} has changed since we "
                f"compiled this kernel, from {changed.before!r} to {changed.now!r}\n"
                "  expected: constants outside of a kernel that stay as they are\n"
                f"  got:      another {changed.name}\n"
                f"  remedy:   pass {changed.name} as a tl.constexpr argument, or leave it as it is"
            )
        bound = self._bind(args, kwargs)
        request = self._specialize(bound)
        try:
            kernel = self._kernel_for(request.spec)
        except _Forbidden:
            return None  # pyright: ignore[reportReturnType]
        sizes = resolve_grid(self.__name__, grid, self._meta(bound.values))
        kernel.check_writable(request.arrays)
        if hooks.launching():
            told = hooks.launch_metadata(kernel, sizes, self._meta(bound.values))
            knobs.runtime.launch_enter_hook(told)
            self._run(kernel, request, sizes)
            knobs.runtime.launch_exit_hook(told)
            return kernel
        if key is not None and not self.pre_run_hooks:
            self._record(key, kernel, kwargs, bound, request)
        self._run(kernel, request, sizes)
        _register_types(request)
        return kernel

    def _after_launch(self, kernel: CompiledKernel, status: int, details: bytes) -> None:
        """Raise what a launch by machine code ended in."""
        assert not isinstance(kernel.code, Function)
        kernel.code.raise_failure(status, details)

    def _run(self, kernel: CompiledKernel, request: Request, grid: tuple[int, int, int]) -> None:
        if isinstance(kernel.code, Function):
            self._backend(kernel.spec).interpret(kernel.code, request.values, grid)
        else:
            kernel.code.launch(grid, request)

    # -- arguments --------------------------------------------------------------------------
    def _bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Bound:
        return bind(self.__name__, self.params, args, kwargs)

    def _specialize(self, bound: Bound) -> Request:
        where = f"kernel {self.__name__}"
        debug = self.debug or config.device_asserts()
        options = parse_options(bound.options, debug, where)
        stream = bound.options.get(STREAM)
        return specialize(self.__name__, self.params, bound.values, options, stream)

    def _meta(self, values: tuple[object, ...]) -> dict[str, object]:
        return dict(zip(self.arg_names, values, strict=True))

    # -- compiling --------------------------------------------------------------------------
    def _backend(self, spec: Specialization) -> Backend:
        return self.backend or backend_of(spec.device)

    def _kernel_for(self, spec: Specialization, warmup: bool = False) -> CompiledKernel:
        found = self._kernels.get(spec)
        if found is None:
            found = self._build_once(spec, warmup)
        return found.result() if isinstance(found, FutureKernel) else found

    def _build_once(self, spec: Specialization, warmup: bool) -> CompiledKernel | FutureKernel:
        with self._building(spec):
            found = self._kernels.get(spec)
            if found is None:
                if hooks.forbidden(self, spec, warmup):
                    raise _Forbidden
                found = self._kernels[spec] = self._build(spec)
                hooks.compiled(self, spec, warmup)
            return found

    def _build_waited_for(self, spec: Specialization) -> CompiledKernel:
        """Build what a FutureKernel stands for, and take its place."""
        try:
            kernel = self._kernels[spec] = self._build(spec)
        except Exception:
            self._kernels.pop(spec, None)
            raise
        return kernel

    @contextmanager
    def _building(self, spec: Specialization) -> Generator[None]:
        """One thread at a time builds a specialisation."""
        try:
            with self._locks.setdefault(spec, threading.RLock()):
                yield
        finally:
            self._locks.pop(spec, None)

    def _build(self, spec: Specialization) -> CompiledKernel:
        source_key = self.cache_key  # also lets the front end notice globals that change later
        if self.interpret:
            return CompiledKernel(self, spec, self.frontend.lower(self, spec))
        backend = self._backend(spec)
        stable = spec.stable_text()
        key = f"{source_key}\n{stable}\n{backend.key()}" if stable else None
        stored = object_cache.load(key) if key else None
        if stored is None:
            image = backend.compile(self.frontend.lower(self, spec, backend.hardware), spec.options)
            metadata, obj = image.metadata, image.obj
            if key:
                object_cache.store(key, metadata, obj)
        else:
            metadata, obj = stored.metadata, stored.obj
        with hooks.loading(self, f"{source_key}\n{spec}"):
            code = backend.load(self.__name__, metadata, obj)
        return CompiledKernel(self, spec, code)

    # -- the fast path ----------------------------------------------------------------------
    def _fast_path(self) -> FastPath | None:
        """Machine code that launches this function, unless it must go the plain way."""
        fits = all(not p.variadic and _packs_by_itself(p) for p in self.params)
        if not fits or self.interpret:
            return None
        fast = FastPath([_fast_param(p) for p in self.params], self.frontend.globals_changed)
        self._fast = fast
        return fast

    def _record(
        self,
        key: bytes,
        kernel: CompiledKernel,
        kwargs: Mapping[str, object],
        bound: Bound,
        request: Request,
    ) -> None:
        """Let machine code run this kernel for calls like this one."""
        assert self._fast is not None
        assert not isinstance(kernel.code, Function)
        entry = kernel.code.entry(request)
        if entry is None:
            return
        by_name = {param.name: param for param in self.params}
        # Machine code knows parameters by the identity of their (interned) names.
        if any(name in by_name and name is not by_name[name].name for name in kwargs):
            return
        indices: list[int] = []
        for param, spec, value in zip(self.params, kernel.spec.params, bound.values, strict=True):
            if not spec.is_constexpr:
                if param.forced in _FLOATS and type(value) is not float:
                    return  # an int for a float parameter
                indices.append(param.num)
        keep = (tuple(kwargs), tuple(bound.options.values()), _constants(self.params, bound))
        self._fast.add(key, entry, indices, kernel, keep)


_LIVING: weakref.WeakSet[JITFunction] = weakref.WeakSet()


def _forget_all_records() -> None:
    """Launches go the plain way at first, where hooks are called."""
    for function in _LIVING:
        function._forget_records()  # pyright: ignore[reportPrivateUsage]


for _chain in (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook):
    _chain.watchers.append(_forget_all_records)


def forget_compiled() -> None:
    """Have every kernel compiled anew when it is called next, unless it is on disk."""
    for function in _LIVING:
        function._kernels.clear()  # pyright: ignore[reportPrivateUsage]
        function._forget_records()  # pyright: ignore[reportPrivateUsage]
        function.frontend.forget()


def _reset_locks() -> None:
    """In a forked child no other thread is compiling any more."""
    for function in _LIVING:
        function._locks = {}  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_locks)


def _mocked(value: object) -> object:
    dtype = as_dtype(value)
    return value if dtype is None else MockTensor(dtype)


def _packs_by_itself(param: KernelParam) -> bool:
    return param.is_constexpr or isinstance(param.forced, Pointer) or param.forced in _FAST_TYPES


def _fast_param(param: KernelParam) -> FastParam:
    flags = CONSTEXPR if param.is_constexpr else 0
    if param.do_not_specialize or param.forced is not None:
        flags |= NO_ONE
    if param.do_not_specialize or param.do_not_specialize_on_alignment:
        flags |= NO_DIVISIBILITY
    return FastParam(param.name, param.default if param.has_default else MISSING, flags)


def _constants(params: tuple[KernelParam, ...], bound: Bound) -> tuple[object, ...]:
    pairs = zip(params, bound.values, strict=True)
    return tuple(value for param, value in pairs if param.is_constexpr)


def _register_types(request: Request) -> None:
    """Let machine code read torch tensors from the next launch on."""
    for _, array in request.arrays:
        if is_torch_tensor(array.owner) and type(array.owner).__name__ in ("Tensor", "Parameter"):
            register_array_type(type(array.owner))
