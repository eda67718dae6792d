"""What hooks of `runtime.knobs` are told about compiling and launching."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from deuteron.runtime import knobs
from deuteron.runtime.specialization_text import write_specialization

if TYPE_CHECKING:
    from deuteron.runtime.compiled_kernel import CompiledKernel
    from deuteron.runtime.jit import JITFunction
    from deuteron.runtime.specialize import Specialization


_DIVISIBLE = [["tt.divisibility", 16]]  # as Triton writes it


@dataclass(frozen=True, slots=True)
class JitFunctionInfo:
    """Which kernel a hook is called for."""

    module: str
    name: str
    jit_function: JITFunction


class LaunchMetadata:
    """What is known of a launch, made when a hook asks for it by `get`."""

    def __init__(self, make: Callable[[], Mapping[str, Any]]) -> None:
        self._make = make

    def get(self) -> Mapping[str, Any]:
        """By name: those of the kernel's own `launch_metadata`, else its name and grid."""
        return self._make()


def forbidden(fn: JITFunction, spec: Specialization, warmup: bool) -> bool:
    """Whether the hook before compiling says that a kernel is not to be compiled."""
    return bool(_call(knobs.runtime.jit_cache_hook, fn, spec, warmup))


def compiled(fn: JITFunction, spec: Specialization, warmup: bool) -> None:
    """Call the hook after compiling."""
    _call(knobs.runtime.jit_post_compile_hook, fn, spec, warmup)


def _call(hook: knobs.Hook | None, fn: JITFunction, spec: Specialization, warmup: bool) -> object:
    if hook is None:
        return None
    name = fn.fn.__qualname__
    options = asdict(spec.options)
    told = {
        "key": spec,
        "signature": {param.name: param.type for param in spec.params},
        "device": spec.device,
        "constants": {param.name: param.value for param in spec.params if param.is_constexpr},
        "configs": [{p.name: _DIVISIBLE for p in spec.leaves() if p.divisibility > 1}],
        "specialization_data": write_specialization(fn, spec),
        "is_warmup": warmup,
        **options,
    }  # fmt: skip
    return hook(
        key=spec,
        repr=f"{name}[{', '.join(f'{k}={v}' for k, v in options.items())}]({spec})",
        fn=JitFunctionInfo(fn.fn.__module__, name, fn),
        compile=told,
        is_manual_warmup=warmup,
        already_compiled=False,
    )


@contextmanager
def loading(fn: JITFunction, key: str) -> Generator[None]:
    """Call the hooks before and after the code of a kernel is loaded, each with the same hash."""
    metadata: dict[str, Any] = {}
    told = (None, None, fn.__name__, metadata, hashlib.sha256(key.encode()).hexdigest())
    knobs.runtime.kernel_load_start_hook(*told)
    yield
    knobs.runtime.kernel_load_end_hook(*told)


def launching() -> bool:
    """Whether hooks are called at launches."""
    return bool(knobs.runtime.launch_enter_hook or knobs.runtime.launch_exit_hook)


def launch_metadata(
    kernel: CompiledKernel, grid: tuple[int, int, int], arguments: Mapping[str, object]
) -> LaunchMetadata:
    """Of one launch."""

    def make() -> Mapping[str, Any]:
        told: dict[str, Any] = {"name": kernel.name, "function": None, "stream": 0}
        own = kernel.owner.launch_metadata
        if own is not None:
            told.update(own(grid, kernel.metadata, dict(arguments)))  # type: ignore[call-overload]
        return told

    return LaunchMetadata(make)
