"""Array arguments: where their memory is, what it holds, and what cannot be one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from deuteron.dtypes import (
    DType,
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    int1,
    int8,
    int32,
    uint8,
    uint16,
)  # fmt: skip
from deuteron.errors import LaunchError
from deuteron.runtime.arrays import (
    ArrayArgument,
    MockTensor,
    TensorWrapper,
    as_dtype,
    describe_array,
    reinterpret,
)  # fmt: skip


def describe(value: object) -> ArrayArgument:
    found = describe_array(value, "argument 'x'")
    assert found is not None
    return found


def bytes_of(view: np.ndarray) -> tuple[int, int]:
    """First byte and byte after the last by brute force over all elements."""
    address = view.__array_interface__["data"][0]
    if view.size == 0:
        return address, address
    offsets = sum(
        (i * stride for i, stride in zip(np.indices(view.shape), view.strides, strict=True)),
        start=0,
    )
    return address + int(np.min(offsets)), address + int(np.max(offsets)) + view.itemsize


BASE = np.zeros((6, 8, 4), np.float32)


@pytest.mark.parametrize(
    "view",
    [
        BASE, BASE[2:], BASE[::-1], BASE[:, ::-2, 1:], BASE.T, BASE[0, 0, 0:1], BASE[3, 4],
        BASE[:0], BASE[::2, ::3, ::4], np.array(3.0, np.float32), BASE[..., None][:, 1],
        np.broadcast_to(BASE[0, 0], (5, 4)),
    ],
    ids=lambda view: f"{view.shape}-{view.strides}",
)  # fmt: skip
def test_numpy_views(view: np.ndarray) -> None:
    found = describe(view)
    assert found.address == view.__array_interface__["data"][0]
    assert (found.first, found.last) == bytes_of(view)
    assert found.dtype == float32
    assert found.writable == view.flags.writeable
    assert found.device == "cpu"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bool", int1), ("int8", int8), ("int32", int32), ("uint16", uint16),
        ("float16", float16), ("intc", int32),
    ],
)  # fmt: skip
def test_numpy_dtypes(name: str, expected: DType) -> None:
    assert describe(np.zeros(3, name)).dtype == expected


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.float32, float32), (torch.bfloat16, bfloat16), (torch.bool, int1),
        (torch.uint16, uint16), (torch.float8_e5m2, float8e5), (torch.float8_e4m3fn, float8e4nv),
    ],
)  # fmt: skip
def test_torch_dtypes(dtype: torch.dtype, expected: DType) -> None:
    found = describe(torch.zeros(4, 4).to(dtype)[1:])
    assert found.dtype == expected
    assert as_dtype(dtype) == expected


def test_torch_views() -> None:
    base = torch.zeros(6, 8)
    view = base.T[2:, ::3]
    found = describe(view)
    assert found.address == view.data_ptr()
    assert (found.first, found.last) == bytes_of(view.numpy())
    assert describe(torch.nn.Parameter(base)).address == base.data_ptr()
    assert describe(torch.zeros(0)).last == describe(torch.zeros(0)).first


def test_other_torch_devices() -> None:
    assert describe(torch.zeros(3, device="meta")).device == "meta"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: torch.zeros(3).to_sparse(),
            "no memory of its own(.*\n)*.*layout torch.sparse_coo",
        ),
        (lambda: torch.zeros(3, dtype=torch.complex64), "no dtype complex64"),
        (lambda: np.zeros(3, np.complex64), "no dtype complex64"),
        (lambda: np.zeros(3, "O"), "no dtype object"),
        (lambda: np.zeros(3, "M8[s]"), "no dtype datetime64"),
        (lambda: np.zeros(3, [("a", "f4")]), "no dtype void32"),
        (lambda: np.zeros(3, ">f4"), "bytes are swapped"),
        (lambda: np.zeros(9, np.uint8)[1:].view("i4"), "not aligned to its items"),
    ],
)
def test_arrays_no_kernel_can_use(make: Any, message: str) -> None:
    with pytest.raises(LaunchError, match=f"argument 'x': .*{message}"):
        describe_array(make(), "argument 'x'")


class Interface:
    """An object with NumPy's array interface."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


class Dlpack:
    """An object that hands out its memory by DLPack, of the old or the new generation."""

    def __init__(self, array: Any, *, old: bool = False, device: int = 1) -> None:
        self.array, self.old, self.device = array, old, device

    def __dlpack__(self, **options: Any) -> Any:
        if self.old and options:
            raise TypeError("unexpected keyword argument")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


def test_array_interface() -> None:
    array = BASE[1:, ::2]
    found, expected = describe(Interface(array)), describe(array)
    assert (found.address, found.first, found.last) == (
        expected.address, expected.first, expected.last,
    )  # fmt: skip


@pytest.mark.parametrize("old", [False, True])
def test_dlpack(old: bool) -> None:
    array = np.zeros((4, 6), np.int32)[1:, ::2]
    found, expected = describe(Dlpack(array, old=old)), describe(array)
    assert (found.address, found.first, found.last) == (
        expected.address, expected.first, expected.last,
    )  # fmt: skip
    assert found.dtype == int32
    assert found.writable


def test_dlpack_dtypes_and_flags() -> None:
    assert describe(Dlpack(torch.zeros(4, dtype=torch.bfloat16))).dtype == bfloat16
    assert describe(Dlpack(np.zeros(3, np.bool_))).dtype == int1
    frozen = np.zeros(3, np.float32)
    frozen.flags.writeable = False
    assert not describe(Dlpack(frozen)).writable
    with pytest.raises(LaunchError, match="does not hand out its memory"):
        describe(Dlpack(torch.zeros(3, requires_grad=True)))
    assert describe(Dlpack(None, device=7)).device == "vulkan"


@pytest.mark.parametrize("value", [3, 1.5, None, "x", [1], (1,), np.float32(1), np.int64(3), int])
def test_what_is_no_array(value: object) -> None:
    assert describe_array(value, "argument 'x'") is None


def test_reinterpret() -> None:
    raw = np.zeros(16, np.uint8)
    seen = reinterpret(raw, float8e5)
    assert isinstance(seen, TensorWrapper)
    assert describe(seen).dtype == float8e5
    assert describe(seen).address == seen.data_ptr() == raw.ctypes.data
    assert seen.shape == (16,)
    assert describe(reinterpret(seen, "fp8e4nv")).dtype == float8e4nv
    for name in ("bfloat16", torch.bfloat16):
        assert describe(reinterpret(torch.zeros(4, dtype=torch.int16), name)).dtype == bfloat16


def test_bad_reinterpret() -> None:
    with pytest.raises(LaunchError, match=r"cannot reinterpret float32 as int8.*width"):
        reinterpret(np.zeros(3, np.float32), int8)
    with pytest.raises(LaunchError, match=r"needs an array\n(.*\n)*.*list"):
        reinterpret([1, 2], int8)
    with pytest.raises(LaunchError, match="no dtype float7"):
        reinterpret(np.zeros(3, np.float32), "float7")


def test_mock_tensors_are_aligned() -> None:
    assert describe(MockTensor(uint8)).address % 16 == 0


def test_overlap() -> None:
    a, b = describe(BASE[:3]), describe(BASE[3:])
    assert not a.overlaps(b)
    assert a.overlaps(describe(BASE[2:]))
    assert describe(BASE[2:]).overlaps(a)
    assert a.overlaps(describe(BASE))
