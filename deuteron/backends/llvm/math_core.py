"""Notation and building blocks of the math library.

A `Num` is a `Val` with Python's operators, so that the functions of `math_*.py` read like the
formulas they implement while every operation still appends one instruction to the `Builder`.  They
serve scalars, vectors of any width and both float formats.

Rounding to integers and scaling by powers of two go through one trick: adding 1.5 * 2^mantissa
leaves the rounded integer in the low bits of the sum.  It costs one addition, needs no
float-to-integer conversion (absent for 64-bit lanes before AVX-512) and is defined for NaN.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TypeAlias

from deuteron.backends.llvm.builder import Builder, Val


@dataclass(frozen=True, slots=True)
class Format:
    """A binary float format.

    `elem` and `int_elem` are the LLVM names of the format and of its bit pattern; `fraction` counts
    the stored mantissa bits; `bias` is the exponent's.
    """

    elem: str
    int_elem: str
    fraction: int
    bias: int

    @property
    def magic(self) -> float:
        """Adding it rounds to an integer, left in the low bits of the sum."""
        return 1.5 * 2.0**self.fraction

    @property
    def tiny(self) -> float:
        """The least positive normal number."""
        return 2.0 ** (1 - self.bias)

    @property
    def sign_mask(self) -> int:
        return 1 << (self.fraction + self.bias.bit_length() + 1)

    @property
    def one_bits(self) -> int:
        """The bit pattern of 1.0."""
        return self.bias << self.fraction


FORMATS = {
    "float": Format("float", "i32", 23, 127),
    "double": Format("double", "i64", 52, 1023),
}

Operand: TypeAlias = "Num | float"
Pair: TypeAlias = "tuple[Num, Num]"


@dataclass(frozen=True, slots=True)
class Num:
    """A value under construction; a plain number on either side of an operator is a constant.

    Comparisons are ordered for floats (false for NaN) and signed for integers.
    """

    b: Builder
    val: Val

    # -- making -----------------------------------------------------------------------------
    def lift(self, x: Operand) -> Num:
        """`x` itself, or the constant `x` with the type of this value."""
        return x if isinstance(x, Num) else Num(self.b, self.b.const(x, self.val.type))

    def _binary(self, opcode: str, other: Operand) -> Num:
        return Num(self.b, self.b.binary(opcode, self.val, self.lift(other).val))

    def _compare(self, predicate: str, other: Operand) -> Num:
        right = self.lift(other).val
        if self.is_float:
            return Num(self.b, self.b.fcmp("o" + predicate, self.val, right))
        signed = predicate if predicate in ("eq", "ne") else "s" + predicate
        return Num(self.b, self.b.icmp(signed, self.val, right))

    def convert(self, opcode: str, elem: str) -> Num:
        return Num(self.b, self.b.convert(opcode, self.val, elem))

    # -- type -------------------------------------------------------------------------------
    @property
    def is_float(self) -> bool:
        return self.val.type.is_float

    @property
    def format(self) -> Format:
        """The format of a float, or the one whose bit pattern this integer holds."""
        elem = self.val.type.elem
        return FORMATS[{"i32": "float", "i64": "double"}.get(elem, elem)]

    # -- arithmetic -------------------------------------------------------------------------
    def __add__(self, other: Operand) -> Num:
        return self._binary("fadd" if self.is_float else "add", other)

    def __radd__(self, other: float) -> Num:
        return self + other

    def __sub__(self, other: Operand) -> Num:
        return self._binary("fsub" if self.is_float else "sub", other)

    def __rsub__(self, other: float) -> Num:
        return self.lift(other) - self

    def __mul__(self, other: Operand) -> Num:
        return self._binary("fmul" if self.is_float else "mul", other)

    def __rmul__(self, other: float) -> Num:
        return self * other

    def __truediv__(self, other: Operand) -> Num:
        return self._binary("fdiv", other)

    def __rtruediv__(self, other: float) -> Num:
        return self.lift(other) / self

    def __neg__(self) -> Num:
        return Num(self.b, self.b.fneg(self.val)) if self.is_float else self.lift(0) - self

    def __abs__(self) -> Num:
        return Num(self.b, self.b.fabs(self.val))

    # -- bits -------------------------------------------------------------------------------
    def __and__(self, other: Operand) -> Num:
        return self._binary("and", other)

    def __or__(self, other: Operand) -> Num:
        return self._binary("or", other)

    def __xor__(self, other: Operand) -> Num:
        return self._binary("xor", other)

    def __lshift__(self, count: Operand) -> Num:
        return self._binary("shl", count)

    def __rshift__(self, count: Operand) -> Num:
        """Logical shift: zeros come in from the left."""
        return self._binary("lshr", count)

    def bits(self) -> Num:
        """The bit pattern of a float, as an integer."""
        return Num(self.b, self.b.bitcast(self.val, self.format.int_elem))

    def as_float(self) -> Num:
        """The float whose bit pattern this integer is."""
        return Num(self.b, self.b.bitcast(self.val, self.format.elem))

    # -- comparison -------------------------------------------------------------------------
    def __lt__(self, other: Operand) -> Num:
        return self._compare("lt", other)

    def __le__(self, other: Operand) -> Num:
        return self._compare("le", other)

    def __gt__(self, other: Operand) -> Num:
        return self._compare("gt", other)

    def __ge__(self, other: Operand) -> Num:
        return self._compare("ge", other)

    def eq(self, other: Operand) -> Num:
        return self._compare("eq", other)

    def ne(self, other: Operand) -> Num:
        """Unequal; false when a float operand is NaN."""
        return self._compare("ne", other)

    def is_nan(self) -> Num:
        return Num(self.b, self.b.fcmp("uno", self.val, self.val))


# -- operations that are not operators ------------------------------------------------------
def fma(a: Num, b: Operand, c: Operand) -> Num:
    """a * b + c with one rounding."""
    return Num(a.b, a.b.fma(a.val, a.lift(b).val, a.lift(c).val))


def where(condition: Num, a: Operand, b: Operand) -> Num:
    """a where the condition holds, else b; one of the two is a `Num`."""
    model = a if isinstance(a, Num) else b
    assert isinstance(model, Num), "where() needs one operand with a type"
    b_ = model.b
    return Num(b_, b_.select(condition.val, model.lift(a).val, model.lift(b).val))


def at_most(x: Num, limit: float) -> Num:
    """min(x, limit); NaN stays NaN."""
    return _bounded("ult", x, limit)


def at_least(x: Num, limit: float) -> Num:
    """max(x, limit); NaN stays NaN."""
    return _bounded("ugt", x, limit)


def _bounded(predicate: str, x: Num, limit: float) -> Num:
    # The unordered comparison with x first is the one form that is a single min or max on x86.
    return where(Num(x.b, x.b.fcmp(predicate, x.val, x.lift(limit).val)), x, limit)


def sqrt(x: Num) -> Num:
    """√x, correctly rounded."""
    return Num(x.b, x.b.sqrt(x.val))


def trunc(x: Num) -> Num:
    """x without its fraction."""
    return Num(x.b, x.b.trunc_toward_zero(x.val))


def round_even(x: Num) -> Num:
    """The nearest integer, halves to even."""
    return Num(x.b, x.b.round_even(x.val))


def copysign(magnitude: Operand, sign: Num) -> Num:
    """|magnitude| with the sign bit of `sign`."""
    return Num(sign.b, sign.b.copysign(sign.lift(magnitude).val, sign.val))


def flip_sign(x: Num, sign: Num) -> Num:
    """x with its sign inverted where the sign bit of `sign` (float or bit pattern) is set."""
    pattern = sign.bits() if sign.is_float else sign
    return (x.bits() ^ (pattern & x.format.sign_mask)).as_float()


def poly(x: Num, coefficients: Sequence[float]) -> Num:
    """c[0] + c[1] x + c[2] x² + … by Horner's rule."""
    *lower, high = coefficients
    result = x.lift(high)
    for c in reversed(lower):
        result = fma(result, x, c)
    return result


