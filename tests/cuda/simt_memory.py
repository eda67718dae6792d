"""Memory for the simulator of whole kernels: global arrays, and shared memory that sees races."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]

# Shared memory begins here, so that code which forgets to add the start goes wrong.
SHARED_START = 2048
_NOBODY, _MANY = -1, -2


class GlobalMemory:
    """Arrays, each at an address of its own with nothing around it."""

    GAP = 1 << 20

    def __init__(self) -> None:
        self._arrays: list[tuple[int, Bytes]] = []
        self._next = self.GAP

    def add(self, array: NDArray[np.generic]) -> int:
        """Take in an array, which kernels then read and write; its address."""
        start = self._next
        self._arrays.append((start, array.reshape(-1).view(np.uint8)))
        self._next = -(-(start + array.nbytes + self.GAP) // 256) * 256
        return start

    def read(self, starts: Places, size: int) -> Bytes:
        """[threads, size]; every byte must lie in an array."""
        data = np.empty((len(starts), size), np.uint8)
        for rows, array, offsets in self._split(starts, size):
            data[rows] = array[offsets[:, None] + np.arange(size)]
        return data

    def write(self, starts: Places, data: Bytes) -> None:
        for rows, array, offsets in self._split(starts, data.shape[1]):
            array[offsets[:, None] + np.arange(data.shape[1])] = data[rows]

    def _split(self, starts: Places, size: int) -> list[tuple[Places, Bytes, Places]]:
        found: list[tuple[Places, Bytes, Places]] = []
        covered = 0
        for start, array in self._arrays:
            rows = np.flatnonzero((starts >= start) & (starts + size <= start + len(array)))
            if len(rows):
                found.append((rows, array, starts[rows] - start))
                covered += len(rows)
        assert covered == len(starts), "an access outside of all arrays"
        assert (starts % size == 0).all(), "a misaligned access"
        return found


@dataclass
class Copy:
    """A cp.async under way: who, where to, what."""

    threads: Places
    starts: Places
    data: Bytes


@dataclass
class SharedMemory:
    """Shared memory of one block.

    Accesses by different threads, one of which writes, need a barrier in between.  What cp.async
    writes counts as being written until its group is waited for, and what wgmma reads as being
    read.  wgmma sees only writes that their thread has fenced.
    """

    size: int
    data: Bytes = field(init=False)

    def __post_init__(self) -> None:
        self.data = np.zeros(self.size, np.uint8)
        self._writer = np.full(self.size, _NOBODY)
        self._reader = np.full(self.size, _NOBODY)
        self._arriving = np.zeros(self.size, bool)
        self._leaving = np.zeros(self.size, np.int64)
        # Who wrote what wgmma cannot see yet.
        self._unfenced = np.full(self.size, _NOBODY)

    def barrier(self) -> None:
        self._writer[:] = self._reader[:] = _NOBODY

    def fence(self, threads: Places) -> None:
        """fence.proxy.async by some threads."""
        self._unfenced[np.isin(self._unfenced, threads)] = _NOBODY

    def _at(self, starts: Places, size: int) -> Places:
        places = starts[:, None] - SHARED_START + np.arange(size)
        assert (places >= 0).all(), "an access before shared memory"
        assert (places < self.size).all(), "an access beyond shared memory"
        return places

    # -- by threads -------------------------------------------------------------------------
    def read(self, threads: Places, starts: Places, size: int) -> Bytes:
        assert (starts % size == 0).all(), "a misaligned access"
        places = self._at(starts, size)
        who = np.broadcast_to(threads[:, None], places.shape)
        assert not self._arriving[places].any(), "a read of what cp.async may still write"
        writers = self._writer[places]
        assert ((writers == _NOBODY) | (writers == who)).all(), "a read races with a write"
        self._note_readers(places, who)
        return self.data[places]

    def _note_readers(self, places: Places, who: Places) -> None:
        before = self._reader[places]
        mixed = (before != _NOBODY) & (before != who)
        self._reader[places] = np.where(mixed, _MANY, who)
        flat, counts = np.unique(places, return_counts=True)
        self._reader[flat[counts > 1]] = _MANY

    def write(self, threads: Places, starts: Places, data: Bytes) -> None:
        assert (starts % data.shape[1] == 0).all(), "a misaligned access"
        places = self._at(starts, data.shape[1])
        who = np.broadcast_to(threads[:, None], places.shape)
        self._check_write(places, who)
        assert len(np.unique(places)) == places.size, "two threads write one byte"
        self._store(places, who, data)

    def _check_write(self, places: Places, who: Places) -> None:
        assert not self._arriving[places].any(), "a write of what cp.async may still write"
        assert not self._leaving[places].any(), "a write of what wgmma may still read"
        for touched in (self._writer[places], self._reader[places]):
            assert ((touched == _NOBODY) | (touched == who)).all(), "a write races"

    def _store(self, places: Places, who: Places, data: Bytes) -> None:
        self._writer[places] = self._unfenced[places] = who
        self.data[places] = data

    # -- asynchronously ---------------------------------------------------------------------
    def begin_copy(self, copy: Copy) -> None:
        places = self._at(copy.starts, copy.data.shape[1])
        self._check_write(places, np.broadcast_to(copy.threads[:, None], places.shape))
        assert len(np.unique(places)) == places.size, "two threads copy to one byte"
        self._arriving[places] = True

    def end_copy(self, copy: Copy) -> None:
        places = self._at(copy.starts, copy.data.shape[1])
        self._arriving[places] = False
        who = np.broadcast_to(copy.threads[:, None], places.shape)
        self._store(places, who, copy.data)

    def begin_matrix(self, places: Places) -> Bytes:
        """wgmma begins to read bytes at offsets in shared memory."""
        assert not self._arriving[places].any(), "wgmma reads what cp.async may still write"
        assert (self._writer[places] == _NOBODY).all(), "wgmma reads what no barrier has settled"
        assert (self._unfenced[places] == _NOBODY).all(), "wgmma reads what was not fenced"
        self._leaving[np.unique(places)] += 1
        return self.data[places]

    def end_matrix(self, places: Places) -> None:
        unique = np.unique(places)
        self._leaving[unique] -= 1
        self._reader[unique] = _MANY
