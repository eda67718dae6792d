"""Operators on tensors and numbers: promotion, arithmetic, bits, comparison, selection.

Promotion follows Triton (`dtypes.promote`), with one addition for Python numbers: a number of a
lower or equal kind (bool < integer < float) than the tensor takes the tensor's dtype.
"""

from __future__ import annotations

from collections.abc import Callable

from deuteron.dtypes import (
    FLOAT8,
    DType,
    Kind,
    Specials,
    bfloat16,
    float16,
    float32,
    int1,
    int64,
    integer,
    promote,
    uint8,
)
from deuteron.errors import CompilationError
from deuteron.lang.context import Context
from deuteron.lang.semantic.casts import bitcast, cast, constant, literal_dtype, to_tensor
from deuteron.lang.semantic.shape import broadcast_to, broadcast_together
from deuteron.lang.values import Operand, Tensor, describe

LOAD_FIRST = "load what it points to first, with tl.load"
CAST_FIRST = "cast it first, as in x.to(tl.float32)"
_CAST_TO_INTEGER = "cast a float first, as in x.to(tl.int32); `//` divides integers"
_NO_POINTERS = "numbers, no pointers"
_KIND_RANK = {Kind.BOOL: 0, Kind.SIGNED: 1, Kind.UNSIGNED: 1, Kind.FLOAT: 2}


# -- promotion -----------------------------------------------------------------------------
def computation_dtype(
    ctx: Context, symbol: str, left: Operand, right: Operand, *, division: bool = False
) -> DType:
    """The dtype `left symbol right` is computed in; a Python number may adopt the tensor's."""
    a, b = _dtype_of(ctx, left), _dtype_of(ctx, right)
    tensors = [isinstance(side, Tensor) for side in (left, right)]
    if tensors[0] != tensors[1]:
        tensor, number = (a, b) if tensors[0] else (b, a)
        if _KIND_RANK[number.kind] <= _KIND_RANK[tensor.kind]:
            return float32 if division and tensor in (float16, bfloat16) else tensor
    mixes_signs = a.is_int() and b.is_int() and a.is_int_signed() != b.is_int_signed()
    if division and mixes_signs:
        raise ctx.error(
            f"Cannot use `{symbol}` on {a} and {b} because they have different signedness",
            expected="operands of one signedness",
            got=f"{a} and {b}",
            remedy=f"cast one side, as in x.to({a})",
        )
    return promote(a, b, division=division)


def _dtype_of(ctx: Context, operand: Operand) -> DType:
    if isinstance(operand, Tensor):
        return operand.number
    return literal_dtype(ctx, operand)


def _adopt(ctx: Context, operand: Operand, dtype: DType) -> Tensor:
    if isinstance(operand, Tensor):
        return cast(ctx, operand, dtype)
    if operand < 0 and dtype.is_int_unsigned():
        raise ctx.error(
            "a negative number meets an unsigned tensor",
            expected=f"a number that fits {dtype}",
            got=str(operand),
            remedy="cast the tensor to a signed dtype first",
        )
    return constant(ctx, operand, dtype)


def _refuse(
    ctx: Context, symbol: str, left: Operand, right: Operand, expected: str
) -> CompilationError:
    return ctx.error(
        f"`{symbol}` got invalid operands of type {_shown(left)} and {_shown(right)}",
        expected=expected,
        got=f"{describe(left)} and {describe(right)}",
        remedy=LOAD_FIRST if expected == _NO_POINTERS else _CAST_TO_INTEGER,
    )


def _shown(operand: Operand) -> str:
    return str(operand.dtype) if isinstance(operand, Tensor) else type(operand).__name__


def has_pointer(*operands: Operand) -> bool:
    """True when an operand is a pointer or a tile of pointers."""
    return any(isinstance(o, Tensor) and o.is_pointer for o in operands)


def numbers(
    ctx: Context, symbol: str, left: Operand, right: Operand, *, division: bool = False
) -> tuple[Tensor, Tensor]:
    """Both operands cast to the computation dtype and broadcast to one shape."""
    if has_pointer(left, right):
        raise _refuse(ctx, symbol, left, right, _NO_POINTERS)
    dtype = computation_dtype(ctx, symbol, left, right, division=division)
    if dtype.is_fp8():
        raise ctx.error(
            f"`{symbol}` is not defined on {dtype}, which is for storage",
            expected="float16 or wider",
            got=f"{describe(left)} and {describe(right)}",
            remedy=CAST_FIRST,
        )
    a, b = _adopt(ctx, left, dtype), _adopt(ctx, right, dtype)
    a, b = broadcast_together(ctx, a, b)
    return a, b


