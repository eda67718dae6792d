"""Running a function of the tile IR: on the interpreter, or compiled for this CPU.

Both have `run(function, args, grid)` and keep what the program printed in `printed`.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import math
import struct
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np

from deuteron.backends import interp
from deuteron.backends.cpu.compiler import compile_function
from deuteron.backends.cpu.device_print import print_callback
from deuteron.backends.cpu.kernel_info import KernelInfo
from deuteron.backends.cpu.target import CpuTarget
from deuteron.backends.interp.memory import CheckedMemory, Region
from deuteron.backends.interp.values import Array
from deuteron.backends.llvm.compile import load_object
from deuteron.dtypes import DType, float32, float64
from deuteron.errors import DeviceAssertionError
from deuteron.ir import Function, Value
from tests.oracle.kernels import Arg, Grid, View
from tests.oracle.windows_code import callable_here, windows_imports


class Runner(Protocol):
    """Executes all programs of a grid on arguments in memory."""

    printed: list[str]

    def run(self, function: Function, args: Sequence[Arg], grid: Grid) -> None: ...


def address_of(arg: Array | View) -> int:
    """Where the element that a pointer argument points to lies."""
    if isinstance(arg, View):
        return arg.array.ctypes.data + arg.start * arg.array.itemsize
    return arg.ctypes.data


class InterpRunner:
    """The oracle, with every access checked against the arrays given."""

    def __init__(self) -> None:
        self.printed: list[str] = []

    def run(self, function: Function, args: Sequence[Arg], grid: Grid) -> None:
        regions: list[Region] = []
        plain: list[object] = []
        for parameter, arg in zip(function.params, args, strict=True):
            if isinstance(arg, np.ndarray | View):
                array = arg.array if isinstance(arg, View) else arg
                regions.append(Region.of(parameter.name, array))
                plain.append(address_of(arg))
            else:
                plain.append(arg)
        stdout = io.StringIO()
        with contextlib.redirect_stdout(stdout):
            interp.run(function, plain, grid, memory=CheckedMemory(regions))
        self.printed = stdout.getvalue().splitlines()


KERNEL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)
GUARD_BYTES = 256
GARBAGE = 0xA5


class Arena:
    """`size` bytes at a 64-byte aligned address between two guards that must stay untouched."""

    def __init__(self, size: int) -> None:
        self._bytes = np.full(size + 64 + 2 * GUARD_BYTES, GARBAGE, np.uint8)
        address = self._bytes.ctypes.data + GUARD_BYTES
        self._start = GUARD_BYTES + -address % 64
        self.inside = self._bytes[self._start : self._start + size]
        self.address = self.inside.ctypes.data if size else address + -address % 64

    def check(self, what: str) -> None:
        """Fail when anything outside was written."""
        end = self._start + self.inside.size
        around = np.concatenate((self._bytes[: self._start], self._bytes[end:]))
        assert (around == GARBAGE).all(), f"the kernel wrote outside of {what}"


class ArrayPlaces:
    """Where the arrays of a run lie while the kernel runs; an array given twice has one place."""

    def __init__(self, place: Callable[[int], Arena] = Arena) -> None:
        self._place = place
        self._arenas: dict[int, tuple[Array, Arena]] = {}

    def address_of(self, arg: Array | View) -> int:
        array = arg.array if isinstance(arg, View) else arg
        if id(array) not in self._arenas:
            arena = self._place(array.nbytes)
            arena.inside[:] = array.view(np.uint8)
            self._arenas[id(array)] = (array, arena)
        start = arg.start if isinstance(arg, View) else 0
        return self._arenas[id(array)][1].address + start * array.itemsize

    def take_back(self) -> None:
        """Copy the results into the caller's arrays and check the guards."""
        for number, (array, arena) in enumerate(self._arenas.values()):
            array.view(np.uint8)[:] = arena.inside
            arena.check(f"array {number}")


class CpuRunner:
    """The compiled kernel, called directly: no launcher and no thread pool.

    The programs are run in `chunks` calls, each with a scratch arena full of garbage.  `place`
    gives the memory for each array.  `target` is a machine whose code runs here, or Windows.
    """

    def __init__(
        self,
        chunks: int = 2,
        place: Callable[[int], Arena] = Arena,
        target: CpuTarget | None = None,
    ) -> None:
        self.chunks = chunks
        self.place = place
        self.target = target
        self.printed: list[str] = []

    def run(self, function: Function, args: Sequence[Arg], grid: Grid) -> None:
        image = compile_function(function, self.target)
        info = KernelInfo.from_json(image.metadata)
        kernel = KERNEL(self._load(image.obj, info))
        places, control = ArrayPlaces(self.place), np.zeros(8, np.int64)
        head = struct.pack("<3qQ", *grid, control.ctypes.data)
        block = head + b"".join(map(partial(_slot, places), function.params, args))
        slots = np.frombuffer(block, np.int64).copy()
        total, stdout = math.prod(grid), io.StringIO()
        store = Arena(info.store_bytes)
        store.inside[:8] = 0  # a launch begins
        cuts = [total * i // self.chunks for i in range(self.chunks + 1)]
        for begin, end in pairwise(cuts):
            scratch = Arena(info.scratch_bytes)
            with contextlib.redirect_stdout(stdout):
                kernel(slots.ctypes.data, begin, end, scratch.address, store.address)
            scratch.check("its scratch")
            store.check("its store")
        places.take_back()
        self.printed = stdout.getvalue().splitlines()
        if control[0]:
            site = info.assert_sites[int(control[0]) - 1]
            raise DeviceAssertionError(f"{site.message} in {tuple(control[1:4].tolist())}")

    def _load(self, obj: bytes, info: KernelInfo) -> int:
        imports = {"deuteron_print": print_callback(info.print_sites)}
        if self.target is None or "windows" not in self.target.triple:
            return load_object(obj, [info.name], imports)[info.name]
        return callable_here(load_object(obj, [info.name], windows_imports())[info.name])


def _slot(places: ArrayPlaces, parameter: Value, arg: Arg) -> bytes:
    """The 8 bytes of one argument in the kernel's argument block."""
    if isinstance(arg, np.ndarray | View):
        return struct.pack("<Q", places.address_of(arg))
    if parameter.type.is_pointer:
        return struct.pack("<Q", arg)
    dtype: DType = parameter.type.dtype
    if dtype == float32:
        return struct.pack("<f4x", arg)
    if dtype == float64:
        return struct.pack("<d", arg)
    return struct.pack("<Q" if dtype.is_int_unsigned() else "<q", int(arg))
