"""What may be an array argument, and what compiled code needs to know of it.

    numpy.ndarray                any layout; the pointer is the address of element 0
    torch.Tensor                 on the CPU or a GPU; torch is never imported from here
    TensorWrapper                another array under another dtype, made by `reinterpret`
    __array_interface__          any object that has it
    __cuda_array_interface__     any object that has it and says which stream it is used on (CuPy)
    __dlpack__                   any object that has it, on the CPU or a GPU
    __cuda_array_interface__     any other object that has it
    MockTensor                   a dtype only, for `warmup`

Arrays of ml_dtypes (bfloat16, float8_e5m2, float8_e4m3fn) are NumPy arrays known by their dtype's
name.  The machine code of `backends.cpu.launcher_ir` reads NumPy arrays and torch tensors by itself
once a call with their like went through here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from deuteron.dtypes import BY_ARRAY_NAME, BY_SHORT, DType, integer
from deuteron.errors import LaunchError
from deuteron.runtime import dlpack

CPU = "cpu"
CUDA = "cuda"  # a GPU is called "cuda:0", "cuda:1", …
ANYWHERE = ""  # of what stands for an array: on whatever device the others are


@dataclass(frozen=True, slots=True)
class ArrayArgument:
    """An array as an argument.

    `address` is that of element 0; its elements lie in the bytes [first, last) of `device`.
    `owner` keeps the memory alive.  `stream` is that on which its library uses it on a GPU, if it
    says so.
    """

    address: int
    dtype: DType
    first: int
    last: int
    writable: bool = True
    device: str = CPU
    owner: object = None
    stream: int | None = None

    def overlaps(self, other: ArrayArgument) -> bool:
        """True when they share bytes, or may."""
        return max(self.first, other.first) < min(self.last, other.last)


class TensorWrapper:
    """An array seen under another dtype; see `reinterpret`.

    What it does not say itself it asks the array: `device`, `stride()`, `numel()`, …
    """

    def __init__(self, base: Any, dtype: DType) -> None:
        self.base = base
        self.dtype = dtype
        self.shape = base.shape

    def data_ptr(self) -> int:
        """Address of element 0."""
        described = describe_array(self.base, "the reinterpreted array")
        assert described is not None
        return described.address

    def cpu(self) -> TensorWrapper:
        """The array on the CPU, under the same dtype."""
        return TensorWrapper(self.base.cpu(), self.dtype)

    def clone(self) -> TensorWrapper:
        """A copy, under the same dtype."""
        return TensorWrapper(self.base.clone(), self.dtype)

    def to(self, device: Any) -> TensorWrapper:
        """The array on another device, under the same dtype."""
        return TensorWrapper(self.base.to(device), self.dtype)

    def new_empty(self, shape: Any) -> TensorWrapper:
        """Uninitialised memory of a shape, under the same dtype."""
        return TensorWrapper(self.base.new_empty(shape), self.dtype)

    def copy_(self, other: TensorWrapper) -> None:
        """Take another's elements."""
        self.base.copy_(other.base)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "base":
            raise AttributeError(name)
        return getattr(self.base, name)

    def __repr__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base!r})"


@dataclass(frozen=True, slots=True)
class MockTensor:
    """Stands for an array of a dtype where nothing is run, as in `warmup`.

    `device` is "cpu", "cuda:0", …, or "" for wherever the other arguments are.  Of the `address`
    its divisibility counts.
    """

    dtype: DType
    device: str = ANYWHERE
    address: int = 0


def reinterpret(tensor: Any, dtype: Any) -> TensorWrapper:
    """View an array's memory as elements of `dtype`, without copying: 8-bit integers as fp8.

    The dtype is one of this package, NumPy or torch, or the name of one.  Raises LaunchError when
    `tensor` is no array or has items of another width.
    """
    wanted = as_dtype(dtype) or _known_dtype(str(dtype), "reinterpret")
    base = tensor.base if isinstance(tensor, TensorWrapper) else tensor
    described = describe_array(base, "reinterpret")
    if described is None:
        raise LaunchError(
            "reinterpret needs an array\n"
            "  expected: an array (NumPy, torch, DLPack)\n"
            f"  got:      {type(tensor).__name__}\n"
            "  remedy:   pass a NumPy array or a torch tensor"
        )
    if described.dtype.storage_bytes != wanted.storage_bytes:
        raise LaunchError(
            f"cannot reinterpret {described.dtype} as {wanted}: their items differ in width\n"
            f"  expected: an array of {wanted.storage_bytes}-byte items\n"
            f"  got:      {described.dtype.storage_bytes}-byte items\n"
            "  remedy:   choose a dtype of that width, or convert the array"
        )
    return TensorWrapper(base, wanted)


