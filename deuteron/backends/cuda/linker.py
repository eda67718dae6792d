"""PTX to machine code: the driver's own compiler, and the disk cache behind it.

The driver compiles PTX in 20 to 250 ms.  Its linker hands the result out, so that the next process
finds it beside the PTX in the object cache; what it refuses is left to the driver's loader.

It spends registers freely.  A kernel that leaves the choice open, and of which a multiprocessor
then holds few programs, is compiled again with a limit; that code is kept if nothing spills for it.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from ctypes import byref, c_size_t, c_void_p
from dataclasses import dataclass

from deuteron.backends.cpu import native
from deuteron.backends.cuda import driver as cuda
from deuteron.backends.cuda.driver import Device, JitOptions
from deuteron.backends.cuda.failures import old_driver_for_ptx
from deuteron.backends.cuda.kernel_info import KernelInfo
from deuteron.backends.cuda.occupancy import Multiprocessor
from deuteron.backends.llvm import object_cache
from deuteron.errors import DeviceError, InternalError

_INPUT_PTX = 1
_PTX_VERSION = re.compile(rb"^\s*\.version\s+(\S+)", re.MULTILINE)
_THREADS = re.compile(rb"^\.maxntid.*$", re.MULTILINE)
_NOT_UNDERSTOOD = ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "CUDA_ERROR_INVALID_PTX")
_UNKNOWN_VERSION = "Unsupported .version"
_LOG_LINES = 12


@dataclass(frozen=True, slots=True)
class Module:
    """A loaded module's handle, and its machine code where the driver gave it out."""

    handle: int
    cubin: bytes


def load_ptx(ptx: bytes, info: KernelInfo, device: Device) -> Module:
    """Compile a kernel's PTX for a GPU and load it there; in `with device.current()`.

    Raises DeviceError for a driver older than the PTX, InternalError with the compiler's log for
    PTX that it rejects.
    """
    key = _key(ptx, info, device)
    stored = object_cache.load(key)
    if stored is not None:
        return _load(stored.obj, ptx, info.name, device)
    native.load_in_background()  # the driver is busy for longer than this takes
    try:
        cubin = _link(ptx, device)
    except DeviceError:
        return _load(b"", ptx, info.name, device)
    module = _load(cubin, ptx, info.name, device)
    if info.registers_open:
        module = _for_more_programs(module, ptx, info, device)
    object_cache.store(key, {}, module.cubin)
    return module


def _key(ptx: bytes, info: KernelInfo, device: Device) -> str:
    """What machine code depends on."""
    major, minor = device.capability
    digest = hashlib.sha256(ptx).hexdigest()
    made = f"cubin {digest} for {major}.{minor} by driver {device.driver.version}"
    return f"{made} beside {info.shared_bytes} bytes" if info.registers_open else made


def _load(cubin: bytes, ptx: bytes, kernel: str, device: Device) -> Module:
    """Load machine code, or PTX where the driver gave none out."""
    options = JitOptions()
    try:
        handle = device.load_module(cubin or ptx, options, f"kernel {kernel}")
    except DeviceError as error:
        raise _not_loaded(error, options.log, ptx, kernel, device) from error
    return Module(handle, cubin)


def _for_more_programs(module: Module, ptx: bytes, info: KernelInfo, device: Device) -> Module:
    """The module, or one in its place of which a multiprocessor holds more programs."""
    function = device.find_function(module.handle, info.name)
    if device.function_attribute(function, cuda.FUNCTION_LOCAL_BYTES):
        return module  # it lacks registers as it is
    registers = device.function_attribute(function, cuda.FUNCTION_REGISTERS)
    room = Multiprocessor.of(device)
    for limit in room.register_limits(info.num_warps, info.shared_bytes, registers):
        limited = _THREADS.sub(rb"\g<0>\n.maxnreg %d" % limit, ptx)
        tried = _load(_link(limited, device), limited, info.name, device)
        function = device.find_function(tried.handle, info.name)
        fits = not device.function_attribute(function, cuda.FUNCTION_LOCAL_BYTES)
        device.unload_module(module.handle if fits else tried.handle)
        if fits:
            return tried
    return module


def _link(ptx: bytes, device: Device) -> bytes:
    driver, options, state = device.driver, JitOptions(), c_void_p()
    driver.call("cuLinkCreate_v2", *options.arguments, byref(state))
    try:
        driver.call(
            "cuLinkAddData_v2", state, _INPUT_PTX, ptx, len(ptx), b"kernel.ptx", 0, None, None
        )
        address, size = c_void_p(), c_size_t()
        driver.call("cuLinkComplete", state, byref(address), byref(size))
        return ctypes.string_at(address.value or 0, size.value)  # it is the linker's: copied
    finally:
        driver.call("cuLinkDestroy", state)


def _not_loaded(
    error: DeviceError, log: str, ptx: bytes, kernel: str, device: Device
) -> DeviceError | InternalError:
    if error.code not in _NOT_UNDERSTOOD:
        return error
    if error.code == _NOT_UNDERSTOOD[0] or _UNKNOWN_VERSION in log:
        version = _PTX_VERSION.search(ptx)
        shown = version.group(1).decode() if version else "of this version"
        return old_driver_for_ptx(kernel, shown, device.driver.version, error.code)
    lines = log.splitlines()[:_LOG_LINES] or [error.code]
    shown = "\n            ".join(lines)
    return InternalError(
        f"kernel {kernel}: the GPU's driver rejected generated code\n"
        "  expected: valid PTX\n"
        f"  got:      {shown}\n"
        "  remedy:   this is a defect of deuteron; please report it with the kernel's source"
    )
