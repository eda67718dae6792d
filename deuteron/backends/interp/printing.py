"""The text of `device_print`: one line an element, as on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from deuteron.backends.interp.values import Array
from deuteron.dtypes import DType


def format_print(
    prefix: str,
    program: tuple[int, int, int],
    operands: Sequence[tuple[Array, DType | None]],
    *,
    hex: bool = False,
) -> Iterator[str]:
    """Lines like `pid (0, 0, 0) idx (  3) x: 1.5`, operand after operand in row-major order.

    Each operand is its held (or decoded) values with their dtype, None for addresses.  With `hex`
    integers and addresses are shown as hexadecimal bits.
    """
    head = f"pid ({program[0]}, {program[1]}, {program[2]})"
    label = f" {prefix.strip()}" if prefix.strip() else ""
    if not operands:
        yield head + label
    for number, (values, dtype) in enumerate(operands):
        which = f" (operand {number})" if len(operands) > 1 else ""
        widths = [len(str(length - 1)) for length in values.shape]
        for index in np.ndindex(values.shape):
            place = ", ".join(f"{i:>{w}}" for i, w in zip(index, widths, strict=True))
            shown = _element(values[index], dtype, hex)
            yield f"{head} idx ({place}){label}{which} {shown}"


def _element(value: Any, dtype: DType | None, hex: bool) -> str:
    if dtype is None:
        return f"{value:#x}"
    if dtype.is_floating():
        return str(value)
    number = int(value)
    if not hex:
        return str(number)
    return f"{number & ((1 << dtype.bits) - 1):#0{2 + max(1, dtype.bits // 4)}x}"
