# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportAssignmentType=false
# Much below is kernels' code, whose parameters a Python type checker does not know.
"""Integers by their bits, and arithmetic on integers that does not overflow on its way."""

from __future__ import annotations

from deuteron.dtypes import int32, int64, uint32, uint64
from deuteron.lang.context import Context, builtin
from deuteron.lang.jit import jit
from deuteron.lang.libdevice.operands import (
    call,
    exactly,
    integers,
    named,
)
from deuteron.lang.math import maximum, minimum
from deuteron.lang.semantic import arith, casts
from deuteron.lang.values import Operand, Tensor, constexpr
from deuteron.runtime.jit import JITFunction

_WORDS = (int32, uint32)
_WIDE = (int32, int64, uint32, uint64)


# -- bits ----------------------------------------------------------------------------------
@jit
def _ones(x):
    """How many bits of an unsigned integer are set: sums of 2, 4 and 8 bits side by side."""
    bits: constexpr = x.dtype.primitive_bitwidth
    all_ones: constexpr = (1 << bits) - 1
    x = x - ((x >> 1) & (all_ones // 3))
    x = (x & (all_ones // 5)) + ((x >> 2) & (all_ones // 5))
    x = (x + (x >> 4)) & (all_ones // 17)
    return ((x * (all_ones // 255)) >> (bits - 8)).to(int32)


@jit
def _leading_zeros(x):
    """What is left of the word when all bits below the first one are set."""
    bits: constexpr = x.dtype.primitive_bitwidth
    x = x | (x >> 1)
    x = x | (x >> 2)
    x = x | (x >> 4)
    x = x | (x >> 8)
    x = x | (x >> 16)
    if bits == 64:
        x = x | (x >> 32)
    return bits - _ones(x)


@jit
def _first_set(x):
    """The zeros below the lowest one are what x - 1 turns into ones."""
    below = ~x & (x - 1)
    return (_ones(below) + 1) * (x != 0).to(int32)


@jit
def _swapped(x, width: constexpr):
    """Neighbouring groups of `width` bits, exchanged."""
    bits: constexpr = x.dtype.primitive_bitwidth
    low: constexpr = ((1 << bits) - 1) // ((1 << width) + 1)
    return ((x >> width) & low) | ((x & low) << width)


@jit
def _reversed(x):
    x = _swapped(_swapped(_swapped(x, 1), 2), 4)
    x = _swapped(_swapped(x, 8), 16)
    if x.dtype.primitive_bitwidth == 64:
        x = _swapped(x, 32)
    return x


def _of_bits(name: str, doc: str, function: JITFunction, *, keeps_dtype: bool = False):
    def compute(ctx: Context, x: Operand) -> Tensor:
        (tensor,) = integers(ctx, name, _WIDE, x)
        dtype = tensor.number
        unsigned = uint32 if dtype.bits == 32 else uint64
        result = call(ctx, function, casts.bitcast(ctx, tensor, unsigned))
        return casts.bitcast(ctx, result, dtype) if keeps_dtype else result

    return named(name, doc, compute)


popc = _of_bits("popc", "How many bits of a 32- or 64-bit integer are set; int32.", _ones)
clz = _of_bits("clz", "How many zero bits lie above the highest one; int32.", _leading_zeros)
ffs = _of_bits("ffs", "The place of the lowest one bit, counted from 1; 0 for 0.", _first_set)
brev = _of_bits("brev", "The bits in reverse order.", _reversed, keeps_dtype=True)


@jit
def _byte(x, y, selector):
    """Byte `selector & 7` of the eight of y (above) and x."""
    word = x.to(uint64) | (y.to(uint64) << 32)
    return (word >> ((selector & 7) * 8).to(uint64)).to(uint32) & 0xFF


@jit
def _permuted(x, y, s):
    result = _byte(x, y, s) | (_byte(x, y, s >> 4) << 8)
    return result | (_byte(x, y, s >> 8) << 16) | (_byte(x, y, s >> 12) << 24)


@builtin
def byte_perm(ctx: Context, x: Operand, y: Operand, s: Operand) -> Tensor:
    """Four of the eight bytes of x (0 to 3) and y (4 to 7), named by the nibbles of s."""
    operands = integers(ctx, "byte_perm", _WORDS, x, y, s)
    words = [casts.bitcast(ctx, o, uint32) for o in operands]
    return casts.bitcast(ctx, call(ctx, _permuted, *words), operands[0].number)


# -- arithmetic ----------------------------------------------------------------------------
@jit
def _mean_down(x, y):
    return (x & y) + ((x ^ y) >> 1)


@jit
def _mean_up(x, y):
    return (x | y) - ((x ^ y) >> 1)


@jit
def _product24(x, y):
    return ((x << 8) >> 8) * ((y << 8) >> 8)


def _of_words(name: str, doc: str, function: JITFunction):
    def compute(ctx: Context, x: Operand, y: Operand) -> Tensor:
        return call(ctx, function, *integers(ctx, name, _WORDS, x, y))

    return named(name, doc, compute)


hadd = _of_words("hadd", "(x + y) / 2 rounded down, as if the sum could not overflow.", _mean_down)
rhadd = _of_words("rhadd", "(x + y) / 2 rounded up, as if the sum could not overflow.", _mean_up)
mul24 = _of_words("mul24", "The product of the low 24 bits of both; its low 32 bits.", _product24)


@jit
def _distance(x, y, z):
    return (maximum(x, y).to(uint32) - minimum(x, y).to(uint32)) + z


@builtin
def sad(ctx: Context, x: Operand, y: Operand, z: Operand) -> Tensor:
    """|x - y| + z of two int32 or two uint32 and a uint32; the dtype of x."""
    a, b = integers(ctx, "sad", _WORDS, x, y)
    total = call(ctx, _distance, a, b, exactly(ctx, "sad", z, uint32))
    return casts.bitcast(ctx, total, a.number)


@jit
def _signed_upper(x, y, upper):
    """Of signed integers: the unsigned product is too large by 2^bits times the other factor."""
    top: constexpr = x.dtype.primitive_bitwidth - 1
    return upper - ((x >> top) & y) - ((y >> top) & x)


@builtin
def mulhi(ctx: Context, x: Operand, y: Operand) -> Tensor:
    """The upper half of the product of two 32- or 64-bit integers of one dtype."""
    a, b = integers(ctx, "mulhi", _WIDE, x, y)
    upper = arith.umulhi(ctx, a, b)
    return call(ctx, _signed_upper, a, b, upper) if a.number.is_int_signed() else upper
