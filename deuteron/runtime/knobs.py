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


class Knobs:
    """A group of settings; setting what is not among them is an error."""

    def __init__(self, **defaults: Any) -> None:
        object.__setattr__(self, "_defaults", defaults)
        self.__dict__.update(defaults)

    def __setattr__(self, name: str, value: Any) -> None:
        known: dict[str, Any] = self.__dict__["_defaults"]
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"; did you mean `{close[0]}`?" if close else ""
            raise AttributeError(f"there is no knob `{name}`{hint}")
        self.__dict__[name] = value

    @contextmanager
    def scope(self) -> Generator[None]:
        """What is set inside holds until its end."""
        before = dict(self.__dict__)
        try:
            yield
        finally:
            self.__dict__.clear()
            self.__dict__.update(before)

    def reset(self) -> Knobs:
        """All settings as they were at first."""
        self.__dict__.update(self.__dict__["_defaults"])
        return self


class _Launching(Knobs):
    """`knobs.runtime`: debugging, and hooks around compiling and launching.

    `jit_cache_hook` is called before a kernel is compiled and may forbid it by a true result,
    `jit_post_compile_hook` after; `launch_enter_hook` and `launch_exit_hook` at every launch.
    """

    launch_enter_hook: HookChain
    launch_exit_hook: HookChain
    jit_cache_hook: Hook | None
    jit_post_compile_hook: Hook | None
    debug: bool


class _Compiling(Knobs):
    """`knobs.compilation`: `always_compile` uses no kernel that is on disk."""

    always_compile: bool
    listener: Hook | None


class _Tuning(Knobs):
    """`knobs.autotuning`: `cache` keeps results on disk, `print` says which config won."""

    cache: bool
    print: bool
    listener: Hook | None


class _Caching(Knobs):
    """`knobs.cache`: where compiled kernels are kept."""

    dir: str | None


runtime = _Launching(
    debug=False, sanitize_overflow=False, interpret=False, override_arch=None,
    launch_enter_hook=HookChain(), launch_exit_hook=HookChain(reversed=True),
    kernel_load_start_hook=HookChain(), kernel_load_end_hook=HookChain(reversed=True),
    kernel_unload_hook=HookChain(), jit_cache_hook=None, jit_post_compile_hook=None,
    add_stages_inspection_hook=None,
)  # fmt: skip
compilation = _Compiling(
    always_compile=False, override=False, dump_ir=False, dump_ir_extract_di_local_variables=False,
    store_binary_only=False, use_ir_loc=None, enable_asan=False, disable_line_info=False,
    front_end_debugging=False, allow_non_constexpr_globals=False, instrumentation_mode="",
    listener=None, enable_experimental_consan=False, fp_sanitizer=False,
)  # fmt: skip
autotuning = _Tuning(cache=False, print=config.print_autotuning(), listener=None)
cache = _Caching(
    dir=None, home_dir=None, dump_dir=None, override_dir=None, manager_class=None,
    remote_manager_class=None,
)  # fmt: skip
language = Knobs(fp32_default=None, default_fp_fusion=True)
build = Knobs(cc=None, cudacrt_path=None, cudart_path=None, impl=None, backend_dirs=set[str]())
redis = Knobs(key_format=None, host="localhost", port=6379)
nvidia = Knobs(
    cuobjdump=None, nvdisasm=None, ptxas=None, ptxas_blackwell=None, dump_nvptx=False,
    disable_ptxas_opt=False, mock_ptx_version=None, dump_ptxas_log=False, libdevice_path=None,
    libcuda_path=None,
)  # fmt: skip
amd = Knobs(use_buffer_ops=False, dump_amdgcn=False, libhip_path=None, global_prefetch=0)
intel = Knobs()
proton = Knobs(disable=False, cupti_lib_dir=None)