def describe_array(value: object, where: str) -> ArrayArgument | None:
    """What compiled code needs to know of an array; None when `value` is no array.

    Raises LaunchError, whose message begins with `where`, for an array that no kernel can use.
    """
    found = _describe(value, where)
    if found is not None and found.address % found.dtype.storage_bytes:
        raise LaunchError(
            f"{where}: the array is not aligned to its items\n"
            f"  expected: an address divisible by {found.dtype.storage_bytes}\n"
            f"  got:      {found.address:#x}\n"
            "  remedy:   pass a copy"
        )
    return found


def as_dtype(value: object) -> DType | None:
    """The dtype that `value` names as this package's, NumPy's or torch's dtype; else None."""
    if isinstance(value, DType):
        return value
    if isinstance(value, np.dtype):
        return BY_ARRAY_NAME.get(cast("np.dtype[Any]", value).name)
    if isinstance(value, type) and issubclass(value, np.generic):
        return BY_ARRAY_NAME.get(np.dtype(cast("type[np.generic[Any]]", value)).name)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.dtype):
        return BY_ARRAY_NAME.get(str(cast(object, value)).removeprefix("torch."))
    return None


def _describe(value: object, where: str) -> ArrayArgument | None:
    if isinstance(value, np.ndarray):
        return _numpy(cast("np.ndarray[Any, Any]", value), where)
    if is_torch_tensor(value):
        return _torch(value, where)
    if isinstance(value, TensorWrapper):
        base = _describe(value.base, where)
        return base and _retyped(base, value.dtype)
    if isinstance(value, MockTensor):
        return ArrayArgument(value.address, value.dtype, 0, 0, device=value.device)
    if isinstance(value, (type, np.generic)):
        return None
    if hasattr(value, "__array_interface__"):
        view = np.asarray(cast(Any, value))
        return _numpy(view, where)
    return _foreign(value, where)


def _foreign(value: object, where: str) -> ArrayArgument | None:
    """An array by DLPack, or by the CUDA array interface where that says more."""
    packs = hasattr(value, "__dlpack__")
    if packs and dlpack.device_of(value)[0] != dlpack.CUDA:
        return _dlpack(value, where)
    interface: dict[str, Any] | None = getattr(value, "__cuda_array_interface__", None)
    if interface is not None and (not packs or interface.get("stream") is not None):
        return _cuda(value, interface, where)
    return _dlpack(value, where) if packs else None


def _numpy(array: np.ndarray[Any, Any], where: str) -> ArrayArgument:
    dtype = _NUMPY_DTYPES.get(array.dtype) or _known_numpy_dtype(array.dtype, where)
    address = int(array.__array_interface__["data"][0])
    first, last = _extent(address, array.shape, array.strides, array.itemsize)
    return ArrayArgument(address, dtype, first, last, bool(array.flags.writeable), owner=array)


_NUMPY_DTYPES: dict[np.dtype[Any], DType] = {}  # those met: their names cost microseconds


def _known_numpy_dtype(dtype: np.dtype[Any], where: str) -> DType:
    if not dtype.isnative:
        raise LaunchError(
            f"{where}: the array's bytes are swapped\n"
            "  expected: the byte order of this machine\n"
            f"  got:      dtype {dtype.str!r}\n"
            "  remedy:   pass array.astype(array.dtype.newbyteorder('='))"
        )
    found = _NUMPY_DTYPES[dtype] = _known_dtype(dtype.name, where)
    return found


def lies_on_gpu(value: object) -> bool:
    """True for an array on a GPU, without a look at the rest of it."""
    if isinstance(value, TensorWrapper):
        return lies_on_gpu(value.base)
    if is_torch_tensor(value):
        return cast(Any, value).device.type == CUDA
    if hasattr(value, "__dlpack_device__"):
        return dlpack.device_of(value)[0] == dlpack.CUDA
    return hasattr(value, "__cuda_array_interface__")


