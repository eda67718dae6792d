"""The autotuner's configs, and the disk store of their measurements.

Results are JSON files beside the compiled objects, one for each kernel source, machine, thread
count, tuning key and list of configs.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deuteron import config as settings
from deuteron.backends.cpu.pool import get_num_threads
from deuteron.backends.llvm.compile import host_machine
from deuteron.backends.llvm.object_cache import write_atomically

_LAUNCH_OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override")


@dataclass(eq=False)
class Config:
    """One choice of meta-parameters (`kwargs`) and launch options.

    `pre_hook` is called with all arguments by name before each launch with this config.
    `num_ctas`, `maxnreg` and `ir_override` concern GPUs.  Programs may add attributes of their own.
    """

    kwargs: dict[str, Any]
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    pre_hook: Callable[[dict[str, Any]], object] | None = None
    ir_override: str | None = None

    def all_kwargs(self) -> dict[str, Any]:
        """Everything this config adds to a launch."""
        options = {name: getattr(self, name) for name in _LAUNCH_OPTIONS}
        return {**self.kwargs, **{k: v for k, v in options.items() if v is not None}}

    def on_cpu(self, parameters: Container[str]) -> tuple[object, ...]:
        """What a CPU's code depends on, for a kernel with these parameters.

        Launch options are nothing to it, unless a parameter has their name.
        """
        options = {name: getattr(self, name) for name in _LAUNCH_OPTIONS if name in parameters}
        return (*self.kwargs.items(), *options.items(), self.pre_hook)

    def __str__(self) -> str:
        return ", ".join(f"{name}: {value}" for name, value in self.all_kwargs().items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        return (*self.all_kwargs().items(), self.pre_hook)


def results_path(kernel: Any, key: Sequence[object], configs: Sequence[Config]) -> Path | None:
    """The file for a tuned kernel's results; None when they must not outlive the process.

    That is with the cache disabled, with hooks (whose code is unknown), and for kernels whose
    source cannot be seen.
    """
    if not settings.cache_enabled() or any(config.pre_hook for config in configs):
        return None
    source = _source_identity(kernel)
    if source is None:
        return None
    parts = [source, host_machine(), get_num_threads(), key, [str(c) for c in configs]]
    digest = hashlib.sha256("\n".join(map(str, parts)).encode("utf-8", "surrogatepass"))
    return settings.cache_dir() / "autotune" / f"{digest.hexdigest()}.json"


def read_timings(path: Path, configs: Sequence[Config]) -> dict[Config, list[float]] | None:
    """Stored quantiles (ms) of exactly these configs, or None."""
    try:
        stored: dict[str, list[float]] = json.loads(path.read_bytes())["timings_ms"]
        return {config: [float(q) for q in stored[str(config)]] for config in configs}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_timings(path: Path, timings: Mapping[Config, Sequence[float]]) -> None:
    """Keep quantiles (ms).  A disk that refuses gives one CacheWarning, no error."""
    shown = {str(config): list(times) for config, times in timings.items()}
    write_atomically(path, json.dumps({"timings_ms": shown}, indent=1).encode())


def unwrapped(kernel: Any) -> Any:
    """The Python function inside any number of wrappers."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


def _source_identity(kernel: Any) -> str | None:
    """A text that changes with the kernel's code; None when its code cannot be seen."""
    while hasattr(kernel, "fn"):
        if hasattr(kernel, "cache_key"):
            return str(kernel.cache_key)
        kernel = kernel.fn
    try:
        return inspect.getsource(kernel)
    except (OSError, TypeError):
        return None
