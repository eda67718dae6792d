"""Steps of the generator: shapes, reductions, scans, sorting, gathers, histograms."""

from __future__ import annotations

import math

from deuteron import dtypes as T
from deuteron.dtypes import DType
from tests.fuzz.author import INTS, MOST, NUMBERS, Author, Shape, Value
from tests.fuzz.case import Bound

SORT_MOST = 512


def _tile(a: Author, dtypes: tuple[DType, ...] = (*NUMBERS, T.int1), least_rank: int = 1) -> Value:
    return a.tile(dtypes, lambda v: v.rank >= least_rank and v.numel > 1)


def _same(a: Author, text: str, x: Value, shape: Shape, dtype: DType | None = None) -> Value:
    """A rearrangement of x."""
    dtype = dtype or x.dtype
    return a.let(text, dtype, shape, whole=x.whole, zero=x.zero)


# -- shapes ---------------------------------------------------------------------------------------
def _factors(a: Author, numel: int) -> Shape:
    """Some shape of so many elements."""
    shape: list[int] = []
    rest = numel
    for _ in range(a.int(0, 2)):
        divisors = [d for d in range(1, rest + 1) if rest % d == 0]
        shape.append(a.choice(divisors))
        rest //= shape[-1]
    return (*shape, rest)


def reshape(a: Author) -> None:
    x = _tile(a)
    shape = _factors(a, x.numel)
    name = a.choice(("reshape", "view"))
    _same(a, f"tl.{name}({x.name}, {shape})", x, shape)


def ravel(a: Author) -> None:
    x = _tile(a)
    _same(a, f"tl.ravel({x.name})", x, (x.numel,))


def permute(a: Author) -> None:
    x = _tile(a, least_rank=2)
    order = list(range(x.rank))
    if x.rank == 2 and a.flag():
        _same(a, f"tl.trans({x.name})", x, x.shape[::-1])
        return
    for i in range(x.rank - 1):
        j = a.int(i, x.rank - 1)
        order[i], order[j] = order[j], order[i]
    shape = tuple(x.shape[i] for i in order)
    _same(a, f"tl.permute({x.name}, {tuple(order)})", x, shape)


def expand(a: Author) -> None:
    x = _tile(a)
    if x.rank > 2:
        return
    axis = a.int(0, x.rank)
    shape = (*x.shape[:axis], 1, *x.shape[axis:])
    _same(a, f"tl.expand_dims({x.name}, {axis})", x, shape)


def broadcast(a: Author) -> None:
    """A row, a column or a scalar to a larger shape."""
    x = a.tile((*NUMBERS, T.int1), lambda v: v.rank < 3)
    length = a.choice(a.dims)
    if x.numel * length > MOST:
        return
    if not x.shape:
        _same(a, f"tl.broadcast_to({x.name}, ({length},))", x, (length,))
    elif x.rank == 1 and a.flag():
        _same(a, f"tl.broadcast_to({x.name}[:, None], {(*x.shape, length)})", x, (*x.shape, length))
    else:
        _same(a, f"tl.broadcast_to({x.name}[None], {(length, *x.shape)})", x, (length, *x.shape))


def make(a: Author) -> None:
    """Constants, ranges, scalars of the kernel."""
    shape, dtype = a.shape(), a.choice(NUMBERS)
    number = a.int(0, 9)
    kind = a.int(0, 3)
    if kind == 0 and shape:
        a.let(f"tl.full({shape}, {number}, tl.{dtype})", dtype, shape, whole=number)
    elif kind == 1 and shape:
        a.let(f"tl.zeros({shape}, tl.{dtype})", dtype, shape, whole=0)
    elif kind == 2:
        a.let(f"tl.to_tensor({a.scalar(number)})", T.int32, (), whole=number)
    else:
        start, length = a.choice((0, 0, 1, 5)), a.choice(a.dims)
        whole = start + length
        a.let(f"tl.arange({start}, {whole})", T.int32, (length,), whole=whole)


def join(a: Author) -> None:
    x = a.tile((*NUMBERS, T.int1), lambda v: v.rank < 3)
    y = a.partner(x)
    bounds = [v.whole for v in (x, y)]
    whole = None if None in bounds else max(b for b in bounds if b is not None)
    zero = x.zero or y.zero
    if x.shape and a.flag(0.4):
        shape = (*x.shape[:-1], 2 * x.shape[-1])
        text = f"tl.interleave({x.name}, {y.name})"
    else:
        shape, text = (*x.shape, 2), f"tl.join({x.name}, {y.name})"
    a.let(text, x.dtype, shape, whole=whole, zero=zero)