# -- arithmetic ----------------------------------------------------------------------------
def add(ctx: Context, left: Operand, right: Operand) -> Tensor:
    """left + right; a pointer plus integers counts elements."""
    if has_pointer(left, right):
        if isinstance(left, Tensor) and left.is_pointer:
            return _advance(ctx, "+", left, right)
        assert isinstance(right, Tensor)
        return _advance(ctx, "+", right, left)
    return ctx.op("add", *numbers(ctx, "+", left, right))


def sub(ctx: Context, left: Operand, right: Operand) -> Tensor:
    """left - right; a pointer minus integers counts elements."""
    if isinstance(left, Tensor) and left.is_pointer:
        return _advance(ctx, "-", left, right)
    return ctx.op("sub", *numbers(ctx, "-", left, right))


def _advance(ctx: Context, symbol: str, pointer: Tensor, offset: Operand) -> Tensor:
    step = to_tensor(ctx, offset)
    if step.is_pointer or not step.number.is_int():
        raise _refuse(ctx, symbol, pointer, offset, "a pointer and integers")
    if step.number.is_int_unsigned():
        step = cast(ctx, step, int64)  # addptr sign-extends, an unsigned offset must not
    if symbol == "-":
        step = ctx.op("neg", step)
    return ctx.op("addptr", *broadcast_together(ctx, pointer, step))


def mul(ctx: Context, left: Operand, right: Operand) -> Tensor:
    """left * right."""
    return ctx.op("mul", *numbers(ctx, "*", left, right))


def truediv(ctx: Context, left: Operand, right: Operand) -> Tensor:
    """left / right, in float32 at least."""
    a, b = numbers(ctx, "/", left, right, division=True)
    if a.number.is_int():
        a, b = cast(ctx, a, float32), cast(ctx, b, float32)
    return ctx.op("div", a, b)


def floordiv(ctx: Context, left: Operand, right: Operand) -> Tensor:
    """left // right on integers; truncates toward zero, as C does."""
    a, b = numbers(ctx, "//", left, right, division=True)
    if a.number.is_floating():
        raise _refuse(ctx, "//", left, right, "integers")
    return ctx.op("idiv", a, b)


def mod(ctx: Context, left: Operand, right: Operand) -> Tensor:
    """left % right; the result has the sign of the left side, as in C."""
    a, b = numbers(ctx, "%", left, right, division=True)
    return ctx.op("fmod" if a.number.is_floating() else "irem", a, b)


def power(ctx: Context, left: Operand, right: Operand) -> Tensor:
    """left ** right: a whole number known at compile time by multiplications, else by `pow`."""
    ctx.beyond_triton("`**` on tensors", "multiply, or call libdevice.pow")
    if has_pointer(left, right):
        raise _refuse(ctx, "**", left, right, _NO_POINTERS)
    if isinstance(left, Tensor) and isinstance(right, int):
        return _whole_power(ctx, left, int(right))
    base, exponent = to_tensor(ctx, left), to_tensor(ctx, right)
    if base.number.is_int() and exponent.number.is_int():
        raise ctx.error(
            "`**` of integers needs an exponent known at compile time",
            expected="a float, or a constant exponent",
            got=f"{describe(left)} and {describe(right)}",
            remedy="write 1 << n for powers of two, or cast one side with .to(tl.float32)",
        )
    return float_binary(ctx, "pow", left, right)


def _whole_power(ctx: Context, x: Tensor, exponent: int) -> Tensor:
    dtype = _number(ctx, "**", x)
    if exponent < 0:
        if dtype.is_int():
            raise ctx.error(
                "a negative power of an integer is no integer",
                expected="an exponent of 0 or more",
                got=str(exponent),
                remedy="cast the base first, as in x.to(tl.float32)",
            )
        return fdiv(ctx, 1.0, _whole_power(ctx, x, -exponent), "**")
    result: Tensor | None = None
    square = x
    while exponent:
        if exponent & 1:
            result = square if result is None else mul(ctx, result, square)
        exponent >>= 1
        square = mul(ctx, square, square) if exponent else square
    return broadcast_to(ctx, constant(ctx, 1, dtype), x.shape) if result is None else result


# -- bits ----------------------------------------------------------------------------------
def _integers(ctx: Context, symbol: str, left: Operand, right: Operand) -> tuple[Tensor, Tensor]:
    a, b = numbers(ctx, symbol, left, right)
    if a.number.is_floating():
        raise _refuse(ctx, symbol, left, right, "integers or booleans")
    return a, b


def _bitwise(symbol: str, op: str) -> Callable[[Context, Operand, Operand], Tensor]:
    def apply(ctx: Context, left: Operand, right: Operand) -> Tensor:
        return ctx.op(op, *_integers(ctx, symbol, left, right))

    apply.__doc__ = f"left {symbol} right on integers and booleans."
    return apply