def is_torch_tensor(value: object) -> bool:
    """True for a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _torch(tensor: Any, where: str) -> ArrayArgument:
    dtype = _known_dtype(str(tensor.dtype).removeprefix("torch."), where)
    device = str(tensor.device)
    if tensor.device.type not in (CPU, CUDA):
        return ArrayArgument(0, dtype, 0, 0, device=device, owner=tensor)
    try:
        address, strides = int(tensor.data_ptr()), tuple(tensor.stride())
    except RuntimeError as error:  # sparse, fake and functional tensors
        raise LaunchError(
            f"{where}: this tensor has no memory of its own\n"
            "  expected: a dense tensor on the CPU\n"
            f"  got:      {type(tensor).__name__}, layout {tensor.layout}\n"
            "  remedy:   pass tensor.to_dense()"
        ) from error
    item = dtype.storage_bytes
    first, last = _extent(address, tuple(tensor.shape), [s * item for s in strides], item)
    return ArrayArgument(address, dtype, first, last, device=device, owner=tensor)


def _dlpack(value: Any, where: str) -> ArrayArgument:
    tensor = dlpack.read(value, where)
    if tensor.capsule is None:
        return ArrayArgument(0, integer(8), 0, 0, device=tensor.device_name, owner=value)
    dtype = _known_dtype(tensor.dtype_name, where)
    item = dtype.storage_bytes
    strides = [stride * item for stride in tensor.strides]
    first, last = _extent(tensor.address, tensor.shape, strides, item)
    owner = (value, tensor.capsule)
    device = tensor.device_name
    return ArrayArgument(tensor.address, dtype, first, last, tensor.writable, device, owner)


def _cuda(value: object, interface: Mapping[str, Any], where: str) -> ArrayArgument:
    """An array by version 2 or 3 of Numba's CUDA array interface."""
    dtype = _cuda_dtype(value, str(interface["typestr"]), where)
    address, read_only = interface["data"]
    shape, item = tuple(interface["shape"]), dtype.storage_bytes
    steps = interface.get("strides") or [item * step for step in dlpack.row_major(shape)]
    first, last = _extent(address, shape, steps, item)
    device, stream = f"{CUDA}:{_gpu_of(value, address)}", interface.get("stream")
    return ArrayArgument(address, dtype, first, last, not read_only, device, value, stream)


def _cuda_dtype(value: object, typestr: str, where: str) -> DType:
    native = np.dtype(typestr)
    if native.kind == "V" and hasattr(value, "dtype"):  # ml_dtypes has no typestr of its own
        native = np.dtype(cast(Any, value).dtype)
    return _NUMPY_DTYPES.get(native) or _known_numpy_dtype(native, where)


def _gpu_of(value: object, address: int) -> int:
    """The number of the GPU on which an array lies."""
    if hasattr(value, "__dlpack_device__"):
        return dlpack.device_of(value)[1]
    if not address:  # an empty array
        return 0
    from deuteron.backends.cuda.driver import driver

    return driver().device_of(address)


def _retyped(base: ArrayArgument, dtype: DType) -> ArrayArgument:
    return replace(base, dtype=dtype)


def _extent(
    address: int, shape: Sequence[int], strides: Sequence[int], item_bytes: int
) -> tuple[int, int]:
    """First byte and byte after the last of an array; strides are in bytes."""
    if 0 in shape:
        return address, address
    if len(shape) == 1 and strides[0] > 0:
        return address, address + item_bytes + (shape[0] - 1) * strides[0]
    spans = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    first = address + sum(span for span in spans if span < 0)
    last = address + item_bytes + sum(span for span in spans if span > 0)
    return first, last


def _known_dtype(name: str, where: str) -> DType:
    """The dtype of that name, in any of its spellings."""
    if found := BY_ARRAY_NAME.get(name) or BY_SHORT.get(name):
        return found
    known = ", ".join(sorted(BY_ARRAY_NAME.keys() - {"int1"}))  # which array libraries call bool
    raise LaunchError(
        f"{where}: kernels know no dtype {name}\n  expected: one of {known}\n  got:      {name}\n"
        "  remedy:   convert the array first"
    )
