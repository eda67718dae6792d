"""Comparing two memories: bit for bit, or within units in the last place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deuteron.backends.interp.values import Array, decode
from deuteron.dtypes import DType


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a result may be off: any one of the bounds that holds will do.

    NaN always equals NaN.  With `zero_sign` unset, +0 equals −0.  `absolute` and `relative` bound
    the difference of float values; integers compare exactly.
    """

    ulps: int = 0
    absolute: float = 0.0
    relative: float = 0.0
    zero_sign: bool = True


EXACT = Tolerance()


def order(bits: Array, dtype: DType) -> Array:
    """Floats' bits as integers that count representable values from zero, the signs alike."""
    width = bits.dtype.itemsize * 8
    unsigned = bits.view(f"u{bits.dtype.itemsize}").astype(object)
    magnitude = unsigned & ((1 << (width - 1)) - 1)
    return np.where(unsigned >> (width - 1), -magnitude, magnitude)


def mismatch(expected: Array, got: Array, dtype: DType, tolerance: Tolerance = EXACT) -> str:
    """Say where two arrays of storage bits differ, or nothing when they agree."""
    size = expected.dtype.itemsize
    differs = expected.view(f"u{size}") != got.view(f"u{size}")
    if not differs.any():
        return ""
    places = np.flatnonzero(differs)
    if dtype.is_floating():
        kept = [not _close(expected[i : i + 1], got[i : i + 1], dtype, tolerance) for i in places]
        places = places[np.array(kept)]
    if not places.size:
        return ""
    shown = [f"[{i}] expected {_show(expected, i, dtype)}, got {_show(got, i, dtype)}"
             for i in places[:4]]  # fmt: skip
    return f"{places.size} of {expected.size} differ: " + "; ".join(shown)


def _show(bits: Array, place: int, dtype: DType) -> str:
    code = int(bits.view(f"u{bits.dtype.itemsize}")[place])
    return f"{decode(bits[place : place + 1], dtype)[0]!r} ({code:#x})"


def _close(expected: Array, got: Array, dtype: DType, tolerance: Tolerance) -> bool:
    want, have = (float(decode(x, dtype)[0]) for x in (expected, got))
    if np.isnan(want) or np.isnan(have):
        return bool(np.isnan(want) and np.isnan(have))
    if want == have:
        return not (tolerance.zero_sign and np.signbit(want) != np.signbit(have))
    if abs(int(order(expected, dtype)[0]) - int(order(got, dtype)[0])) <= tolerance.ulps:
        return True
    bound = max(tolerance.absolute, tolerance.relative * abs(want))
    return np.isfinite(want) and abs(want - have) <= bound
