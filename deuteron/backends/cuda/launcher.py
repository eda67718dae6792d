"""Launching a compiled kernel on a GPU: loading it, the plain way, and how machine code does it.

A launch only puts work on a stream.  What goes wrong while the kernel runs comes to light later, in
another call; two things wait for the kernel instead: DEUTERON_CUDA_SYNC, and kernels that check
`device_assert`, whose control block is read after each launch.
"""

from __future__ import annotations

import ctypes
import math
import struct
import threading
from collections.abc import Sequence
from ctypes import c_void_p
from dataclasses import dataclass
from functools import cache
from typing import NoReturn

from deuteron import config
from deuteron.backends.cpu import native
from deuteron.backends.cpu.launcher import CONTROL_BYTES, Entry, failed_assert, slot_bytes
from deuteron.backends.cuda import driver as cuda
from deuteron.backends.cuda import failures
from deuteron.backends.cuda.driver import Device, Driver
from deuteron.backends.cuda.kernel_info import KernelInfo
from deuteron.backends.cuda.launch_ir import CUDA_DRIVER, CUDA_LAUNCH
from deuteron.backends.cuda.linker import load_ptx
from deuteron.backends.cuda.target import WARP_SIZE
from deuteron.errors import DeviceError

Grid = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Control:
    """A kernel's control block in the GPU's memory; one launch at a time may use it."""

    address: int
    lock: threading.Lock


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A kernel in a GPU's memory.

    `registers` are what a thread has, `spilled_bytes` what did not fit in them.  `cubin` is the
    machine code, empty when the driver did not give it out.
    """

    device: Device
    info: KernelInfo
    function: int
    cubin: bytes
    registers: int
    spilled_bytes: int
    control: Control | None

    @property
    def threads(self) -> int:
        """Threads of a program."""
        return WARP_SIZE * self.info.num_warps

    def entry(self, stream: int | None) -> Entry | None:
        """How machine code launches it: on `stream`, or None for the arrays' library to say.

        None when each launch must wait for the kernel.
        """
        if self.control is not None or config.cuda_sync():
            return None
        told = CUDA_LAUNCH.mirror(
            ctypes.addressof(_functions(self.device.driver)),
            self.device.context,
            self.function,
            stream or None,
            stream is not None,
            self.threads,
            self.info.shared_bytes,
        )
        return Entry(native.code().run_on_cuda, told, self.info.params)


def check_threads(kernel: str, num_warps: int, device: Device) -> None:
    """Raise OutOfResources when a program cannot have so many warps."""
    limit = device.attribute(cuda.THREADS_PER_BLOCK)
    if WARP_SIZE * num_warps > limit:
        raise failures.too_many_threads(kernel, num_warps, limit)


def load_kernel(ptx: bytes, info: KernelInfo, device: Device) -> LoadedKernel:
    """Load a kernel's PTX into a GPU, where it stays.

    Raises OutOfResources for a kernel that does not fit there, DeviceError when the driver refuses.
    """
    check_threads(info.name, info.num_warps, device)
    limit = device.attribute(cuda.SHARED_BYTES_AT_MOST)
    if info.shared_bytes > limit:
        raise failures.too_much_shared_memory(info.name, info.shared_bytes, limit)
    with device.current(), device.driver.capture_permitted():
        module = load_ptx(ptx, info, device)
        function = device.find_function(module.handle, info.name)
        registers = device.function_attribute(function, cuda.FUNCTION_REGISTERS)
        threads = WARP_SIZE * info.num_warps
        if threads > device.function_attribute(function, cuda.FUNCTION_THREADS):
            most = device.attribute(cuda.REGISTERS_PER_BLOCK)
            raise failures.too_many_registers(info.name, threads, registers, most)
        _permit_shared_memory(device, function, info.shared_bytes)
        spilled = device.function_attribute(function, cuda.FUNCTION_LOCAL_BYTES)
        control = device.allocate(CONTROL_BYTES) if info.has_control else None
    return LoadedKernel(
        device,
        info,
        function,
        module.cubin,
        registers,
        spilled,
        None if control is None else Control(control, threading.Lock()),
    )


def launch(kernel: LoadedKernel, grid: Grid, values: Sequence[int | float], stream: int) -> None:
    """Put a kernel on a stream: `values` are addresses and numbers, one a parameter.

    Raises LaunchError for a grid that no GPU runs, DeviceError when the driver refuses or an
    earlier kernel failed, and, of kernels that check it, DeviceAssertionError.
    """
    if error := failures.grid_failure(kernel.info.name, grid):
        raise error
    if not math.prod(grid):
        return
    with kernel.device.current(f"kernel {kernel.info.name}"):
        if kernel.control is not None:
            _launch_checked(kernel, kernel.control, grid, values, stream)
        else:
            _enqueue(kernel, grid, values, stream)
            if config.cuda_sync():
                _wait(kernel, stream)


def raise_failure(kernel: LoadedKernel, status: int, grid: Grid) -> NoReturn:
    """Raise what the driver's status of a launch stands for."""
    code, text = kernel.device.driver.describe(status)
    if failures.is_fault(code) and config.cuda_sync():
        raise _own_fault(kernel, code, text)
    raise failures.launch_failure(kernel.info.name, grid, kernel.threads, code, text)