def round_scaled(x: Num, scale: float, offset: int = 0) -> Pair:
    """(n, bits): the integer n nearest to x * scale, and bits that end in n + offset.

    Holds for |n| < 2^(fraction - 2).  NaN gives NaN and arbitrary bits.
    """
    magic = x.format.magic + offset
    shifted = fma(x, scale, magic)
    return shifted - magic, shifted.bits()


def pow2(biased: Num) -> Num:
    """2^(e - bias) from bits whose low end is the biased exponent e, 0 < e < 2 * bias + 1."""
    return (biased << biased.format.fraction).as_float()


# -- double-word arithmetic -----------------------------------------------------------------
def two_sum(a: Num, b: Num) -> Pair:
    """(s, e) with s = a + b rounded and s + e = a + b exactly (Knuth)."""
    s = a + b
    bb = s - a
    return s, (a - (s - bb)) + (b - bb)


def fast_two_sum(a: Num, b: Num) -> Pair:
    """`two_sum` for |a| >= |b| (Dekker)."""
    s = a + b
    return s, b - (s - a)


def two_product(a: Num, b: Operand) -> Pair:
    """(p, e) with p = a * b rounded and p + e = a * b exactly."""
    p = a * b
    return p, fma(a, b, -p)


# -- working in a wider format --------------------------------------------------------------
def widen(x: Num) -> Num:
    """A float as a double."""
    return x.convert("fpext", "double")


def narrow(x: Num) -> Num:
    """A double rounded to float."""
    return x.convert("fptrunc", "float")


def through_double(function: Callable[..., Num]) -> Callable[..., Num]:
    """`function` with float arguments evaluated in double and rounded once."""

    def emit(*args: Num) -> Num:
        if args[0].val.type.elem == "double":
            return function(*args)
        return narrow(function(*(widen(a) for a in args)))

    return emit


# -- constants ------------------------------------------------------------------------------
# To 60 digits and more; `words` cuts them to a format.
CONSTANTS = {
    "ln2": "0.693147180559945309417232121458176568075500134360255254120680",
    "log2e": "1.442695040888963407359924681001892137426645954152985934135449",
    "log2_10": "3.321928094887362347870319429489390175864831393024580612054756",
    "log10_2": "0.301029995663981195213738894724493026768189881462108541310427",
    "ln10": "2.302585092994045684017991454684364207601101488628772976033328",
    "log10e": "0.434294481903251827651128918916605082294397005803666566114454",
    "pi": "3.14159265358979323846264338327950288419716939937510582097494459230689195818",
}


@cache
def words(name: str, elem: str, count: int = 2, scale: float = 1.0) -> tuple[float, ...]:
    """The constant times `scale` as the sum of `count` numbers of a format, largest first."""
    left = Fraction(CONSTANTS[name]) * Fraction(scale)
    parts: list[float] = []
    for _ in range(count):
        part = float(left)
        if elem == "float":
            part = struct.unpack("<f", struct.pack("<f", part))[0]
        parts.append(part)
        left -= Fraction(part)
    return tuple(parts)
