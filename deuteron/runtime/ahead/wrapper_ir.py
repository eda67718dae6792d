"""The functions that a C caller calls, as LLVM IR: they check, choose a kernel, and run it.

    NAME(args, grid, failure)                                       the whole grid, on this thread
    NAME_range(args, grid, begin, end, scratch, store, failure)     some programs of it
    NAME_scratch_bytes(), NAME_store_bytes()                        what a thread brings
    NAME_failure_text(failure)                                      which device_assert failed
    NAME_on_print(hook)                                             who takes device_print

`deuteron.h` and `header.py` declare them for C, and say what they mean.  They call malloc and free,
nothing else.  A failure begins as a control block (`backends.llvm.control_block`); behind it is the
variant that ran.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from deuteron.backends.cpu.emit import CONTROL_SLOT, FIRST_ARGUMENT_SLOT
from deuteron.backends.cpu.kernel_info import AssertSite, KernelInfo, PrintSite
from deuteron.backends.llvm.registers import storage_elem
from deuteron.dtypes import BY_NAME
from deuteron.runtime.ahead.interface import Field, Interface, Requirement, Variant
from deuteron.runtime.grid import MAX_AXIS, MAX_PROGRAMS

OK: Final = 0
ASSERT_FAILED: Final = 1
BAD_ARGUMENT: Final = 2
BAD_RANGE: Final = 3
NO_MEMORY: Final = 4
ALIGNMENT: Final = 64
"""Of scratch and store, in bytes."""

PRINT_SYMBOL = "deuteron_print"
NO_MESSAGE = "the condition is false"
_CONTROL = "[8 x i64]"
_AXIS_BITS = MAX_AXIS.bit_length()


def wrapper_ir(interface: Interface, infos: Sequence[KernelInfo]) -> str:
    """The module, to be linked with the kernels; `infos` are the variants' in their order."""
    name = interface.name
    scratch = max(info.scratch_bytes for info in infos)
    store = max(info.store_bytes for info in infos)
    pairs = list(zip(interface.variants, infos, strict=True))
    parts = [
        _declarations(interface),
        _programs(name),
        _aligned(name),
        _choose(interface),
        *(_run(interface, variant) for variant in interface.variants),
        *(_print_function(name, variant, info) for variant, info in pairs if info.print_sites),
        _range(interface, scratch),
        _whole(name, store),
        _constant_function(f"{name}_scratch_bytes", scratch),
        _constant_function(f"{name}_store_bytes", store),
        _failure_text(name, [info.assert_sites for info in infos]),
    ]
    if any(info.print_sites for info in infos):
        parts.append(_on_print(name))
    return "\n".join(parts)


def with_own_print(llvm: str, symbol: str) -> str:
    """A kernel's module, its prints going to a function of its own in the wrapper."""
    return re.sub(rf"@{PRINT_SYMBOL}\b", f"@{symbol}.print", llvm)


def _declarations(interface: Interface) -> str:
    types = ", ".join(map(_type, interface.fields)) or "i8"
    kernels = "\n".join(
        f"declare void @{variant.symbol}(ptr, i64, i64, ptr, ptr)" for variant in interface.variants
    )
    return f"""\
%{interface.name}.args = type {{ {types} }}
declare ptr @malloc(i64)
declare void @free(ptr)
declare {{ i64, i1 }} @llvm.umul.with.overflow.i64(i64, i64)
{kernels}
"""


def _programs(name: str) -> str:
    return f"""\
; How many programs a grid has; -1 for a size that is none, or too many.
define internal i64 @{name}.programs(ptr %grid) {{
  %yp = getelementptr i64, ptr %grid, i64 1
  %zp = getelementptr i64, ptr %grid, i64 2
  %x = load i64, ptr %grid
  %y = load i64, ptr %yp
  %z = load i64, ptr %zp
  %some = or i64 %x, %y
  %bits = or i64 %some, %z
  %high = lshr i64 %bits, {_AXIS_BITS}
  %fits = icmp eq i64 %high, 0
  %plane = mul i64 %x, %y
  %product = call {{ i64, i1 }} @llvm.umul.with.overflow.i64(i64 %plane, i64 %z)
  %count = extractvalue {{ i64, i1 }} %product, 0
  %over = extractvalue {{ i64, i1 }} %product, 1
  %few = icmp ult i64 %count, {MAX_PROGRAMS}
  %bounded = select i1 %over, i1 false, i1 %few
  %good = and i1 %fits, %bounded
  %result = select i1 %good, i64 %count, i64 -1
  ret i64 %result
}}
"""


