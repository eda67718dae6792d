"""Steps of the generator: arithmetic, comparisons, selection, casts, functions."""

from __future__ import annotations

from deuteron import dtypes as T
from deuteron.dtypes import DType
from tests.fuzz.author import FLOATS, FP8, INTS, NUMBERS, Author, Value
from tests.fuzz.case import Bound

BOOL = (T.int1,)
FP32_UP = (T.float32, T.float64)

# Promises of deuteron.backends.llvm.math, in units in the last place: float, double; then which
# arguments.  One more is allowed for the oracle's own rounding, two for its doubles.
FUNCTIONS: dict[str, tuple[float, float, str]] = {
    "tl.exp": (2, 2, ""), "tl.exp2": (2, 2, ""), "libdevice.exp10": (2, 2, ""),
    "libdevice.expm1": (2, 2, ""), "tl.log": (2, 2, ""), "tl.log2": (2, 2, ""),
    "libdevice.log10": (2, 2, ""), "libdevice.log1p": (2, 2, ""), "tl.sin": (2, 2, "turn"),
    "tl.cos": (2, 2, "turn"), "libdevice.tan": (3.5, 4, "turn"), "libdevice.sinh": (2.5, 4, ""),
    "libdevice.cosh": (2, 4, ""), "libdevice.tanh": (2, 4, ""), "libdevice.asin": (2.5, 4, ""),
    "libdevice.acos": (2, 4, ""), "libdevice.atan": (2, 4, ""), "libdevice.asinh": (2.5, 4, ""),
    "libdevice.acosh": (2.5, 4, ""), "libdevice.atanh": (2.5, 4, ""), "tl.rsqrt": (2, 2, ""),
    "libdevice.cbrt": (2, 2, ""), "tl.erf": (2, 4, ""), "libdevice.erfc": (2, 4, ""),
    "libdevice.tgamma": (2, 4, "positive"), "libdevice.lgamma": (2, 4, "positive"),
}  # fmt: skip


def no_zero_sign(a: Author, value: Value) -> str:
    """Text of a float whose zeros are all positive when its signs may differ."""
    if not value.zero:
        return value.name
    return f"tl.where({value.name} == 0, 0.0, {value.name})"


def _sum_bound(*values: Value) -> int | None:
    bounds = [v.whole for v in values]
    return None if None in bounds else sum(b for b in bounds if b is not None)


def _product_bound(x: Value, y: Value) -> int | None:
    return None if x.whole is None or y.whole is None else x.whole * y.whole


def _mixed(a: Author, x: Value, *, division: bool = False) -> tuple[Value, DType]:
    """A partner of another dtype at times, and the dtype they are computed in."""
    other = x.dtype
    if a.flag(0.3):
        other = a.choice(NUMBERS)
        to_bf16 = {x.dtype, other} & {T.bfloat16}
        wide = max((d.bits for d in (x.dtype, other) if d.is_int()), default=0)
        mixes_signs = (
            x.dtype.is_int() and other.is_int()
            and x.dtype.is_int_signed() != other.is_int_signed()
        )  # fmt: skip
        if (to_bf16 and wide > 16) or (division and mixes_signs):
            other = x.dtype
    return a.partner(x, other), T.promote(x.dtype, other, division=division)


def arithmetic(a: Author) -> None:
    """x + y, x - y, x * y with promotion."""
    x = a.tile(NUMBERS)
    y, dtype = _mixed(a, x)
    symbol = a.choice("+-*")
    whole = _product_bound(x, y) if symbol == "*" else _sum_bound(x, y)
    if dtype.is_int_unsigned() and symbol == "-":
        whole = None
    if symbol == "+" and whole is None and (x.dot or y.dot):
        symbol = "-"
    left, right = (x, y) if a.flag() else (y, x)
    a.let(f"{left.name} {symbol} {right.name}", dtype, x.shape, whole=whole, zero=x.zero or y.zero)


