"""`device_print`: the callback that compiled kernels call.

The lines are those of the interpreter, whose formatting and decoding this uses:

    pid (0, 0, 0) idx (3) x: 1.500000
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from ctypes import CFUNCTYPE, POINTER, c_int64, c_void_p
from typing import Any

import numpy as np

from deuteron.backends.cpu.kernel_info import PrintSite
from deuteron.backends.interp.printing import format_print
from deuteron.backends.interp.values import Array, decode, storage_dtype
from deuteron.dtypes import BY_NAME

_CALLBACK = CFUNCTYPE(None, c_int64, POINTER(c_int64), c_void_p, c_int64)
_CALLBACKS: list[object] = []  # machine code calls them for the life of the process


def print_callback(sites: Sequence[PrintSite]) -> int:
    """Address of a kernel's `deuteron_print(site, pids, data, count)`.  Never freed."""

    def callback(number: int, pids: Any, data: int | None, count: int) -> None:
        site = sites[number]
        raw = ctypes.string_at(data, count * _item_bytes(site)) if data and count else b""
        lines = format_site(site, (pids[0], pids[1], pids[2]), raw)
        sys.stdout.write("".join(f"{line}\n" for line in lines))  # at once: others print too
        sys.stdout.flush()

    function = _CALLBACK(callback)
    _CALLBACKS.append(function)
    return ctypes.cast(function, c_void_p).value or 0


def format_site(site: PrintSite, pids: tuple[int, int, int], data: bytes) -> Iterator[str]:
    """The lines of one call: one for each element of `data`, which has the site's dtype."""
    label = site.prefix.strip()
    if site.operand >= 0:
        label += f" (operand {site.operand})"
    dtype = None if site.dtype == "pointer" else BY_NAME[site.dtype]
    operands = [(_values(site, data), dtype)] if data else []
    return format_print(label, pids, operands, hex=site.hex)


def _item_bytes(site: PrintSite) -> int:
    return 8 if site.dtype == "pointer" else BY_NAME[site.dtype].storage_bytes


def _values(site: PrintSite, data: bytes) -> Array:
    if site.dtype == "pointer":
        return np.frombuffer(data, np.int64).reshape(site.shape)
    dtype = BY_NAME[site.dtype]
    return decode(np.frombuffer(data, storage_dtype(dtype)), dtype).reshape(site.shape)
