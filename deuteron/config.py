"""Every environment variable the package reads, and nowhere else.

Each setting is read when asked for, so that a test or a program may change the environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def _flag(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0", "false", "off")


def set_environment(values: Mapping[str, str]) -> None:
    """Add variables to the environment of this process."""
    os.environ.update(values)


def cache_dir() -> Path:
    """Where compiled objects are kept: DEUTERON_CACHE_DIR, else the user's cache directory.

    That is `deuteron` in XDG_CACHE_HOME where it is set, in ~/Library/Caches on macOS, in
    LOCALAPPDATA on Windows, and in ~/.cache elsewhere.
    """
    own = os.environ.get("DEUTERON_CACHE_DIR")
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
    return not _flag("DEUTERON_DISABLE_CACHE")


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
    return _flag("DEUTERON_INTERPRET")


def device_asserts() -> bool:
    """True when DEUTERON_DEVICE_ASSERT is set: `device_assert` checks even without debug=True."""
    return _flag("DEUTERON_DEVICE_ASSERT")


def cuda_sync() -> bool:
    """True when DEUTERON_CUDA_SYNC is set, or CUDA's own CUDA_LAUNCH_BLOCKING.

    Every launch on a GPU then waits for its kernel, so that an error is raised where it was made.
    Set it before the first launch: a kernel that has been launched without goes on so.
    """
    return _flag("DEUTERON_CUDA_SYNC") or _flag("CUDA_LAUNCH_BLOCKING")


def print_autotuning() -> bool:
    """True when DEUTERON_PRINT_AUTOTUNING is set: say which config won and how long it took."""
    return _flag("DEUTERON_PRINT_AUTOTUNING")


def target_cpu() -> str | None:
    """DEUTERON_CPU: compile for this LLVM CPU name (`x86-64-v3`, …) instead of the host's."""
    return os.environ.get("DEUTERON_CPU") or None
