"""What a caller of a kernel compiled ahead of time passes, and which compiled variant fits that.

A kernel may be compiled for several signatures that differ in what is known of the arguments: that
an address or a number is divisible by 16, or that a number is 1.  All share one list of *fields*,
the arguments that a caller gives; a *variant* is right for values that meet its requirements.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deuteron.backends.cpu.kernel_info import ParamInfo
from deuteron.dtypes import BY_NAME
from deuteron.errors import UserError
from deuteron.runtime.specialize import DIVISIBILITY, ParamSpec, Specialization

_POINTER_BYTES = 8
_NARROW_FLOATS = frozenset(d.name for d in BY_NAME.values() if d.is_floating() and d.bits < 32)
# Of C and C++; names of arguments that no struct's field can bear.
_C_KEYWORDS = """
alignas alignof and asm auto bool break case catch char class compl const constexpr continue
decltype default delete do double else enum explicit export extern false float for friend goto
if inline int long mutable namespace new noexcept not nullptr operator or private protected
public register requires restrict return short signed sizeof static struct switch template this
throw true try typedef typeid typename union unsigned using virtual void volatile while xor
"""
_KEYWORDS = frozenset(_C_KEYWORDS.split())


@dataclass(frozen=True, slots=True)
class Field:
    """One argument.  `name` is its name in C; `dtype` of a pointer is its pointee's."""

    name: str
    argument: str
    is_pointer: bool
    dtype: str
    written: bool

    @property
    def bytes(self) -> int:
        """Its size and alignment."""
        return _POINTER_BYTES if self.is_pointer else BY_NAME[self.dtype].storage_bytes


@dataclass(frozen=True, slots=True)
class Requirement:
    """What must hold of a field: to be a multiple, or to be one value (None is a null pointer)."""

    field: int
    multiple_of: int = 1
    equals: int | float | None = None

    @property
    def is_value(self) -> bool:
        return self.multiple_of == 1


@dataclass(frozen=True, slots=True)
class Variant:
    """One compiled kernel: its symbol, the signature it was compiled for, and when it is right.

    `slots` are the fields that it takes, in the order of its parameters.
    """

    symbol: str
    signature: str
    slots: tuple[int, ...]
    requires: tuple[Requirement, ...]