bit_and = _bitwise("&", "and")
bit_or = _bitwise("|", "or")
bit_xor = _bitwise("^", "xor")
shift_left = _bitwise("<<", "shl")


def shift_right(ctx: Context, left: Operand, right: Operand) -> Tensor:
    """left >> right: keeps the sign when the left side is signed."""
    a, b = _integers(ctx, ">>", left, right)
    keeps_sign = isinstance(left, Tensor) and left.number.is_int_signed()
    if keeps_sign and a.number.is_int_unsigned():
        signed = integer(a.number.bits)
        shifted = ctx.op("shr", bitcast(ctx, a, signed), bitcast(ctx, b, signed))
        return bitcast(ctx, shifted, a.number)
    return ctx.op("shr", a, b)


# -- unary ---------------------------------------------------------------------------------
def _number(ctx: Context, symbol: str, x: Tensor) -> DType:
    if x.is_pointer or x.number.is_fp8():
        raise ctx.error(
            f"`{symbol}` does not take this operand",
            expected="a number that arithmetic is defined on",
            got=describe(x),
            remedy=LOAD_FIRST if x.is_pointer else CAST_FIRST,
        )
    return x.number


def negate(ctx: Context, x: Tensor) -> Tensor:
    """-x; an unsigned integer wraps."""
    _number(ctx, "-", x)
    return ctx.op("neg", x)


def invert(ctx: Context, x: Tensor) -> Tensor:
    """~x on integers and booleans."""
    if _number(ctx, "~", x).is_floating():
        raise ctx.error(
            "`~` does not take this operand",
            expected="integers or booleans",
            got=describe(x),
            remedy=_CAST_TO_INTEGER,
        )
    return ctx.op("not", x)


def truth(ctx: Context, x: Tensor) -> Tensor:
    """x as booleans: whether each element differs from zero."""
    return cast(ctx, x, int1)


def logical_not(ctx: Context, x: Tensor) -> Tensor:
    """Whether each element is zero."""
    return ctx.op("not", truth(ctx, x))


def logical_and(ctx: Context, left: Operand, right: Operand) -> Tensor:
    """Whether both differ from zero."""
    a, b = (truth(ctx, to_tensor(ctx, side)) for side in (left, right))
    return ctx.op("and", *broadcast_together(ctx, a, b))


def logical_or(ctx: Context, left: Operand, right: Operand) -> Tensor:
    """Whether one of both differs from zero."""
    a, b = (truth(ctx, to_tensor(ctx, side)) for side in (left, right))
    return ctx.op("or", *broadcast_together(ctx, a, b))


# -- comparison and selection --------------------------------------------------------------
_COMPARISONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}


def compare(ctx: Context, symbol: str, left: Operand, right: Operand) -> Tensor:
    """left symbol right as booleans; comparisons with NaN are false, except `!=`."""
    return ctx.op(_COMPARISONS[symbol], *numbers(ctx, symbol, left, right))


def where(ctx: Context, condition: Operand, x: Operand, y: Operand) -> Tensor:
    """x where the condition holds, y elsewhere; all three broadcast together."""
    chosen = truth(ctx, to_tensor(ctx, condition))
    if has_pointer(x, y):
        a, b = _same_pointers(ctx, x, y)
    else:
        dtype = computation_dtype(ctx, "where", x, y)
        a, b = _adopt(ctx, x, dtype), _adopt(ctx, y, dtype)
    return ctx.op("select", *broadcast_together(ctx, chosen, a, b))


def _same_pointers(ctx: Context, x: Operand, y: Operand) -> tuple[Tensor, Tensor]:
    if isinstance(x, Tensor) and isinstance(y, Tensor) and x.dtype == y.dtype:
        return x, y
    raise ctx.error(
        "`where` does not take these operands",
        expected="two numbers, or two pointers of one type",
        got=f"{describe(x)} and {describe(y)}",
        remedy=LOAD_FIRST,
    )


def minimum(ctx: Context, x: Operand, y: Operand, *, propagate_nan: bool = False) -> Tensor:
    """The lesser; a NaN operand loses unless `propagate_nan`."""
    return ctx.op("min", *_extremes(ctx, "minimum", x, y), propagate_nan=propagate_nan)


def maximum(ctx: Context, x: Operand, y: Operand, *, propagate_nan: bool = False) -> Tensor:
    """The greater; a NaN operand loses unless `propagate_nan`."""
    return ctx.op("max", *_extremes(ctx, "maximum", x, y), propagate_nan=propagate_nan)


