"""Philox and what is drawn from it, against the published vectors and a plain Python version."""

import numpy as np
import pytest

import deuteron.language as tl
from deuteron import dtypes as dt
from deuteron.backends.interp import run
from deuteron.errors import CompilationError
from deuteron.ir import Pointer, Type, verify
from deuteron.lang.codegen import Argument, lower_kernel
from deuteron.lang.jit import jit

WEYL = {32: (0x9E3779B9, 0xBB67AE85), 64: (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)}
MULTIPLIERS = {32: (0xD2511F53, 0xCD9E8D57), 64: (0xD2E7470EE14C6C93, 0xCA5A826395121157)}

# Known answers of Random123: counter, key, result.
VECTORS_32 = [
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
VECTORS_64 = [
    (
        (0,) * 4,
        (0,) * 2,
        (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B),
    ),
    (
        (2**64 - 1,) * 4,
        (2**64 - 1,) * 2,
        (0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0),
    ),
    (
        (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
        (0x452821E638D01377, 0xBE5466CF34E90C6C),
        (0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6),
    ),
]


def philox_reference(counter, key, bits, rounds=10):
    """Philox on Python integers, word for word as in the paper."""
    mask = (1 << bits) - 1
    c, k = list(counter), list(key)
    for _ in range(rounds):
        first, second = MULTIPLIERS[bits][0] * c[0], MULTIPLIERS[bits][1] * c[2]
        c = [
            (second >> bits) ^ c[1] ^ k[0],
            second & mask,
            (first >> bits) ^ c[3] ^ k[1],
            first & mask,
        ]
        k = [(word + weyl) & mask for word, weyl in zip(k, WEYL[bits], strict=True)]
    return c


@pytest.mark.parametrize("bits", [32, 64])
def test_the_reference_knows_the_published_answers(bits):
    for counter, key, answer in VECTORS_32 if bits == 32 else VECTORS_64:
        assert philox_reference(counter, key, bits) == list(answer)


def launch(kernel, arrays, numbers=(), **constants):
    """Compile a kernel for arrays, then run-time numbers (dtype, value), then constants."""
    names = kernel.fn.__code__.co_varnames
    types = [Type(Pointer(dt.BY_ARRAY_NAME[a.dtype.name])) for a in arrays]
    types += [Type(dtype) for dtype, _ in numbers]
    arguments = {name: Argument(type) for name, type in zip(names, types, strict=False)}
    function = lower_kernel(kernel, arguments | constants)
    verify(function)
    run(function, [*arrays, *(value for _, value in numbers)], (1, 1, 1))


@jit
def philox_kernel(words_ptr, out_ptr):
    c0, c1 = tl.load(words_ptr), tl.load(words_ptr + 1)
    c2, c3 = tl.load(words_ptr + 2), tl.load(words_ptr + 3)
    k0, k1 = tl.load(words_ptr + 4), tl.load(words_ptr + 5)
    r0, r1, r2, r3 = tl.philox_impl(c0, c1, c2, c3, k0, k1)
    tl.store(out_ptr, r0)
    tl.store(out_ptr + 1, r1)
    tl.store(out_ptr + 2, r2)
    tl.store(out_ptr + 3, r3)


@pytest.mark.parametrize("bits", [32, 64])
def test_philox_gives_the_published_answers(bits):
    for counter, key, answer in VECTORS_32 if bits == 32 else VECTORS_64:
        words = np.array([*counter, *key], f"uint{bits}")
        out = np.zeros(4, f"uint{bits}")
        launch(philox_kernel, [words, out])
        assert [int(word) for word in out] == list(answer)


@jit
def randint_kernel(offset_ptr, out_ptr, seed, N: tl.constexpr, ROUNDS: tl.constexpr):
    at = tl.arange(0, N)
    w0, w1, w2, w3 = tl.randint4x(seed, tl.load(offset_ptr + at), ROUNDS)
    tl.store(out_ptr + at, w0)
    tl.store(out_ptr + N + at, w1)
    tl.store(out_ptr + 2 * N + at, w2)
    tl.store(out_ptr + 3 * N + at, w3)
    tl.static_assert(w0.dtype == tl.uint32)


@pytest.mark.parametrize("seed_dtype", [dt.int32, dt.int64, dt.uint64])
@pytest.mark.parametrize("offset_dtype", ["int32", "uint32", "int64"])
@pytest.mark.parametrize("rounds", [6, 10])
def test_seed_and_offset_are_split_into_words(seed_dtype, offset_dtype, rounds):
    """All 64 bits of both count: the key is the seed, the counter's two low words the offset."""
    low, high = dt.int_range(seed_dtype)
    offsets = np.array([0, 1, 77, np.iinfo(offset_dtype).max], offset_dtype)
    for seed in (0, 42, low, high):
        out = np.zeros((4, 4), np.uint32)
        launch(randint_kernel, [offsets, out], [(seed_dtype, seed)], N=4, ROUNDS=rounds)
        key = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
        for place, offset in enumerate(int(o) for o in offsets):
            counter = (offset & 0xFFFFFFFF, offset >> 32 & 0xFFFFFFFF, 0, 0)
            assert list(out[:, place]) == philox_reference(counter, key, 32, rounds)


@jit
def uniform_kernel(word_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.uint_to_uniform_float(tl.load(word_ptr + at)))


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_uniform_floats_stay_below_one(dtype):
    top = np.iinfo(dtype).max
    half = top // 2 + 1
    words = np.array([0, 1, half - 1, half, half + 1, top - 1, top, 12345678], dtype)
    out = np.zeros(8, np.float32)
    launch(uniform_kernel, [words, out], N=8)
    signed = words.view(dtype.removeprefix("u"))
    folded = np.where(signed < 0, -signed - 1, signed).astype(np.float32)
    scale = np.float32(4.6566127342e-10 if dtype == "uint32" else 1.0842020432385337e-19)
    np.testing.assert_array_equal(out, folded * scale)
    assert out.min() == 0
    assert 0.999 < out.max() < 1


@jit
def draw_kernel(out_ptr, seed, N: tl.constexpr):
    at = tl.arange(0, N)
    u0, u1, _, u3 = tl.rand4x(seed, at)
    n0, n1, _, n3 = tl.randn4x(seed, at)
    tl.store(out_ptr + at, tl.rand(seed, at))
    tl.store(out_ptr + N + at, u0)
    tl.store(out_ptr + 2 * N + at, u1)
    tl.store(out_ptr + 3 * N + at, tl.randn(seed, at))
    tl.store(out_ptr + 4 * N + at, n0)
    tl.store(out_ptr + 5 * N + at, n1)
    tl.store(out_ptr + 6 * N + at, u3)
    tl.store(out_ptr + 7 * N + at, n3)


def test_draws():
    size = 8192
    out = np.zeros((8, size), np.float32)
    launch(draw_kernel, [out], [(dt.int32, 7)], N=size)
    rand, u0, u1, randn, n0, n1, u3, n3 = out
    words = np.array(
        [philox_reference((i, 0, 0, 0), (7, 0), 32) for i in range(64)], np.uint32
    ).view(np.int32)
    folded = np.where(words < 0, -words - 1, words).astype(np.float32)
    uniforms = folded * np.float32(4.6566127342e-10)
    np.testing.assert_array_equal(np.stack([u0, u1, u3])[:, :64], uniforms.T[[0, 1, 3]])
    np.testing.assert_array_equal(rand, u0)
    np.testing.assert_array_equal(randn, n0)
    radius = np.sqrt(-2 * np.log(np.maximum(u0, 1e-7).astype(np.float64)))
    np.testing.assert_allclose(n0, radius * np.cos(2 * np.pi * u1), rtol=1e-4, atol=2e-6)
    np.testing.assert_allclose(n1, radius * np.sin(2 * np.pi * u1), rtol=1e-4, atol=2e-6)
    for normal in (n0, n1, n3):
        assert abs(normal.mean()) < 0.04
        assert abs(normal.std() - 1) < 0.03


@jit
def narrow_kernel(out_ptr):
    tl.store(out_ptr, tl.uint_to_uniform_float(tl.full((), 1, tl.int16)))


def test_words_have_32_or_64_bits():
    with pytest.raises(CompilationError, match="random words have 32 or 64 bits"):
        launch(narrow_kernel, [np.zeros(1, np.float32)])
