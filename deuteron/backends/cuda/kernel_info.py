"""What is known of a compiled GPU kernel besides its PTX; stored beside it as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from deuteron.backends.cpu.kernel_info import AssertSite, ParamInfo, decoded


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """A compiled kernel's description.

    `shared_bytes` are dynamic shared memory per block, of 32 × `num_warps` threads.  With
    `has_control` the last argument is the address of a control block on the device (8 × int64, zero
    before a launch): [0] takes the number of the first failed `device_assert` plus one, [1..3] its
    program ids.  With `registers_open` the code may be limited to fewer registers than it would
    take.  `layouts` says how each tile is distributed, for people.
    """

    name: str
    shared_bytes: int
    num_warps: int
    params: tuple[ParamInfo, ...]
    assert_sites: tuple[AssertSite, ...] = ()
    has_control: bool = False
    registers_open: bool = False
    target: str = ""
    ir: str = ""
    layouts: str = ""
    llvm: str = ""
    ptx: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> KernelInfo:
        """The inverse of `to_json`, tuples having become lists."""
        return KernelInfo(**decoded(data))
