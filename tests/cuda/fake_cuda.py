"""A stand-in for NVIDIA's driver library, and arrays on its GPUs.

`FakeCuda` has the functions of libcuda that are used, as C functions that Python carries out: what
the driver class and machine code call is checked without a card.  It keeps contexts, modules and
memory as the real one would as far as callers can tell, records launches, and fails on demand.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable
from ctypes import CFUNCTYPE, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deuteron.backends.cuda.driver import PROTOTYPES

SUCCESS, INVALID_VALUE, NOT_FOUND = 0, 1, 500
ILLEGAL_ADDRESS = 700
ERRORS = {
    1: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    3: ("CUDA_ERROR_NOT_INITIALIZED", "initialization error"),
    100: ("CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"),
    101: ("CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"),
    218: ("CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"),
    222: ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with ..."),
    500: ("CUDA_ERROR_NOT_FOUND", "named symbol not found"),
    700: ("CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
    701: ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"),
    716: ("CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"),
    900: ("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is ..."),
}
H200 = {
    1: 1024, 8: 49_152, 12: 65_536, 16: 132, 38: 62_914_560, 39: 2048, 75: 9, 76: 0, 81: 233_472,
    82: 65_536, 97: 232_448, 106: 32, 111: 1024,
}  # fmt: skip
_SIZES = {"u64": 8, "b64": 8, "f64": 8, "u32": 4, "b32": 4, "f32": 4, "b16": 2, "u16": 2, "u8": 1}
_LIMIT = re.compile(r"^\.maxnreg (\d+)$", re.MULTILINE)
_ENTRY = re.compile(r"\.entry (\w+)\((.*?)\)", re.DOTALL)


@dataclass
class Launch:
    """One launch: arguments are the bytes that the kernel would see."""

    kernel: str
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    stream: int
    arguments: list[bytes]
    context: int


@dataclass
class FakeCuda:
    """libcuda with `device_count` GPUs of the given attributes.

    Kernels have `function_attributes`, and spill where a limit gives them fewer registers than
    `least_registers`.  `fail` gives the status that a function returns from now on.  `on_launch` is
    called with each launch, and may write to the memory that `memory` shows by address.
    """

    device_count: int = 1
    attributes: dict[int, int] = field(default_factory=lambda: dict(H200))
    function_attributes: dict[int, int] = field(default_factory=lambda: {0: 1024, 3: 0, 4: 40})
    least_registers: int = 0
    version: int = 13_000
    log: str = ""

    def __post_init__(self) -> None:
        self.calls: list[str] = []
        self.launches: list[Launch] = []
        self.fail: dict[str, int] = {}
        self.capturing: set[int] = set()
        self.memory: dict[int, Any] = {}
        self.shared_permitted: dict[int, int] = {}
        self.capture_mode = 0
        self.on_launch: Callable[[Launch], object] = lambda launch: None
        self.problems: list[BaseException] = []
        self._stacks: dict[int, list[int]] = {}
        self._images: list[str] = []
        self._links: dict[int, str] = {}
        self._kept: list[Any] = []
        for name, parameters in PROTOTYPES.items():
            if hasattr(self, f"_{name}"):
                setattr(self, name, CFUNCTYPE(c_int, *parameters)(self._guarded(name)))

    def _guarded(self, name: str) -> Callable[..., int]:
        """A function that never raises into C, and counts its calls."""

        def function(*arguments: Any) -> int:
            self.calls.append(name)
            try:
                if name in self.fail:
                    if name == "cuModuleLoadDataEx":
                        self._write_log(*arguments[2:])
                    return self.fail[name]
                return getattr(self, f"_{name}")(*arguments) or SUCCESS
            except BaseException as error:
                self.problems.append(error)
                return 999

        return function

    @property
    def stack(self) -> list[int]:
        """The calling thread's contexts."""
        return self._stacks.setdefault(threading.get_ident(), [])

    # -- driver and devices -------------------------------------------------------------------
    def _cuInit(self, flags: int) -> None:
        pass

    def _cuDriverGetVersion(self, out: Any) -> None:
        out[0] = self.version

    def _cuGetErrorName(self, status: int, out: Any) -> int:
        return self._text(status, 0, out)

    def _cuGetErrorString(self, status: int, out: Any) -> int:
        return self._text(status, 1, out)

    def _text(self, status: int, which: int, out: Any) -> int:
        if status not in ERRORS:
            return INVALID_VALUE
        self._kept.append(ctypes.create_string_buffer(ERRORS[status][which].encode()))
        place = ctypes.cast(out, ctypes.POINTER(c_void_p))
        place[0] = ctypes.addressof(self._kept[-1])
        return SUCCESS

    def _cuDeviceGetCount(self, out: Any) -> None:
        out[0] = self.device_count

    def _cuDeviceGet(self, out: Any, ordinal: int) -> int:
        out[0] = ordinal
        return SUCCESS if 0 <= ordinal < self.device_count else 101

    def _cuDeviceGetName(self, out: Any, size: int, device: int) -> None:
        ctypes.memmove(out, b"NVIDIA H200\0", 12)

    def _cuDeviceTotalMem_v2(self, out: Any, device: int) -> None:
        out[0] = 150_000_000_000

    def _cuDeviceGetAttribute(self, out: Any, number: int, device: int) -> None:
        out[0] = self.attributes[number]

    def _cuPointerGetAttribute(self, out: int, number: int, address: int) -> None:
        assert number == 9
        c_int.from_address(out).value = device_at(address)

    # -- contexts ---------------------------------------------------------------------------
    def _cuDevicePrimaryCtxRetain(self, out: Any, device: int) -> None:
        out[0] = context_of(device)

    def _cuCtxGetCurrent(self, out: Any) -> None:
        out[0] = self.stack[-1] if self.stack else None

    def _cuCtxPushCurrent_v2(self, context: int) -> None:
        self.stack.append(context)

    def _cuCtxPopCurrent_v2(self, out: Any) -> None:
        out[0] = self.stack.pop()

    def _cuThreadExchangeStreamCaptureMode(self, mode: Any) -> None:
        mode[0], self.capture_mode = self.capture_mode, mode[0]

    def _cuStreamIsCapturing(self, stream: int | None, out: Any) -> None:
        out[0] = int((stream or 0) in self.capturing)

    def _cuStreamSynchronize(self, stream: int | None) -> None:
        pass

    # -- code -------------------------------------------------------------------------------
    def _cuLinkCreate_v2(self, count: int, keys: Any, values: Any, out: Any) -> None:
        assert self.stack
        out[0] = 0xA000 + len(self._links)
        self._write_log(count, keys, values)

    def _cuLinkAddData_v2(
        self, state: int, kind: int, data: bytes, size: int, name: bytes, *options: Any
    ) -> None:
        assert kind == 1
        assert len(data) == size
        self._links[state] = data.decode()

    def _cuLinkComplete(self, state: int, out: Any, size: Any) -> None:
        cubin = f"cubin of {self._links[state]}".encode()
        self._kept.append(ctypes.create_string_buffer(cubin))
        out[0], size[0] = ctypes.addressof(self._kept[-1]), len(cubin)

    def _cuLinkDestroy(self, state: int) -> None:
        self._links.pop(state, None)

    def _cuModuleLoadDataEx(
        self, out: Any, image: bytes, count: int, keys: Any, values: Any
    ) -> None:
        assert self.stack
        self._images.append(image.decode())
        self._write_log(count, keys, values)
        out[0] = len(self._images)

    def _write_log(self, count: int, keys: Any, values: Any) -> None:
        options = {keys[i]: values[i] for i in range(count)}
        ctypes.memmove(options[5], self.log.encode() + b"\0", len(self.log) + 1)

    def _cuModuleUnload(self, module: int) -> None:
        assert self._images[module - 1]
        self._images[module - 1] = ""

    def _cuModuleGetFunction(self, out: Any, module: int, name: bytes) -> int:
        found = _ENTRY.search(self._images[module - 1])
        if found is None or found.group(1) != name.decode():
            return NOT_FOUND
        out[0] = module  # a module has one kernel
        return SUCCESS

    def _cuFuncGetAttribute(self, out: Any, number: int, function: int) -> None:
        out[0] = self.function_attributes[number]
        limited = _LIMIT.search(self._images[function - 1])
        if limited is not None and number == 4:
            out[0] = min(out[0], int(limited.group(1)))
        if limited is not None and number == 3 and int(limited.group(1)) < self.least_registers:
            out[0] += 8

    def _cuFuncSetAttribute(self, function: int, number: int, value: int) -> None:
        assert number == 8
        self.shared_permitted[function] = value

    def _cuLaunchKernel(self, function: int, *rest: Any) -> int:
        x, y, z, threads, block_y, block_z, shared_bytes, stream, pointers, extra = rest
        assert (block_y, block_z, bool(extra)) == (1, 1, False)
        if y > 65_535 or z > 65_535:
            return INVALID_VALUE
        found = _ENTRY.search(self._images[function - 1])
        assert found is not None
        sizes = [_SIZES[kind] for kind in re.findall(r"\.param \.(\w+)", found.group(2))]
        arguments = [ctypes.string_at(pointers[i], size) for i, size in enumerate(sizes)]
        context = self.stack[-1] if self.stack else 0
        launch = Launch(
            found.group(1), (x, y, z), threads, shared_bytes, stream or 0, arguments, context
        )
        self.launches.append(launch)
        self.on_launch(launch)
        return SUCCESS

    # -- memory and time --------------------------------------------------------------------
    def _cuMemAlloc_v2(self, out: Any, size: int) -> None:
        buffer = ctypes.create_string_buffer(size)
        out[0] = ctypes.addressof(buffer)
        self.memory[out[0]] = buffer

    def _cuMemFree_v2(self, address: int) -> None:
        del self.memory[address]

    def _cuMemsetD8_v2(self, address: int, value: int, size: int) -> None:
        ctypes.memset(address, value, size)

    def _cuMemsetD8Async(self, address: int, value: int, size: int, stream: int) -> None:
        assert address in self.memory

    def _cuMemcpyDtoH_v2(self, to: int, address: int, size: int) -> None:
        ctypes.memmove(to, address, size)

    def _cuEventCreate(self, out: Any, flags: int) -> None:
        out[0] = 0xE000 + len(self.calls)

    def _cuEventRecord(self, event: int, stream: int) -> None:
        pass

    def _cuEventSynchronize(self, event: int) -> None:
        pass

    def _cuEventElapsedTime(self, out: Any, start: int, end: int) -> None:
        out[0] = 0.25

    def _cuEventDestroy_v2(self, event: int) -> None:
        pass