@dataclass(frozen=True, slots=True)
class Interface:
    """The fields, the constants that all variants share, and the variants, the best one first."""

    name: str
    fields: tuple[Field, ...]
    constants: tuple[tuple[str, Any], ...]
    variants: tuple[Variant, ...]

    def offsets(self) -> Iterator[int]:
        """Where each field lies in the struct of the arguments, by C's rules."""
        end = 0
        for field in self.fields:
            start = -(-end // field.bytes) * field.bytes
            yield start
            end = start + field.bytes


@dataclass(frozen=True, slots=True)
class Specialized:
    """A kernel compiled for one signature; `params` are its run-time parameters, one a leaf."""

    symbol: str
    signature: str
    spec: Specialization
    params: tuple[ParamInfo, ...]


def merge(name: str, kernels: Sequence[Specialized]) -> Interface:
    """The interface of kernels that were compiled from one source.

    Raises UserError where their signatures give an argument two types, or a constant two values.
    """
    all_leaves = [{leaf.name: leaf for leaf in _leaves(k.spec.params)} for k in kernels]
    fields: list[Field] = []
    constants: list[tuple[str, Any]] = []
    index: dict[str, int] = {}
    for argument in all_leaves[0]:
        given = [leaves.get(argument) for leaves in all_leaves]
        if any(leaf is not None and not leaf.is_constexpr for leaf in given):
            index[argument] = len(fields)
            fields.append(_field(argument, kernels, given))
        else:
            _require_same(argument, given)
            constants.append((argument, all_leaves[0][argument].value))
    variants = [
        _variant(kernel, leaves, index, fields)
        for kernel, leaves in zip(kernels, all_leaves, strict=True)
    ]
    variants.sort(key=lambda variant: -_knowledge(variant))
    return Interface(name, tuple(fields), tuple(constants), tuple(variants))


def c_name(argument: str) -> str:
    """A name for C: `sizes[0]` is `sizes_0`."""
    name = re.sub(r"\W+", "_", argument, flags=re.ASCII).strip("_") or "argument"
    return f"{name}_" if name in _KEYWORDS else name


def _leaves(params: Sequence[ParamSpec]) -> Iterator[ParamSpec]:
    """Every argument, those in tuples one by one, constants too."""
    for param in params:
        if param.elements:
            yield from _leaves(param.elements)
        else:
            yield param


def _field(
    argument: str, kernels: Sequence[Specialized], given: Sequence[ParamSpec | None]
) -> Field:
    found: list[ParamInfo] = []
    for kernel, leaf in zip(kernels, given, strict=True):
        if leaf is None or leaf.is_constexpr:
            continue
        names = [leaf.name for leaf in kernel.spec.leaves()]
        found.append(kernel.params[names.index(argument)])
        if (found[0].kind, found[0].dtype) != (found[-1].kind, found[-1].dtype):
            raise _two_types(argument, found[0], found[-1])
    first = found[0]
    written = any(param.written for param in found)
    return Field(c_name(argument), argument, first.kind == "pointer", first.dtype, written)


def _variant(
    kernel: Specialized, leaves: dict[str, ParamSpec], index: dict[str, int], fields: list[Field]
) -> Variant:
    slots = tuple(index[leaf.name] for leaf in kernel.spec.leaves())
    requires: list[Requirement] = []
    for argument, number in index.items():
        leaf, field = leaves[argument], fields[number]
        if leaf.is_constexpr:
            requires.append(Requirement(number, equals=_number(field, leaf.value)))
            continue
        multiple = leaf.divisibility
        if field.is_pointer:
            multiple = max(multiple, BY_NAME[field.dtype].storage_bytes)
        if multiple > 1:
            requires.append(Requirement(number, multiple_of=multiple))
    return Variant(kernel.symbol, kernel.signature, slots, tuple(requires))


def _knowledge(variant: Variant) -> int:
    """How much more than the least a variant knows: it is asked before those that know less."""
    return sum(
        2 if need.is_value else int(need.multiple_of == DIVISIBILITY) for need in variant.requires
    )


def _number(field: Field, value: Any) -> int | float | None:
    """What a field must be where a variant has it built in."""
    comparable = value is None if field.is_pointer else isinstance(value, (int, float))
    if comparable and field.dtype not in _NARROW_FLOATS:
        return value
    raise UserError(
        f"argument `{field.argument}` is built in as {value!r} by one signature, and a run-time "
        "argument of another\n"
        "  expected: a number for a scalar of at least 32 bits, None for an array\n"
        f"  got:      {value!r}\n"
        "  remedy:   compile the signatures apart, each with a --name"
    )


def _require_same(argument: str, given: Sequence[ParamSpec | None]) -> None:
    values: dict[Hashable, Any] = {leaf.identity: leaf.value for leaf in given if leaf is not None}
    if len(values) > 1:
        raise UserError(
            f"the signatures give the constant `{argument}` two values\n"
            f"  expected: signatures that differ in what is known of run-time arguments only\n"
            f"  got:      {', '.join(map(repr, values.values()))}\n"
            "  remedy:   compile them apart, each with a --name"
        )


def _two_types(argument: str, first: ParamInfo, second: ParamInfo) -> UserError:
    types = [
        f"{'*' if p.kind == 'pointer' else ''}{BY_NAME[p.dtype].short}" for p in (first, second)
    ]
    return UserError(
        f"the signatures give argument `{argument}` two types\n"
        "  expected: one type in C for each argument\n"
        f"  got:      {' and '.join(types)}\n"
        "  remedy:   compile them apart, each with a --name"
    )
