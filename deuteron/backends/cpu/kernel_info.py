"""What is known of a compiled kernel besides its machine code; stored beside it as JSON.

Written by the compiler, read by the launcher: how to pack arguments, how much scratch a thread
needs, which arrays are written, and what the numbers in device prints and asserts stand for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

ParamKind = Literal["pointer", "int", "float"]


@dataclass(frozen=True, slots=True)
class ParamInfo:
    """A run-time argument, in slot order.  `dtype` of a pointer is its pointee's."""

    name: str
    kind: ParamKind
    dtype: str
    written: bool = False


@dataclass(frozen=True, slots=True)
class PrintSite:
    """One operand of one `device_print`.  `operand` is -1 when it is the only one.

    `dtype` is a name of `deuteron.dtypes`, or "pointer".
    """

    prefix: str
    dtype: str
    shape: tuple[int, ...]
    hex: bool = False
    operand: int = -1


@dataclass(frozen=True, slots=True)
class AssertSite:
    """One `device_assert`: its message and its place in the source."""

    message: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """A compiled kernel's description.  `scratch_bytes` and `store_bytes` are per thread.

    The tile store is a wish: a kernel runs without one.

    Sites are numbered by their place in the tuples: `deuteron_print` gets that number, the control
    block that number plus one.  `ir` is the optimised tile IR's text.
    """

    name: str
    scratch_bytes: int
    params: tuple[ParamInfo, ...]
    print_sites: tuple[PrintSite, ...] = ()
    assert_sites: tuple[AssertSite, ...] = ()
    store_bytes: int = 0
    target: str = ""
    ir: str = ""
    llvm: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> KernelInfo:
        """The inverse of `to_json`, tuples having become lists."""
        fields = decoded(data)
        fields["print_sites"] = tuple(_print_site(**site) for site in data["print_sites"])
        return KernelInfo(**fields)


def decoded(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that kernels of every backend have, from JSON."""
    return {
        **data,
        "params": tuple(ParamInfo(**param) for param in data["params"]),
        "assert_sites": tuple(AssertSite(**site) for site in data["assert_sites"]),
    }


def _print_site(shape: list[int], **fields: Any) -> PrintSite:
    return PrintSite(shape=tuple(shape), **fields)
