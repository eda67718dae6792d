"""Writing the operands of a dot into scratch, in the layouts of `dot_plan`.

Producers hand over vectors in either of two forms: as registers hold the dtype (bfloat16 and fp8 as
float, float16 as half) or, for bfloat16, raw as `i16` or `bfloat`.  What the plan wants is made of
them here.  Positions may be Python ints, which fold into addresses, or i64 values.

Rows at or beyond K are dropped when the position is an int; at a run-time position there must be
none.  Columns at or beyond N may hold anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from deuteron.backends.cpu.dot_plan import DotPlan
from deuteron.backends.cpu.loops import counted_loop
from deuteron.backends.llvm.builder import I64, Builder, LType, Val
from deuteron.backends.llvm.registers import elem_bytes
from deuteron.dtypes import DType
from deuteron.errors import InternalError

Index = int | Val


def emit_store_b(
    b: Builder, plan: DotPlan, b_ptr: Val, k: Index, n: Index, rows: Sequence[Val]
) -> None:
    """Store `plan.pack` rows of B from k, each a vector along n: columns n .. n + W - 1.

    k must be a multiple of `plan.pack` and n of W.  Fewer rows than `plan.pack` are those that end
    K: the others become zeros.
    """
    if len(rows) > plan.pack:
        raise InternalError(f"{len(rows)} rows of B where {plan.pack} are packed together")
    for first, last in _panel_pieces(plan, n, rows[0].type.lanes):
        picks = range(first, last)
        pieces = [r if len(picks) == r.type.lanes else b.shuffle(r, None, picks) for r in rows]
        address = _b_address(b, plan, b_ptr, k, _sum(b, n, first))
        _store(b, _interleave_rows(b, plan, pieces), address)


def emit_store_b_transposed(
    b: Builder, plan: DotPlan, b_ptr: Val, k: Index, n: Index, columns: Sequence[Val]
) -> None:
    """Store len(columns) columns of B from n, each a vector along k: rows k .. k + L - 1.

    k and L must be multiples of `plan.pack`, and n of len(columns).  With K not a multiple of L,
    k must be an int.
    """
    if columns[0].type.lanes % plan.pack:
        raise InternalError(f"{columns[0].type.lanes} rows of B, packed by {plan.pack}")
    columns = [to_scratch(b, c, plan.b_dtype, plan.b_elem) for c in columns]
    units = [_as_units(b, plan, _drop_beyond_k(b, plan, k, c)) for c in columns]
    row_bytes = plan.nr * plan.pack * elem_bytes(plan.b_elem)
    for first, last in _panel_pieces(plan, n, len(columns)):
        address = _b_address(b, plan, b_ptr, k, _sum(b, n, first))
        for r, row in enumerate(transpose(b, units[first:last])):
            _store(b, row, b.gep("i8", address, r * row_bytes))


def _panel_pieces(plan: DotPlan, n: Index, width: int) -> list[tuple[int, int]]:
    """Cut `width` columns from n, a multiple of it, so that no piece crosses panels or ends B."""
    piece = math.gcd(width, plan.nr)
    end = min(width, plan.n_padded - n) if isinstance(n, int) else width
    return [(first, first + piece) for first in range(0, end, piece)]


def emit_clear_padding(b: Builder, plan: DotPlan, a_ptr: Val, b_ptr: Val) -> None:
    """Zero what the microkernel reads but no store above need reach; before those stores.

    That is A from K to k_padded, which must be finite, and the last panel of B when N does not fill
    it: what lies there never reaches a result but may be slow to multiply.  Emits nothing when
    there is neither.  Needed again whenever the scratch was used for something else.
    """
    if plan.k_padded > plan.k:
        gap = LType(plan.a_elem, plan.k_padded - plan.k)
        _emit_zeros(b, "clear_a", gap, b.gep(plan.a_elem, a_ptr, plan.k), plan.m, plan.lda)
    if plan.n_padded > plan.n:
        row = LType(plan.b_elem, plan.nr * plan.pack)
        last_panel = _b_address(b, plan, b_ptr, 0, plan.n_padded - plan.nr)
        _emit_zeros(b, "clear_b", row, last_panel, plan.k_padded // plan.pack, row.lanes)


def _emit_zeros(b: Builder, tag: str, type: LType, first: Val, count: int, pitch: int) -> None:
    """Store `count` zeros of `type`, `pitch` elements apart."""

    def store(i: Val, _: list[Val]) -> list[Val]:
        _store(b, Val("zeroinitializer", type), b.gep(type.elem, first, _scaled(b, i, pitch)))
        return []

    counted_loop(b, tag, count, store)


# -- forms -----------------------------------------------------------------------------------


def to_scratch(b: Builder, value: Val, dtype: DType, elem: str, bias: int = 0) -> Val:
    """`value` of `dtype`, in register form or raw bfloat16, as elements `elem` (see module)."""
    if value.type.elem == "bfloat":
        value = b.bitcast(value, "i16")
    raw_bf16 = value.type.elem == "i16" and dtype.is_floating()
    if elem == "i16" and dtype.is_floating():
        return value if raw_bf16 else _high_half(b, value)
    if raw_bf16:
        wide = b.convert("zext", value, "i32")
        value = b.bitcast(b.shl(wide, b.const(16, wide.type)), "float")
    value = _resize(b, value, dtype, elem)
    return b.xor(value, b.const(bias, value.type)) if bias else value


def _drop_beyond_k(b: Builder, plan: DotPlan, k: Index, values: Val) -> Val:
    """Without the lanes beyond k_padded, and with zeros from K to there."""
    if not isinstance(k, int) or k + values.type.lanes <= plan.k:
        return values
    keep = min(values.type.lanes, plan.k_padded - k)
    zeros = Val("zeroinitializer", values.type)
    picks = [i if k + i < plan.k else values.type.lanes for i in range(keep)]
    return b.shuffle(values, zeros, picks)


def _high_half(b: Builder, value: Val) -> Val:
    """The upper 16 bits of floats that are exact in bfloat16."""
    bits = b.bitcast(value, "i32")
    return b.convert("trunc", b.lshr(bits, b.const(16, bits.type)), "i16")


def _resize(b: Builder, value: Val, dtype: DType, elem: str) -> Val:
    want = value.type.with_elem(elem)
    if value.type == want:
        return value
    narrower = value.type.bits < want.bits
    if dtype.is_floating():
        return b.convert("fpext" if narrower else "fptrunc", value, elem)
    extend = "zext" if dtype.is_int_unsigned() else "sext"
    return b.convert(extend if narrower else "trunc", value, elem)


def _as_units(b: Builder, plan: DotPlan, value: Val) -> Val:
    """`pack` neighbours along k as one integer lane, which is how they move together."""
    if plan.pack == 1:
        return value
    bits = plan.pack * 8 * elem_bytes(plan.b_elem)
    type = LType(f"i{bits}", value.type.lanes // plan.pack)
    return b.emit(f"bitcast {value} to {type}", type)


def _interleave_rows(b: Builder, plan: DotPlan, rows: Sequence[Val]) -> Val:
    """`pack` rows of W lanes as one vector: lane 0 of each row, lane 1 of each, ..."""
    if plan.pack == 2 and all(row.type.elem == "float" for row in rows):
        return _pair_floats(b, rows)
    parts = [to_scratch(b, row, plan.b_dtype, plan.b_elem) for row in rows]
    parts += [Val("zeroinitializer", parts[0].type)] * (plan.pack - len(parts))
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [_zip_lanes(b, x, y) for x, y in zip(parts[:half], parts[half:], strict=True)]
    return parts[0]


def _pair_floats(b: Builder, rows: Sequence[Val]) -> Val:
    """Two rows of floats exact in bfloat16 as pairs of them, without crossing lanes."""
    low = b.bitcast(rows[0], "i32")
    low = b.lshr(low, b.const(16, low.type))
    if len(rows) == 1:
        return low
    high = b.bitcast(rows[1], "i32")
    return b.or_(low, b.and_(high, b.const(-65536, high.type)))


def _zip_lanes(b: Builder, x: Val, y: Val) -> Val:
    """x0 y0 x1 y1 …, twice as long."""
    lanes = x.type.lanes
    return b.shuffle(x, y, [lane + lanes * side for lane in range(lanes) for side in (0, 1)])


def transpose(b: Builder, vectors: Sequence[Val]) -> list[Val]:
    """The lanes of C vectors of L lanes as L vectors of C lanes."""
    count, lanes = len(vectors), vectors[0].type.lanes
    side = 1 << (count - 1).bit_length()
    poison = Val("poison", LType(vectors[0].type.elem, side))
    result: list[Val] = []
    for first in range(0, lanes, side):
        picks = [lane if lane < lanes else -1 for lane in range(first, first + side)]
        square = [v if lanes == side else b.shuffle(v, None, picks) for v in vectors]
        rows = _transpose_square(b, square + [poison] * (side - count))
        result += rows[: lanes - first]
    if side == count:
        return result
    return [b.shuffle(row, None, range(count)) for row in result]


def _transpose_square(b: Builder, rows: list[Val]) -> list[Val]:
    """Swap ever larger off-diagonal blocks: log2(side) rounds of `side` two-source shuffles."""
    side = len(rows)
    for step in (1 << s for s in range(side.bit_length() - 1)):
        # Lanes come from x (0 ..) and y (side ..); `step` tells the two halves of a block apart.
        low = [j - step + side if j & step else j for j in range(side)]
        high = [j + side if j & step else j + step for j in range(side)]
        result = list(rows)
        for i in range(side):
            if not i & step:
                x, y = rows[i], rows[i + step]
                result[i], result[i + step] = b.shuffle(x, y, low), b.shuffle(x, y, high)
        rows = result
    return rows


# -- addresses -------------------------------------------------------------------------------


def _b_address(b: Builder, plan: DotPlan, b_ptr: Val, k: Index, n: Index) -> Val:
    """Where the element (k, n) of B lies; k a multiple of `pack`."""
    if isinstance(n, int):
        panel, column = divmod(n, plan.nr)
        in_panel: Index = panel * plan.panel_elements + column * plan.pack
    else:
        width = b.const(plan.nr, I64)
        panel_index = b.binary("udiv", n, width)
        column_index = b.binary("urem", n, width)
        in_panel = _sum(
            b, _scaled(b, panel_index, plan.panel_elements), _scaled(b, column_index, plan.pack)
        )
    return b.gep(plan.b_elem, b_ptr, _sum(b, _scaled(b, k, plan.nr), in_panel))


def _store(b: Builder, value: Val, pointer: Val) -> None:
    b.store(value, pointer, value.type.bits // 8)


def _scaled(b: Builder, index: Index, factor: int) -> Index:
    if isinstance(index, int):
        return index * factor
    return index if factor == 1 else b.mul(index, b.const(factor, index.type))


def _sum(b: Builder, x: Index, y: Index) -> Index:
    if isinstance(x, Val):
        if isinstance(y, Val):
            return b.add(x, y)
        return b.add(x, b.const(y, I64)) if y else x
    return _sum(b, y, x) if isinstance(y, Val) else x + y
