"""How many programs a multiprocessor holds at once, and which limit of registers makes them more.

Registers are given out for a program's whole life.  Where a few programs take them all, the memory
waits while those few fold what they loaded; with less for each, others load meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from deuteron.backends.cuda import driver as cuda
from deuteron.backends.cuda.driver import Device
from deuteron.backends.cuda.target import WARP_SIZE

ENOUGH_PROGRAMS = 4
"""From so many on, one loads while others compute and store: more is not worth compiling for."""

_SCHEDULERS = 4  # of a multiprocessor; each has a quarter of its registers and warps
_REGISTER_STEP = 8  # registers of a thread come in such portions


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """What the programs on one multiprocessor share."""

    registers: int
    warps: int
    programs: int
    shared_bytes: int
    shared_bytes_reserved: int  # for each program, beside its own

    @staticmethod
    def of(device: Device) -> Multiprocessor:
        """That of a GPU."""
        return Multiprocessor(
            device.attribute(cuda.REGISTERS_PER_MULTIPROCESSOR),
            device.attribute(cuda.THREADS_PER_MULTIPROCESSOR) // WARP_SIZE,
            device.attribute(cuda.BLOCKS_PER_MULTIPROCESSOR),
            device.attribute(cuda.SHARED_BYTES_PER_MULTIPROCESSOR),
            device.attribute(cuda.SHARED_BYTES_RESERVED),
        )

    def held(self, num_warps: int, shared_bytes: int, registers: int) -> int:
        """How many programs of so many warps, shared memory and registers a thread it holds."""
        portion = -(-registers // _REGISTER_STEP) * _REGISTER_STEP * WARP_SIZE
        warps = self.registers // _SCHEDULERS // portion * _SCHEDULERS
        return min(warps // num_warps, self._held_at_most(num_warps, shared_bytes))

    def register_limits(self, num_warps: int, shared_bytes: int, registers: int) -> tuple[int, ...]:
        """Limits worth a try for a kernel that takes so many registers, the best one first.

        Half of them at least, as code that has still less must keep values in memory; and where the
        first is too tight, one that is halfway there in programs.
        """
        held = self.held(num_warps, shared_bytes, registers)
        if not 0 < held < ENOUGH_PROGRAMS:
            return ()
        most = held
        for count in range(held + 1, self._held_at_most(num_warps, shared_bytes) + 1):
            if 2 * self._limit(num_warps, count) >= registers:
                most = count
        counts = dict.fromkeys((most, (held + most) // 2))
        return tuple(self._limit(num_warps, count) for count in counts if count > held)

    def _held_at_most(self, num_warps: int, shared_bytes: int) -> int:
        """How many programs it holds if each thread takes next to no registers."""
        by_memory = self.shared_bytes // (shared_bytes + self.shared_bytes_reserved or 1)
        return min(self.warps // num_warps, self.programs, by_memory)

    def _limit(self, num_warps: int, count: int) -> int:
        """The most registers a thread may take for so many programs to be held."""
        warps = -(-count * num_warps // _SCHEDULERS)
        each = self.registers // _SCHEDULERS // (warps * WARP_SIZE)
        return each // _REGISTER_STEP * _REGISTER_STEP
