"""PTX that kernels are written with: `inline_asm_elementwise`.

A run of the assembly takes `pack` elements of each operand, in 32-bit registers if they are
narrower, and gives as many of each result.  LLVM ends the process on constraints it cannot meet, so
all of them are checked here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from deuteron.backends.cuda.tiles import Tile, Tiles
from deuteron.backends.llvm.builder import Builder, LType, Val
from deuteron.backends.llvm.registers import elem_bytes, storage_elem, to_register, to_storage
from deuteron.dtypes import int1
from deuteron.errors import CompilationError
from deuteron.ir import Element, Op

_WORD_BITS = 32
# The kinds of register, by the letter of the constraint.
_REGISTERS = {"b": "i1", "h": "i16", "r": "i32", "l": "i64", "f": "float", "d": "double"}
_LETTERS = {1: "b", 8: "h, r", 16: "h, r", 32: "r, f", 64: "l, d"}
_CLOBBER = re.compile(r"~\{\w+\}")
# What LLVM makes of a `$` in assembly: itself, an operand, or one with a modifier.
_DOLLAR = re.compile(r"\$(?:\$|(\d+)|\{(\d+)(?::\w+)?\}|(.?))")


@dataclass(frozen=True, slots=True)
class _Slot:
    """One register that the assembly takes or gives: `count` elements, and the register's type."""

    element: Element
    count: int
    register: LType

    @property
    def bits(self) -> int:
        """Of the elements together."""
        return _element_bits(self.element) * self.count

    @property
    def fits(self) -> bool:
        """Whether the register holds them: an integer one may be wider, but for a truth value."""
        if self.register.is_float or 1 in (self.bits, self.register.bits):
            return self.bits == self.register.bits
        return self.bits <= self.register.bits


@dataclass(frozen=True, slots=True)
class _Plan:
    """How often the assembly is run over a thread's registers, and with what."""

    constraints: str
    results: tuple[tuple[_Slot, ...], ...]
    operands: tuple[tuple[_Slot, ...], ...]


def emit_assembly(tiles: Tiles, op: Op) -> list[Tile]:
    """The results of assembly, all at one home.

    Raises CompilationError, at its place, for constraints that do not fit the operands.
    """
    plan = _plan(op)
    layout = tiles.assignment.homes.get(op.results[0])
    operands = [
        [tiles.scalar(o)] if layout is None else tiles.registers(o, layout) for o in op.operands
    ]
    count = 1 if layout is None else layout.registers
    pack: int = op.attrs["pack"]
    results: list[list[Val]] = [[] for _ in op.results]
    for first in range(0, count, pack):
        # Registers that are missing from the last run are the last one again.
        taken = [min(number, count - 1) for number in range(first, first + pack)]
        packs = [[registers[number] for number in taken] for registers in operands]
        for result, given in zip(results, _one_run(tiles, op, plan, packs), strict=True):
            result += given[: count - first]
    if layout is None and op.attrs.get("volatile"):  # threads may read registers of their own
        first_thread = tiles.cta.on_one_thread()
        results = [[tiles.everywhere(result[0], first_thread)] for result in results]
    return [Tile(layout, result) for result in results]


def _one_run(tiles: Tiles, op: Op, plan: _Plan, packs: Sequence[Sequence[Val]]) -> list[list[Val]]:
    b = tiles.b
    args: list[Val] = []
    for elements, slots in zip(packs, plan.operands, strict=True):
        rest = iter(elements)
        args += [_packed(b, slot, [next(rest) for _ in range(slot.count)]) for slot in slots]
    given = iter(
        tiles.cta.asm(
            str(op.attrs["asm"]),
            plan.constraints,
            args,
            [slot.register for slots in plan.results for slot in slots],
            sideeffect=bool(op.attrs.get("volatile")),
        )
    )
    return [
        [element for slot in slots for element in _unpacked(b, slot, next(given))]
        for slots in plan.results
    ]


def _element_bits(element: Element) -> int:
    return 1 if element is int1 else 8 * elem_bytes(storage_elem(element))


# -- elements in registers ------------------------------------------------------------------
def _packed(b: Builder, slot: _Slot, elements: Sequence[Val]) -> Val:
    """Elements side by side in a register, the first lowest; zeros above them."""
    if slot.element is int1:
        return _widened(b, elements[0], slot.register)
    stored = [to_storage(b, element, slot.element) for element in elements]
    if stored[0].type.elem == "ptr":
        stored = [b.convert("ptrtoint", stored[0], "i64")]
    whole = stored[0]
    if len(stored) > 1:
        whole = b.emit(f"bitcast {b.vector_of(stored)} to i{slot.bits}", LType(f"i{slot.bits}"))
    return _widened(b, b.bitcast(whole, f"i{slot.bits}"), slot.register)


def _widened(b: Builder, bits: Val, register: LType) -> Val:
    if bits.type.bits < register.bits:
        bits = b.convert("zext", bits, f"i{register.bits}")
    return b.bitcast(bits, register.elem)


