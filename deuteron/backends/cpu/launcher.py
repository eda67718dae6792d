"""Launching a compiled kernel: the fast path of one jit function, and the plain way.

`FastPath` owns what the machine code of `launcher_ir.py` reads: a kernel's parameters and its
dictionary from argument keys to records.  A record is made of an `Entry`, which tells how a kernel
is run: by the pool, or on a GPU (`backends.cuda.launcher`).  `launch` is the plain way to the pool,
for calls without a record.  Both end in `raise_failure` when the kernel could not or would not
finish.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Callable, Sequence
from ctypes import (
    PYFUNCTYPE,
    c_char_p,
    c_double,
    c_float,
    c_int64,
    c_uint32,
    c_void_p,
    py_object,
)
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NoReturn

import numpy as np

from deuteron.backends.cpu import native
from deuteron.backends.cpu.describe_ir import ARRAY, MAX_TYPES, TYPES, descriptor
from deuteron.backends.cpu.kernel_info import AssertSite, KernelInfo, ParamInfo
from deuteron.backends.cpu.launcher_ir import (
    KERNEL,
    PARAM,
    POOL_LAUNCH,
    RECORD,
    SLOT_DOUBLE_TO_FLOAT,
    SLOT_RAW,
)
from deuteron.backends.cpu.pool import pool
from deuteron.backends.llvm.compile import load_object
from deuteron.dtypes import BY_NAME
from deuteron.errors import DeviceAssertionError

CONTROL_BYTES = 64
_PRINT_SYMBOL = "deuteron_print"
_NO_MESSAGE = "the condition is false"
_CACHE_LIMIT = 4096  # records of one kernel; more come only from ever new constexpr objects
# Of functions in DLPackExchangeAPI, major version 1.
_EXCHANGE_OFFSET = 40  # `dltensor_from_py_object_no_sync`
_WORK_STREAM_OFFSET = 48  # `current_work_stream`
_METHOD_NAMES = tuple(map(sys.intern, ("_launch_slowly", "_after_launch")))
"""Methods of the owner that machine code calls:

    _launch_slowly(grid, args, kwargs, key: bytes | None) -> result of the launch
    _after_launch(result, status, details: bytes) -> never: raises
"""


class _Missing:
    """Stands for "no default"."""


MISSING = _Missing()


@dataclass(frozen=True, slots=True)
class FastParam:
    """A parameter as machine code sees it; `flags` are those of describe_ir."""

    name: str
    default: object = MISSING
    flags: int = 0


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A kernel in memory: where its code is, and what is known of it.

    `pace` is kept by the pool: nanoseconds a program took.
    """

    address: int
    info: KernelInfo
    pace: c_double = field(default_factory=c_double, compare=False)

    def entry(self) -> Entry:
        """How machine code runs it."""
        pace = ctypes.addressof(self.pace)
        info = self.info
        told = POOL_LAUNCH.mirror(self.address, info.scratch_bytes, info.store_bytes, pace)
        return Entry(native.code().run_on_pool, told, self.info.params)


@dataclass(frozen=True, slots=True)
class Entry:
    """How machine code runs a kernel: the address of a `run`, what it is told, and the slots."""

    run: int
    told: ctypes.Structure
    params: Sequence[ParamInfo]


def load_kernel(obj: bytes, info: KernelInfo) -> LoadedKernel:
    """Link a kernel's object file into the process, where it stays."""
    imports = {_PRINT_SYMBOL: _print_callback(info)} if info.print_sites else {}
    return LoadedKernel(load_object(obj, [info.name], imports)[info.name], info)


def _print_callback(info: KernelInfo) -> int:
    from deuteron.backends.cpu.device_print import print_callback  # brings in the interpreter

    return print_callback(info.print_sites)


class FastPath:
    """The machine code's side of one jit function.

    `globals_changed(owner)` is asked at each launch and answers None when nothing did.
    `bind(grid, owner)` returns the function that launches `owner`, whose fast path this is.
    """

    def __init__(
        self, params: Sequence[FastParam], globals_changed: Callable[[Any], object]
    ) -> None:
        self._records: dict[bytes, bytes] = {}
        self._kept: list[object] = []  # what the records point to
        self._params = [(sys.intern(param.name), param.default, param.flags) for param in params]
        self._globals_changed = globals_changed
        kernel = KERNEL.mirror(
            len(params), id(self._records), pool().address, _types().address,
            id(globals_changed), *map(id, _METHOD_NAMES),
        )  # fmt: skip
        rows = (
            PARAM.mirror(id(name), None if default is MISSING else id(default), flags)
            for name, default, flags in self._params
        )
        self.bind: Callable[[object, object], Callable[..., Any]] = partial(
            native.code().bind_grid, b"".join(map(bytes, [kernel, *rows]))
        )

    def add(
        self, key: bytes, entry: Entry, indices: Sequence[int], result: object, keep: object
    ) -> None:
        """From now on calls with this key run `entry` and return `result`.

        `indices` gives, for each slot, the parameter it is made from.  `keep` holds the kernel, and
        the objects whose addresses are in the key.
        """
        if len(self._records) >= _CACHE_LIMIT:
            self.clear()
        slots = [
            index | _conversion(param) << 32
            for index, param in zip(indices, entry.params, strict=True)
        ]
        head = RECORD.mirror(entry.run, ctypes.addressof(entry.told), id(result), len(slots))
        self._kept.append((entry, result, keep))
        self._records[key] = bytes(head) + struct.pack(f"={len(slots)}q", *slots)

    def clear(self) -> None:
        """Forget every record: each call is slow again once."""
        self._records.clear()
        self._kept.clear()