def _aligned(name: str) -> str:
    return f"""\
; The first aligned address in a block that is ALIGNMENT longer than need be.
define internal ptr @{name}.aligned(ptr %block) {{
  %address = ptrtoint ptr %block to i64
  %above = add i64 %address, {ALIGNMENT - 1}
  %aligned = and i64 %above, {-ALIGNMENT}
  %result = inttoptr i64 %aligned to ptr
  ret ptr %result
}}
"""


def _choose(interface: Interface) -> str:
    """The first variant whose requirements hold."""
    lines = [
        "; The variant that is right for the arguments; -1 when none is.",
        f"define internal i32 @{interface.name}.choose(ptr %args) {{",
    ]
    for number, field in enumerate(interface.fields):
        lines += _load_field(interface.name, number, field)
        if field.is_pointer:
            lines.append(f"  %bits{number} = ptrtoint ptr %field{number} to i64")
    chosen = "-1"
    for number in reversed(range(len(interface.variants))):
        holds = "true"
        for need_number, need in enumerate(interface.variants[number].requires):
            label = f"%v{number}.{need_number}"
            lines += _test(interface.fields[need.field], need, label)
            lines.append(f"  {label}.and = and i1 {holds}, {label}")
            holds = f"{label}.and"
        lines.append(f"  %chosen{number} = select i1 {holds}, i32 {number}, i32 {chosen}")
        chosen = f"%chosen{number}"
    return "\n".join([*lines, f"  ret i32 {chosen}", "}", ""])


def _test(field: Field, need: Requirement, label: str) -> Iterator[str]:
    """Whether a requirement holds, as an i1 called `label`."""
    number = need.field
    type, value = (
        ("i64", f"%bits{number}") if field.is_pointer else (_type(field), f"%field{number}")
    )
    if not need.is_value:
        yield f"  {label}.rest = and {type} {value}, {need.multiple_of - 1}"
        yield f"  {label} = icmp eq {type} {label}.rest, 0"
    elif type in ("float", "double"):
        yield f"  {label} = fcmp oeq {type} {value}, {_float_constant(type, need.equals or 0)}"
    else:
        yield f"  {label} = icmp eq {type} {value}, {int(need.equals or 0)}"


def _run(interface: Interface, variant: Variant) -> str:
    """Pack the slots of one variant, and call it."""
    count = FIRST_ARGUMENT_SLOT + len(variant.slots)
    lines = [
        f"define internal void @{variant.symbol}.run(ptr %args, ptr %grid, i64 %begin, i64 %end,",
        "                           ptr %scratch, ptr %store, ptr %control) {",
        f"  %slots = alloca [{count} x i64], align 8",
        "  %sizes = load [3 x i64], ptr %grid, align 8",
        "  store [3 x i64] %sizes, ptr %slots, align 8",
        f"  %slot.control = getelementptr i64, ptr %slots, i64 {CONTROL_SLOT}",
        "  store ptr %control, ptr %slot.control, align 8",
    ]
    for place, number in enumerate(variant.slots, FIRST_ARGUMENT_SLOT):
        field = interface.fields[number]
        lines += _load_field(interface.name, number, field)
        lines.append(f"  %slot{number} = getelementptr i64, ptr %slots, i64 {place}")
        type, value = _type(field), f"%field{number}"
        if type.startswith("i") and type != "i64" and BY_NAME[field.dtype].is_int():
            extend = "sext" if BY_NAME[field.dtype].is_int_signed() else "zext"
            lines.append(f"  %wide{number} = {extend} {type} {value} to i64")
            type, value = "i64", f"%wide{number}"
        lines.append(f"  store {type} {value}, ptr %slot{number}, align 8")
    arguments = "ptr %slots, i64 %begin, i64 %end, ptr %scratch, ptr %store"
    return "\n".join([*lines, f"  call void @{variant.symbol}({arguments})", "  ret void", "}", ""])


