"""Launch options: what a call says about how to compile, beside the kernel's own parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from deuteron.errors import LaunchError

# Accepted so that code written for a GPU runs unchanged; they change nothing on a CPU.
_GPU_ONLY = frozenset({
    "arch", "cluster_dims", "clc", "extern_libs", "instrumentation_mode", "ir_override", "kpack",
    "launch_cooperative_grid", "launch_pdl", "matrix_instr_nonkdim", "maxnreg", "min_shared_mem",
    "num_ctas", "ptx_options", "ptx_version", "schedule_hint", "stream", "waves_per_eu",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """The options that compiled code may depend on.

    `num_warps` and `num_stages` are hints.  `debug` has `device_assert` checked.
    """

    num_warps: int = 4
    num_stages: int = 3
    enable_fp_fusion: bool = True
    sanitize_overflow: bool = False
    debug: bool = False


_PLAIN = {debug: LaunchOptions(debug=debug) for debug in (False, True)}
NAMES = frozenset(field.name for field in fields(LaunchOptions)) | _GPU_ONLY


def parse_options(given: Mapping[str, Any], debug: bool, where: str) -> LaunchOptions:
    """The options of a call; `debug` is what holds when it does not say.

    Every name must be one of NAMES.  Raises LaunchError for a value that cannot be.
    """
    own = {name: value for name, value in given.items() if name not in _GPU_ONLY}
    if not own:
        return _PLAIN[debug]
    options = LaunchOptions(**{"debug": debug, **own})
    warps = options.num_warps
    if not _is_count(warps) or warps & (warps - 1) or not warps:
        raise _bad(where, "num_warps", "a power of two", warps)
    if not _is_count(options.num_stages):
        raise _bad(where, "num_stages", "an int of at least 0", options.num_stages)
    for name in ("enable_fp_fusion", "sanitize_overflow", "debug"):
        value = getattr(options, name)
        if not isinstance(value, bool):
            raise _bad(where, name, "True or False", value)
    return options


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _bad(where: str, name: str, expected: str, got: object) -> LaunchError:
    return LaunchError(
        f"{where}: launch option {name} cannot be {got!r}\n"
        f"  expected: {expected}\n  got:      {got!r}\n"
        f"  remedy:   correct {name}=…, or leave it out"
    )
