"""A generated kernel as plain data: its source, what it is called with, how its results compare."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from typing import Any

HEADER = """\
import deuteron as dn
import deuteron.language as tl
from deuteron.language.extra import libdevice
"""


@dataclass(frozen=True)
class Bound:
    """How far an output's elements may be off; zero everywhere means equal.

    `ulps` counts representable values.  `scale` names another output, written by the oracle, that
    holds the sum of the magnitudes that were added up: the error is at most `factor` times it.
    """

    ulps: int = 0
    scale: str = ""
    factor: float = 0.0


@dataclass(frozen=True)
class ArraySpec:
    """An array in memory: `count` elements of corner cases (`domain`, "" for zeros)."""

    name: str
    dtype: str
    count: int
    domain: str = ""
    seed: int = 0


@dataclass(frozen=True)
class Case:
    """One kernel `kernel(*params)`; `functions` are jit functions that it calls.

    `params` are the arrays' names, aliases (`alias_of`: name, then array and element) and scalars
    in order; `scalars` their values.
    """

    functions: tuple[str, ...]
    body: tuple[str, ...]
    arrays: tuple[ArraySpec, ...]
    scalars: dict[str, int | float] = field(default_factory=dict[str, int | float])
    alias_of: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    grid: tuple[int, int, int] = (1, 1, 1)
    bounds: dict[str, Bound] = field(default_factory=dict[str, Bound])
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def params(self) -> list[str]:
        return [a.name for a in self.arrays] + [*self.alias_of, *self.scalars]

    @property
    def source(self) -> str:
        """The module that defines `kernel`."""
        functions = "".join(f"\n\n@dn.jit\n{text}\n" for text in self.functions)
        head = f"def kernel({', '.join(self.params)}):"
        lines = "\n".join(f"    {line}" for line in self.body) or "    pass"
        return f"{HEADER}{functions}\n\n@dn.jit\n{head}\n{lines}\n"

    def with_body(self, body: list[str]) -> Case:
        """The same call of another kernel; parameters that are no longer used go."""
        text = "\n".join(body)
        scales = {b.scale for b in self.bounds.values()}
        kept = {p for p in self.params if _names(p, text)}
        kept |= {array for name, (array, _) in self.alias_of.items() if name in kept}
        kept |= scales if scales & kept else set()
        functions = _used_functions(self.functions, text)
        return replace(
            self,
            functions=functions,
            body=tuple(body),
            arrays=tuple(a for a in self.arrays if a.name in kept),
            scalars={k: v for k, v in self.scalars.items() if k in kept},
            alias_of={k: v for k, v in self.alias_of.items() if k in kept},
            bounds={k: v for k, v in self.bounds.items() if k in kept},
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Case:
        return Case(
            tuple(data["functions"]),
            tuple(data["body"]),
            tuple(ArraySpec(**a) for a in data["arrays"]),
            data["scalars"],
            {k: (v[0], v[1]) for k, v in data["alias_of"].items()},
            (data["grid"][0], data["grid"][1], data["grid"][2]),
            {k: Bound(**b) for k, b in data["bounds"].items()},
            data["options"],
        )


def _names(name: str, text: str) -> bool:
    """Whether an identifier occurs in a text."""
    return re.search(rf"\b{name}\b", text) is not None


def _used_functions(functions: tuple[str, ...], text: str) -> tuple[str, ...]:
    kept: list[str] = []
    for function in reversed(functions):  # a function calls earlier ones only
        name = function.removeprefix("def ").split("(")[0]
        if _names(name, text):
            kept.append(function)
            text += "\n" + function
    return tuple(reversed(kept))
