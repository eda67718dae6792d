"""Running a function of the tile IR on a GPU, with the interface of `tests.oracle.runners`."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from ctypes import c_size_t, c_uint64, c_void_p
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from deuteron.backends.cuda.compiler import compile_function
from deuteron.backends.cuda.driver import Device, driver, load_library
from deuteron.backends.cuda.kernel_info import KernelInfo
from deuteron.backends.cuda.launcher import launch, load_kernel
from deuteron.backends.cuda.target import CudaTarget
from deuteron.ir import Function
from tests.oracle.kernels import Arg, Grid, View
from tests.oracle.runners import GARBAGE, GUARD_BYTES, Arena, ArrayPlaces

DEFAULT_STREAM = 0


class DeviceArena(Arena):
    """`size` bytes of the GPU's memory between two guards; `inside` is the host's copy of them.

    Without guards the allocation ends where the array does, for a memory checker to see.
    """

    def __init__(self, size: int, device: Device, guard_bytes: int = GUARD_BYTES) -> None:
        self._device, self._guard = device, guard_bytes
        self._bytes = np.full(size + 2 * guard_bytes, GARBAGE, np.uint8)
        self.inside = self._bytes[guard_bytes : guard_bytes + size]
        self._base = device.allocate(max(1, self._bytes.size))
        self.address = self._base + guard_bytes

    def upload(self) -> None:
        """Bring the host's bytes, guards included, to the GPU."""
        _copy_to_device()(self._base, self._bytes.ctypes.data, self._bytes.size)

    def download(self) -> None:
        """Bring the GPU's bytes to the host, and free them there."""
        if self._bytes.size:
            read = self._device.read(self._base, self._bytes.size)
            self._bytes[:] = np.frombuffer(read, np.uint8)
        self._device.free(self._base)

    def check(self, what: str) -> None:
        """Fail when a guard was written."""
        end = self._guard + self.inside.size
        around = np.concatenate((self._bytes[: self._guard], self._bytes[end:]))
        assert (around == GARBAGE).all(), f"the kernel wrote outside of {what}"


class CudaRunner:
    """Compiles a function for the GPU, loads it through the driver and launches it once.

    Products and sums are rounded each on its own, as the interpreter does.
    """

    def __init__(self, num_warps: int = 4, guard_bytes: int = GUARD_BYTES) -> None:
        self.num_warps = num_warps
        self.guard_bytes = guard_bytes
        self.device = driver().device(0)
        self.printed: list[str] = []

    def run(self, function: Function, args: Sequence[Arg], grid: Grid) -> None:
        target = CudaTarget.of_capability(*self.device.capability)
        function = replace(function, attrs={**function.attrs, "enable_fp_fusion": False})
        image = compile_function(function, target, num_warps=self.num_warps)
        kernel = load_kernel(image.obj, KernelInfo.from_json(image.metadata), self.device)
        arenas: list[DeviceArena] = []

        def place(size: int) -> Arena:
            arenas.append(DeviceArena(size, self.device, self.guard_bytes))
            return arenas[-1]

        with self.device.current():
            places = ArrayPlaces(place)
            values = [places.address_of(a) if is_array(a) else a for a in args]
            for arena in arenas:
                arena.upload()
            with captured_stdout() as lines:
                launch(kernel, grid, values, DEFAULT_STREAM)
                self.device.driver.call("cuStreamSynchronize", None, doing=function.name)
            for arena in arenas:
                arena.download()
        self.printed = lines
        places.take_back()


def is_array(arg: Arg) -> bool:
    """True for what is passed by its address."""
    return isinstance(arg, np.ndarray | View)


@contextmanager
def captured_stdout() -> Generator[list[str]]:
    """The lines that C code writes to this process's standard output, after the block."""
    lines: list[str] = []
    sys.stdout.flush()
    own = os.dup(1)
    with tempfile.TemporaryFile("w+") as file:
        os.dup2(file.fileno(), 1)
        try:
            yield lines
        finally:
            ctypes.CDLL(None).fflush(None)
            os.dup2(own, 1)
            os.close(own)
            file.seek(0)
            lines += file.read().splitlines()


@cache
def _copy_to_device() -> Any:
    """The driver's copy from host to device, which the package itself never needs."""
    function = load_library().cuMemcpyHtoD_v2
    function.argtypes, function.restype = (c_uint64, c_void_p, c_size_t), _require_success
    return function


def _require_success(status: int) -> None:
    if status:
        raise RuntimeError("; ".join(driver().describe(status)))