def _range(interface: Interface, scratch_bytes: int) -> str:
    name = interface.name
    cases = " ".join(f"i32 {i}, label %run{i}" for i in range(len(interface.variants)))
    told = "ptr %args, ptr %grid, i64 %begin, i64 %end, ptr %memory, ptr %store, ptr %control"
    runs = "\n".join(
        f"run{number}:\n  call void @{variant.symbol}.run({told})\n  br label %done"
        for number, variant in enumerate(interface.variants)
    )
    return f"""\
define i32 @{name}_range(ptr %args, ptr %grid, i64 %begin, i64 %end, ptr %scratch, ptr %store,
                         ptr %failure) {{
entry:
  %own = alloca {_CONTROL}, align 8
  store {_CONTROL} zeroinitializer, ptr %own, align 8
  %programs = call i64 @{name}.programs(ptr %grid)
  %positive = icmp sge i64 %begin, 0
  %ordered = icmp sle i64 %begin, %end
  %inside = icmp sle i64 %end, %programs
  %sound0 = and i1 %positive, %ordered
  %sound = and i1 %sound0, %inside
  br i1 %sound, label %look, label %bad_range
look:
  %variant = call i32 @{name}.choose(ptr %args)
  %fits = icmp sge i32 %variant, 0
  br i1 %fits, label %prepare, label %bad_argument
prepare:
  %given = icmp ne ptr %scratch, null
  %enough = or i1 %given, {"false" if scratch_bytes else "true"}
  br i1 %enough, label %go, label %take
take:
  %block = call ptr @malloc(i64 {scratch_bytes + ALIGNMENT})
  %none = icmp eq ptr %block, null
  br i1 %none, label %no_memory, label %align
align:
  %fresh = call ptr @{name}.aligned(ptr %block)
  br label %go
go:
  %memory = phi ptr [ %scratch, %prepare ], [ %fresh, %align ]
  %taken = phi ptr [ null, %prepare ], [ %block, %align ]
  %anonymous = icmp eq ptr %failure, null
  %control = select i1 %anonymous, ptr %own, ptr %failure
  %variantp = getelementptr i64, ptr %control, i64 4
  %variant64 = zext i32 %variant to i64
  store atomic i64 %variant64, ptr %variantp monotonic, align 8
  switch i32 %variant, label %bad_argument [ {cases} ]
{runs}
done:
  call void @free(ptr %taken)
  %number = load atomic i64, ptr %control acquire, align 8
  %failed = icmp ne i64 %number, 0
  %status = select i1 %failed, i32 {ASSERT_FAILED}, i32 {OK}
  ret i32 %status
bad_range:
  ret i32 {BAD_RANGE}
bad_argument:
  ret i32 {BAD_ARGUMENT}
no_memory:
  ret i32 {NO_MEMORY}
}}
"""


def _whole(name: str, store_bytes: int) -> str:
    return f"""\
define i32 @{name}(ptr %args, ptr %grid, ptr %failure) {{
entry:
  %anonymous = icmp eq ptr %failure, null
  br i1 %anonymous, label %count, label %clear
clear:
  store {_CONTROL} zeroinitializer, ptr %failure, align 8
  br label %count
count:
  %programs = call i64 @{name}.programs(ptr %grid)
  %many = icmp sgt i64 %programs, 1               ; a single program finds no tile again
  %useful = icmp ne i64 {store_bytes}, 0
  %wanted = and i1 %many, %useful
  br i1 %wanted, label %take, label %go
take:
  %block = call ptr @malloc(i64 {store_bytes + ALIGNMENT})
  %none = icmp eq ptr %block, null                ; it is a wish
  br i1 %none, label %go, label %align
align:
  %fresh = call ptr @{name}.aligned(ptr %block)
  store i64 0, ptr %fresh, align 8
  br label %go
go:
  %store = phi ptr [ null, %count ], [ null, %take ], [ %fresh, %align ]
  %taken = phi ptr [ null, %count ], [ null, %take ], [ %block, %align ]
  %bad = icmp slt i64 %programs, 0
  %end = select i1 %bad, i64 0, i64 %programs
  %status = call i32 @{name}_range(ptr %args, ptr %grid, i64 0, i64 %end, ptr null, ptr %store,
                                   ptr %failure)
  call void @free(ptr %taken)
  ret i32 %status
}}
"""


def _constant_function(name: str, value: int) -> str:
    return f"define i64 @{name}() {{\n  ret i64 {value}\n}}\n"


def _failure_text(name: str, sites: Sequence[Sequence[AssertSite]]) -> str:
    """A table of all variants' asserts, and where each variant's begin."""
    texts = [_assert_text(site) for variant in sites for site in variant]
    begins = [sum(map(len, sites[:number])) for number in range(len(sites) + 1)]
    strings = [_string(f"{name}.assert{i}", text) for i, text in enumerate(texts)]
    table = ", ".join(f"ptr @{name}.assert{i}" for i in range(len(texts)))
    starts = ", ".join(f"i64 {begin}" for begin in begins)
    return "\n".join([
        *strings,
        f"@{name}.asserts = internal constant [{len(texts)} x ptr] [{table}]",
        f"@{name}.begins = internal constant [{len(begins)} x i64] [{starts}]",
        f"""\
; What failed, by the number and the variant in a failure; null when nothing did.
define ptr @{name}_failure_text(ptr %failure) {{
entry:
  %anonymous = icmp eq ptr %failure, null
  br i1 %anonymous, label %nothing, label %look
look:
  %number = load atomic i64, ptr %failure acquire, align 8
  %variantp = getelementptr i64, ptr %failure, i64 4
  %variant = load i64, ptr %variantp, align 8
  %known = icmp ult i64 %variant, {len(sites)}
  br i1 %known, label %count, label %nothing
count:
  %beginp = getelementptr i64, ptr @{name}.begins, i64 %variant
  %endp = getelementptr i64, ptr %beginp, i64 1
  %begin = load i64, ptr %beginp, align 8
  %end = load i64, ptr %endp, align 8
  %sites = sub i64 %end, %begin
  %index = sub i64 %number, 1
  %real = icmp ult i64 %index, %sites
  br i1 %real, label %found, label %nothing
found:
  %at = add i64 %begin, %index
  %textp = getelementptr ptr, ptr @{name}.asserts, i64 %at
  %text = load ptr, ptr %textp, align 8
  ret ptr %text
nothing:
  ret ptr null
}}
""",
    ])  # fmt: skip


