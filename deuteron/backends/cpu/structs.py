"""Structs that machine code and Python share: one list of fields gives LLVM's and ctypes' layout.

LLVM text may then name fields.  `expand` turns

    %x = get Pool.threads %pool         the field's value
    set Pool.threads %pool, %x          store it
    %p = at Pool.threads %pool          its address
    %p = at Pool.arenas[%i] %pool       the address of item %i (an i64) of an array field

into plain instructions.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

_SCALARS: dict[str, Any] = {
    "ptr": ctypes.c_void_p,
    "i64": ctypes.c_int64,
    "i32": ctypes.c_int32,
    "i8": ctypes.c_int8,
}
_ARRAY = re.compile(r"\[(\d+) x %?(\w+)\]")
_ACCESS = re.compile(
    r"^(?P<indent> *)(?:(?P<result>%\w+) = )?(?P<verb>get|set|at) "
    r"(?P<struct>\w+)\.(?P<field>\w+)(?:\[(?P<index>[%\w]+)\])? (?P<base>%\w+)"
    r"(?:, (?P<value>[%@\w-]+))?$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Struct:
    """A struct by the names and LLVM types of its fields, in order.

    A type is ptr, i64, i32, i8, or `[n x T]` of one of these or of a struct in `parts`.
    """

    name: str
    fields: dict[str, str]
    parts: tuple[Struct, ...] = ()

    @property
    def definition(self) -> str:
        """LLVM's type definition."""
        return f"%{self.name} = type {{ {', '.join(self.fields.values())} }}"

    @cached_property
    def mirror(self) -> type[Any]:
        """The ctypes structure of the same layout."""
        fields = [(name, self._ctype(text)) for name, text in self.fields.items()]
        return type(self.name, (ctypes.Structure,), {"_fields_": fields})

    def _ctype(self, text: str) -> Any:
        array = _ARRAY.fullmatch(text)
        if array is None:
            return _SCALARS[text]
        count, item = int(array[1]), array[2]
        known: dict[str, Any] = {**_SCALARS, **{part.name: part.mirror for part in self.parts}}
        return known[item] * count


def expand(text: str, structs: Iterable[Struct]) -> str:
    """LLVM text with the structs' definitions in front and every access written out."""
    known = {struct.name: struct for struct in structs}
    numbers = iter(range(len(text)))

    def plain(access: re.Match[str]) -> str:
        fields = known[access["struct"]].fields
        place = list(fields).index(access["field"])
        item = f", i64 {access['index']}" if access["index"] else ""
        address = (
            f"getelementptr %{access['struct']}, ptr {access['base']}, i32 0, i32 {place}{item}"
        )
        indent, kind = access["indent"], fields[access["field"]]
        if access["verb"] == "at":
            return f"{indent}{access['result']} = {address}"
        pointer = f"%{access['field']}.{next(numbers)}"
        head = f"{indent}{pointer} = {address}\n{indent}"
        if access["verb"] == "get":
            return f"{head}{access['result']} = load {kind}, ptr {pointer}"
        return f"{head}store {kind} {access['value']}, ptr {pointer}"

    definitions = [struct.definition for struct in known.values()]
    return "\n".join([*definitions, _ACCESS.sub(plain, text)])
