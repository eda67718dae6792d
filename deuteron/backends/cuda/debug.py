"""`device_print` and `device_assert` on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from deuteron.backends.cuda.layout import Layout
from deuteron.backends.cuda.tiles import Tiles
from deuteron.backends.interp.printing import placed_label
from deuteron.backends.llvm.builder import I32, PTR, LType, Val
from deuteron.backends.llvm.control_block import emit_failure
from deuteron.backends.llvm.registers import convert
from deuteron.dtypes import float64, int64, uint64
from deuteron.ir import Op, Value

_PRINT = "vprintf"


def emit_print(tiles: Tiles, op: Op) -> None:
    """Let each thread print the elements it stands for, a line an element.

    A line reads `pid (0, 0, 0) idx (3) label: value`, as on the CPU.
    """
    label = placed_label(str(op.attrs.get("prefix") or ""))
    as_hex = bool(op.attrs.get("hex"))
    if not op.operands:
        tiles.on_representatives(None, lambda: _line(tiles, (), label, None, as_hex))
    for number, operand in enumerate(op.operands):
        prefix = label + (f" (operand {number})" if len(op.operands) > 1 else "")
        layout = None
        if operand.type.shape:
            layout = tiles.assignment.common_home((operand,))
        shape = op.attrs["shapes"][number] if "shapes" in op.attrs else operand.type.shape
        write = partial(_all, tiles, operand, layout, shape, prefix, as_hex)
        tiles.on_representatives(layout, write)


def _all(
    tiles: Tiles,
    operand: Value,
    layout: Layout | None,
    shape: tuple[int, ...],
    prefix: str,
    as_hex: bool,
) -> None:
    """Print what a thread holds of a tile of that shape, which may be padded."""
    if layout is None:
        _line(tiles, (), prefix, (operand, tiles.scalar(operand)), as_hex)
        return
    registers = tiles.registers(operand, layout)
    for offset, val in zip(layout.register_coords(), registers, strict=True):
        place = [tiles.coordinate(layout, axis, offset) for axis in range(layout.rank)]
        line = partial(_line, tiles, place, prefix, (operand, val), as_hex)
        if layout.shape == shape:
            line()
        else:
            tiles.on_condition(_within(tiles, place, shape), line)


def _within(tiles: Tiles, place: Sequence[Val], shape: tuple[int, ...]) -> Val:
    """Whether an element is one of a tile of that shape."""
    b = tiles.b
    inside = b.const(1, LType("i1"))
    for index, size in zip(place, shape, strict=True):
        inside = b.and_(inside, b.icmp("ult", index, b.const(size, I32)))
    return inside


def _line(
    tiles: Tiles,
    place: Sequence[Val],
    prefix: str,
    shown: tuple[Value, Val] | None,
    as_hex: bool,
) -> None:
    b = tiles.b
    numbers = [*(tiles.cta.program_id(axis) for axis in range(3)), *place]
    text = "pid (%u, %u, %u)"
    if shown is not None:
        text += f" idx ({', '.join(['%u'] * len(place))})"
    text += prefix.replace("%", "%%").rstrip()
    if shown is not None:
        pattern, val = _printable(tiles, *shown, as_hex)
        text += " " + pattern
        numbers.append(val)
    record = f"{{ {', '.join(str(n.type) for n in numbers)} }}"
    with tiles.levels.at(0):
        memory = b.emit(f"alloca {record}, align 8", PTR)
    for index, number in enumerate(numbers):
        field = b.emit(f"getelementptr inbounds {record}, {memory}, i32 0, i32 {index}", PTR)
        b.store(number, field, min(8, number.type.bits // 8))
    b.call(I32, _PRINT, [_string(tiles, text + "\n"), memory])


def _printable(tiles: Tiles, value: Value, val: Val, as_hex: bool) -> tuple[str, Val]:
    """A printf pattern and what it takes: integers as 64 bits, floats as double."""
    b = tiles.b
    if value.type.is_pointer:
        return "0x%llx", b.convert("ptrtoint", val, "i64")
    dtype = value.type.dtype
    if dtype.is_floating():
        return "%f", convert(b, val, dtype, float64)
    if as_hex:
        bits = val if dtype.bits == 64 else b.convert("zext", val, "i64")
        return f"0x%0{max(1, dtype.bits // 4)}llx", bits
    if dtype.is_int_signed():
        return "%lld", convert(b, val, dtype, int64)
    return "%llu", convert(b, val, dtype, uint64)


def _string(tiles: Tiles, text: str) -> Val:
    """The address of a constant, zero-terminated string."""
    data = text.encode() + b"\0"
    quoted = "".join(
        chr(c) if 32 <= c < 127 and chr(c) not in '"\\' else f"\\{c:02X}" for c in data
    )
    name = f"text{len(tiles.b.globals)}"
    tiles.b.globals[name] = (
        f'private unnamed_addr addrspace(1) constant [{len(data)} x i8] c"{quoted}", align 1'
    )
    place = Val(f"@{name}", LType("ptr addrspace(1)"))
    return tiles.b.emit(f"addrspacecast {place} to ptr", PTR)


def emit_assert(tiles: Tiles, op: Op, control: Val, number: int) -> None:
    """Record the first failed assert of a launch in its control block; the program goes on."""
    b = tiles.b
    condition = op.operands[0]
    layout = tiles.assignment.common_home((condition,)) if condition.type.shape else None
    operands = [
        [tiles.scalar(o)] if layout is None else tiles.registers(o, layout) for o in op.operands
    ]
    failed = b.const(0, LType("i1"))
    for args in zip(*operands, strict=True):
        fails = b.xor(args[0], b.const(1, args[0].type))
        if len(args) > 1:
            fails = b.and_(fails, args[1])
        failed = b.or_(failed, fails)

    tiles.levels.branch(
        failed, lambda: emit_failure(tiles.levels, control, number, tiles.program_ids), list
    )