def _assert_text(site: AssertSite) -> str:
    return f"{site.file}:{site.line}: device_assert: {site.message or NO_MESSAGE}"


# -- device_print ----------------------------------------------------------------------------
def _on_print(name: str) -> str:
    return f"""\
@{name}.hook = internal global ptr null
define void @{name}_on_print(ptr %hook) {{
  store atomic ptr %hook, ptr @{name}.hook release, align 8
  ret void
}}
"""


def _print_function(name: str, variant: Variant, info: KernelInfo) -> str:
    """What one variant calls; the hook gets a site's description, see `deuteron_print_site`."""
    symbol = variant.symbol
    sites = [_print_site(f"{symbol}.site{i}", site) for i, site in enumerate(info.print_sites)]
    table = ", ".join(f"ptr @{symbol}.site{i}" for i in range(len(sites)))
    return "\n".join([
        *sites,
        f"@{symbol}.sites = internal constant [{len(sites)} x ptr] [{table}]",
        f"""\
define hidden void @{symbol}.print(i64 %number, ptr %program, ptr %data, i64 %count) {{
entry:
  %hook = load atomic ptr, ptr @{name}.hook acquire, align 8
  %nobody = icmp eq ptr %hook, null
  br i1 %nobody, label %out, label %tell
tell:
  %sitep = getelementptr ptr, ptr @{symbol}.sites, i64 %number
  %site = load ptr, ptr %sitep, align 8
  call void %hook(ptr %site, ptr %program, ptr %data)
  br label %out
out:
  ret void
}}
""",
    ])  # fmt: skip


def _print_site(symbol: str, site: PrintSite) -> str:
    shown = site.shape != (0,)  # a print without operands has an empty one
    shape = site.shape if shown else ()
    count = 1 if shown else 0
    for size in shape:
        count *= size
    sizes = ", ".join(f"i64 {size}" for size in shape)
    fields = (
        f"ptr @{symbol}.label, ptr @{symbol}.dtype, ptr @{symbol}.shape, i64 {len(shape)}, "
        f"i64 {count}, i32 {int(site.hex)}, i32 {site.operand}"
    )
    return "\n".join([
        _string(f"{symbol}.label", site.prefix.strip()),
        _string(f"{symbol}.dtype", site.dtype),
        f"@{symbol}.shape = internal constant [{len(shape)} x i64] [{sizes}]",
        f"@{symbol} = internal constant {{ ptr, ptr, ptr, i64, i64, i32, i32 }} {{ {fields} }}",
    ])  # fmt: skip


# -- pieces ----------------------------------------------------------------------------------
def _type(field: Field) -> str:
    """A field's type in the struct, which has C's layout."""
    if field.is_pointer:
        return "ptr"
    type = storage_elem(BY_NAME[field.dtype])
    return "i16" if type == "half" else type  # in C a half is its bits


def _float_constant(type: str, value: float) -> str:
    """A constant as LLVM writes it: the bits of a double, rounded to a float's where it is one."""
    code = "<f" if type == "float" else "<d"
    rounded = struct.unpack(code, struct.pack(code, value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"


def _load_field(name: str, number: int, field: Field) -> list[str]:
    place = f"getelementptr %{name}.args, ptr %args, i32 0, i32 {number}"
    return [
        f"  %place{number} = {place}",
        f"  %field{number} = load {_type(field)}, ptr %place{number}, align {field.bytes}",
    ]


def _string(symbol: str, text: str) -> str:
    data = text.encode() + b"\0"
    quoted = "".join(f"\\{byte:02X}" for byte in data)
    return f'@{symbol} = internal constant [{len(data)} x i8] c"{quoted}"'
