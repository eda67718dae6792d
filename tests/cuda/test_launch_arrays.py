"""Arrays of GPU libraries, as described for a launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from deuteron.dtypes import DType, bfloat16, float32, int1
from deuteron.errors import LaunchError
from deuteron.runtime.arrays import ArrayArgument, describe_array
from tests.cuda.fake_cuda import FakeCuda, GpuArray


def describe(value: object) -> ArrayArgument:
    found = describe_array(value, "argument 'x'")
    assert found is not None
    return found


class Interface:
    """An object with the CUDA array interface and nothing else, unless it is told otherwise."""

    def __init__(self, fields: dict[str, Any], **attributes: Any) -> None:
        self.__cuda_array_interface__ = fields
        self.__dict__.update(attributes)


def fields(**changes: Any) -> dict[str, Any]:
    return {"data": (1 << 30, False), "typestr": "<f4", "shape": (4, 6), "version": 3} | changes


def test_cuda_array_interface(cuda: FakeCuda) -> None:
    found = describe(Interface(fields()))
    assert (found.address, found.first, found.last) == (1 << 30, 1 << 30, (1 << 30) + 96)
    assert (found.dtype, found.device, found.writable) == (float32, "cuda:0", True)
    assert found.stream is None
    strided = describe(Interface(fields(strides=(-24, 8), data=((1 << 40) + 4096, True))))
    assert (strided.first, strided.last) == ((1 << 40) + 4096 - 72, (1 << 40) + 4096 + 44)
    assert (strided.device, strided.writable) == ("cuda:1", False)


def test_where_an_empty_array_lies(cuda: FakeCuda) -> None:
    assert describe(Interface(fields(data=(0, False), shape=(0,)))).device == "cuda:0"
    assert "cuPointerGetAttribute" not in cuda.calls


@pytest.mark.parametrize(("typestr", "dtype"), [("|b1", int1), ("<f4", float32)])
def test_dtypes(cuda: FakeCuda, typestr: str, dtype: DType) -> None:
    assert describe(Interface(fields(typestr=typestr))).dtype == dtype


def test_dtypes_that_have_no_typestr(cuda: FakeCuda) -> None:
    class Bfloat16(Interface):
        class dtype:
            """As ml_dtypes' are."""

    with pytest.raises(LaunchError, match="no dtype void16"):
        describe(Interface(fields(typestr="<V2")))
    with pytest.raises(LaunchError, match="bytes are swapped"):
        describe(Interface(fields(typestr=">f4")))


class Dlpack(Interface):
    """An array with DLPack as well; the device in the capsule does not matter."""

    def __init__(self, kind: int, number: int, array: Any = None, **changes: Any) -> None:
        super().__init__(fields(**changes))
        self.kind, self.number, self.array = kind, number, array
        self.streams: list[object] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, self.number

    def __dlpack__(self, *, max_version: Any = None, stream: Any = None) -> Any:
        self.streams.append(stream)
        return self.array.__dlpack__(max_version=max_version)


def test_dlpack_orders_its_work_before_the_default_stream() -> None:
    array = Dlpack(2, 3, torch.zeros(8, dtype=torch.bfloat16))
    found = describe(array)
    assert (found.device, found.dtype, found.address) == (
        "cuda:3", bfloat16, array.array.data_ptr(),
    )  # fmt: skip
    assert array.streams == [1]


def test_an_interface_that_names_its_stream_comes_first() -> None:
    array = Dlpack(2, 3, stream=0x44)
    found = describe(array)
    assert (found.device, found.stream, array.streams) == ("cuda:3", 0x44, [])


def test_other_devices_are_not_asked_for_their_memory() -> None:
    array = Dlpack(7, 0)
    assert (describe(array).device, array.streams) == ("vulkan", [])
    assert describe(Dlpack(99, 0)).device == "DLPack device 99"


def test_arrays_of_machine_code(cuda: FakeCuda) -> None:
    found = describe(GpuArray((4, 4), np.int16, device=1, stream=9))
    assert (found.device, found.stream, found.last - found.first) == ("cuda:1", 9, 32)