def with_number(a: Author) -> None:
    """A tile with a Python number."""
    x = a.tile(NUMBERS)
    number = a.choice(("2", "1", "7", "0")) if not x.is_float or a.flag() else "0.5"
    symbol = a.choice("+-*")
    text = f"{x.name} {symbol} {number}" if a.flag(0.7) else f"{number} {symbol} {x.name}"
    whole = None
    if x.whole is not None and "." not in number and not x.dtype.is_int_unsigned():
        whole = x.whole * int(number) if symbol == "*" else x.whole + int(number)
    a.let(text, x.dtype, x.shape, whole=whole, zero=x.zero)


def divide(a: Author) -> None:
    """x / y; a zero's sign shows in the quotient.

    A float32 quotient near the subnormals may be one off, but not that of div_rn.
    """
    x = a.tile(FLOATS)
    y, dtype = _mixed(a, x, division=True)
    bottom = y.name if not y.is_float else f"tl.where({y.name} == 0, 0.0, {y.name})"
    if dtype != T.float32:
        a.let(f"{x.name} / {bottom}", dtype, x.shape, zero=x.zero)
    elif x.dtype == y.dtype and a.flag():
        a.let(f"tl.div_rn({x.name}, {bottom})", dtype, x.shape, zero=x.zero)
    else:
        quotient = a.let(f"{x.name} / {bottom}", dtype, x.shape, keep=False)
        a.output(quotient, Bound(ulps=1))


def divide_integers(a: Author) -> None:
    """// and % of integers, whose result by zero and of the least by -1 is any value."""
    x = a.tile(INTS)
    y, dtype = _mixed(a, x, division=True)
    if dtype.is_floating():
        return
    symbol = a.choice(("//", "%"))
    if a.flag():
        q = a.let(f"{x.name} {symbol} {y.name}", dtype, x.shape, keep=False)
        bad = f"{y.name} == 0"
        if dtype.is_int_signed():
            bad = f"({bad}) | ({y.name} == -1)"
        a.let(f"tl.where({bad}, 3, {q.name})", dtype, x.shape)
    else:
        safe = f"({y.name} & 7) + 1"
        a.let(f"{x.name} {symbol} ({safe})", dtype, x.shape)


def divide_by_number(a: Author) -> None:
    """// and % by a number known at compile time."""
    x = a.tile(INTS)
    number = a.choice((1, 2, 3, 7, 8, 10, 16, 100, 127))
    if x.dtype.is_int_signed() and a.flag(0.2):
        number = -a.choice((2, 3, 8))
    symbol = a.choice(("//", "%"))
    whole = abs(number) if symbol == "%" else x.whole
    a.let(f"{x.name} {symbol} {number}", x.dtype, x.shape, whole=whole)


def remainder(a: Author) -> None:
    """% of floats, which is exact."""
    x = a.tile((T.float32, T.float64))
    y = a.partner(x)
    a.let(f"{x.name} % {y.name}", x.dtype, x.shape, zero=True)


def bits(a: Author) -> None:
    x = a.tile((*INTS, T.int1))
    y = a.partner(x)
    symbol = a.choice("&|^")
    whole = y.whole if symbol == "&" and x.dtype.is_int_unsigned() else None
    a.let(f"{x.name} {symbol} {y.name}", x.dtype, x.shape, whole=whole)


def shift(a: Author) -> None:
    """Shifts; by the width or more any value may come out."""
    x = a.tile(INTS)
    symbol, width = a.choice(("<<", ">>")), x.dtype.bits
    y = a.partner(x)
    if a.flag(0.3):
        raw = a.let(f"{x.name} {symbol} {y.name}", x.dtype, x.shape, keep=False)
        good = f"({y.name} >= 0) & ({y.name} < {width})"
        a.let(f"tl.where({good}, {raw.name}, 5)", x.dtype, x.shape)
    elif a.flag():
        a.let(f"{x.name} {symbol} ({y.name} & {width - 1})", x.dtype, x.shape)
    else:
        a.let(f"{x.name} {symbol} {a.int(0, width - 1)}", x.dtype, x.shape)


def multiply_high(a: Author) -> None:
    x = a.tile((T.int32, T.uint32, T.int64, T.uint64))
    a.let(f"tl.umulhi({x.name}, {a.like(x)})", x.dtype, x.shape)


