"""The text of `device_print`: one line an element, as on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, isnan
from typing import Any

import numpy as np

from deuteron.backends.interp.values import Array
from deuteron.dtypes import DType

_LEAST_PLAIN, _LEAST_LONG = 1e-3, 1e9


def format_print(
    prefix: str,
    program: tuple[int, int, int],
    operands: Sequence[tuple[Array, DType | None]],
    *,
    hex: bool = False,
) -> Iterator[str]:
    """Lines like `pid (0, 0, 0) idx (  3) x: 1.500000`, operand after operand in row-major order.

    Each operand is its held (or decoded) values with their dtype, None for addresses.  With `hex`
    integers and addresses are shown as hexadecimal bits.
    """
    head = f"pid ({program[0]}, {program[1]}, {program[2]})"
    label = placed_label(prefix)
    if not operands:
        yield head + label
    for number, (values, dtype) in enumerate(operands):
        which = f" (operand {number})" if len(operands) > 1 else ""
        widths = [len(str(length - 1)) for length in values.shape]
        for index in np.ndindex(values.shape):
            place = ", ".join(f"{i:>{w}}" for i, w in zip(index, widths, strict=True))
            shown = _element(values[index], dtype, hex)
            yield f"{head} idx ({place}){label}{which} {shown}"


def placed_label(prefix: str) -> str:
    """What stands between a place and a value: ` x:`, or `:` where there is no label."""
    label = prefix.strip()
    return f" {label}" if label and not label.startswith(":") else label


def _element(value: Any, dtype: DType | None, hex: bool) -> str:
    if dtype is None:
        return f"{value:#x}"
    if dtype.is_floating():
        return _float(float(value))
    number = int(value)
    if not hex:
        return str(number)
    return f"{number & ((1 << dtype.bits) - 1):#0{2 + max(1, dtype.bits // 4)}x}"


def _float(value: float) -> str:
    """Six places after the point, or an exponent where these would show too little."""
    magnitude = abs(value)
    fits = not magnitude or _LEAST_PLAIN <= magnitude < _LEAST_LONG or magnitude == inf
    return f"{value:f}" if fits or isnan(value) else f"{value:e}"
