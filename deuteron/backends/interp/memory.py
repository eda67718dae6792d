"""Memory as the interpreter sees it: addresses in, bits out.

`RawMemory` is the process's own memory.  `CheckedMemory` stands before it and lets through only
what lies inside the arrays a kernel was given; other sanitizers put their own `Memory` there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from deuteron.backends.interp.values import Array, Held
from deuteron.errors import Loc, OutOfBoundsError


@dataclass(frozen=True, slots=True)
class Site:
    """Who touches memory: a place in the source and a program."""

    loc: Loc
    program: tuple[int, int, int]


class Memory(Protocol):
    """What loads, stores and atomics go through.

    `addresses` is a 1-D int64 array holding the lanes that are not masked off, in row-major order.
    """

    def load(self, addresses: Array, dtype: Held, site: Site) -> Array:
        """The elements of storage type `dtype` at `addresses`."""
        ...

    def store(self, addresses: Array, values: Array, site: Site) -> None:
        """Write `values`, of storage type; where an address repeats, the last one stays."""
        ...


class _Window:
    """A stretch of raw memory that NumPy takes as a byte array."""

    def __init__(self, address: int, size: int) -> None:
        self.__array_interface__: dict[str, Any] = {
            "data": (address, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }


def _bytes_at(addresses: Array, size: int) -> tuple[Array, Array]:
    """A byte view that spans all addresses, and the index of every byte of every element in it.

    Making the view touches nothing: only the indexed bytes are ever read or written.
    """
    first = int(addresses.min())
    span = int(addresses.max()) - first + size
    view = np.asarray(_Window(first, span))
    return view, (addresses - first)[:, None] + np.arange(size)


class RawMemory:
    """The process's memory, unchecked: a wild address that is not masked off ends the process."""

    def load(self, addresses: Array, dtype: Held, site: Site) -> Array:
        if not addresses.size:
            return np.empty(0, dtype)
        view, index = _bytes_at(addresses, dtype.itemsize)
        return view[index].view(dtype).reshape(-1)

    def store(self, addresses: Array, values: Array, site: Site) -> None:
        if not addresses.size:
            return
        view, index = _bytes_at(addresses, values.dtype.itemsize)
        view[index] = np.ascontiguousarray(values).view(np.uint8).reshape(index.shape)


@dataclass(frozen=True, slots=True)
class Region:
    """Memory a kernel may touch: addresses `start` to `end`, the latter exclusive."""

    name: str
    start: int
    end: int
    writable: bool = True

    @classmethod
    def of(cls, name: str, array: Array) -> Region:
        """The bytes from the lowest to the highest element of an array of any strides."""
        start = end = int(array.ctypes.data)
        if array.size:
            reaches = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
            start += sum(min(reach, 0) for reach in reaches)
            end += sum(max(reach, 0) for reach in reaches) + array.itemsize
        return cls(name, start, end, bool(array.flags.writeable))

    def distance(self, address: int, size: int) -> int:
        """Bytes by which an access lies before the start (negative) or past the end."""
        if address < self.start:
            return address - self.start
        return max(0, address + size - self.end)


class CheckedMemory:
    """Refuses whatever lies outside `regions`, and stores to read-only ones."""

    def __init__(self, regions: Iterable[Region]) -> None:
        self._regions = tuple(regions)
        self._memory = RawMemory()

    def load(self, addresses: Array, dtype: Held, site: Site) -> Array:
        self._check("load", self._regions, addresses, dtype.itemsize, site)
        return self._memory.load(addresses, dtype, site)

    def store(self, addresses: Array, values: Array, site: Site) -> None:
        writable = tuple(r for r in self._regions if r.writable)
        self._check("store", writable, addresses, values.dtype.itemsize, site)
        self._memory.store(addresses, values, site)

    def _check(
        self, verb: str, regions: tuple[Region, ...], addresses: Array, size: int, site: Site
    ) -> None:
        if not addresses.size:
            return
        low, high = int(addresses.min()), int(addresses.max()) + size
        if any(region.start <= low and high <= region.end for region in regions):
            return  # the usual case: all lanes in one array
        inside = np.zeros(addresses.shape, np.bool_)
        for region in regions:
            inside |= (addresses >= region.start) & (addresses + size <= region.end)
        if not inside.all():
            lane = int(np.argmin(inside))
            raise OutOfBoundsError(self._message(verb, int(addresses[lane]), size, site), site.loc)

    def _message(self, verb: str, address: int, size: int, site: Site) -> str:
        head = f"{verb} of {size} bytes at {address:#x} by program {site.program}"
        if not self._regions:
            return f"{head}, and the kernel was given no array"
        nearest = min(self._regions, key=lambda r: abs(r.distance(address, size)))
        distance = nearest.distance(address, size)
        if distance == 0:
            return f"{head} into `{nearest.name}`, which is read-only"
        side = "before the start" if distance < 0 else "past the end"
        return f"{head}, {abs(distance)} bytes {side} of `{nearest.name}`"