def unary(a: Author) -> None:
    x = a.tile(NUMBERS)
    text = a.choice(("-{}", "tl.abs({})") if x.is_float else ("-{}", "~{}", "tl.abs({})"))
    whole = None if x.dtype.is_int_unsigned() or text == "~{}" else x.whole
    a.let(text.format(x.name), x.dtype, x.shape, whole=whole, zero=x.zero and text == "-{}")


def rounding(a: Author) -> None:
    """Functions of one float that are exact."""
    x = a.tile(FLOATS)
    name = a.choice(("tl.floor", "tl.ceil", "libdevice.trunc", "libdevice.rint", "libdevice.round"))
    a.let(f"{name}({x.name})", x.dtype, x.shape, whole=x.whole, zero=x.zero)


def square_root(a: Author) -> None:
    x = a.tile(FLOATS)
    a.let(f"tl.sqrt({x.name})", x.dtype, x.shape, zero=x.zero)


def fused(a: Author) -> None:
    x = a.tile(FLOATS)
    y, z = a.partner(x), a.partner(x)
    zero = x.zero or y.zero or z.zero
    a.let(f"tl.fma({x.name}, {y.name}, {z.name})", x.dtype, x.shape, zero=zero)


def copy_sign(a: Author) -> None:
    x = a.tile(FLOATS)
    y = a.partner(x)
    sign = f"tl.where({y.name} == {y.name}, {no_zero_sign(a, y)}, 1.0)"
    a.let(f"libdevice.copysign({x.name}, {sign})", x.dtype, x.shape)


def extreme(a: Author) -> None:
    """minimum and maximum; bfloat16 goes to float32."""
    x = a.tile(NUMBERS)
    y = a.partner(x)
    dtype = T.float32 if x.dtype == T.bfloat16 else x.dtype
    nan = ", tl.PropagateNan.ALL" if x.is_float and a.flag(0.4) else ""
    bounds = [v.whole for v in (x, y)]
    whole = None if None in bounds else max(b for b in bounds if b is not None)
    name = a.choice(("tl.minimum", "tl.maximum"))
    a.let(f"{name}({x.name}, {y.name}{nan})", dtype, x.shape, whole=whole, zero=x.is_float)


def clamp(a: Author) -> None:
    """The bounds are float32, to which the narrower floats go."""
    x = a.tile(FLOATS)
    dtype = T.float64 if x.dtype == T.float64 else T.float32
    a.let(f"tl.clamp({x.name}, -8.0, 8.0)", dtype, x.shape, zero=True)


def small_whole(a: Author) -> None:
    """Whole numbers between -8 and 8, whose sums and products are exact."""
    x = a.tile(NUMBERS)
    if not x.is_float:
        a.let(f"{x.name} & 7", x.dtype, x.shape, whole=7)
        return
    safe = f"tl.where(tl.abs({x.name}) < 9, {x.name}, 3.0)"
    a.let(f"libdevice.trunc({safe})", x.dtype, x.shape, whole=8, zero=True)


def compare(a: Author) -> None:
    x = a.tile((*NUMBERS, T.int1))
    symbol = a.choice(("<", "<=", ">", ">=", "==", "!="))
    other = a.like(x) if a.flag(0.8) or x.dtype == T.int1 else a.choice(("0", "1", "5"))
    a.let(f"{x.name} {symbol} {other}", T.int1, x.shape, whole=1)


def logic(a: Author) -> None:
    x = a.tile(BOOL)
    y = a.partner(x)
    text = a.choice(("{}.logical_and({})", "{}.logical_or({})", "({} & ~{})", "({} == {})"))
    a.let(text.format(x.name, y.name), T.int1, x.shape, whole=1)


def choose(a: Author) -> None:
    """tl.where, on a condition of the shape or one that broadcasts."""
    x = a.tile((*NUMBERS, T.int1))
    y = a.partner(x)
    condition = a.partner(x, T.int1) if a.flag(0.7) else None
    test = condition.name if condition else f"{x.name} > {y.name}"
    bounds = [v.whole for v in (x, y)]
    whole = None if None in bounds else max(b for b in bounds if b is not None)
    text = f"tl.where({test}, {x.name}, {y.name})"
    a.let(text, x.dtype, x.shape, whole=whole, zero=x.zero or y.zero)


