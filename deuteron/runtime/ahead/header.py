"""The C header of kernels compiled ahead of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any

from deuteron.backends.cpu.kernel_info import KernelInfo
from deuteron.dtypes import BY_NAME, DType
from deuteron.runtime.ahead.interface import Field, Interface, Requirement, Variant, c_name

SHARED_HEADER = "deuteron.h"


def shared_header() -> str:
    """What all headers include."""
    return files("deuteron.runtime.ahead").joinpath(SHARED_HEADER).read_text(encoding="utf-8")


def header(
    interface: Interface, infos: Sequence[KernelInfo], source: str, target: str, overlap: bool
) -> str:
    """The header of one kernel, for C99 and C++.

    `source` and `target` say where the kernel comes from and which CPU it needs.
    """
    name = interface.name
    guard = f"DEUTERON_KERNEL_{name.upper()}_H"
    lines = [
        f"/* {name}: {_comment(source)}",
        f" * for {_comment(target)}; made by `deuteron compile`.",
        " *",
        *_about_variants(interface),
        *_about_arrays(overlap),
        " */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        f'#include "{SHARED_HEADER}"',
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        *_constants(interface),
        "/* The arguments.  Arrays that are only read are const. */",
        f"typedef struct {name}_args {{",
        *(f"    {_declaration(field)};{_remark(field)}" for field in interface.fields),
        *([] if interface.fields else ["    char nothing;"]),
        f"}} {name}_args;",
        "",
        _FUNCTIONS.format(name=name),
    ]
    if any(info.print_sites for info in infos):
        lines.append(_ON_PRINT.format(name=name))
    return "\n".join([*lines, "#ifdef __cplusplus", "}", "#endif", "", "#endif", ""])


_FUNCTIONS = """\
/* Run every program of a grid of grid[0] x grid[1] x grid[2] programs on the calling thread.
 * Memory is taken by malloc for the time of the call.  `failure` may be NULL. */
int {name}(const {name}_args *args, const int64_t grid[3], deuteron_failure *failure);

/* Run the programs begin <= i < end of the grid, program (x, y, z) being number
 * i = x + grid[0] * (y + grid[1] * z).  Threads may run ranges of one grid at the same time, in any
 * order; the grid is done when each program has been run once.
 *
 *   scratch   {name}_scratch_bytes() of memory for this thread alone, aligned to
 *             DEUTERON_ALIGNMENT; NULL has malloc called for it
 *   store     {name}_store_bytes() of memory for this thread alone, aligned likewise: what was
 *             computed once is found there again by the thread's next ranges.  Set its first
 *             int64_t to 0 before the thread's first range of each grid.  NULL does without
 *   failure   NULL, or what all threads of the grid share, zeroed before the first range
 */
int {name}_range(const {name}_args *args, const int64_t grid[3], int64_t begin, int64_t end,
    void *scratch, void *store, deuteron_failure *failure);

/* How much memory a thread brings.  Pages of the store that are not needed are not touched. */
size_t {name}_scratch_bytes(void);
size_t {name}_store_bytes(void);

/* "file:line: device_assert: message" of a failure; NULL when there is none. */
const char *{name}_failure_text(const deuteron_failure *failure);
"""

_ON_PRINT = """\
/* Who is told what device_print says; NULL, as it is at first, is nobody.  deuteron_print_stdout
 * writes it to stdout. */
void {name}_on_print(deuteron_print_hook hook);
"""


def _about_variants(interface: Interface) -> Iterator[str]:
    yield " * A call runs the first of these that is right for its arguments, or returns"
    yield " * DEUTERON_BAD_ARGUMENT:"
    yield " *"
    for number, variant in enumerate(interface.variants):
        yield f" *   {number}  {_comment(variant.signature)}"
        for line in _conditions(interface, variant):
            yield f" *        {line}"
    yield " *"


def _conditions(interface: Interface, variant: Variant) -> Iterator[str]:
    """What must hold, those with the same divisor together."""
    multiples: dict[int, list[str]] = {}
    for need in variant.requires:
        name = interface.fields[need.field].name
        if need.is_value:
            yield f"{name} == {c_value(need)}"
        else:
            multiples.setdefault(need.multiple_of, []).append(name)
    for divisor, names in sorted(multiples.items(), reverse=True):
        yield f"divisible by {divisor}: {', '.join(names)}"
    if not variant.requires:
        yield "whatever they are"


def _about_arrays(overlap: bool) -> Iterator[str]:
    if overlap:
        yield " * Arrays may overlap."
    else:
        yield " * Two arrays are the same, beginning at one address, or have no byte in common."
    yield " * Nothing else is checked: the kernel reads and writes what its source says."


def _constants(interface: Interface) -> Iterator[str]:
    """Macros of what was built in, so that grids can be computed from block sizes."""
    if not interface.constants:
        return
    yield "/* Built in. */"
    for argument, value in interface.constants:
        text = _macro_value(value)
        macro = f"{interface.name.upper()}_{c_name(argument).upper()}"
        yield f"#define {macro} {text}" if text else f"/* {argument} = {_comment(repr(value))} */"
    yield ""


def _macro_value(value: Any) -> str | None:
    if isinstance(value, (bool, int)):
        return str(int(value))
    if isinstance(value, float) and value - value == 0:
        return repr(value)
    if isinstance(value, str) and value.isidentifier():
        return f'"{value}"'
    return None


def c_value(need: Requirement) -> str:
    """The value that a field must have, in C."""
    return "NULL" if need.equals is None else str(need.equals + 0)


def _declaration(field: Field) -> str:
    type = c_type(field)
    return f"{type}{field.name}" if type.endswith("*") else f"{type} {field.name}"


def _remark(field: Field) -> str:
    """What the C type does not say of narrow floats and truth values."""
    dtype = BY_NAME[field.dtype]
    is_bits = dtype.is_floating() and dtype.bits < 32
    if is_bits:
        return f" /* bits of {dtype.name} */"
    return " /* 0 or 1 */" if dtype.is_bool() else ""


def c_type(field: Field) -> str:
    """A field's type in C: `const float *`, `int32_t`."""
    type = _scalar_type(BY_NAME[field.dtype])
    if not field.is_pointer:
        return type
    return f"{type} *" if field.written else f"const {type} *"


def _scalar_type(dtype: DType) -> str:
    if dtype.is_floating() and dtype.bits >= 32:
        return "float" if dtype.bits == 32 else "double"
    unsigned = "" if dtype.is_int_signed() else "u"
    return f"{unsigned}int{8 * dtype.storage_bytes}_t"


def _comment(text: str) -> str:
    return " ".join(text.split()).replace("*/", "* /").replace("/*", "/ *")
