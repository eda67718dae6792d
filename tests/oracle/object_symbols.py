"""What an object file leaves for a linker to find: the undefined names of ELF, Mach-O and COFF.

Sources: System V ABI, chapter 4 (ELF-64); Apple's mach-o/loader.h and mach-o/nlist.h; Microsoft's
PE/COFF specification, "COFF File Header" and "COFF Symbol Table".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_ELF, _MACHO, _COFF_X86 = b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\x64\x86"
_SHT_SYMTAB = 2
_LC_SYMTAB = 2
_EXTERNAL, _TYPE_BITS = 0x01, 0x0E  # of n_type; the type N_UNDF is 0
_CLASS_EXTERNAL = 2


def undefined_symbols(obj: bytes) -> set[str]:
    """The names that an object uses and does not define, as its format spells them."""
    if obj.startswith(_ELF):
        return set(_elf(obj))
    if obj.startswith(_MACHO):
        return set(_macho(obj))
    if obj.startswith(_COFF_X86):
        return set(_coff(obj))
    raise ValueError(f"an object that begins with {obj[:4].hex()}")


def _text(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()


def _elf(obj: bytes) -> Iterator[str]:
    (sections_at,) = struct.unpack_from("<Q", obj, 0x28)
    size, count = struct.unpack_from("<2H", obj, 0x3A)
    # Of a section header: type, offset, size, link.
    sections = [struct.unpack_from("<4xI16x2QI", obj, sections_at + size * i) for i in range(count)]
    for kind, offset, length, link in sections:
        if kind != _SHT_SYMTAB:
            continue
        names = obj[sections[link][1] :]
        for at in range(offset + 24, offset + length, 24):  # after the null symbol
            name, section = struct.unpack_from("<I2xH", obj, at)
            if section == 0:
                yield _text(names, name)


def _macho(obj: bytes) -> Iterator[str]:
    (commands,) = struct.unpack_from("<I", obj, 16)
    at = 32
    for _ in range(commands):
        command, size = struct.unpack_from("<2I", obj, at)
        if command == _LC_SYMTAB:
            symbols, count, strings, _ = struct.unpack_from("<4I", obj, at + 8)
            for place in range(symbols, symbols + 16 * count, 16):
                name, kind = struct.unpack_from("<IB", obj, place)
                if kind & _EXTERNAL and not kind & _TYPE_BITS:
                    yield _text(obj[strings:], name)
        at += size


def _coff(obj: bytes) -> Iterator[str]:
    symbols, count = struct.unpack_from("<2I", obj, 8)
    strings = obj[symbols + 18 * count :]
    number = 0
    while number < count:
        at = symbols + 18 * number
        name, _, section, _, kind, auxiliary = struct.unpack_from("<8sIhHBB", obj, at)
        if kind == _CLASS_EXTERNAL and section == 0:
            long = name[:4] == b"\0\0\0\0"
            yield _text(strings, struct.unpack("<4xI", name)[0]) if long else _text(name + b"\0", 0)
        number += 1 + auxiliary
