"""Tensor descriptors made on the host: an array and the blocks a kernel takes it by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from deuteron.errors import LaunchError
from deuteron.runtime.arrays import TensorWrapper, describe_array

MAX_RANK = 5
MAX_NUMEL = 2**20
PADDINGS = ("zero", "nan")


@dataclass(frozen=True, slots=True)
class DescriptorKind:
    """What of a descriptor a kernel is compiled for: the shape of its blocks, and the padding."""

    block_shape: tuple[int, ...]
    padding: str


@dataclass(slots=True, eq=False)
class TensorDescriptor:
    """An argument for kernels that read and write an array by blocks.

    `base` is an array (NumPy, torch); `shape` and `strides` count its elements, the last stride is
    1; `padding`, "zero" or "nan", is what elements outside of it read as.  Raises LaunchError when
    these do not fit together.  Fields may be set later, as hooks of tuned kernels set the shape of
    blocks; a launch takes them as they are then.
    """

    base: Any
    shape: Sequence[int]
    strides: Sequence[int]
    block_shape: Sequence[int]
    padding: str = "zero"
    round_f32_to_tf32: bool = False

    def __post_init__(self) -> None:
        self._check()

    def _check(self) -> None:
        rank = len(self.block_shape)
        if not (len(self.shape) == len(self.strides) == rank and 1 <= rank <= MAX_RANK):
            raise _error(
                f"shape, strides and block_shape of one length, 1 to {MAX_RANK}",
                f"{len(self.shape)}, {len(self.strides)} and {rank} values",
                "give one number an axis",
            )
        if self.strides[-1] != 1:
            raise _error(
                "a last stride of 1",
                f"strides {self.strides}",
                "make the array contiguous along its last axis",
            )
        if self.padding not in PADDINGS:
            raise _error('padding "zero" or "nan"', repr(self.padding), "leave it out for zeros")

    @classmethod
    def from_tensor(
        cls,
        tensor: Any,
        block_shape: Sequence[int],
        padding: str = "zero",
        round_f32_to_tf32: bool = False,
    ) -> TensorDescriptor:
        """The descriptor of a whole array."""
        array = describe_array(tensor, "TensorDescriptor")
        if array is None:
            kind = type(tensor).__name__
            raise _error("an array (NumPy, torch, DLPack)", kind, "pass the array itself")
        owner = tensor.base if isinstance(tensor, TensorWrapper) else tensor
        is_torch = hasattr(owner, "stride")
        steps: Sequence[int] = owner.stride() if is_torch else _element_strides(owner)
        return cls(tensor, tuple(tensor.shape), steps, block_shape, padding, round_f32_to_tf32)

    @property
    def kind(self) -> DescriptorKind:
        """What a kernel is compiled for; raises LaunchError for fields that do not fit together."""
        self._check()
        return DescriptorKind(tuple(self.block_shape), self.padding)


def _element_strides(array: Any) -> tuple[int, ...]:
    return tuple(stride // array.itemsize for stride in array.strides)


def _error(expected: str, got: str, remedy: str) -> LaunchError:
    return LaunchError(
        "TensorDescriptor: the arguments do not describe blocks of an array\n"
        f"  expected: {expected}\n"
        f"  got:      {got}\n"
        f"  remedy:   {remedy}"
    )


def is_power_of_two(number: int) -> bool:
    """Whether it is 1, 2, 4, …"""
    return number > 0 and number & (number - 1) == 0


def validate_block_shape(shape: Sequence[int]) -> int:
    """How many elements a block has.  Raises TypeError or ValueError for one Triton refuses."""
    for axis, size in enumerate(shape):
        if not isinstance(size, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"axis {axis} of a block is {size!r}, which is no int")
        if not is_power_of_two(size):
            raise ValueError(f"axis {axis} of a block is {size}, which is no power of two")
    count = prod(shape)
    if count > MAX_NUMEL:
        raise ValueError(f"a block of {count:,} elements is larger than {MAX_NUMEL:,}")
    return count
