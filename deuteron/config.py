"""Every environment variable the package reads, and nowhere else.

Each setting is read when asked for, so that a test or a program may change the environment.  Where
Triton has a variable of the same meaning, that counts too while ours is not set.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

CACHE_DIR = ("DEUTERON_CACHE_DIR", "TRITON_CACHE_DIR")
DISABLE_CACHE = ("DEUTERON_DISABLE_CACHE", "TRITON_ALWAYS_COMPILE")
INTERPRET = ("DEUTERON_INTERPRET", "TRITON_INTERPRET")
DEVICE_ASSERT = ("DEUTERON_DEVICE_ASSERT", "TRITON_DEBUG")
PRINT_AUTOTUNING = ("DEUTERON_PRINT_AUTOTUNING", "TRITON_PRINT_AUTOTUNING")
CACHE_AUTOTUNING = ("DEUTERON_CACHE_AUTOTUNING", "TRITON_CACHE_AUTOTUNING")
FP_FUSION = ("DEUTERON_DEFAULT_FP_FUSION", "TRITON_DEFAULT_FP_FUSION")
FREE_GLOBALS = ("DEUTERON_ALLOW_NON_CONSTEXPR_GLOBALS", "TRITON_ALLOW_NON_CONSTEXPR_GLOBALS")


def text(*names: str) -> str | None:
    """The first of some variables that is set."""
    return next((os.environ[name] for name in names if name in os.environ), None)


def flag(*names: str, default: bool = False) -> bool:
    """Whether the first of some variables that is set says yes."""
    value = text(*names)
    if not value:
        return default
    return value.lower() not in ("0", "false", "off", "no")


def set_environment(values: Mapping[str, str | None]) -> None:
    """Set variables in the environment of this process, and of those it starts; None unsets one."""
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def cache_dir() -> Path:
    """Where compiled objects are kept: DEUTERON_CACHE_DIR, else the user's cache directory.

    That is `deuteron` in XDG_CACHE_HOME where it is set, in ~/Library/Caches on macOS, in
    LOCALAPPDATA on Windows, and in ~/.cache elsewhere.
    """
    own = text(*CACHE_DIR)
    if own:
        return Path(own)
    xdg = os.environ.get("XDG_CACHE_HOME")
    return Path(xdg or _system_cache_dir()) / "deuteron"


def _system_cache_dir() -> str:
    home = os.path.expanduser("~")
    match sys.platform:
        case "darwin":
            return os.path.join(home, "Library", "Caches")
        case "win32":
            return os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
        case _:
            return os.path.join(home, ".cache")


def cache_enabled() -> bool:
    """False when DEUTERON_DISABLE_CACHE is set: every kernel is compiled anew."""
    return not flag(*DISABLE_CACHE)


def num_threads() -> int:
    """Threads a grid is spread over: DEUTERON_NUM_THREADS, else the CPUs this process may use."""
    own = os.environ.get("DEUTERON_NUM_THREADS", "")
    if own.isdigit() and int(own) > 0:
        return int(own)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def debug_topics() -> frozenset[str]:
    """What to print while compiling: DEUTERON_DEBUG, a comma list of `ir`, `llvm`, `asm`."""
    return frozenset(filter(None, os.environ.get("DEUTERON_DEBUG", "").split(",")))


def interpret() -> bool:
    """True when DEUTERON_INTERPRET is set: kernels run on the NumPy interpreter."""
    return flag(*INTERPRET)


def device_asserts() -> bool:
    """True when DEUTERON_DEVICE_ASSERT is set: `device_assert` checks even without debug=True."""
    return flag(*DEVICE_ASSERT)


def cuda_sync() -> bool:
    """True when DEUTERON_CUDA_SYNC is set, or CUDA's own CUDA_LAUNCH_BLOCKING.

    Every launch on a GPU then waits for its kernel, so that an error is raised where it was made.
    Set it before the first launch: a kernel that has been launched without goes on so.
    """
    return flag("DEUTERON_CUDA_SYNC") or flag("CUDA_LAUNCH_BLOCKING")


def print_autotuning() -> bool:
    """True when DEUTERON_PRINT_AUTOTUNING is set: say which config won and how long it took."""
    return flag(*PRINT_AUTOTUNING)


def cache_autotuning() -> bool:
    """True when DEUTERON_CACHE_AUTOTUNING is set: tuned configs are kept on disk."""
    return flag(*CACHE_AUTOTUNING)


def fp_fusion() -> bool:
    """False when DEUTERON_DEFAULT_FP_FUSION is 0: no product and sum are rounded once together."""
    return flag(*FP_FUSION, default=True)


def free_globals() -> bool:
    """True when DEUTERON_ALLOW_NON_CONSTEXPR_GLOBALS is set: kernels may read plain numbers."""
    return flag(*FREE_GLOBALS)


def target_cpu() -> str | None:
    """DEUTERON_CPU: compile for this LLVM CPU name (`x86-64-v3`, …) instead of the host's."""
    return os.environ.get("DEUTERON_CPU") or None
