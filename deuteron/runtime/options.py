"""Launch options: what a call says about how to compile, beside the kernel's own parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeGuard

from deuteron import config
from deuteron.errors import LaunchError

STREAM = "stream"
"""The option that says where a GPU's kernel is put; it does not change how one is compiled."""

# Accepted so that code written for other compilers runs unchanged; they change nothing here.
_IGNORED = frozenset({
    "arch", "cluster_dims", "clc", "instrumentation_mode", "ir_override", "kpack",
    "launch_cooperative_grid", "launch_pdl", "matrix_instr_nonkdim", "min_shared_mem",
    "ptx_options", "ptx_version", "schedule_hint", "waves_per_eu",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """The options that compiled code may depend on.

    On a GPU a program has `num_warps` warps of 32 threads, loops over dots keep `num_stages` turns
    in flight, and a thread gets at most `maxnreg` registers; on a CPU these change nothing.
    `debug` has `device_assert` checked.  `extern_libs`, names and paths of libraries, is told to
    hooks; nothing is linked from there.
    """

    num_warps: int = 4
    num_stages: int = 3
    enable_fp_fusion: bool = True
    sanitize_overflow: bool = False
    debug: bool = False
    num_ctas: int = 1
    maxnreg: int | None = None
    extern_libs: tuple[tuple[str, str], ...] | None = None


_PLAIN = {debug: LaunchOptions(debug=debug) for debug in (False, True)}
_NOT_COMPILED = _IGNORED | {STREAM}
NAMES = frozenset(field.name for field in fields(LaunchOptions)) | _NOT_COMPILED
_MAX_REGISTERS = 255  # of a thread, on every GPU


def parse_options(given: Mapping[str, Any], debug: bool, where: str) -> LaunchOptions:
    """The options of a call; `debug` is what holds when it does not say.

    Every name must be one of NAMES.  Raises LaunchError for a value that cannot be.
    """
    own = {name: value for name, value in given.items() if name not in _NOT_COMPILED}
    if isinstance(own.get("extern_libs"), Mapping):
        own["extern_libs"] = tuple(own["extern_libs"].items())
    fusion = config.fp_fusion()
    if not own and fusion:
        return _PLAIN[debug]
    chosen: dict[str, Any] = {"debug": debug, "enable_fp_fusion": fusion, **own}
    options = LaunchOptions(**chosen)
    warps = options.num_warps
    if not _is_count(warps) or warps & (warps - 1) or not warps:
        raise _bad(where, "num_warps", "a power of two", warps)
    if not _is_count(options.num_stages):
        raise _bad(where, "num_stages", "an int of at least 0", options.num_stages)
    if not _is_count(options.num_ctas) or not options.num_ctas:
        raise _bad(where, "num_ctas", "an int of at least 1", options.num_ctas)
    if options.maxnreg is not None and not _is_register_count(options.maxnreg):
        raise _bad(where, "maxnreg", f"an int of 1 to {_MAX_REGISTERS}, or None", options.maxnreg)
    for name in ("enable_fp_fusion", "sanitize_overflow", "debug"):
        value = getattr(options, name)
        if not isinstance(value, bool):
            raise _bad(where, name, "True or False", value)
    return options


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_register_count(value: object) -> bool:
    return _is_count(value) and 1 <= value <= _MAX_REGISTERS


def _bad(where: str, name: str, expected: str, got: object) -> LaunchError:
    return LaunchError(
        f"{where}: launch option {name} cannot be {got!r}\n"
        f"  expected: {expected}\n  got:      {got!r}\n"
        f"  remedy:   correct {name}=…, or leave it out"
    )
