"""Settings that a program may change while it runs, under Triton's names.

    with knobs.compilation.scope():
        knobs.compilation.always_compile = True

A setting that has no meaning here keeps its value and changes nothing.  Those that do have one say
so below; their environment variables (see `deuteron.config`) hold until a program sets them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from deuteron import config

Hook = Callable[..., Any]


class HookChain:
    """Functions that are called one after the other; those added last come first in `reversed`.

    `watchers` are called when one is added.
    """

    def __init__(self, reversed: bool = False) -> None:
        self.calls: list[Hook] = []
        self.reversed = reversed
        self.watchers: list[Callable[[], None]] = []

    def add(self, hook: Hook) -> None:
        """Call it from now on, unless it is there."""
        if hook not in self.calls:
            self.calls.append(hook)
            for watcher in self.watchers:
                watcher()

    def remove(self, hook: Hook) -> None:
        """Call it no more."""
        if hook in self.calls:
            self.calls.remove(hook)

    def __iter__(self) -> Iterator[Hook]:
        return iter(self.calls[::-1] if self.reversed else self.calls)

    def __bool__(self) -> bool:
        return bool(self.calls)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        for hook in self:
            hook(*args, **kwargs)


class Variable:
    """A setting that lives in the environment, so that processes started later have it too.

    `names` are its variables; the first is written, and the first that is set is read.
    """

    def __init__(self, *names: str, default: Any = None) -> None:
        self.names = names
        self.default = default

    def __get__(self, knobs: Knobs | None, owner: type[Knobs]) -> Any:
        return self if knobs is None else self.read()

    def __set__(self, knobs: Knobs, value: Any) -> None:
        config.set_environment({self.names[0]: self.write(value)})

    def read(self) -> Any:
        """The value now."""
        found = config.text(*self.names)
        return self.default if found is None else found

    def write(self, value: Any) -> str | None:
        """The text of a value."""
        return None if value is None else str(value)


class Switch(Variable):
    """One that is on or off."""

    def read(self) -> bool:
        return config.flag(*self.names, default=bool(self.default))

    def write(self, value: Any) -> str | None:
        return None if value is None else str(int(bool(value)))


class CacheFolder(Variable):
    """Where compiled kernels are kept; without a variable, where they are kept by default."""

    def read(self) -> str:
        return str(config.cache_dir())


class Knobs:
    """A group of settings; setting what is not among them is an error."""

    def __init__(self, **defaults: Any) -> None:
        object.__setattr__(self, "_defaults", defaults)
        self.__dict__.update(defaults)

    @property
    def variables(self) -> dict[str, Variable]:
        """Those that live in the environment, by name."""
        return {k: v for k, v in vars(type(self)).items() if isinstance(v, Variable)}

    @property
    def knobs(self) -> dict[str, Any]:
        """All settings as they are now."""
        return {name: getattr(self, name) for name in (*self.variables, *self._plain())}

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._plain() and name not in self.variables:
            close = get_close_matches(name, (*self._plain(), *self.variables), n=1)
            hint = f"; did you mean `{close[0]}`?" if close else ""
            raise AttributeError(f"there is no knob `{name}`{hint}")
        object.__setattr__(self, name, value)

    @contextmanager
    def scope(self) -> Generator[None]:
        """What is set inside holds until its end."""
        before = dict(self.__dict__)
        chains = [(chain, list(chain.calls)) for chain in self._chains()]
        names = [name for variable in self.variables.values() for name in variable.names]
        environment = {name: config.text(name) for name in names}
        try:
            yield
        finally:
            self.__dict__.clear()
            self.__dict__.update(before)
            for chain, calls in chains:
                chain.calls[:] = calls
            config.set_environment(environment)

    def reset(self) -> Knobs:
        """All settings as they are in an empty environment."""
        self.__dict__.update(self._plain())
        for chain in self._chains():
            chain.calls.clear()
        for variable in self.variables.values():
            config.set_environment(dict.fromkeys(variable.names))
        return self

    def _plain(self) -> dict[str, Any]:
        return self.__dict__["_defaults"]

    def _chains(self) -> list[HookChain]:
        return [value for value in self._plain().values() if isinstance(value, HookChain)]


class _Launching(Knobs):
    """`knobs.runtime`: debugging, and hooks around compiling and launching.

    `debug` has `device_assert` checked, `interpret` kernels run on the interpreter, from their
    decoration on.  `jit_cache_hook` is called before a kernel is compiled and may forbid it by a
    true result, `jit_post_compile_hook` after; `kernel_load_start_hook` and `kernel_load_end_hook`
    around the loading of its code, with (module, function, name, metadata, hash), of which the
    first two are None; `launch_enter_hook` and `launch_exit_hook` at every launch.
    """

    interpret = Switch(*config.INTERPRET)
    debug = Switch(*config.DEVICE_ASSERT)
    override_arch = Variable("TRITON_OVERRIDE_ARCH")
    launch_enter_hook: HookChain
    launch_exit_hook: HookChain
    kernel_load_start_hook: HookChain
    kernel_load_end_hook: HookChain
    jit_cache_hook: Hook | None
    jit_post_compile_hook: Hook | None


class _Compiling(Knobs):
    """`knobs.compilation`: `always_compile` uses no kernel that is on disk.

    `allow_non_constexpr_globals` has kernels read plain numbers outside of them.
    """

    always_compile = Switch(*config.DISABLE_CACHE)
    allow_non_constexpr_globals = Switch(*config.FREE_GLOBALS)
    override = Switch("TRITON_KERNEL_OVERRIDE")
    dump_ir = Switch("TRITON_KERNEL_DUMP")
    store_binary_only = Switch("TRITON_STORE_BINARY_ONLY")
    use_ir_loc = Variable("USE_IR_LOC")
    disable_line_info = Switch("TRITON_DISABLE_LINE_INFO")
    front_end_debugging = Switch("TRITON_FRONT_END_DEBUGGING")
    listener: Hook | None


class _Tuning(Knobs):
    """`knobs.autotuning`: `cache` keeps results on disk, `print` says which config won."""

    cache = Switch(*config.CACHE_AUTOTUNING)
    print = Switch(*config.PRINT_AUTOTUNING)
    listener: Hook | None


class _Caching(Knobs):
    """`knobs.cache`: where compiled kernels are kept, and what keeps other files."""

    manager_class: Any
    remote_manager_class: Any

    dir = CacheFolder(*config.CACHE_DIR)
    home_dir = Variable("TRITON_HOME")
    dump_dir = Variable("TRITON_DUMP_DIR")
    override_dir = Variable("TRITON_OVERRIDE_DIR")


class _Language(Knobs):
    """`knobs.language`: `default_fp_fusion` lets a product and a sum be rounded once together."""

    fp32_default = Variable("TRITON_F32_DEFAULT")
    default_fp_fusion = Switch(*config.FP_FUSION, default=True)


class _Building(Knobs):
    """`knobs.build`: of a C compiler, which is not used."""

    cc = Variable("CC")
    cudacrt_path = Variable("TRITON_CUDACRT_PATH")
    cudart_path = Variable("TRITON_CUDART_PATH")


runtime = _Launching(
    sanitize_overflow=False,
    launch_enter_hook=HookChain(), launch_exit_hook=HookChain(reversed=True),
    kernel_load_start_hook=HookChain(), kernel_load_end_hook=HookChain(reversed=True),
    kernel_unload_hook=HookChain(), jit_cache_hook=None, jit_post_compile_hook=None,
    add_stages_inspection_hook=None,
)  # fmt: skip
compilation = _Compiling(
    dump_ir_extract_di_local_variables=False, enable_asan=False, instrumentation_mode="",
    fpsan_homomorphic_casts=False, listener=None, enable_experimental_consan=False,
    fp_sanitizer=False,
)  # fmt: skip
autotuning = _Tuning(listener=None)
cache = _Caching(manager_class=None, remote_manager_class=None)
language = _Language()
build = _Building(impl=None, backend_dirs=set[str]())
redis = Knobs(key_format=None, host="localhost", port=6379)
nvidia = Knobs(
    cuobjdump=None, nvdisasm=None, ptxas=None, ptxas_blackwell=None, dump_nvptx=False,
    disable_ptxas_opt=False, ptxas_options=None, mock_ptx_version=None, dump_ptxas_log=False,
    libdevice_path=None, libcuda_path=None,
)  # fmt: skip
amd = Knobs(
    use_buffer_ops=True, use_buffer_atomics=True, dump_amdgcn=False, libhip_path=None,
    use_block_pingpong=None, use_in_thread_transpose=None, use_async_copy=None,
    scalarize_packed_fops=False, global_prefetch=0,
)  # fmt: skip
intel = Knobs()
proton = Knobs(disable=False, cupti_lib_dir=None, enable_nvtx=True)
GROUPS = {
    "amd": amd, "autotuning": autotuning, "build": build, "cache": cache,
    "compilation": compilation, "intel": intel, "language": language, "nvidia": nvidia,
    "proton": proton, "redis": redis, "runtime": runtime,
}  # fmt: skip
"""All groups by name."""
