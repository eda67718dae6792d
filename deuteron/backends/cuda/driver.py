"""NVIDIA's driver library, libcuda, through ctypes.

It comes with the driver, so that neither a toolkit nor a compiler is needed.  `Driver` calls its
functions and raises what they report; `Device` is one GPU.  The library is loaded, and a GPU's
context made, when first asked for.

The primary context of a device is used, which is the one that torch, CuPy and JAX use.  Calls that
need it run in `with device.current()`: whatever context the calling thread had comes back
afterwards.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from ctypes import (
    POINTER,
    byref,
    c_char,
    c_char_p,
    c_float,
    c_int,
    c_size_t,
    c_ubyte,
    c_uint,
    c_uint64,
    c_void_p,
)
from functools import cached_property
from typing import Any, Final

from deuteron.backends.cuda.failures import driver_failure, no_driver, old_driver
from deuteron.errors import DeviceError

LIBRARY_NAMES = {
    "win32": ("nvcuda.dll",),
    "linux": ("libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1"),
}
"""Where the driver is looked for, by system."""

_HANDLE = c_void_p
_OUT_HANDLE = POINTER(c_void_p)
PROTOTYPES: Final[dict[str, tuple[Any, ...]]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (POINTER(c_char), c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (_OUT_HANDLE, c_int),
    "cuCtxGetCurrent": (_OUT_HANDLE,),
    "cuCtxPushCurrent_v2": (_HANDLE,),
    "cuCtxPopCurrent_v2": (_OUT_HANDLE,),
    "cuThreadExchangeStreamCaptureMode": (POINTER(c_int),),
    "cuLinkCreate_v2": (c_uint, POINTER(c_int), POINTER(c_void_p), _OUT_HANDLE),
    "cuLinkAddData_v2": (
        _HANDLE, c_int, c_char_p, c_size_t, c_char_p, c_uint, POINTER(c_int), POINTER(c_void_p),
    ),
    "cuLinkComplete": (_HANDLE, _OUT_HANDLE, POINTER(c_size_t)),
    "cuLinkDestroy": (_HANDLE,),
    "cuModuleLoadDataEx": (_OUT_HANDLE, c_char_p, c_uint, POINTER(c_int), POINTER(c_void_p)),
    "cuModuleUnload": (_HANDLE,),
    "cuModuleGetFunction": (_OUT_HANDLE, _HANDLE, c_char_p),
    "cuFuncGetAttribute": (POINTER(c_int), c_int, _HANDLE),
    "cuFuncSetAttribute": (_HANDLE, c_int, c_int),
    "cuLaunchKernel": (
        _HANDLE, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, _HANDLE,
        POINTER(c_void_p), POINTER(c_void_p),
    ),
    "cuStreamIsCapturing": (_HANDLE, POINTER(c_int)),
    "cuStreamSynchronize": (_HANDLE,),
    "cuEventCreate": (_OUT_HANDLE, c_uint),
    "cuEventRecord": (_HANDLE, _HANDLE),
    "cuEventSynchronize": (_HANDLE,),
    "cuEventElapsedTime": (POINTER(c_float), _HANDLE, _HANDLE),
    "cuEventDestroy_v2": (_HANDLE,),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemsetD8_v2": (c_uint64, c_ubyte, c_size_t),
    "cuMemsetD8Async": (c_uint64, c_ubyte, c_size_t, _HANDLE),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
    "cuPointerGetAttribute": (c_void_p, c_int, c_uint64),
}  # fmt: skip
"""The functions used, with their parameters; all of them return a status, 0 for success."""

# CUdevice_attribute
THREADS_PER_BLOCK = 1
SHARED_BYTES_BY_DEFAULT = 8
REGISTERS_PER_BLOCK = 12
MULTIPROCESSORS = 16
L2_BYTES = 38
THREADS_PER_MULTIPROCESSOR = 39
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76
SHARED_BYTES_PER_MULTIPROCESSOR = 81
REGISTERS_PER_MULTIPROCESSOR = 82
SHARED_BYTES_AT_MOST = 97
BLOCKS_PER_MULTIPROCESSOR = 106
SHARED_BYTES_RESERVED = 111
# CUfunction_attribute
FUNCTION_THREADS = 0
FUNCTION_LOCAL_BYTES = 3
FUNCTION_REGISTERS = 4
FUNCTION_DYNAMIC_SHARED_BYTES = 8

_POINTER_DEVICE_ORDINAL = 9
_CAPTURE_MODE_RELAXED = 2
_NAME_BYTES = 256


class Driver:
    """The driver's functions.  `library` is libcuda, or anything that has the same functions.

    Making one initialises CUDA.  Raises DeviceError when there is no GPU.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._functions: dict[str, Any] = {}
        self._devices: dict[int, Device] = {}
        self._lock = threading.Lock()
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any, doing: str = "") -> None:
        """Call a function of PROTOTYPES.  Raises DeviceError for any status but success.

        `doing` begins the message; the function's name, if it is left out.
        """
        status = self.function(name)(*arguments)
        if status:
            raise driver_failure(doing or name, *self.describe(status))

    def function(self, name: str) -> Any:
        """A function of PROTOTYPES, which returns a status."""
        found = self._functions.get(name)
        if found is None:
            try:
                found = getattr(self._library, name)
            except AttributeError as error:
                raise old_driver(name, f"a driver without {name}") from error
            found.argtypes, found.restype = PROTOTYPES[name], c_int
            self._functions[name] = found
        return found

    def address(self, name: str) -> int:
        """Where a function of PROTOTYPES is, for machine code."""
        return ctypes.cast(self.function(name), c_void_p).value or 0

    def describe(self, status: int) -> tuple[str, str]:
        """A status's name and the driver's words for it."""
        name, text = c_char_p(), c_char_p()
        self.function("cuGetErrorName")(status, byref(name))
        self.function("cuGetErrorString")(status, byref(text))
        known = (name.value or f"status {status}".encode(), text.value or b"no text")
        return known[0].decode(), known[1].decode()

    @cached_property
    def version(self) -> str:
        """The newest CUDA version that the driver serves, as "13.0"."""
        number = c_int()
        self.call("cuDriverGetVersion", byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    @cached_property
    def device_count(self) -> int:
        count = c_int()
        self.call("cuDeviceGetCount", byref(count))
        return count.value

    def device(self, ordinal: int) -> Device:
        """The GPU of that number, always the same object.  Raises DeviceError when it is not."""
        with self._lock:
            found = self._devices.get(ordinal)
            if found is None:
                found = self._devices[ordinal] = Device(self, ordinal)
            return found

    def device_in_use(self) -> Device | None:
        """The first GPU whose context was asked for, if any."""
        with self._lock:
            return next((device for device in self._devices.values() if device.is_used), None)

    def device_of(self, address: int) -> int:
        """The number of the GPU on which an address lies."""
        ordinal = c_int()
        self.call(
            "cuPointerGetAttribute", byref(ordinal), _POINTER_DEVICE_ORDINAL, address,
            doing=f"where the address {address:#x} lies",
        )  # fmt: skip
        return ordinal.value

    @contextmanager
    def capture_permitted(self) -> Generator[None]:
        """Let this thread load code and take memory while some stream is being captured."""
        mode = c_int(_CAPTURE_MODE_RELAXED)
        self.call("cuThreadExchangeStreamCaptureMode", byref(mode))
        try:
            yield
        finally:
            self.call("cuThreadExchangeStreamCaptureMode", byref(mode))

    def is_capturing(self, stream: int) -> bool:
        """True while what is launched on a stream is recorded into a graph instead of run."""
        status = c_int()
        self.call("cuStreamIsCapturing", stream, byref(status))
        return bool(status.value)


class Device:
    """One GPU.  Nothing but `context` and what needs it costs time or memory there."""

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.driver = driver
        self.ordinal = ordinal
        handle = c_int()
        driver.call("cuDeviceGet", byref(handle), ordinal, doing=f"GPU {ordinal}")
        self._handle = handle.value
        self._attributes: dict[int, int] = {}
        self._lock = threading.Lock()
        self._context = 0

    def __repr__(self) -> str:
        return f"Device(cuda:{self.ordinal}, {self.name})"

    @cached_property
    def name(self) -> str:
        """The maker's name of the GPU."""
        buffer = ctypes.create_string_buffer(_NAME_BYTES)
        self.driver.call("cuDeviceGetName", buffer, _NAME_BYTES, self._handle)
        return buffer.value.decode()

    @cached_property
    def memory_bytes(self) -> int:
        size = c_size_t()
        self.driver.call("cuDeviceTotalMem_v2", byref(size), self._handle)
        return size.value

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability: (9, 0) for Hopper."""
        return self.attribute(CAPABILITY_MAJOR), self.attribute(CAPABILITY_MINOR)

    def attribute(self, number: int) -> int:
        """A property by its number in CUdevice_attribute."""
        found = self._attributes.get(number)
        if found is None:
            value = c_int()
            self.driver.call("cuDeviceGetAttribute", byref(value), number, self._handle)
            found = self._attributes[number] = value.value
        return found

    # -- context ------------------------------------------------------------------------------
    @property
    def context(self) -> int:
        """The primary context, retained for the life of the process."""
        with self._lock:
            if not self._context:
                context = c_void_p()
                self.driver.call(
                    "cuDevicePrimaryCtxRetain", byref(context), self._handle,
                    doing=f"GPU {self.ordinal}",
                )  # fmt: skip
                self._context = context.value or 0
            return self._context

    @property
    def is_used(self) -> bool:
        """True once something asked for the context."""
        return bool(self._context)

    @contextmanager
    def current(self, doing: str = "") -> Generator[None]:
        """Have the calling thread use this GPU; `doing` begins the message when it cannot."""
        self.driver.call("cuCtxPushCurrent_v2", self.context, doing=doing)
        try:
            yield
        finally:
            self.driver.call("cuCtxPopCurrent_v2", byref(c_void_p()))

    # -- code; in `with current()` ------------------------------------------------------------
    def load_module(self, image: bytes, options: JitOptions | None = None, doing: str = "") -> int:
        """Load a cubin, or compile and load PTX, for the life of the process.

        `options` take the compiler's log.  Raises DeviceError.
        """
        module = c_void_p()
        self.driver.call(
            "cuModuleLoadDataEx", byref(module), image, *(options or JitOptions()).arguments,
            doing=doing,
        )  # fmt: skip
        return module.value or 0

    def unload_module(self, module: int) -> None:
        """Take a module back whose kernels were never launched."""
        self.driver.call("cuModuleUnload", module)

    def find_function(self, module: int, name: str) -> int:
        function = c_void_p()
        self.driver.call("cuModuleGetFunction", byref(function), module, name.encode())
        return function.value or 0

    def function_attribute(self, function: int, number: int) -> int:
        """A property of a kernel by its number in CUfunction_attribute."""
        value = c_int()
        self.driver.call("cuFuncGetAttribute", byref(value), number, function)
        return value.value

    # -- memory; in `with current()` ----------------------------------------------------------
    def allocate(self, size_bytes: int) -> int:
        """The address of new memory on the GPU, zeroed."""
        address = c_uint64()
        self.driver.call("cuMemAlloc_v2", byref(address), size_bytes)
        self.driver.call("cuMemsetD8_v2", address.value, 0, size_bytes)
        return address.value

    def free(self, address: int) -> None:
        self.driver.call("cuMemFree_v2", address)

    def read(self, address: int, size_bytes: int) -> bytes:
        """Bytes of the GPU's memory; waits for the legacy default stream."""
        buffer = ctypes.create_string_buffer(size_bytes)
        self.driver.call("cuMemcpyDtoH_v2", buffer, address, size_bytes)
        return buffer.raw


class JitOptions:
    """Options of the driver's compiler, and the log that it writes."""

    _INFO_LOG, _INFO_LOG_BYTES, _ERROR_LOG, _ERROR_LOG_BYTES, _LINE_INFO = 3, 4, 5, 6, 13
    _LOG_BYTES = 1 << 14

    def __init__(self) -> None:
        self._error_log = ctypes.create_string_buffer(self._LOG_BYTES)
        self._info_log = ctypes.create_string_buffer(self._LOG_BYTES)
        values: dict[int, int] = {
            self._INFO_LOG: ctypes.addressof(self._info_log),
            self._INFO_LOG_BYTES: self._LOG_BYTES,
            self._ERROR_LOG: ctypes.addressof(self._error_log),
            self._ERROR_LOG_BYTES: self._LOG_BYTES,
            self._LINE_INFO: 1,
        }
        self._keys = (c_int * len(values))(*values)
        self._values = (c_void_p * len(values))(*values.values())

    @property
    def arguments(self) -> tuple[Any, Any, Any]:
        """Their count, keys and values, as the driver takes them."""
        return len(self._keys), self._keys, self._values

    @property
    def log(self) -> str:
        """What the compiler complained about."""
        buffers = (self._error_log, self._info_log)
        texts = [buffer.value.decode(errors="replace").strip() for buffer in buffers]
        return "\n".join(filter(None, texts))


def load_library(names: Iterable[str] | None = None) -> Any:
    """The driver's library, by the first of `names` that can be loaded.

    Raises DeviceError when none can, or when this system never has one.
    """
    known = LIBRARY_NAMES.get(sys.platform, ()) if names is None else names
    problems: list[str] = []
    for name in known:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            problems.append(str(error))
    raise no_driver(problems[0] if problems else f"a system without one, {sys.platform}")


_DRIVERS: dict[str, Driver] = {}  # the one of this process, once loaded


def driver() -> Driver:
    """The driver of this machine.  Raises DeviceError when there is none, or no GPU."""
    if made := _DRIVERS.get("cuda"):
        return made
    return _DRIVERS.setdefault("cuda", Driver(load_library()))


def driver_problem() -> str:
    """Why GPUs cannot be used here, in a line; empty when they can."""
    try:
        count = driver().device_count
    except DeviceError as error:
        lines = error.error_message.split("\n")
        got = [line for line in lines if line.startswith("  got:")]
        return f"{lines[0]}: {got[0].removeprefix('  got:').strip()}" if got else lines[0]
    return "" if count else "the NVIDIA driver sees no GPU"


def device_in_use() -> Device | None:
    """A GPU whose context this package has asked for, if any."""
    made = _DRIVERS.get("cuda")
    return made.device_in_use() if made else None
