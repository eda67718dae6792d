"""What the host wrappers ask of an array, whichever library it comes from.

NumPy arrays, torch tensors and `deuteron.reinterpret`ed ones are told apart by what they offer, so
torch is never imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

import deuteron as dn
from deuteron.errors import LaunchError


class Array(Protocol):
    """An n-dimensional array: a NumPy array, a torch tensor, or a reinterpreted one."""

    @property
    def shape(self) -> Sequence[int]:
        """The length of each axis."""
        ...

    @property
    def dtype(self) -> Any:
        """The element type, as its own library tells it."""
        ...


def size(array: Array) -> int:
    """The number of elements."""
    return prod(array.shape)


def strides(array: Array) -> tuple[int, ...]:
    """The step along each axis, in elements."""
    if isinstance(array, dn.TensorWrapper):
        return strides(array.base)
    foreign: Any = array
    if isinstance(array, np.ndarray):
        return tuple(step // foreign.itemsize for step in foreign.strides)
    return tuple(foreign.stride())


def on_gpu(array: Array) -> bool:
    """True for an array in an NVIDIA GPU's memory."""
    if isinstance(array, dn.TensorWrapper):
        return on_gpu(array.base)
    return getattr(getattr(array, "device", None), "type", "cpu") == "cuda"


def row_warps(block: int) -> int:
    """How many warps a GPU should give a program that holds a row of `block` elements."""
    return max(1, min(8, block // 256))


def empty(like: Array, shape: Sequence[int]) -> Array:
    """An uninitialised array of that shape, of the library and dtype of `like`."""
    if isinstance(like, dn.TensorWrapper):
        return dn.reinterpret(empty(like.base, shape), like.dtype)
    foreign: Any = like
    if isinstance(like, np.ndarray):
        return np.empty(tuple(shape), foreign.dtype)
    return foreign.new_empty(tuple(shape))


def empty_like(array: Array) -> Array:
    """An uninitialised contiguous array of the same shape, library and dtype."""
    return empty(array, array.shape)


def require_shape(op: str, name: str, array: Array, shape: Sequence[int]) -> None:
    """Raise LaunchError unless `array` has that shape."""
    if tuple(array.shape) != tuple(shape):
        expected, got = tuple(shape), tuple(array.shape)
        raise LaunchError(
            f"{op}: argument `{name}` has the wrong shape\n"
            f"  expected: {expected}\n"
            f"  got:      {got}"
        )


def require_contiguous(op: str, name: str, array: Array) -> None:
    """Raise LaunchError unless `array` lies in memory row by row, without gaps."""
    step = 1
    steps = strides(array)
    for length, stride in zip(reversed(array.shape), reversed(steps), strict=True):
        if length != 1 and stride != step:
            raise LaunchError(
                f"{op}: argument `{name}` must be contiguous\n"
                f"  got:      shape {tuple(array.shape)}, strides {steps} (in elements)\n"
                f"  remedy:   pass numpy.ascontiguousarray({name}) or {name}.contiguous()"
            )
        step *= length
