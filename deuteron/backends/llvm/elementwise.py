"""Table ops on chunks: one function an op, scalars and vectors alike.

`emit_op` takes operands in registers (all scalars or all vectors of one width) and gives the result
in registers.  bfloat16 and float16 are computed in float and rounded after every op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deuteron.backends.llvm.builder import Builder, Val
from deuteron.backends.llvm.math import emit_math
from deuteron.backends.llvm.registers import (
    convert,
    narrow_float,
    storage_elem,
    to_register,
    to_storage,
)
from deuteron.dtypes import DType, bfloat16, float16, float32, float64
from deuteron.ir import Op
from deuteron.ir.optable import COMPARISONS, FLOAT_BINARY, FLOAT_UNARY

Emit = Callable[[Builder, Op, Sequence[Val]], Val]

# Float functions the CPU has an instruction for, exact in every type.
_NATIVE = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "roundeven"}


def emit_op(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    """The result of an elementwise table op."""
    return _EMIT[op.name](b, op, args)


def _dtype(op: Op) -> DType:
    return op.operands[-1].type.dtype


def _in_float(
    b: Builder, op: Op, args: Sequence[Val], compute: Callable[[Sequence[Val]], Val]
) -> Val:
    """Compute on float (or double) operands and round the result to the op's dtype."""
    dtype = _dtype(op)
    if dtype is float16:
        args = [b.convert("fpext", a, "float") for a in args]
    result = compute(args)
    return narrow_float(b, result, dtype) if dtype in (float16, bfloat16) else result


