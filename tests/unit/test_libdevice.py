"""The functions of `libdevice` against exact and arbitrary-precision arithmetic.

Results with a rounding in their name must be the right float; the others may be off by the few
units in the last place that are allowed below.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any, no_type_check

import mpmath
import numpy as np
import pytest

import deuteron.language as tl
from deuteron import jit
from deuteron.errors import CompilationError
from deuteron.language.extra import libdevice

mp: Any = mpmath.mp.clone()
mp.prec = 200
FLOATS: dict[Any, tuple[int, int, int]] = {  # mantissa bits, least and greatest exponent
    np.float32: (24, -149, 128),
    np.float64: (53, -1074, 1024),
}


# -- running -------------------------------------------------------------------------------
@jit
@no_type_check
def kernel_1(x, out, F: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, F(tl.load(x + at)))


@jit
@no_type_check
def kernel_2(x, y, out, F: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, F(tl.load(x + at), tl.load(y + at)))


@jit
@no_type_check
def kernel_3(x, y, z, out, F: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, F(tl.load(x + at), tl.load(y + at), tl.load(z + at)))


@jit
@no_type_check
def kernel_4(x, y, z, w, out, F: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, F(tl.load(x + at), tl.load(y + at), tl.load(z + at), tl.load(w + at)))


KERNELS = (kernel_1, kernel_2, kernel_3, kernel_4)


def run(name: str, *inputs: Any, dtype: Any = None) -> np.ndarray:
    """A function of libdevice on whole arrays; `dtype` is the result's, if not the last input's."""
    arrays = [np.asarray(x) for x in inputs]
    count = len(arrays[0])
    size = 1 << (count - 1).bit_length()
    padded = [np.concatenate([x, np.ones(size - count, x.dtype)]) for x in arrays]
    out = np.zeros(size, dtype or padded[-1].dtype)
    kernel: Any = KERNELS[len(arrays) - 1]
    kernel[(1,)](*padded, out, F=getattr(libdevice, name), N=size)
    return out[:count]


# -- rounding ------------------------------------------------------------------------------
def rounded(exact: Fraction, dtype: Any, way: str) -> float:
    """The float of a dtype that a rational number is rounded to; sign of zero aside."""
    bits, least, greatest = FLOATS[dtype]
    if exact == 0:
        return 0.0
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent = max(exponent - bits - 1, least)
    while size / Fraction(2) ** exponent >= 2**bits:
        exponent += 1
    units = size / Fraction(2) ** exponent
    down, rest = divmod(units.numerator, units.denominator)
    away = {"rz": False, "rd": exact < 0, "ru": exact > 0}.get(way)
    if away is None:
        away = 2 * rest > units.denominator or (2 * rest == units.denominator and down % 2 == 1)
    whole = down + (1 if rest and away else 0)
    top = 2**bits - 1
    if exponent + whole.bit_length() > greatest:
        infinite = {"rz": False, "rd": exact < 0, "ru": exact > 0}.get(way, True)
        value = math.inf if infinite else math.ldexp(top, greatest - bits)
    else:
        value = math.ldexp(whole, exponent)
    return -value if exact < 0 else value


def root_rounded(x: float, dtype: Any, way: str) -> float:
    """The square root: of 2^400 times as large a number first, whose whole root is exact enough."""
    exact = Fraction(x)
    shift = 4 * (1100 + FLOATS[dtype][0])
    scaled = exact * 2**shift
    root = math.isqrt(scaled.numerator // scaled.denominator)
    exactly = root * root == scaled
    return rounded(Fraction(2 * root + (0 if exactly else 1), 2 ** (shift // 2 + 1)), dtype, way)


def wild(dtype: Any, count: int, seed: int) -> np.ndarray:
    """Floats of all sizes, many of them next to each other's, at the ends and short in bits."""
    rng = np.random.default_rng(seed)
    bits, least, greatest = FLOATS[dtype]
    kinds = [
        np.ldexp(rng.uniform(-1, 1, count), rng.integers(least, greatest + 1, count)),
        rng.uniform(-1, 1, count),
        np.ldexp(rng.integers(-9, 9, count), rng.integers(least, greatest - 4, count)),
        np.ldexp(rng.integers(-(2**20), 2**20, count), least),
        np.ldexp(rng.uniform(-1, 1, count), greatest - rng.integers(0, 3, count)),
        np.ldexp(rng.uniform(-1, 1, count), bits * rng.integers(-2, 3, count)),
    ]
    with np.errstate(over="ignore"):
        return rng.permutation(np.concatenate(kinds).astype(dtype))[:count]