def _extremes(ctx: Context, name: str, x: Operand, y: Operand) -> tuple[Tensor, Tensor]:
    # Triton's own rule: numbers are tensors here, and bfloat16 goes to float32.
    a, b = (widen_bfloat16(ctx, to_tensor(ctx, side)) for side in (x, y))
    return numbers(ctx, name, a, b)


def widen_bfloat16(ctx: Context, x: Tensor) -> Tensor:
    """bfloat16 as float32, the rest as it is."""
    return cast(ctx, x, float32) if x.dtype == bfloat16 else x


def clamp(
    ctx: Context, x: Operand, low: Operand, high: Operand, *, propagate_nan: bool = False
) -> Tensor:
    """x limited to [low, high]; a NaN in x gives `low`, or stays with `propagate_nan`."""
    tensors = [widen_bfloat16(ctx, to_tensor(ctx, side)) for side in (x, low, high)]
    least, greatest = numbers(ctx, "clamp", tensors[1], tensors[2])
    value, least = numbers(ctx, "clamp", tensors[0], least)
    value, greatest = numbers(ctx, "clamp", value, greatest)
    if not value.number.is_floating():
        raise ctx.error(
            "clamp takes floats",
            expected="float16, bfloat16, float32 or float64",
            got=describe(x),
            remedy="use tl.minimum(tl.maximum(x, low), high) on integers",
        )
    raised = ctx.op("max", value, least, propagate_nan=propagate_nan)
    return ctx.op("min", raised, greatest, propagate_nan=propagate_nan)


def fma(ctx: Context, x: Operand, y: Operand, z: Operand) -> Tensor:
    """x * y + z, rounded once."""
    a, b = numbers(ctx, "fma", x, y)
    a, c = numbers(ctx, "fma", a, z)
    b, c = numbers(ctx, "fma", b, c)
    if not c.number.is_floating():
        raise ctx.error(
            "fma takes floats",
            expected="three floats",
            got=f"{describe(x)}, {describe(y)}, {describe(z)}",
            remedy="write x * y + z on integers",
        )
    return ctx.op("fma", *broadcast_together(ctx, a, b, c))


# -- functions -----------------------------------------------------------------------------
def float_unary(ctx: Context, name: str, x: Operand) -> Tensor:
    """A function of one float, such as exp; a Python integer counts as a float."""
    value = float(x) if isinstance(x, int) else x
    tensor = to_tensor(ctx, value)
    require_float(ctx, name, tensor)
    return ctx.op(name, tensor)


def float_binary(ctx: Context, name: str, x: Operand, y: Operand) -> Tensor:
    """A function of two floats, such as atan2, in their common dtype."""
    a, b = numbers(ctx, name, x, y)
    require_float(ctx, name, a)
    return ctx.op(name, a, b)


def require_float(ctx: Context, name: str, x: Tensor) -> None:
    """An error unless x holds floats that arithmetic is defined on."""
    if x.is_pointer or not x.number.is_standard_floating():
        raise ctx.error(
            f"{name} needs a float",
            expected="float16, bfloat16, float32 or float64",
            got=describe(x),
            remedy=LOAD_FIRST if x.is_pointer else CAST_FIRST,
        )


def absolute(ctx: Context, x: Operand) -> Tensor:
    """|x|; the least signed integer wraps to itself."""
    tensor = to_tensor(ctx, x)
    if not tensor.is_pointer and tensor.number.is_fp8():
        return _absolute_float8(ctx, tensor)
    dtype = _number(ctx, "abs", tensor)
    return tensor if dtype.is_int_unsigned() else ctx.op("abs", tensor)


def _absolute_float8(ctx: Context, x: Tensor) -> Tensor:
    """The code without its sign bit; where that bit alone is NaN, it stays."""
    code = bitcast(ctx, x, uint8)
    plain = bit_and(ctx, code, 0x7F)
    if FLOAT8[x.number].specials is Specials.NEGATIVE_ZERO:
        plain = where(ctx, compare(ctx, "==", code, 0x80), code, plain)
    return bitcast(ctx, plain, x.number)


def fdiv(ctx: Context, x: Operand, y: Operand, name: str = "fdiv") -> Tensor:
    """x / y in the floats' own common dtype."""
    a, b = numbers(ctx, name, x, y)
    require_float(ctx, name, a)
    return ctx.op("div", a, b)


def umulhi(ctx: Context, x: Operand, y: Operand) -> Tensor:
    """The upper half of the product of two 32- or 64-bit integers, read as unsigned."""
    a, b = _integers(ctx, "umulhi", x, y)
    if a.number.bits < 32:
        raise ctx.error(
            "umulhi needs wider integers",
            expected="int32, uint32, int64 or uint64",
            got=str(a.number),
            remedy="cast both sides first, as in x.to(tl.int64)",
        )
    return ctx.op("umulhi", a, b)
