"""How element types are held in registers and in memory, and how they convert.

In registers bfloat16 and the 8-bit floats are `float` already rounded to their type, int1 is `i1`,
everything else is itself.  In memory bfloat16 is 16 bits, the 8-bit floats one byte, int1 one byte.
Rounding is done with integer instructions: LLVM's own `fptrunc` to bfloat becomes library calls
where the CPU has no such instruction.
"""

from __future__ import annotations

from deuteron.backends.llvm.builder import Builder, LType, Val
from deuteron.dtypes import FLOAT8, DType, Kind, Specials, bfloat16, float16, float64, int1
from deuteron.ir import Element, Pointer

BF16_MASK = -65536  # the upper 16 of 32 bits


def register_elem(element: Element) -> str:
    """LLVM element type of a value in registers."""
    if isinstance(element, Pointer):
        return "ptr"
    if not element.is_floating():
        return f"i{element.bits}"
    if element is float16:
        return "half"
    return "double" if element is float64 else "float"


def storage_elem(element: Element) -> str:
    """LLVM element type of a value in memory."""
    if isinstance(element, Pointer):
        return "ptr"
    if element.is_fp8() or element is int1:
        return "i8"
    return "i16" if element is bfloat16 else register_elem(element)


def elem_bytes(elem: str) -> int:
    """Size of one element in memory, by its LLVM type."""
    return max(1, LType(elem).bits // 8)


def to_register(b: Builder, stored: Val, element: Element) -> Val:
    """A value as loaded from memory, as it is held in registers."""
    if element is int1:
        return b.icmp("ne", stored, b.const(0, stored.type))
    if element is bfloat16 and b.native_bf16:
        return b.convert("fpext", b.bitcast(stored, "bfloat"), "float")
    if element is bfloat16:
        wide = b.convert("zext", stored, "i32")
        return b.bitcast(b.shl(wide, b.const(16, wide.type)), "float")
    if isinstance(element, DType) and element.is_fp8():
        return _decode_fp8(b, stored, element)
    return stored


def to_storage(b: Builder, value: Val, element: Element) -> Val:
    """A value held in registers, as it is stored to memory."""
    if element is int1:
        return b.convert("zext", value, "i8")
    if element is bfloat16 and b.native_bf16:
        return b.bitcast(b.convert("fptrunc", value, "bfloat"), "i16")
    if element is bfloat16:
        bits = b.bitcast(value, "i32")
        return b.convert("trunc", b.lshr(bits, b.const(16, bits.type)), "i16")
    if isinstance(element, DType) and element.is_fp8():
        return _encode_fp8(b, value, element)
    return value


# -- rounding to narrow floats --------------------------------------------------------------
def round_bf16(b: Builder, value: Val, *, toward_zero: bool = False) -> Val:
    """A float rounded to bfloat16 (to nearest even, or truncated), still as a float."""
    if b.native_bf16 and not toward_zero:
        return b.convert("fpext", b.convert("fptrunc", value, "bfloat"), "float")
    bits = b.bitcast(value, "i32")
    mask = b.const(BF16_MASK, bits.type)
    if toward_zero:
        rounded = b.and_(bits, mask)
    else:
        odd = b.and_(b.lshr(bits, b.const(16, bits.type)), b.const(1, bits.type))
        bias = b.add(odd, b.const(0x7FFF, bits.type))
        rounded = b.and_(b.add(bits, bias), mask)
    quiet = b.and_(b.or_(bits, b.const(0x400000, bits.type)), mask)
    is_nan = b.fcmp("uno", value, value)
    return b.bitcast(b.select(is_nan, quiet, rounded), "float")


def round_fp8(b: Builder, value: Val, dtype: DType, *, toward_zero: bool = False) -> Val:
    """A float rounded to an 8-bit float, overflow saturating; NaN is kept."""
    form = FLOAT8[dtype]
    mantissa, least = form.mantissa_bits, form.least_exponent
    bits = b.bitcast(value, "i32")
    drop = 23 - mantissa
    magnitude = b.fabs(value)
    # Below the least normal the spacing is fixed.
    if toward_zero:
        steps = b.fmul(value, b.const(2.0 ** (mantissa - least), value.type))
        whole = b.intrinsic("trunc", [steps])
        small = b.fmul(whole, b.const(2.0 ** (least - mantissa), value.type))
    else:
        odd = b.and_(b.lshr(bits, b.const(drop, bits.type)), b.const(1, bits.type))
        bias = b.add(odd, b.const((1 << (drop - 1)) - 1, bits.type))
        bits = b.add(bits, bias)
        # Adding 1.5 * 2^23 spacings rounds to them.
        magic = b.const(1.5 * 2.0 ** (23 + least - mantissa), value.type)
        small = b.copysign(b.fsub(b.fadd(value, magic), magic), value)
    normal = b.and_(bits, b.const(-(1 << drop), bits.type))
    tiny = b.fcmp("olt", magnitude, b.const(2.0**least, value.type))
    rounded = b.select(tiny, small, b.bitcast(normal, "float"))
    limit = b.const(form.greatest, value.type)
    saturated = b.copysign(limit, value)
    over = b.fcmp("ogt", b.fabs(rounded), limit)
    rounded = b.select(over, saturated, rounded)
    if form.specials is Specials.NEGATIVE_ZERO:
        rounded = b.fadd(rounded, b.const(0.0, rounded.type))
    nan = limit if form.specials is Specials.NONE else value
    return b.select(b.fcmp("uno", value, value), nan, rounded)


def _encode_fp8(b: Builder, value: Val, dtype: DType) -> Val:
    """The 8 bits of a float that is already rounded to `dtype`."""
    form = FLOAT8[dtype]
    mantissa, least = form.mantissa_bits, form.least_exponent
    bits = b.bitcast(value, "i32")
    sign = b.lshr(b.and_(bits, b.const(-(1 << 31), bits.type)), b.const(24, bits.type))
    magnitude = b.and_(bits, b.const(0x7FFFFFFF, bits.type))
    shifted = b.lshr(magnitude, b.const(23 - mantissa, bits.type))
    bias = (127 + least - 1) << mantissa
    normal = b.sub(shifted, b.const(bias, bits.type))
    scale = b.const(2.0 ** (mantissa - least), value.type)
    small = b.convert("fptosi", b.fmul(b.fabs(value), scale), "i32")
    tiny = b.fcmp("olt", b.fabs(value), b.const(2.0**least, value.type))
    code = b.select(tiny, small, normal)
    is_nan = b.fcmp("uno", value, value)
    if form.specials is Specials.NEGATIVE_ZERO:
        code = b.select(is_nan, b.const(0, bits.type), code)
        zero = b.icmp("eq", code, b.const(0, bits.type))
        sign = b.select(zero, b.const(0, bits.type), sign)
        sign = b.select(is_nan, b.const(0x80, bits.type), sign)
        return b.convert("trunc", b.or_(code, sign), "i8")
    code = b.select(is_nan, b.const(0x7F, bits.type), code)
    if form.specials is Specials.IEEE:
        infinite = b.fcmp("oeq", b.fabs(value), b.const(float("inf"), value.type))
        code = b.select(infinite, b.const(0x7C, bits.type), code)
    return b.convert("trunc", b.or_(code, sign), "i8")


def _decode_fp8(b: Builder, stored: Val, dtype: DType) -> Val:
    form = FLOAT8[dtype]
    mantissa, least = form.mantissa_bits, form.least_exponent
    wide = b.convert("zext", stored, "i32")
    sign = b.shl(b.and_(wide, b.const(0x80, wide.type)), b.const(24, wide.type))
    code = b.and_(wide, b.const(0x7F, wide.type))
    placed = b.shl(code, b.const(23 - mantissa, wide.type))
    normal = b.bitcast(b.add(placed, b.const((127 + least - 1) << 23, wide.type)), "float")
    spacing = b.const(2.0 ** (least - mantissa), normal.type)
    small = b.fmul(b.convert("sitofp", code, "float"), spacing)
    tiny = b.icmp("slt", code, b.const(1 << mantissa, wide.type))
    value = b.select(tiny, small, normal)
    nan = b.const(float("nan"), value.type)
    if form.specials is Specials.LAST:
        value = b.select(b.icmp("eq", code, b.const(0x7F, wide.type)), nan, value)
    elif form.specials is Specials.NEGATIVE_ZERO:
        value = b.select(b.icmp("eq", wide, b.const(0x80, wide.type)), nan, value)
    elif form.specials is Specials.IEEE:
        infinity = b.const(float("inf"), value.type)
        value = b.select(b.icmp("eq", code, b.const(0x7C, wide.type)), infinity, value)
        value = b.select(b.icmp("sgt", code, b.const(0x7C, wide.type)), nan, value)
    return b.bitcast(b.or_(b.bitcast(value, "i32"), sign), "float")


# -- conversions ----------------------------------------------------------------------------
def convert(
    b: Builder, value: Val, source: DType, target: DType, rounding: str | None = None
) -> Val:
    """A value of one dtype as another (both in registers)."""
    if source is target:
        return value
    if target is int1:
        zero = b.const(0, value.type)
        if source.is_floating():
            return b.fcmp("une", value, zero)
        return b.icmp("ne", value, zero)
    if source.is_floating():
        if target.is_floating():
            return _float_to_float(b, value, source, target, rounding)
        return _float_to_int(b, value, target)
    if target.is_floating():
        return _int_to_float(b, value, source, target)
    if source.bits > target.bits:
        return b.convert("trunc", value, f"i{target.bits}")
    if source.bits < target.bits:
        opcode = "sext" if source.is_int_signed() else "zext"
        return b.convert(opcode, value, f"i{target.bits}")
    return value


def narrow_float(b: Builder, value: Val, target: DType, rounding: str | None = None) -> Val:
    """A `float` rounded to a float dtype of at most 32 bits."""
    if target is bfloat16:
        return round_bf16(b, value, toward_zero=rounding == "rtz")
    if target is float16:
        if rounding == "rtz":
            value = _truncate_to_half(b, value)
        return b.convert("fptrunc", value, "half")
    toward_zero = rounding == "rtz"
    return round_fp8(b, value, target, toward_zero=toward_zero) if target.is_fp8() else value


def _truncate_to_half(b: Builder, value: Val) -> Val:
    """Clears the mantissa bits a half cannot hold, so that the conversion rounds toward zero."""
    bits = b.bitcast(value, "i32")
    kept = b.bitcast(b.and_(bits, b.const(-(1 << 13), bits.type)), "float")
    finite = b.fcmp("olt", b.fabs(value), b.const(float("inf"), value.type))
    over = b.fcmp("ogt", b.fabs(kept), b.const(65504.0, value.type))
    limited = b.select(over, b.copysign(b.const(65504.0, value.type), value), kept)
    magic = b.const(2.0**-24, value.type)
    scaled = b.fmul(value, b.const(2.0**24, value.type))
    tiny = b.fmul(b.intrinsic("trunc", [scaled]), magic)
    is_tiny = b.fcmp("olt", b.fabs(value), b.const(2.0**-14, value.type))
    return b.select(finite, b.select(is_tiny, tiny, limited), value)


def _float_to_float(
    b: Builder, value: Val, source: DType, target: DType, rounding: str | None
) -> Val:
    if source is float64:
        if target.bits == 32:
            return _double_to_float(b, value, rounding)
        return narrow_float(b, _round_to_odd(b, value), target, rounding)
    if source in FLOAT8 and target is bfloat16:
        return value  # exact
    wide = b.convert("fpext", value, "float") if source is float16 else value
    if target is float64:
        return b.convert("fpext", wide, "double")
    return narrow_float(b, wide, target, rounding)


def _double_to_float(b: Builder, value: Val, rounding: str | None) -> Val:
    near = b.convert("fptrunc", value, "float")
    if rounding != "rtz":
        return near
    above = b.fcmp("ogt", b.fabs(b.convert("fpext", near, "double")), b.fabs(value))
    bits = b.bitcast(near, "i32")
    return b.bitcast(b.select(above, b.sub(bits, b.const(1, bits.type)), bits), "float")


def _round_to_odd(b: Builder, value: Val) -> Val:
    """A double as the float from which one more rounding gives what one rounding would have."""
    near = b.convert("fptrunc", value, "float")
    back = b.convert("fpext", near, "double")
    bits = b.bitcast(near, "i32")
    above = b.fcmp("ogt", b.fabs(back), b.fabs(value))
    one = b.const(1, bits.type)
    truncated = b.select(above, b.sub(bits, one), bits)
    inexact = b.fcmp("one", back, value)
    odd = b.or_(truncated, b.convert("zext", inexact, "i32"))
    return b.bitcast(odd, "float")


def _float_to_int(b: Builder, value: Val, target: DType) -> Val:
    wide = b.convert("fpext", value, "float") if value.type.elem == "half" else value
    bits = max(32, target.bits)
    opcode = "fptoui" if target.kind is Kind.UNSIGNED and target.bits >= 32 else "fptosi"
    whole = b.convert(opcode, wide, f"i{bits}")
    return b.convert("trunc", whole, f"i{target.bits}") if target.bits < bits else whole


def _int_to_float(b: Builder, value: Val, source: DType, target: DType) -> Val:
    opcode = "sitofp" if source.is_int_signed() else "uitofp"
    if target is float64:
        return b.convert(opcode, value, "double")
    return narrow_float(b, b.convert(opcode, value, "float"), target)