def exact_fma(x: Fraction, y: Fraction, z: Fraction) -> Fraction:
    return x * y + z


def exact_div(x: Fraction, y: Fraction) -> Fraction:
    return x / y


def exact_rcp(x: Fraction) -> Fraction:
    return 1 / x


EXACT: dict[str, tuple[int, Callable[..., Fraction]]] = {
    "add": (2, operator.add),
    "sub": (2, operator.sub),
    "mul": (2, operator.mul),
    "div": (2, exact_div),
    "fma": (3, exact_fma),
    "rcp": (1, exact_rcp),
}


@pytest.mark.parametrize("way", ["rn", "rz", "rd", "ru"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", EXACT)
def test_arithmetic_is_rounded_its_way(name: str, dtype: Any, way: str):
    arity, exact = EXACT[name]
    inputs = [wild(dtype, 1024, seed) for seed in range(arity)]
    if name == "fma":  # cancellation is where the rounding is hard to see
        with np.errstate(all="ignore"):
            product = -inputs[0] * inputs[1]
        near = np.arange(1024) % 3 == 0
        inputs[2] = np.where(near & np.isfinite(product), product, inputs[2])
    got = run(f"{name}_{way}", *inputs)
    for values, result in zip(zip(*inputs, strict=True), got, strict=True):
        if not all(map(math.isfinite, values)):
            continue
        if name in ("div", "rcp") and values[-1] == 0:
            continue
        wanted = exact(*(Fraction(float(v)) for v in values))
        assert result == rounded(wanted, dtype, way), (name, way, values)


@pytest.mark.parametrize("way", ["rn", "rz", "rd", "ru"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_roots_are_rounded_their_way(dtype: Any, way: str):
    x = np.abs(wild(dtype, 512, 7))
    x[:64] = np.arange(64) ** 2
    x = x[np.isfinite(x)]
    got = run(f"sqrt_{way}", x)
    assert list(got) == [root_rounded(float(v), dtype, way) for v in x]


INF = math.inf
SPECIAL = [
    ("add", (1.0, -1.0), {"rd": -0.0, "ru": 0.0, "rz": 0.0}),
    ("add", (0.0, 0.0), {"rd": 0.0, "ru": 0.0, "rz": 0.0}),
    ("add", (-0.0, -0.0), {"rd": -0.0, "ru": -0.0, "rz": -0.0}),
    ("add", (INF, -INF), dict.fromkeys(("rd", "ru", "rz"), math.nan)),
    ("add", (INF, 1.0), dict.fromkeys(("rd", "ru", "rz"), INF)),
    ("mul", (INF, 2.0), dict.fromkeys(("rd", "ru", "rz"), INF)),
    ("mul", (-0.0, 2.0), dict.fromkeys(("rd", "ru", "rz"), -0.0)),
    ("div", (1.0, 0.0), dict.fromkeys(("rd", "ru", "rz"), INF)),
    ("div", (1.0, INF), dict.fromkeys(("rd", "ru", "rz"), 0.0)),
    ("div", (0.0, 0.0), dict.fromkeys(("rd", "ru", "rz"), math.nan)),
    ("fma", (2.0, 3.0, -6.0), {"rd": -0.0, "ru": 0.0, "rz": 0.0}),
    ("fma", (5e-324, 0.5, -0.0), {"rd": 0.0, "ru": 5e-324, "rz": 0.0}),
    ("fma", (INF, 1.0, -INF), dict.fromkeys(("rd", "ru", "rz"), math.nan)),
    ("sqrt", (-0.0,), dict.fromkeys(("rd", "ru", "rz"), -0.0)),
    ("sqrt", (INF,), dict.fromkeys(("rd", "ru", "rz"), INF)),
    ("sqrt", (-1.0,), dict.fromkeys(("rd", "ru", "rz"), math.nan)),
]


@pytest.mark.parametrize(("name", "inputs", "wanted"), SPECIAL)
def test_directed_rounding_of_special_values(
    name: str, inputs: tuple[float, ...], wanted: dict[str, float]
):
    for way, value in wanted.items():
        (got,) = run(f"{name}_{way}", *([x] for x in inputs))
        np.testing.assert_equal(got, value)
        assert np.isnan(value) or np.signbit(got) == np.signbit(value)


# -- conversions ---------------------------------------------------------------------------
INTEGERS = {"int": np.int32, "uint": np.uint32, "ll": np.int64, "ull": np.uint64}
WHOLE: dict[str, Callable[[Fraction], int]] = {
    "rn": round, "rz": math.trunc, "rd": math.floor, "ru": math.ceil
}  # fmt: skip


@pytest.mark.parametrize("way", WHOLE)
@pytest.mark.parametrize("short", INTEGERS)
@pytest.mark.parametrize("source", ["float", "double"])
def test_floats_to_integers_saturate(source: str, short: str, way: str):
    dtype, to = {"float": np.float32, "double": np.float64}[source], INTEGERS[short]
    rng, limits = np.random.default_rng(3), np.iinfo(to)
    ends = [f * float(e) for e in (limits.min, limits.max, 0.5, 1.5, 2.5) for f in (1, -1, 0.999)]
    x = np.array([*ends, *rng.uniform(-50, 50, 40), INF, -INF], dtype)
    x = np.concatenate([x, np.nextafter(x, dtype(0)), (rng.uniform(-1, 1, 60) * 2.0**65)])
    got = run(f"{source}2{short}_{way}", x.astype(dtype), dtype=to)
    for value, result in zip(x.astype(dtype), got, strict=True):
        exact = WHOLE[way](Fraction(float(value))) if np.isfinite(value) else int(value > 0) * 2**70
        if value == -INF:
            exact = -(2**70)
        assert result == min(max(exact, limits.min), limits.max), value
    bits = np.dtype(to).itemsize * 8
    (nan,) = run(f"{source}2{short}_{way}", np.array([np.nan], dtype), dtype=to)
    assert int(nan) % 2**bits == (0 if source == "float" and bits == 32 else 1 << (bits - 1))


@pytest.mark.parametrize("way", ["rn", "rz", "rd", "ru"])
@pytest.mark.parametrize("to", ["float", "double"])
@pytest.mark.parametrize("short", INTEGERS)
def test_integers_to_floats_are_rounded_their_way(short: str, to: str, way: str):
    if to == "double" and short in ("int", "uint") and way != "rn":
        assert not hasattr(libdevice, f"{short}2{to}_{way}")  # every one is exact
        return
    source, dtype = INTEGERS[short], {"float": np.float32, "double": np.float64}[to]
    rng, limits = np.random.default_rng(5), np.iinfo(source)
    x = rng.integers(limits.min, limits.max, 500, source, endpoint=True)
    x >>= rng.integers(0, limits.bits - 1, 500).astype(source)
    near = [limits.min, limits.max, limits.max - 1, limits.max // 2 + 1, limits.max // 2, 0, 1]
    x = np.concatenate([x, np.array(near, source)])
    got = run(f"{short}2{to}_{way}", x, dtype=dtype)
    assert list(got) == [rounded(Fraction(int(v)), dtype, way) for v in x]


@pytest.mark.parametrize("way", ["rn", "rz", "rd", "ru"])
def test_doubles_to_floats_are_rounded_their_way(way: str):
    x = np.concatenate([wild(np.float64, 500, 1), wild(np.float32, 500, 2).astype(np.float64)])
    x = x[np.isfinite(x)]
    got = run(f"double2float_{way}", x, dtype=np.float32)
    assert list(got) == [rounded(Fraction(float(v)), np.float32, way) for v in x]


@pytest.mark.parametrize(("name", "whole"), [("llrint", np.rint), ("llround", None)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_whole_numbers(name: str, whole: Any, dtype: Any):
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 1000.25, INF, -INF], dtype)
    away = np.copysign(np.floor(np.abs(x[:7]) + 0.5), x[:7])
    wanted = list(np.rint(x[:7]) if whole else away)
    got = run(name, x, dtype=np.int64)
    assert list(got) == [*map(int, wanted), 2**63 - 1, -(2**63)]


def test_halves_of_a_double():
    x = wild(np.float64, 64, 3)
    high, low = (run(f"double2{h}int", x, dtype=np.int32) for h in ("hi", "lo"))
    np.testing.assert_array_equal(low, x.view(np.int32)[::2])
    np.testing.assert_array_equal(high, x.view(np.int32)[1::2])
    np.testing.assert_array_equal(run("hiloint2double", high, low, dtype=np.float64), x)


# -- integers ------------------------------------------------------------------------------
def some_integers(dtype: Any, seed: int = 0) -> np.ndarray:
    rng, limits = np.random.default_rng(seed), np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max, 200, dtype, endpoint=True)
    x >>= rng.integers(0, limits.bits, 200).astype(dtype)
    ends = np.array([0, 1, limits.max, limits.min, limits.max >> 1], dtype)
    return rng.permutation(np.concatenate([x, ends]))


def bit_text(x: Any) -> str:
    bits = x.dtype.itemsize * 8
    return f"{int(x) % 2**bits:0{bits}b}"


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_bits_of_integers(dtype: Any):
    x = some_integers(dtype)
    texts = [bit_text(v) for v in x]
    counts = {
        "popc": [t.count("1") for t in texts],
        "clz": [len(t) - len(t.lstrip("0")) for t in texts],
        "ffs": [len(t) - t.rfind("1") if "1" in t else 0 for t in texts],
    }
    for name, wanted in counts.items():
        assert list(run(name, x, dtype=np.int32)) == wanted, name
    assert [bit_text(v) for v in run("brev", x)] == [t[::-1] for t in texts]
    y = some_integers(dtype, 1)
    bits = x.dtype.itemsize * 8
    wanted = [int(a) * int(b) >> bits for a, b in zip(x, y, strict=True)]
    assert list(run("mulhi", x, y)) == wanted


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_arithmetic_of_words(dtype: Any):
    x, y, z = some_integers(dtype), some_integers(dtype, 1), some_integers(np.uint32, 2)
    pairs = [(int(a), int(b)) for a, b in zip(x, y, strict=True)]

    def wrapped(values: Sequence[int]) -> np.ndarray:
        return np.array([v % 2**32 for v in values], np.uint32).view(dtype)

    def low24(value: int) -> int:
        value %= 2**24
        return value - 2**24 if dtype == np.int32 and value >= 2**23 else value

    np.testing.assert_array_equal(run("hadd", x, y), wrapped([(a + b) // 2 for a, b in pairs]))
    np.testing.assert_array_equal(run("rhadd", x, y), wrapped([-(-(a + b) // 2) for a, b in pairs]))
    np.testing.assert_array_equal(
        run("mul24", x, y), wrapped([low24(a) * low24(b) for a, b in pairs])
    )
    sums = [abs(a - b) + int(c) for (a, b), c in zip(pairs, z, strict=True)]
    np.testing.assert_array_equal(run("sad", x, y, z, dtype=dtype), wrapped(sums))
    selectors = some_integers(dtype, 3)

    def permuted(a: int, b: int, s: int) -> int:
        data = (a % 2**32).to_bytes(4, "little") + (b % 2**32).to_bytes(4, "little")
        return int.from_bytes(bytes(data[s >> 4 * k & 7] for k in range(4)), "little")

    wanted = [permuted(a, b, int(s)) for (a, b), s in zip(pairs, selectors, strict=True)]
    np.testing.assert_array_equal(run("byte_perm", x, y, selectors), wrapped(wanted))


# -- floats --------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exponents_and_neighbours(dtype: Any):
    x, y = wild(dtype, 300, 1), wild(dtype, 300, 2)
    x[:6] = [0, -0.0, INF, -INF, np.nan, FLOATS[dtype][1] and np.finfo(dtype).smallest_subnormal]
    np.testing.assert_array_equal(run("nextafter", x, y), np.nextafter(x, y))
    n = np.random.default_rng(1).integers(-2300, 2300, 300).astype(np.int32)
    with np.errstate(all="ignore"):
        wanted = np.ldexp(x, n)
    for name in ("ldexp", "scalbn"):
        np.testing.assert_array_equal(run(name, x, n, dtype=dtype), wanted)
    usual = np.isfinite(x) & (x != 0)
    exponents = np.frexp(x)[1] - 1
    np.testing.assert_array_equal(run("logb", x)[usual], exponents[usual])
    np.testing.assert_array_equal(run("logb", x[:5]), [-INF, -INF, INF, INF, np.nan])
    np.testing.assert_array_equal(run("ilogb", x, dtype=np.int32)[usual], exponents[usual])
    least, greatest = -(2**31), 2**31 - 1
    ends = run("ilogb", x[:5], dtype=np.int32)
    np.testing.assert_array_equal(ends, [least, least, greatest, greatest, least])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainder_is_exact(dtype: Any):
    x, y = wild(dtype, 1000, 1), wild(dtype, 1000, 2)
    with np.errstate(over="ignore"):
        x[::5] = y[::5] * np.random.default_rng(0).integers(-9, 9, 200) / dtype(2)
    x, y = x[np.isfinite(x) & (y != 0)], y[np.isfinite(x) & (y != 0)]
    wanted = [math.remainder(float(a), float(b)) for a, b in zip(x, y, strict=True)]
    np.testing.assert_array_equal(run("remainder", x, y), np.array(wanted, dtype))
    odd = np.array([1, INF, 1, np.nan, 5], dtype), np.array([0, 1, INF, 1, np.nan], dtype)
    np.testing.assert_array_equal(run("remainder", *odd), [np.nan, np.nan, 1, np.nan, np.nan])


def test_rough_reciprocal():
    x = np.random.default_rng(0).uniform(-9, 9, 100)
    got = run("rcp64h", x)
    np.testing.assert_allclose(got, 1 / x, rtol=2.0**-20)
    assert not (got.view(np.int64) & 0xFFFFFFFF).any()


# -- special functions ---------------------------------------------------------------------
def erfcinv(y: Any) -> Any:
    """By Newton's method on the logarithm where mpmath has no way."""
    if y > 0.5:
        return mp.erfinv(1 - y)
    x = mp.sqrt(-mp.log(y)) * 0.8 + 0.05
    for _ in range(40):
        gap = mp.log(mp.erfc(x)) - mp.log(y)
        x += gap * mp.erfc(x) * mp.sqrt(mp.pi) / 2 * mp.exp(x * x)
    return x


def spread(low: float, high: float, count: int = 200) -> np.ndarray:
    return np.random.default_rng(0).uniform(low, high, count)


def powers(low: float, high: float, count: int = 100) -> np.ndarray:
    return 10.0 ** spread(low, high, count)


@cache
def envelope(order: int) -> Callable[[Any], Any]:
    """The size of the wave that a Bessel function of that order is beyond its order."""
    return lambda x: mp.sqrt(2 / (mp.pi * x)) if x > max(8, order) else 0


def wave(x: Any) -> Any:
    """The size of Y's wave, which has its zeros from 1 on."""
    return mp.sqrt(2 / (mp.pi * (x if x > 1 else 1)))


FAR = np.concatenate([spread(0.01, 8), spread(0, 100), powers(-9, 6)])
# Inputs, the function, what its error may be in units in the last place of float64, and the least
# size that those are counted at.
SPECIAL_FUNCTIONS: dict[str, tuple[np.ndarray, Callable[[Any], Any], float, Any]] = {
    "sinpi": (np.append(spread(-9, 9), spread(-1e9, 1e9)), mp.sinpi, 2, None),
    "cospi": (np.append(spread(-9, 9), spread(-1e9, 1e9)), mp.cospi, 2, None),
    "rcbrt": (powers(-300, 300), lambda x: 1 / mp.cbrt(x), 2, None),
    "erfcx": (
        np.concatenate([spread(-26, 30), powers(-300, 300)]),
        lambda x: mp.exp(x * x) * mp.erfc(x) if x < 1e3 else 1 / (x * mp.sqrt(mp.pi)),
        6,
        None,
    ),
    "erfcinv": (np.append(spread(0, 1.99, 60), powers(-300, 0, 30)), erfcinv, 4, None),
    "normcdfinv": (
        np.append(spread(0, 0.99, 60), powers(-300, -1, 30)),
        lambda p: -mp.sqrt(2) * erfcinv(2 * p),
        6,
        None,
    ),
    "normcdf": (spread(-37, 9), lambda x: mp.erfc(-x / mp.sqrt(2)) / 2, 6, None),
    "cyl_bessel_i0": (spread(-700, 700), lambda x: mp.besseli(0, x), 6, None),
    "cyl_bessel_i1": (spread(-700, 700), lambda x: mp.besseli(1, x), 6, None),
    "j0": (FAR, lambda x: mp.besselj(0, x), 12, envelope(0)),
    "j1": (FAR, lambda x: mp.besselj(1, x), 12, envelope(1)),
    "y0": (FAR[::4], lambda x: mp.bessely(0, x), 16, wave),
    "y1": (FAR[::4], lambda x: mp.bessely(1, x), 16, wave),
}  # fmt: skip


FLOAT64_MAX = float(np.finfo(np.float64).max)


def assert_near(got: np.ndarray, wanted: Sequence[Any], limit: float, least: Sequence[Any]):
    """Each result within `limit` units in the last place, counted at no less than `least`."""
    for result, value, floor in zip(got, wanted, least, strict=True):
        if abs(value) > FLOAT64_MAX:
            assert result == math.copysign(INF, value)
            continue
        size = max(abs(value), floor, mp.mpf(2) ** -1022)
        unit = np.spacing(np.abs(got.dtype.type(float(size))))
        assert abs(mp.mpf(float(result)) - value) <= limit * mp.mpf(float(unit)), (result, value)


@pytest.mark.parametrize("name", SPECIAL_FUNCTIONS)
def test_special_functions(name: str):
    x, function, limit, least = SPECIAL_FUNCTIONS[name]
    exact = [mp.mpf(float(v)) for v in x]
    floors = [least(v) if least else 0 for v in exact]
    assert_near(run(name, x), [function(v) for v in exact], limit, floors)
    # In float32 there is one rounding of the float64 result.
    with np.errstate(over="ignore", under="ignore"):
        narrow = x.astype(np.float32)
    narrow = narrow[(np.abs(narrow) < 1e30) & (np.abs(narrow) > 1e-30)][::5]
    wanted = [function(mp.mpf(float(v))) for v in narrow]
    usual = [abs(w) < 1e38 for w in wanted]
    kept = [w for w, u in zip(wanted, usual, strict=True) if u]
    assert_near(run(name, narrow)[usual], kept, 1, [1e-37] * len(kept))


@pytest.mark.parametrize(("name", "function"), [("jn", mp.besselj), ("yn", mp.bessely)])
def test_bessel_functions_of_any_order(name: str, function: Any):
    rng = np.random.default_rng(0)
    n = rng.integers(0, 40, 120).astype(np.int32)
    x = np.concatenate([rng.uniform(0, 60, 90), powers(-9, 2, 30)])
    pairs = [(int(order), mp.mpf(float(at))) for order, at in zip(n, x, strict=True)]
    least = [mp.sqrt(2 / (mp.pi * at)) if at > 0.9 * order else 0 for order, at in pairs]
    # A step of the recurrence adds about half a unit.
    assert_near(run(name, n, x), [function(*pair) for pair in pairs], 30, least)
    got = run(name, np.array([2, -1, 3], np.int32), np.array([np.nan, 1.0, INF]))
    np.testing.assert_array_equal(got, [np.nan, np.nan, 0])


@pytest.mark.parametrize(("name", "arity"), [("rhypot", 2), ("norm3d", 3), ("norm4d", 4)])
def test_lengths_do_not_overflow(name: str, arity: int):
    rng = np.random.default_rng(0)
    parts = [rng.uniform(-1, 1, 200) * 10.0 ** rng.uniform(-300, 300, 200) for _ in range(arity)]
    rows = [[mp.mpf(float(v)) for v in row] for row in zip(*parts, strict=True)]
    lengths = [mp.sqrt(sum(v * v for v in row)) for row in rows]
    none = [0] * 200
    inverse = [1 / v for v in lengths]
    assert_near(run(name, *parts), inverse if name == "rhypot" else lengths, 2, none)
    if arity > 2:
        assert_near(run(f"r{name}", *parts), inverse, 2, none)
        ends = [np.array([INF, np.nan]), *[np.array([np.nan, 1.0])] * (arity - 1)]
        np.testing.assert_array_equal(run(name, *ends), [INF, np.nan])


ENDS: dict[str, list[tuple[float, float]]] = {
    "erfcx": [(INF, 0), (-INF, INF), (math.nan, math.nan)],
    "erfcinv": [(0, INF), (2, -INF), (1, 0), (-1, math.nan), (math.nan, math.nan)],
    "normcdf": [(INF, 1), (-INF, 0), (0, 0.5), (math.nan, math.nan)],
    "normcdfinv": [(0, -INF), (1, INF), (0.5, 0), (math.nan, math.nan)],
    "sinpi": [(INF, math.nan), (1e300, 0), (-3, 0), (math.nan, math.nan)],
    "cospi": [(INF, math.nan), (1e300, 1), (0.5, 0), (math.nan, math.nan)],
    "j0": [(0, 1), (INF, 0), (-INF, 0), (math.nan, math.nan)],
    "j1": [(0, 0), (INF, 0), (-INF, 0), (math.nan, math.nan)],
    "y0": [(0, -INF), (-1, math.nan), (INF, 0), (math.nan, math.nan)],
    "y1": [(0, -INF), (-1, math.nan), (INF, 0), (math.nan, math.nan)],
    "cyl_bessel_i0": [(0, 1), (INF, INF), (-INF, INF), (math.nan, math.nan)],
    "cyl_bessel_i1": [(0, 0), (INF, INF), (-INF, -INF), (math.nan, math.nan)],
}


@pytest.mark.parametrize("name", ENDS)
def test_ends_of_special_functions(name: str):
    x, wanted = zip(*ENDS[name], strict=True)
    np.testing.assert_allclose(run(name, np.array(x, np.float64)), wanted, rtol=4e-16)


# -- the names -----------------------------------------------------------------------------
def test_every_name_is_there():
    assert len(libdevice.__all__) == 197
    for name in libdevice.__all__:
        function = getattr(libdevice, name)
        assert function.__name__ == name
        assert function.__doc__


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("popc", ([1.0],)),
        ("add_rz", (np.ones(1, np.float16), np.ones(1, np.float16))),
        ("float2int_rn", (np.ones(1, np.float64),)),
        ("sad", (np.ones(1, np.int32), np.ones(1, np.int32), np.ones(1, np.int32))),
        ("ldexp", (np.ones(1, np.float32), np.ones(1, np.float32))),
    ],
)
def test_a_wrong_dtype_is_named(name: str, inputs: Any):
    with pytest.raises(CompilationError, match=rf"{name} is not defined on \w+") as caught:
        run(name, *inputs)
    assert "cast first" in str(caught.value)
