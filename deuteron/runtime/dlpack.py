"""Reads a DLPack capsule: where an array of another library lies, and what it holds.

Layout and numbers are those of dlpack.h, version 1 (https://dmlc.github.io/dlpack/latest).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import (
    POINTER,
    PYFUNCTYPE,
    c_char_p,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    py_object,
)
from dataclasses import dataclass
from typing import Any

from deuteron.errors import LaunchError

CPU = 1
CUDA = 2
CPU_PINNED = 3
_LEGACY_STREAM = 1  # CUDA's default stream, as the protocol calls it
_DEVICES = {1: "cpu", 3: "cpu", 7: "vulkan", 8: "metal", 10: "rocm", 14: "oneapi"}
_READ_ONLY = 1
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"} | {
    10: "float8_e4m3fn",
    11: "float8_e4m3fnuz",
    12: "float8_e5m2",
    13: "float8_e5m2fnuz",
}


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


@dataclass(frozen=True, slots=True)
class DlpackTensor:
    """An array's place and type; strides count items.  `capsule` keeps the memory alive."""

    address: int
    dtype_name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: tuple[int, int]
    writable: bool
    capsule: object

    @property
    def device_name(self) -> str:
        """As torch calls it: "cpu", "cuda:0"."""
        kind, number = self.device
        if kind == CUDA:
            return f"cuda:{number}"
        return _DEVICES.get(kind, f"DLPack device {kind}")


def read(value: Any, where: str) -> DlpackTensor:
    """Ask an object for its memory.  Raises LaunchError when it does not hand it out.

    On a GPU what was done to it before comes before what CUDA's default stream does next.  On a
    device where no kernel can run there is no capsule, and nothing but the device is known.
    """
    device = kind, _ = device_of(value)
    if kind not in (CPU, CPU_PINNED, CUDA):
        return DlpackTensor(0, "", (), (), device, False, None)
    try:
        capsule = _capsule(value, {"stream": _LEGACY_STREAM} if kind == CUDA else {})
    except (BufferError, RuntimeError, ValueError) as error:
        raise LaunchError(f"{where}: the array does not hand out its memory: {error}") from error
    tensor, flags = _open(capsule)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else None
    return DlpackTensor(
        (tensor.data or 0) + tensor.byte_offset,
        _dtype_name(tensor),
        shape,
        row_major(shape) if strides is None else strides,
        device,
        not flags & _READ_ONLY,
        capsule,
    )


def device_of(value: Any) -> tuple[int, int]:
    """The kind and the number of the device on which an array lies."""
    kind, number = value.__dlpack_device__()
    return int(kind), int(number)


def _capsule(value: Any, options: dict[str, int]) -> object:
    try:
        return value.__dlpack__(max_version=(1, 0), **options)
    except TypeError:  # a producer from before version 1
        return value.__dlpack__(**options)


def _open(capsule: object) -> tuple[_Tensor, int]:
    """The tensor in a capsule of either generation, and its flags."""
    valid = PYFUNCTYPE(c_int32, py_object, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
    get = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    if valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(get(capsule, b"dltensor_versioned"))
        return managed.tensor, managed.flags
    return _Tensor.from_address(get(capsule, b"dltensor")), 0


def _dtype_name(tensor: _Tensor) -> str:
    kind = _KINDS.get(tensor.code, f"DLPack type {tensor.code}")
    name = kind if kind == "bool" or kind.startswith("float8") else f"{kind}{tensor.bits}"
    return name if tensor.lanes == 1 else f"{name}x{tensor.lanes}"


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous array, in items."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return tuple(strides)
