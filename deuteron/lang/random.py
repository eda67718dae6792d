# pyright: basic, reportArgumentType=false, reportAssignmentType=false
# pyright: reportAttributeAccessIssue=false
# The functions below are kernels' code: their parameters are tensors and constants of the kernel
# language, which a Python type checker does not know.
"""Random numbers from a counter: Philox, with no state between calls.

Every number is a function of a seed and an offset, so a kernel gets its numbers by index and a
backward kernel gets the same ones again.  Philox is J. Salmon et al., "Parallel Random Numbers: As
Easy as 1, 2, 3", SC 2011; the multipliers and Weyl keys are those of the paper's Random123 library.
Results agree bit for bit with Triton's.
"""

from __future__ import annotations

from deuteron.dtypes import DType, int32, int64, uint32, uint64
from deuteron.lang.context import Context, builtin
from deuteron.lang.core import to_tensor, where, zeros_like
from deuteron.lang.jit import jit
from deuteron.lang.loops import static_range
from deuteron.lang.math import cos, log, maximum, sin, sqrt, umulhi
from deuteron.lang.semantic import casts
from deuteron.lang.values import Operand, Tensor, constexpr, describe

N_ROUNDS_DEFAULT: constexpr = constexpr(10)

_WEYL_AND_MULTIPLIERS = {
    uint32: (0x9E3779B9, 0xBB67AE85, 0xD2511F53, 0xCD9E8D57),
    uint64: (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B, 0xD2E7470EE14C6C93, 0xCA5A826395121157),
}
# The greatest floats whose product with the greatest signed integer stays below 1.
_SCALE = {int32: 4.6566127342e-10, int64: 1.0842020432385337e-19}


@builtin
def _philox_constants(ctx: Context, dtype: DType) -> tuple[int, int, int, int]:
    constants = _WEYL_AND_MULTIPLIERS.get(dtype)
    if constants is None:
        raise ctx.error(
            "Philox counts in 32 or 64 bits",
            expected="uint32 or uint64",
            got=f"{dtype}",
            remedy="cast the counter, or call tl.philox, which does",
        )
    return constants


@builtin
def _word_dtypes(ctx: Context, dtype: DType) -> tuple[DType, DType]:
    """The unsigned and the signed integer as wide as a word of random bits."""
    by_width = {32: (uint32, int32), 64: (uint64, int64)}
    found = by_width.get(getattr(dtype, "bits", 0))
    if found is None or not dtype.is_int():
        raise ctx.error(
            "random words have 32 or 64 bits",
            expected="int32, uint32, int64 or uint64",
            got=describe(dtype),
            remedy="cast first, as in x.to(tl.uint32)",
        )
    return found


@builtin
def _seed(ctx: Context, seed: Operand) -> Tensor:
    value = casts.to_tensor(ctx, seed)
    if value.is_pointer or not value.number.is_int():
        raise ctx.error(
            "the seed of random numbers is not an integer",
            expected="an integer of up to 64 bits",
            got=describe(seed),
            remedy="load it first, with tl.load" if value.is_pointer else "cast it: int(seed)",
        )
    return value


@builtin
def _scale(ctx: Context, dtype: DType) -> float:
    return _SCALE[dtype]


# -- words ---------------------------------------------------------------------------------
@jit
def philox_impl(c0, c1, c2, c3, k0, k1, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """`n_rounds` rounds of Philox 4×32 or 4×64 on the counter (c0, c1, c2, c3) under (k0, k1)."""
    weyl_0, weyl_1, multiplier_0, multiplier_2 = _philox_constants(c0.dtype)
    for _ in static_range(n_rounds):
        high_0, low_0 = umulhi(multiplier_0, c0), multiplier_0 * c0
        high_2, low_2 = umulhi(multiplier_2, c2), multiplier_2 * c2
        c0, c1, c2, c3 = high_2 ^ c1 ^ k0, low_2, high_0 ^ c3 ^ k1, low_0
        k0, k1 = k0 + weyl_0, k1 + weyl_1
    return c0, c1, c2, c3


@jit
def philox(seed, c0, c1, c2, c3, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Philox on the counter (c0, c1, c2, c3), all of 32 or all of 64 bits, under a 64-bit seed."""
    seed = _seed(seed).to(uint64)
    c0, c1, c2, c3 = to_tensor(c0), to_tensor(c1), to_tensor(c2), to_tensor(c3)
    word: constexpr = _word_dtypes(c0.dtype)[0]
    c0, c1 = c0.to(word, bitcast=True), c1.to(word, bitcast=True)
    c2, c3 = c2.to(word, bitcast=True), c3.to(word, bitcast=True)
    if word == uint32:
        return philox_impl(c0, c1, c2, c3, seed.to(uint32), (seed >> 32).to(uint32), n_rounds)
    return philox_impl(c0, c1, c2, c3, seed, to_tensor(0).to(uint64), n_rounds)


@jit
def randint4x(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Four tiles of random uint32, one number of each an offset: the cheapest way to get many.

    `seed` is a scalar of up to 64 bits, `offset` a tile of integers of up to 64 bits.
    """
    offset = to_tensor(offset)
    low = offset.to(uint32)
    zero = zeros_like(low)
    if offset.dtype.bits > 32:
        return philox(seed, low, (offset >> 32).to(uint32), zero, zero, n_rounds)
    return philox(seed, low, zero, zero, zero, n_rounds)


@jit
def randint(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """A tile of random uint32, one an offset; arguments as for `randint4x`."""
    word, _, _, _ = randint4x(seed, offset, n_rounds)
    return word


# -- floats --------------------------------------------------------------------------------
@jit
def uint_to_uniform_float(x):
    """Random words as float32 in [0, 1).

    A word is read as signed, negative ones are folded onto the others, and the result is scaled:
    all bits of the result come from high bits of the word.
    """
    signed: constexpr = _word_dtypes(x.dtype)[1]
    word = x.to(signed, bitcast=True)
    return where(word < 0, -word - 1, word) * _scale(signed)


@jit
def rand(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """A tile of float32 uniform in [0, 1), one an offset; arguments as for `randint4x`."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


@jit
def rand4x(seed, offsets, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Four tiles of float32 uniform in [0, 1); arguments as for `randint4x`."""
    w0, w1, w2, w3 = randint4x(seed, offsets, n_rounds)
    u0, u1 = uint_to_uniform_float(w0), uint_to_uniform_float(w1)
    u2, u3 = uint_to_uniform_float(w2), uint_to_uniform_float(w3)
    return u0, u1, u2, u3


@jit
def pair_uniform_to_normal(u1, u2):
    """Two independent standard normals from two uniforms, by Box and Muller."""
    u1 = maximum(1.0e-7, u1)  # keeps the logarithm finite
    angle = 6.283185307179586 * u2
    radius = sqrt(-2.0 * log(u1))
    return radius * cos(angle), radius * sin(angle)


@jit
def randn(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """A tile of standard normal float32, one an offset; arguments as for `randint4x`."""
    w0, w1, _, _ = randint4x(seed, offset, n_rounds)
    normal, _ = pair_uniform_to_normal(uint_to_uniform_float(w0), uint_to_uniform_float(w1))
    return normal


@jit
def randn4x(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Four tiles of standard normal float32; arguments as for `randint4x`."""
    u0, u1, u2, u3 = rand4x(seed, offset, n_rounds)
    n0, n1 = pair_uniform_to_normal(u0, u1)
    n2, n3 = pair_uniform_to_normal(u2, u3)
    return n0, n1, n2, n3