def context_of(ordinal: int) -> int:
    """The primary context of a GPU."""
    return 0xC000 + ordinal


def device_at(address: int) -> int:
    """The GPU whose memory an address belongs to."""
    return address >> 40


# -- arrays -------------------------------------------------------------------------------------
class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", c_uint64),
        ("device_type", c_int32),
        ("device", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("byte_offset", c_uint64),
    ]


class _Exchange(ctypes.Structure):
    """DLPackExchangeAPI, version 1."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", c_void_p),
        ("functions", c_void_p * 3),
        ("dltensor", c_void_p),
        ("work_stream", c_void_p),
    ]


_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
CURRENT_STREAMS: dict[int, int] = {}
"""The current stream of each GPU, as the library of `GpuArray` says."""


@CFUNCTYPE(c_int, ctypes.py_object, ctypes.POINTER(_Tensor))
def _exchange(array: Any, out: Any) -> int:
    tensor, dtype = out[0], array.dtype
    tensor.data, tensor.device_type, tensor.device = array.address, 2, array.device
    tensor.ndim, tensor.lanes = len(array.shape), 1
    tensor.code, tensor.bits = _CODES[dtype.kind], dtype.itemsize * 8
    tensor.shape = ctypes.addressof(array.sizes)
    tensor.strides = ctypes.addressof(array.steps)
    tensor.byte_offset = 0
    return 0


@CFUNCTYPE(c_int, c_int, c_int32, ctypes.POINTER(c_void_p))
def _work_stream(device_type: int, device: int, out: Any) -> int:
    assert device_type == 2
    out[0] = CURRENT_STREAMS.get(device) or None
    return 0


_API = _Exchange(
    1, 1, None, (c_void_p * 3)(), ctypes.cast(_exchange, c_void_p).value or 0,
    ctypes.cast(_work_stream, c_void_p).value or 0,
)  # fmt: skip
_CAPSULE_NAME = b"dlpack_exchange_api"  # a capsule keeps its address only
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (c_void_p, ctypes.c_char_p, c_void_p)


class GpuArray:
    """An array on a GPU: only its address is real.  It has the CUDA array interface, and DLPack's C
    exchange API, by which machine code reads it once the type is registered.
    """

    __dlpack_c_exchange_api__ = _new_capsule(ctypes.addressof(_API), _CAPSULE_NAME, None)
    _next = 1 << 20

    def __init__(
        self,
        shape: tuple[int, ...] = (64,),
        dtype: Any = np.float32,
        device: int = 0,
        address: int | None = None,
        stream: int | None = None,
        read_only: bool = False,
    ) -> None:
        self.shape, self.dtype, self.device = shape, np.dtype(dtype), device
        if address is None:
            GpuArray._next += 1 << 16
            address = GpuArray._next
        self.address = address + (device << 40)
        self.stream, self.read_only = stream, read_only
        strides = np.zeros(shape, dtype).strides
        self.sizes = (c_int64 * len(shape))(*shape)
        self.steps = (c_int64 * len(shape))(*(s // self.dtype.itemsize for s in strides))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "data": (self.address, self.read_only),
            "typestr": self.dtype.str,
            "shape": self.shape,
            "strides": None,
            "version": 3,
            "stream": self.stream,
        }