def cast(a: Author) -> None:
    """Casts between all dtypes that round once, whose result is defined."""
    x = a.tile((*NUMBERS, T.int1, *FP8))
    to = a.choice((*NUMBERS, T.int1, *FP8))
    source = x.name
    if x.dtype == to or (x.dtype.is_fp8() and to.is_int()) or (x.dtype.is_int() and to.is_fp8()):
        return
    if x.is_float and to.is_int() and to != T.int1:
        low, high = (0, 2 ** (to.bits - 1)) if to.is_int_unsigned() else (
            -(2 ** (to.bits - 2)), 2 ** (to.bits - 2))  # fmt: skip
        source = f"tl.where(({source} >= {low}) & ({source} < {high}), {source}, 5.0)"
    elif to in (T.bfloat16, *FP8) and x.dtype == T.float64:
        source = f"{source}.to(tl.float32)"
    elif to == T.bfloat16 and x.dtype.is_int() and x.dtype.bits > 16:
        source = f"{source}.to(tl.float32)"
    if to in FP8 and x.zero:
        source = f"tl.where({source} == 0, 0.0, {source})"
    mode = ""
    narrows = x.dtype.is_floating() and to.is_standard_floating() and to.bits < x.dtype.bits
    if narrows and x.dtype == T.float32 and a.flag(0.3):
        mode = ', fp_downcast_rounding="rtz"'
    whole = x.whole if to.is_floating() or to.is_int_signed() else None
    if x.dtype == T.int1 or to == T.int1:
        whole = 1
    a.let(f"{source}.to(tl.{to}{mode})", to, x.shape, whole=whole, zero=x.zero and to.is_floating())


def reinterpret(a: Author) -> None:
    """Bitcasts; NaN's payload and an unknown sign of zero do not go through one."""
    x = a.tile(NUMBERS)
    to = a.choice([d for d in NUMBERS if d.bits == x.dtype.bits and d != x.dtype])
    source = x.name
    if x.is_float:
        source = f"tl.where({source} == {source}, {no_zero_sign(a, x)}, 1.0)"
    a.let(f"({source}).to(tl.{to}, bitcast=True)", to, x.shape)


def function(a: Author) -> None:
    """A function of the math library: an output of its own."""
    x = a.tile(FLOATS)
    name = a.choice(tuple(FUNCTIONS))
    single, double, domain = FUNCTIONS[name]
    argument = no_zero_sign(a, x)
    if domain == "turn":
        argument = f"tl.where(tl.abs({argument}) < 10000, {argument}, 1.0)"
    elif domain == "positive":
        if x.dtype == T.float64:
            return  # the oracle's own are off by more
        argument = f"tl.abs({argument}) + 0.125"
    result = a.let(f"{name}({argument})", x.dtype, x.shape, keep=False)
    ulps = 1 if x.dtype.bits == 16 else int(double + 3) if x.dtype.bits == 64 else int(single + 1.5)
    a.output(result, Bound(ulps=ulps))


def by_lanes(a: Author) -> None:
    """map_elementwise of a scalar function with branches and a loop."""
    x = a.tile((T.int32, T.int64, T.float32), lambda v: not v.dot)
    y = a.partner(x)
    if y.dot:
        return
    texts = (
        "def lanes_branch(p, q):\n"
        "    if p < q:\n        return p + q\n    elif p == q:\n        return p\n    return q - p",
        "def lanes_loop(p, q):\n"
        "    n = 0\n    while (p < q) & (n < 5):\n        p = p + p\n        n += 1\n    return p",
    )
    name = a.function(a.choice(texts))
    text = f"tl.map_elementwise({name}, {x.name}, {y.name})"
    a.let(text, x.dtype, x.shape, zero=x.zero or y.zero)


STEPS = (
    (arithmetic, 6), (with_number, 2), (divide, 2), (divide_integers, 2), (divide_by_number, 2),
    (remainder, 1), (bits, 2), (shift, 2), (multiply_high, 1), (unary, 2), (rounding, 1),
    (square_root, 1), (fused, 1), (copy_sign, 1), (extreme, 2), (clamp, 1), (small_whole, 2),
    (compare, 3), (logic, 1), (choose, 3), (cast, 5), (reinterpret, 1), (function, 2),
    (by_lanes, 1),
)  # fmt: skip