def _launch_checked(
    kernel: LoadedKernel,
    control: Control,
    grid: Grid,
    values: Sequence[int | float],
    stream: int,
) -> None:
    """Launch, wait, and raise the assert that failed.  Under capture nothing is waited for."""
    device = kernel.device
    with control.lock:
        _enqueue(kernel, grid, [*values, control.address], stream)
        if not _wait(kernel, stream):
            return
        block = device.read(control.address, CONTROL_BYTES)
        if any(block):
            device.driver.call("cuMemsetD8_v2", control.address, 0, CONTROL_BYTES)
            raise failed_assert(kernel.info.name, kernel.info.assert_sites, block)


def _enqueue(kernel: LoadedKernel, grid: Grid, values: Sequence[int | float], stream: int) -> None:
    """Call the driver: `values` are the arguments, and behind them the control block's address."""
    params = kernel.info.params
    words = [slot_bytes(*pair) for pair in zip(values, params, strict=False)]
    words += [struct.pack("=Q", value) for value in values[len(params) :]]
    slots = ctypes.create_string_buffer(b"".join(words), 8 * len(words))
    base = ctypes.addressof(slots)
    pointers = (c_void_p * len(words))(*(base + 8 * i for i in range(len(words))))
    status = kernel.device.driver.function("cuLaunchKernel")(
        kernel.function, *grid, kernel.threads, 1, 1, kernel.info.shared_bytes, stream or None,
        pointers, None,
    )  # fmt: skip
    if status:
        raise_failure(kernel, status, grid)


def _wait(kernel: LoadedKernel, stream: int) -> bool:
    """Wait for a stream; False when it is being captured, and nothing runs."""
    driver = kernel.device.driver
    if driver.is_capturing(stream):
        return False
    status = driver.function("cuStreamSynchronize")(stream)
    if status:
        code, text = driver.describe(status)
        if failures.is_fault(code):
            raise _own_fault(kernel, code, text)
        raise failures.driver_failure(f"kernel {kernel.info.name}", code, text)
    return True


def _own_fault(kernel: LoadedKernel, code: str, text: str) -> DeviceError:
    """The error for a fault that is known to be this kernel's."""
    return failures.kernel_fault(f"kernel {kernel.info.name}", code, text, asynchronous=False)


def _permit_shared_memory(device: Device, function: int, shared_bytes: int) -> None:
    """More than a kernel has without asking must be asked for."""
    if shared_bytes > device.attribute(cuda.SHARED_BYTES_BY_DEFAULT):
        number = cuda.FUNCTION_DYNAMIC_SHARED_BYTES
        device.driver.call("cuFuncSetAttribute", function, number, shared_bytes)


@cache
def _functions(driver: Driver) -> ctypes.Structure:
    """The driver's functions as machine code finds them; they stay where they are."""
    names = ("cuLaunchKernel", "cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2")
    return CUDA_DRIVER.mirror(*map(driver.address, names))


def read_grid(details: bytes) -> Grid:
    """The grid that machine code hands to `_after_launch`."""
    first, second, third = struct.unpack_from("=3q", details)
    return first, second, third