def split(a: Author) -> None:
    x = a.find(lambda v: v.shape[-1:] == (2,))
    if x is None:
        x = a.tile((*NUMBERS, T.int1), lambda v: v.rank > 0 and v.numel % 2 == 0)
        if x.numel % 2:
            return
        x = _same(a, f"tl.reshape({x.name}, {(x.numel // 2, 2)})", x, (x.numel // 2, 2))
    first, second = a.name(), a.name()
    a.emit(f"{first}, {second} = tl.split({x.name})")
    for name in (first, second):
        a.values.append(Value(name, x.dtype, x.shape[:-1], x.whole, x.zero))


def concatenate(a: Author) -> None:
    x = _tile(a)
    axis = a.int(0, x.rank - 1)
    y = a.find(
        lambda v: v.dtype == x.dtype and v.rank == x.rank
        and v.shape[:axis] + v.shape[axis + 1 :] == x.shape[:axis] + x.shape[axis + 1 :]
    )  # fmt: skip
    y = y or x
    length = x.shape[axis] + y.shape[axis]
    shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
    if math.prod(shape) > MOST or (not a.odd and length & (length - 1)):
        return
    bounds = [v.whole for v in (x, y)]
    whole = None if None in bounds else max(b for b in bounds if b is not None)
    text = f"tl.cat({x.name}, {y.name}, dim={axis})"
    a.let(text, x.dtype, shape, whole=whole, zero=x.zero or y.zero)


def subscript(a: Author) -> None:
    """One place or a slice of an axis."""
    x = _tile(a)
    axis = a.int(0, x.rank - 1)
    colons = [":"] * x.rank
    length = x.shape[axis]
    if a.flag():
        colons[axis] = str(a.int(0, length - 1))
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    else:
        start = a.int(0, length - 1)
        stop = a.int(start + 1, length)
        if not a.odd and (stop - start) & (stop - start - 1):
            stop = start + 1
        colons[axis] = f"{start}:{stop}"
        shape = (*x.shape[:axis], stop - start, *x.shape[axis + 1 :])
    _same(a, f"{x.name}[{', '.join(colons)}]", x, shape)


# -- reductions -----------------------------------------------------------------------------------
def _reduced(x: Value, axis: int | None, keep: bool) -> Shape:
    if axis is None:
        return (1,) * x.rank if keep else ()
    return (*x.shape[:axis], *((1,) if keep else ()), *x.shape[axis + 1 :])


def _axis_text(a: Author, axis: int | None, rank: int) -> str:
    return str(axis - rank) if axis is not None and a.flag(0.2) else str(axis)


def _axis(a: Author, x: Value) -> int | None:
    return None if a.flag(0.15) else a.int(0, x.rank - 1)


def reduce(a: Author) -> None:
    """sum, max, min, xor_sum, reduce_or along an axis, or all."""
    x = _tile(a)
    axis, keep = _axis(a, x), a.flag(0.25)
    length = x.numel if axis is None else x.shape[axis]
    shape = _reduced(x, axis, keep)
    where = _axis_text(a, axis, x.rank) + (", keep_dims=True" if keep else "")
    bitwise = ("tl.xor_sum", "tl.reduce_or") if x.dtype.is_int() else ()
    name = a.choice(("tl.sum", "tl.sum", "tl.max", "tl.min", *bitwise))
    if name in bitwise:
        a.let(f"{name}({x.name}, {where})", x.dtype, shape)
    elif name == "tl.sum":
        _sum(a, x, length, f"{x.name}, {where}", shape)
    elif x.dtype != T.int1:
        narrow = T.float32 if x.is_float else T.int32
        dtype = narrow if x.dtype.bits < 32 else x.dtype
        a.let(f"{name}({x.name}, {where})", dtype, shape, whole=x.whole, zero=x.is_float)


def _sum(a: Author, x: Value, length: int, arguments: str, shape: Shape) -> None:
    if x.dtype.is_int():
        wide = T.int32 if x.dtype.is_int_signed() else T.uint32
        dtype = wide if x.dtype.bits < 32 else x.dtype
        whole = None if x.whole is None else x.whole * length
        a.let(f"tl.sum({arguments})", dtype, shape, whole=whole)
        return
    limit = 2 ** (53 if x.dtype == T.float64 else 24)
    if x.whole is not None and x.whole * length <= limit:
        a.let(f"tl.sum({arguments})", x.dtype, shape, whole=x.whole * length, zero=True)
        return
    magnitudes = arguments.replace(x.name, f"tl.abs({x.name}.to(tl.float64))", 1)
    _output_sum(a, x.dtype, length, f"tl.sum({arguments})", f"tl.sum({magnitudes})", shape)


def _output_sum(
    a: Author, dtype: DType, terms: int, text: str, magnitudes: str, shape: Shape
) -> None:
    """An output that is a sum of so many floats, and one of their magnitudes.

    In any order the sum is off by at most (terms - 1) units of rounding of the magnitudes' sum
    (Higham, "Accuracy and Stability", §4.2), to first order; the oracle, which sums in an order of
    its own, by as much again; then both are rounded to the dtype.
    """
    total = a.let(text, dtype, shape, keep=False)
    scale = a.output(a.let(magnitudes, T.float64, shape, keep=False), Bound(scale="self"))
    unit = 2.0**-53 if dtype == T.float64 else 2.0**-24
    ulps = 1 if dtype.bits == 16 else 0
    a.output(total, Bound(ulps=ulps, scale=scale, factor=2.02 * terms * unit))


def index_of_extreme(a: Author) -> None:
    """argmax and argmin, the first among equals; a NaN, which has no order, does not take part."""
    x = _tile(a, NUMBERS)
    axis = a.int(0, x.rank - 1)
    shape = _reduced(x, axis, False)
    source = f"tl.where({x.name} == {x.name}, {x.name}, 1)" if x.is_float else x.name
    name = a.choice(("max", "min"))
    length = x.shape[axis]
    if a.flag():
        a.let(f"tl.arg{name}({source}, {axis})", T.int32, shape, whole=length)
        return
    dtype = T.float32 if x.dtype == T.bfloat16 else x.dtype
    best, place = a.name(), a.name()
    a.emit(f"{best}, {place} = tl.{name}({source}, {axis}, return_indices=True)")
    a.values.append(Value(best, dtype, shape, x.whole, x.is_float))
    a.values.append(Value(place, T.int32, shape, whole=length))


COMBINES = (
    ("def combine_affine(p, q, r, s):\n    return p * r, q * r + s", False),
    ("def combine_range(p, q, r, s):\n    return tl.minimum(p, r), tl.maximum(q, s)", True),
    ("def combine_last(p, q, r, s):\n    return tl.where(s != 0, r, p), q | s", False),
    ("def combine_key(p, q, r, s):\n    first = (p < r) | ((p == r) & (q < s))\n"
     "    return tl.where(first, p, r), tl.where(first, q, s)", True),
)  # fmt: skip


def fold_pairs(a: Author) -> None:
    """tl.reduce and tl.associative_scan of two integer tiles by functions of the kernel's own."""
    x = _tile(a, (T.int32, T.int64, T.uint32, T.int16))
    y = a.find(lambda v: v.dtype == x.dtype and v.shape == x.shape)
    y = y or a.load_plain(x.dtype, x.shape)
    text, commutes = a.choice(COMBINES)
    axis, combine = a.int(0, x.rank - 1), a.function(text)
    first, second = a.name(), a.name()
    arguments = f"({x.name}, {y.name}), {axis}, {combine}"
    if commutes and a.flag():
        shape = _reduced(x, axis, False)
        a.emit(f"{first}, {second} = tl.reduce({arguments})")
    else:
        shape = x.shape
        reverse = ", reverse=True" if a.flag(0.3) else ""
        a.emit(f"{first}, {second} = tl.associative_scan({arguments}{reverse})")
    a.values += [Value(name, x.dtype, shape) for name in (first, second)]


def scan(a: Author) -> None:
    """cumsum, cumprod and running extremes."""
    x = _tile(a, NUMBERS)
    axis = a.int(0, x.rank - 1)
    length = x.shape[axis]
    reverse = ", reverse=True" if a.flag(0.3) else ""
    kind = a.choice(("sum", "sum", "prod", "max"))
    if kind == "max":
        combine = a.function("def greater(p, q):\n    return tl.maximum(p, q)")
        if x.dtype == T.bfloat16:
            return
        text = f"tl.associative_scan({x.name}, {axis}, {combine}{reverse})"
        a.let(text, x.dtype, x.shape, whole=x.whole, zero=x.is_float)
    elif kind == "prod":
        source = f"tl.where({x.name} > 1, -1.0, 1.0).to(tl.{x.dtype})" if x.is_float else x.name
        dtype = T.float32 if x.dtype == T.bfloat16 else x.dtype
        whole = 1 if x.is_float else None
        a.let(f"tl.cumprod({source}, {axis}{reverse})", dtype, x.shape, whole=whole)
    else:
        _running_sum(a, x, axis, length, reverse)


def _running_sum(a: Author, x: Value, axis: int, length: int, reverse: str) -> None:
    arguments = f"{x.name}, {axis}{reverse}"
    if x.dtype.is_int():
        wide = T.int32 if x.dtype.is_int_signed() else T.uint32
        dtype = wide if x.dtype.bits < 32 else x.dtype
        whole = None if x.whole is None else x.whole * length
        a.let(f"tl.cumsum({arguments})", dtype, x.shape, whole=whole)
        return
    dtype = T.float32 if x.dtype == T.bfloat16 else x.dtype
    limit = 2 ** (53 if dtype == T.float64 else 24)
    if x.whole is not None and x.whole * length <= limit:
        a.let(f"tl.cumsum({arguments})", dtype, x.shape, whole=x.whole * length, zero=True)
        return
    magnitudes = f"tl.cumsum(tl.abs({x.name}.to(tl.float64)), {axis}{reverse})"
    _output_sum(a, dtype, length, f"tl.cumsum({arguments})", magnitudes, x.shape)


# -- places ---------------------------------------------------------------------------------------
def flip(a: Author) -> None:
    x = _tile(a)
    axis = a.int(0, x.rank - 1)
    _same(a, f"tl.flip({x.name}, {axis})", x, x.shape)


def sort(a: Author) -> None:
    x = a.tile(NUMBERS, lambda v: 0 < v.rank and 1 < v.numel <= SORT_MOST)
    axis = a.int(0, x.rank - 1)
    down = a.flag()
    length = x.shape[axis]
    if a.flag(0.6):
        text = f"tl.sort({x.name}, {axis}, descending={down})"
        shape = x.shape
    else:
        k = 1 << a.int(0, length.bit_length() - 1)
        text = f"tl.topk({x.name}, {k}, {axis}, descending={down})"
        shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    a.let(text, x.dtype, shape, whole=x.whole, zero=x.is_float)


def gather(a: Author) -> None:
    x = _tile(a)
    axis = a.int(0, x.rank - 1)
    index = a.find(
        lambda v: v.dtype in (T.int32, T.int64) and v.rank == x.rank
        and v.shape[:axis] + v.shape[axis + 1 :] == x.shape[:axis] + x.shape[axis + 1 :]
    )  # fmt: skip
    index = index or a.load_plain(T.int32, x.shape)
    length = x.shape[axis]
    inside = f"tl.abs({index.name} % {length})"
    _same(a, f"tl.gather({x.name}, {inside}, {axis})", x, index.shape)


def histogram(a: Author) -> None:
    """Values outside of the bins are counted nowhere."""
    x = a.tile(tuple(set(INTS)), lambda v: v.rank == 1)
    bins = a.choice((1, 4, 8, 32)) if not a.odd else a.choice((3, 8, 10))
    mask = f", mask={a.like(x, T.int1)}" if a.flag(0.4) else ""
    source = f"tl.abs({x.name} % {2 * bins if 2 * bins < 127 else bins})"
    source = f"({source}).to(tl.int32)" if x.dtype.bits < 32 or a.flag() else source
    a.let(f"tl.histogram({source}, {bins}{mask})", T.int32, (bins,), whole=x.numel)


def random_numbers(a: Author) -> None:
    """Philox numbers of any seed and offsets, bit by bit the same everywhere."""
    at = a.tile((T.int32, T.uint32))
    seed = a.choice(("pid", "17", "(pid - 1)", "123456789012345"))
    rounds = f", n_rounds={a.int(1, 10)}" if a.flag(0.3) else ""
    kind, dtype = a.choice((("rand", T.float32), ("randint", T.uint32)))
    arguments = f"{seed}, {at.name}{rounds}"
    if a.flag():
        a.let(f"tl.{kind}({arguments})", dtype, at.shape)
        return
    names = [a.name() for _ in range(4)]
    a.emit(f"{', '.join(names)} = tl.{kind}4x({arguments})")
    a.values += [Value(name, dtype, at.shape) for name in names]


def softmax(a: Author) -> None:
    """Rows of probabilities, within what their parts promise."""
    x = a.load_plain(a.choice((T.float32, T.float64)), a.shape() or a.dims[:1], "finite")
    axis = a.int(0, x.rank - 1)
    result = a.let(f"tl.softmax({x.name}, {axis})", x.dtype, x.shape, keep=False)
    # exp 2 ULP above and below, a sum of positive terms, a division, and the oracle's own.
    a.output(result, Bound(ulps=12 + 2 * x.shape[axis]))


STEPS = (
    (reshape, 3), (ravel, 1), (permute, 3), (expand, 2), (broadcast, 2), (make, 2), (join, 2),
    (split, 2), (concatenate, 2), (subscript, 2), (reduce, 6), (index_of_extreme, 2),
    (fold_pairs, 2), (scan, 3), (flip, 1), (sort, 2), (gather, 2), (histogram, 1), (softmax, 1),
    (random_numbers, 1),
)  # fmt: skip