def _unpacked(b: Builder, slot: _Slot, given: Val) -> list[Val]:
    """The inverse of `_packed`."""
    bits = b.bitcast(given, f"i{given.type.bits}")
    if bits.type.bits > slot.bits:
        bits = b.convert("trunc", bits, f"i{slot.bits}")
    if slot.element is int1:
        return [bits]
    elem = storage_elem(slot.element)
    if slot.count > 1:
        vector = LType(elem, slot.count)
        whole = b.emit(f"bitcast {bits} to {vector}", vector)
        elements = [b.extract(whole, place) for place in range(slot.count)]
    else:
        elements = [b.bitcast(bits, elem)]
    return [to_register(b, element, slot.element) for element in elements]


# -- constraints ----------------------------------------------------------------------------
def _plan(op: Op) -> _Plan:
    """Match the constraints with the results and operands of one run."""
    given = ["".join(part.split()) for part in str(op.attrs["constraints"]).split(",")]
    given = [part for part in given if part]
    clobbers = [part for part in given if _CLOBBER.fullmatch(part)]
    kinds = [part for part in given if part not in clobbers]
    pack: int = op.attrs["pack"]
    outputs = [_slot_counts(result.type.element, pack) for result in op.results]
    inputs = [_slot_counts(operand.type.element, pack) for operand in op.operands]
    wanted = sum(map(len, outputs)) + sum(map(len, inputs))
    if len(kinds) != wanted:
        raise _refused(
            op,
            "the constraints of the assembly do not fit its operands",
            expected=f"{sum(map(len, outputs))} results and {sum(map(len, inputs))} operands",
            got=f"{len(kinds)}: {', '.join(kinds) or 'none'}",
            remedy="give one constraint for each register: elements narrower than 32 bits share "
            "them when pack is more than 1",
        )
    _check_places(op, wanted)
    rest = iter(kinds)
    letters: list[str] = []
    results = tuple(
        tuple(_result_slot(op, result.type.element, n, next(rest), letters) for n in counts)
        for result, counts in zip(op.results, outputs, strict=True)
    )
    operands = tuple(
        tuple(_operand_slot(op, operand.type.element, n, next(rest), letters) for n in counts)
        for operand, counts in zip(op.operands, inputs, strict=True)
    )
    return _Plan(",".join([*kinds, *clobbers]), results, operands)


def _slot_counts(element: Element, pack: int) -> list[int]:
    """How many elements lie in each register of a pack."""
    together = 1 if element is int1 else max(1, min(pack, _WORD_BITS // _element_bits(element)))
    return [together] * (pack // together)


def _result_slot(op: Op, element: Element, count: int, kind: str, letters: list[str]) -> _Slot:
    letter = kind.removeprefix("=").removeprefix("&")
    if not kind.startswith("="):
        raise _wrong_kind(op, kind, element, count, prefix="=")
    letters.append(letter)
    return _slot(op, element, count, letter, kind, prefix="=")


def _operand_slot(op: Op, element: Element, count: int, kind: str, letters: list[str]) -> _Slot:
    """An operand's register; a number instead of a letter is that of a result it shares."""
    letter = letters[int(kind)] if kind.isdecimal() and int(kind) < len(letters) else kind
    return _slot(op, element, count, letter, kind, prefix="")


def _slot(op: Op, element: Element, count: int, letter: str, kind: str, *, prefix: str) -> _Slot:
    register = _REGISTERS.get(letter)
    if register is not None:
        slot = _Slot(element, count, LType(register))
        if slot.fits:
            return slot
    raise _wrong_kind(op, kind, element, count, prefix=prefix)


def _wrong_kind(
    op: Op, kind: str, element: Element, count: int, *, prefix: str
) -> CompilationError:
    bits = 1 if element is int1 else 8 * elem_bytes(storage_elem(element)) * count
    letters = ", ".join(prefix + letter for letter in _LETTERS[bits].split(", "))
    several = f"{count} elements of {element}" if count > 1 else str(element)
    return _refused(
        op,
        f"the constraint `{kind}` of the assembly is none for {several}",
        expected=f"one of {letters}",
        got=kind,
        remedy="use the letter of the register's kind: h 16 bits, r 32, l 64, f float, d double",
    )


def _check_places(op: Op, count: int) -> None:
    """Demand that each `$` of the assembly stands for an operand that there is."""
    for found in _DOLLAR.finditer(str(op.attrs["asm"])):
        number, braced, other = found.groups()
        place = number or braced
        if other is not None or (place is not None and int(place) >= count):
            raise _refused(
                op,
                "the assembly names an operand that it is not given",
                expected=f"$0 to ${count - 1}, and $$ for a dollar sign",
                got=found.group(),
                remedy="number results first, then operands, as the constraints do",
            )


def _refused(op: Op, message: str, *, expected: str, got: str, remedy: str) -> CompilationError:
    return CompilationError(message, op.loc, expected=expected, got=got, remedy=remedy)