def _float_function(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    def compute(wide: Sequence[Val]) -> Val:
        native = _NATIVE.get(op.name)
        return b.intrinsic(native, wide) if native else emit_math(b, op.name, wide)

    return _in_float(b, op, args, compute)


def _arithmetic(float_opcode: str, int_opcode: str) -> Emit:
    def emit(b: Builder, op: Op, args: Sequence[Val]) -> Val:
        if not _dtype(op).is_floating():
            return b.binary(int_opcode, *args)
        return _in_float(b, op, args, lambda wide: b.binary(float_opcode, *wide))

    return emit


def _extreme(greater: bool) -> Emit:
    def emit(b: Builder, op: Op, args: Sequence[Val]) -> Val:
        dtype = _dtype(op)
        if not dtype.is_floating():
            letter = "s" if dtype.is_int_signed() else "u"
            if dtype.bits == 1:
                return b.or_(*args) if greater else b.and_(*args)
            return b.intrinsic(f"{letter}{'max' if greater else 'min'}", list(args))
        if op.attrs.get("propagate_nan"):
            return _propagating(b, args, greater)
        if dtype is float16:
            # LLVM would make `maxnum` of halves of it, which is a library call before AVX512-FP16.
            left, right = args
            chosen = b.select(b.fcmp("olt" if greater else "ogt", left, right), right, left)
            return b.select(b.fcmp("uno", left, left), right, chosen)
        name = "maxnum" if greater else "minnum"
        return _in_float(b, op, args, lambda wide: b.intrinsic(name, wide))

    return emit


def _propagating(b: Builder, args: Sequence[Val], greater: bool) -> Val:
    left, right = args
    chosen = b.select(b.fcmp("ugt" if greater else "ult", left, right), left, right)
    return b.select(b.fcmp("uno", right, right), right, chosen)


def _safe_divisor(b: Builder, dtype: DType, divisor: Val) -> Val:
    """1 in place of a divisor that would trap: 0, and -1 for signed."""
    bad = b.icmp("eq", divisor, b.const(0, divisor.type))
    if dtype.is_int_signed():
        bad = b.or_(bad, b.icmp("eq", divisor, b.const(-1, divisor.type)))
    return b.select(bad, b.const(1, divisor.type), divisor)


def _quotient(b: Builder, dtype: DType, left: Val, right: Val) -> Val:
    """Truncating division; by zero it gives the dividend."""
    signed = dtype.is_int_signed()
    if left.type.lanes and dtype.bits <= 32:
        return _quotient_by_double(b, signed, left, right)
    safe = _safe_divisor(b, dtype, right)
    quotient = b.binary("sdiv" if signed else "udiv", left, safe)
    if not signed:
        return quotient
    minus_one = b.icmp("eq", right, b.const(-1, right.type))
    return b.select(minus_one, b.sub(b.const(0, left.type), left), quotient)


def _quotient_by_double(b: Builder, signed: bool, left: Val, right: Val) -> Val:
    """CPUs divide vectors of doubles, not of integers; 53 bits make a 32-bit quotient exact."""
    zero = b.icmp("eq", right, b.const(0, right.type))
    right = b.select(zero, b.const(1, right.type), right)
    opcode = "sitofp" if signed else "uitofp"
    ratio = b.fdiv(b.convert(opcode, left, "double"), b.convert(opcode, right, "double"))
    whole = b.convert("fptosi", ratio, "i64")
    return b.convert("trunc", whole, left.type.elem)


def _idiv(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    return _quotient(b, _dtype(op), *args)


def _irem(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    left, right = args
    remainder = b.sub(left, b.mul(_quotient(b, _dtype(op), left, right), right))
    return b.select(b.icmp("eq", right, b.const(0, right.type)), b.const(0, left.type), remainder)


def _shift(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    value, amount = args
    # A shift by the width or more is poison to LLVM; the language leaves only its value open.
    amount = b.and_(amount, b.const(value.type.bits - 1, amount.type))
    if op.name == "shl":
        return b.shl(value, amount)
    return b.ashr(value, amount) if _dtype(op).is_int_signed() else b.lshr(value, amount)


def _umulhi(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    bits = args[0].type.bits
    left, right = (b.convert("zext", a, f"i{2 * bits}") for a in args)
    product = b.mul(left, right)
    return b.convert("trunc", b.lshr(product, b.const(bits, product.type)), f"i{bits}")


def _compare(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    element = op.operands[0].type.element
    if isinstance(element, DType) and element.is_floating():
        return b.fcmp("une" if op.name == "ne" else f"o{op.name}", *args)
    if op.name in ("eq", "ne"):
        return b.icmp(op.name, *args)
    signed = isinstance(element, DType) and element.is_int_signed()
    return b.icmp(f"{'s' if signed else 'u'}{op.name}", *args)


def _negate(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    if _dtype(op).is_floating():
        return b.fneg(args[0])
    return b.sub(b.const(0, args[0].type), args[0])


def _absolute(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    dtype = _dtype(op)
    if dtype.is_floating():
        return b.fabs(args[0])
    if not dtype.is_int_signed():
        return args[0]
    negative = b.icmp("slt", args[0], b.const(0, args[0].type))
    return b.select(negative, b.sub(b.const(0, args[0].type), args[0]), args[0])


def _not(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    return b.xor(args[0], b.const(-1 if args[0].type.bits > 1 else 1, args[0].type))


def _select(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    return b.select(*args)


def _fma(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    dtype = _dtype(op)
    if dtype in (float32, float64):
        return b.fma(*args)
    # In double the product is exact; the rounding to `dtype` is the only one that counts.
    left, right, addend = (convert(b, a, dtype, float64) for a in args)
    return convert(b, _add_to_odd(b, b.fmul(left, right), addend), float64, dtype)


def _add_to_odd(b: Builder, x: Val, y: Val) -> Val:
    """x + y of doubles, rounded to odd: one more rounding is then as if it were the only one.

    Boldo and Melquiond, "Emulation of FMA and correctly rounded sums" (2008).
    """
    total = b.fadd(x, y)
    of_y = b.fsub(total, x)
    error = b.fadd(b.fsub(x, b.fsub(total, of_y)), b.fsub(y, of_y))  # Knuth's TwoSum
    bits, tail = b.bitcast(total, "i64"), b.bitcast(error, "i64")
    zero, one = b.const(0, bits.type), b.const(1, bits.type)
    inward = b.icmp("slt", b.xor(bits, tail), zero)  # of unequal signs
    inexact = b.fcmp("one", error, b.const(0.0, error.type))
    even = b.icmp("eq", b.and_(bits, one), zero)
    odd = b.select(inward, b.sub(bits, one), b.add(bits, one))
    return b.bitcast(b.select(b.and_(inexact, even), odd, bits), "double")


def _cast(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    rounding = op.attrs.get("rounding")
    return convert(b, args[0], op.operands[0].type.dtype, op.attrs["to"], rounding)


def _bitcast(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    source, target = op.operands[0].type.element, op.attrs["to"]
    if not isinstance(source, DType):
        return args[0]
    bits = b.bitcast(to_storage(b, args[0], source), storage_elem(target))
    return to_register(b, bits, target)


def _addptr(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    pointer, offset = args
    dtype = op.operands[1].type.dtype
    if dtype.bits < 64:
        offset = b.convert("sext" if dtype.is_int_signed() else "zext", offset, "i64")
    return b.gep(storage_elem(op.result.type.pointee), pointer, offset)


def _ptr_to_int(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    return b.convert("ptrtoint", args[0], "i64")


def _int_to_ptr(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    return b.convert("inttoptr", args[0], "ptr")


def _hint(b: Builder, op: Op, args: Sequence[Val]) -> Val:
    return args[0]


_EMIT: dict[str, Emit] = {
    **dict.fromkeys((*FLOAT_UNARY, *FLOAT_BINARY), _float_function),
    **dict.fromkeys(COMPARISONS, _compare),
    "add": _arithmetic("fadd", "add"),
    "sub": _arithmetic("fsub", "sub"),
    "mul": _arithmetic("fmul", "mul"),
    "div": _arithmetic("fdiv", "sdiv"),
    "min": _extreme(greater=False),
    "max": _extreme(greater=True),
    "idiv": _idiv,
    "irem": _irem,
    "and": lambda b, op, args: b.and_(*args),
    "or": lambda b, op, args: b.or_(*args),
    "xor": lambda b, op, args: b.xor(*args),
    "shl": _shift,
    "shr": _shift,
    "umulhi": _umulhi,
    "neg": _negate,
    "abs": _absolute,
    "not": _not,
    "select": _select,
    "fma": _fma,
    "cast": _cast,
    "bitcast": _bitcast,
    "addptr": _addptr,
    "ptr_to_int": _ptr_to_int,
    "int_to_ptr": _int_to_ptr,
    "hint": _hint,
    "copysign": lambda b, op, args: _in_float(b, op, args, lambda wide: b.copysign(*wide)),
}
ELEMENTWISE_OPS = frozenset(_EMIT)
# What one op costs beside a vector add: decides what is computed once and kept.
_COSTLY = {"div": 6, "idiv": 20, "irem": 20, "umulhi": 3, "sqrt": 6}


def cost(op: Op) -> int:
    """Rough cost of an elementwise op, in vector additions."""
    if op.name in _NATIVE or op.name == "copysign":
        return _COSTLY.get(op.name, 1)
    if op.name in FLOAT_UNARY or op.name in FLOAT_BINARY:
        return 20
    return _COSTLY.get(op.name, 1)