def launch(kernel: LoadedKernel, grid: tuple[int, int, int], values: Sequence[int | float]) -> None:
    """Run a kernel over a grid: `values` are addresses and numbers, one a slot.

    Releases the GIL.  Raises OutOfResources and DeviceAssertionError.
    """
    control = (c_int64 * (CONTROL_BYTES // 8))()
    slots = b"".join(
        slot_bytes(value, param) for value, param in zip(values, kernel.info.params, strict=True)
    )
    block = struct.pack("=4q", *grid, ctypes.addressof(control)) + slots
    programs = math.prod(grid)
    if programs:
        buffer = ctypes.create_string_buffer(block, len(block))
        address = ctypes.addressof(buffer)
        info = kernel.info
        pool().run(
            kernel.address, address, programs, info.scratch_bytes, kernel.pace, info.store_bytes
        )
    if control[0]:
        raise_failure(kernel.info, 0, bytes(control))


def raise_failure(info: KernelInfo, status: int, control: bytes) -> NoReturn:
    """Raise what a status of the pool, or a control block with a failed assert, stands for."""
    if status:
        raise pool().scratch_error(status, info.scratch_bytes)
    raise failed_assert(info.name, info.assert_sites, control)


def failed_assert(kernel: str, sites: Sequence[AssertSite], control: bytes) -> DeviceAssertionError:
    """The error that a control block with a failed assert stands for."""
    number, *pids = struct.unpack_from("=4q", control)
    site = sites[number - 1]
    return DeviceAssertionError(
        f"{site.file}:{site.line}: device_assert: {site.message or _NO_MESSAGE}\n"
        f"  kernel:   {kernel}\n"
        f"  program:  {tuple(pids)}"
    )


def register_array_type(array_type: type) -> bool:
    """Let machine code read this type's arrays, if it offers DLPack's C exchange API.

    True when it does from now on; the type then lives for ever.
    """
    capsule = getattr(array_type, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return False
    get = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    api = get(capsule, b"dlpack_exchange_api")
    function = c_void_p.from_address(api + _EXCHANGE_OFFSET).value
    work_stream = c_void_p.from_address(api + _WORK_STREAM_OFFSET).value
    major = c_uint32.from_address(api).value
    if major != 1 or not function:
        return False
    return _types().add(array_type, function, work_stream)


class _Types:
    """The array types machine code reads by itself."""

    def __init__(self) -> None:
        self._memory = TYPES.mirror()
        self._memory.ndarray = id(np.ndarray) if _numpy_layout_is_known() else None
        self._kept: list[type] = []
        self.address = ctypes.addressof(self._memory)

    def add(self, array_type: type, exchange: int, work_stream: int | None) -> bool:
        """True when there was room."""
        if array_type in self._kept:
            return True
        count = self._memory.count
        if count == MAX_TYPES:
            return False
        self._kept.append(array_type)
        row = self._memory.rows[count]
        row.type, row.exchange, row.work_stream = id(array_type), exchange, work_stream
        self._memory.count = count + 1
        return True


@cache
def _types() -> _Types:
    return _Types()


def _numpy_layout_is_known() -> bool:
    """True when the fields of an array are where machine code looks for them."""
    array = np.zeros((3, 5), np.float32)[1:, ::2]
    array.flags.writeable = False
    seen = ARRAY.mirror.from_address(id(array))
    item = descriptor(native.NUMPY_MAJOR).mirror.from_address(id(array.dtype))
    sizes = (c_int64 * array.ndim).from_address(seen.shape)
    strides = (c_int64 * array.ndim).from_address(seen.strides)
    return (
        (seen.type, seen.data, seen.ndim) == (id(np.ndarray), array.ctypes.data, array.ndim)
        and (tuple(sizes), tuple(strides)) == (array.shape, array.strides)
        and (seen.descriptor, seen.flags) == (id(array.dtype), array.flags.num)
        and (item.number, item.size) == (array.dtype.num, array.itemsize)
        and item.order == ord(array.dtype.byteorder)
    )


def _conversion(param: ParamInfo) -> int:
    narrow = param.kind == "float" and param.dtype == "float32"
    return SLOT_DOUBLE_TO_FLOAT if narrow else SLOT_RAW


def slot_bytes(value: int | float, param: ParamInfo) -> bytes:
    """An argument in eight bytes; a float sits at their start, in its storage form."""
    if param.kind != "float":
        return (int(value) & 0xFFFFFFFFFFFFFFFF).to_bytes(8, sys.byteorder)
    return _float_bytes(float(value), param.dtype).ljust(8, b"\0")


def _float_bytes(value: float, dtype: str) -> bytes:
    if dtype == "float64":
        return bytes(c_double(value))
    if dtype == "float32":
        return bytes(c_float(value))  # too large is infinite, without a warning
    from deuteron.backends.interp.values import constant, encode

    return encode(constant(value, BY_NAME[dtype]), BY_NAME[dtype]).tobytes()
