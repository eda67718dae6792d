"""What an NVIDIA GPU can do, as far as code generation asks.

A `CudaTarget` is named as NVIDIA names it: `sm_80`, or `sm_90a` for the instructions that only that
one architecture has (wgmma).  `deuteron inspect --target sm_90a` compiles for any of them without a
card.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from deuteron.backends.llvm.compile import Machine
from deuteron.errors import UserError

TRIPLE = "nvptx64-nvidia-cuda"
WARP_SIZE = 32

# The lowest PTX version, as LLVM spells it, that has each architecture's instructions: the lower,
# the older a driver may be.
_PTX_VERSIONS = {
    "sm_80": 70,
    "sm_86": 71,
    "sm_87": 74,
    "sm_89": 81,
    "sm_90": 80,
    "sm_90a": 80,
    "sm_100": 86,
    "sm_100a": 86,
    "sm_103": 88,
    "sm_103a": 88,
    "sm_120": 87,
    "sm_120a": 87,
}
# Shared memory that one block may be given, in bytes, by compute capability.
_SHARED_LIMITS = {80: 166_912, 87: 166_912, 90: 232_448, 100: 232_448, 103: 232_448}
_SMALL_SHARED_LIMIT = 101_376


@dataclass(frozen=True)
class CudaTarget:
    """A GPU to compile for.  Raises UserError for an architecture that is not known."""

    arch: str

    def __post_init__(self) -> None:
        if self.arch not in _PTX_VERSIONS:
            raise UserError(
                f"unknown GPU architecture {self.arch!r}\n"
                f"  expected: one of {', '.join(_PTX_VERSIONS)}\n"
                f"  got:      {self.arch}\n"
                "  remedy:   name one of these"
            )

    @staticmethod
    def of_capability(major: int, minor: int) -> CudaTarget:
        """The target of a card: the newest known one that its driver can run.

        Raises UserError for a card older than sm_80.
        """
        for name in (f"sm_{major}{minor}a", f"sm_{major}{minor}"):
            if name in _PTX_VERSIONS:
                return CudaTarget(name)
        older = [name for name in _PTX_VERSIONS if not name.endswith("a")]
        runnable = [name for name in older if _number(name) <= 10 * major + minor]
        if not runnable:
            raise UserError(
                f"this GPU, of compute capability {major}.{minor}, is too old\n"
                "  expected: compute capability 8.0 (Ampere) or later\n"
                f"  got:      {major}.{minor}\n"
                "  remedy:   pass arrays that lie in the CPU's memory"
            )
        return CudaTarget(runnable[-1])

    @cached_property
    def sm(self) -> int:
        """The compute capability, times ten."""
        return _number(self.arch)

    @property
    def ptx_version(self) -> int:
        """The PTX version of the code, times ten."""
        return _PTX_VERSIONS[self.arch]

    @property
    def has_wgmma(self) -> bool:
        """Warpgroup matrix instructions; they are in no later architecture."""
        return self.arch == "sm_90a"

    @property
    def shared_limit(self) -> int:
        """Bytes of shared memory that one block may be given."""
        return _SHARED_LIMITS.get(self.sm, _SMALL_SHARED_LIMIT)

    @property
    def machine(self) -> Machine:
        """What LLVM generates code for."""
        return Machine(TRIPLE, self.arch, f"+ptx{self.ptx_version}")

    @property
    def key(self) -> str:
        """Tells targets apart in caches."""
        return f"{self.arch} ptx{self.ptx_version}"


def _number(arch: str) -> int:
    found = re.match(r"sm_(\d+)", arch)
    assert found is not None
    return int(found.group(1))
