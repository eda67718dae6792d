"""The math library against arbitrary-precision and C library references.

Errors are counted in units in the last place (ULP) of the correctly rounded result.  The bounds are
the library's promises (`deuteron.backends.llvm.math`), not what was measured.
"""

from __future__ import annotations

import ctypes
import math
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest

from deuteron.backends.llvm.builder import F32, I64, PTR, Builder, LType, Val
from deuteron.backends.llvm.compile import (
    Machine,
    assembly,
    compile_object,
    host_machine,
    load_object,
)
from deuteron.backends.llvm.math import FUNCTIONS, emit_math
from deuteron.errors import InternalError

DTYPES: dict[str, Any] = {"float": np.float32, "double": np.float64}
ELEMS = tuple(DTYPES)
Range = Callable[[np.random.Generator, int], np.ndarray]
mp: Any = mpmath.mp.clone()
mp.prec = 200


# -- running --------------------------------------------------------------------------------
def loop_text(name: str, type: LType) -> str:
    """A module whose function `f` maps `name` over arrays, a whole number of vectors long."""
    b = Builder()
    inputs = [Val(f"%x{k}", PTR) for k in range(FUNCTIONS[name].arity)]
    index, size = Val("%i", I64), DTYPES[type.elem]().itemsize
    args = [b.load(type, b.gep(type.elem, p, index), size) for p in inputs]
    b.store(emit_math(b, name, args), b.gep(type.elem, Val("%out", PTR), index), size)
    params = ", ".join(map(str, inputs))
    return "\n".join(
        [
            f"define void @f({params}, ptr %out, i64 %n) {{",
            "entry:",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *b.code.lines,
            f"  %next = add i64 %i, {max(1, type.lanes)}",
            "  %more = icmp slt i64 %next, %n",
            "  br i1 %more, label %loop, label %done",
            "done:",
            "  ret void",
            "}",
            *b.declares.values(),
            "",
        ]
    )


@cache
def compiled(name: str, type: LType) -> Callable[..., None]:
    text = loop_text(name, type)
    address = load_object(compile_object(text, host_machine()).obj, ["f"])["f"]
    pointers = [ctypes.c_void_p] * (FUNCTIONS[name].arity + 1)
    return ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64)(address)


def apply(name: str, elem: str, *inputs: Any, lanes: int = 16) -> np.ndarray:
    arrays = [np.asarray(x, DTYPES[elem]) for x in inputs]
    count = len(arrays[0])
    padded = [np.concatenate([x, np.ones(-count % 16, x.dtype)]) for x in arrays]
    out = np.empty_like(padded[0])
    f = compiled(name, LType(elem, lanes))
    f(*(x.ctypes.data for x in padded), out.ctypes.data, len(out))
    return out[:count]


# -- what to try ----------------------------------------------------------------------------
def linear(low: float, high: float) -> Range:
    return lambda rng, n: rng.uniform(low, high, n)


def powers(low: float, high: float, signs: Sequence[int] = (-1, 1)) -> Range:
    """Magnitudes spread evenly over the exponents of two from `low` to `high`."""

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.choice(signs, n) * np.exp2(rng.uniform(low, high, n))

    return draw


def near(center: float, low: float = -50) -> Range:
    """Numbers around `center`, at distances of 2^low to 1/2."""
    spread = powers(low, -1)
    return lambda rng, n: center + spread(rng, n)


POSITIVE = (1,)
FLOAT_ALL, DOUBLE_ALL = (-149.5, 127.99), (-1074, 1023.99)
ANY_FLOAT, ANY_DOUBLE = powers(*FLOAT_ALL), powers(*DOUBLE_ALL)


@dataclass(frozen=True)
class Case:
    """A function: references for one number, ranges of arguments by format, and error bounds.

    `quick` is precise enough for floats; `exact` takes and returns mpmath numbers.  Ranges are
    tuples of one per argument; `floats` and `doubles` add one that spans the format's exponents.
    """

    quick: Callable[..., float]
    exact: Callable[..., Any]
    ranges: tuple[tuple[Range, ...], ...]
    float_ulp: float = 2.0
    double_ulp: float = 2.0
    floats: tuple[Range, ...] | None = None
    doubles: tuple[Range, ...] | None = None


def unary(
    quick: Callable[..., float],
    exact: Callable[..., Any],
    *ranges: Range,
    ulp: tuple[float, float] = (2.0, 2.0),
    floats: Range = ANY_FLOAT,
    doubles: Range = ANY_DOUBLE,
) -> Case:
    return Case(quick, exact, tuple((r,) for r in ranges), *ulp, (floats,), (doubles,))


def capped(f: Callable[..., Any], limit: float) -> Callable[..., Any]:
    """`f` of arguments moved into ±limit, outside of which it is constant or out of any format."""
    return lambda x: f(max(min(x, mp.mpf(limit)), mp.mpf(-limit)))


def log_abs_gamma(x: Any) -> Any:
    return mp.re(mp.loggamma(x)) if x > 0 else mp.log(abs(mp.gamma(x)))


UP_FLOAT, UP_DOUBLE = powers(*FLOAT_ALL, POSITIVE), powers(*DOUBLE_ALL, POSITIVE)
UNIT_FLOAT, UNIT_DOUBLE = powers(-149, 0), powers(-1074, 0)
TRIG = (linear(-10, 10), linear(-1e4, 1e4))
TURNS = powers(-1074, 46.9)

CASES: dict[str, Case] = {
    "acos": unary(
        math.acos, mp.acos, linear(-1, 1), ulp=(2, 4), floats=UNIT_FLOAT, doubles=UNIT_DOUBLE
    ),
    "acosh": unary(
        math.acosh,
        mp.acosh,
        linear(1, 20),
        ulp=(2.5, 4),
        floats=powers(0, 127.99, POSITIVE),
        doubles=powers(0, 1023.99, POSITIVE),
    ),
    "asin": unary(
        math.asin, mp.asin, linear(-1, 1), ulp=(2.5, 4), floats=UNIT_FLOAT, doubles=UNIT_DOUBLE
    ),
    "asinh": unary(math.asinh, mp.asinh, linear(-20, 20), ulp=(2.5, 4)),
    "atan": unary(math.atan, mp.atan, linear(-4, 4), ulp=(2, 4)),
    "atanh": unary(
        math.atanh,
        mp.atanh,
        linear(-0.999, 0.999),
        ulp=(2.5, 4),
        floats=powers(-149, -0.01),
        doubles=powers(-1074, -0.01),
    ),
    "cbrt": unary(np.cbrt, lambda x: mp.sign(x) * mp.cbrt(abs(x)), linear(-10, 10)),
    "cos": unary(math.cos, mp.cos, *TRIG, doubles=TURNS),
    "cosh": unary(np.cosh, capped(mp.cosh, 800), linear(-5, 5), linear(-89, 89), ulp=(2, 4)),
    "erf": unary(math.erf, capped(mp.erf, 30), linear(-4, 4)),
    "erfc": unary(math.erfc, capped(mp.erfc, 30), linear(-4, 10), linear(9, 27), ulp=(2, 4)),
    "erfinv": unary(
        lambda x: float(mp.erfinv(x)),
        mp.erfinv,
        linear(-0.999, 0.999),
        ulp=(2, 4),
        floats=UNIT_FLOAT,
        doubles=powers(-1000, -1e-9),
    ),
    "exp": unary(np.exp, capped(mp.exp, 800), linear(-104, 89), linear(-746, 710), near(0)),
    "exp10": unary(
        lambda x: np.power(10.0, x),
        capped(lambda x: mp.power(10, x), 400),
        linear(-46, 39),
        linear(-324, 309),
    ),
    "exp2": unary(
        np.exp2,
        capped(lambda x: mp.power(2, x), 1200),
        linear(-150, 129),
        linear(-1075, 1025),
        near(0),
    ),
    "expm1": unary(np.expm1, capped(mp.expm1, 800), linear(-3, 3), linear(-89, 710)),
    "lgamma": unary(
        math.lgamma,
        log_abs_gamma,
        linear(0, 4),
        linear(2, 50),
        near(1, -20),
        near(2, -20),
        ulp=(2, 4),
        floats=UP_FLOAT,
        doubles=powers(-1000, 1000, POSITIVE),
    ),
    "log": unary(math.log, mp.log, near(1), floats=UP_FLOAT, doubles=UP_DOUBLE),
    "log10": unary(math.log10, mp.log10, near(1), floats=UP_FLOAT, doubles=UP_DOUBLE),
    "log1p": unary(
        math.log1p,
        mp.log1p,
        linear(-0.999, 3),
        powers(-100, -1),
        floats=UP_FLOAT,
        doubles=UP_DOUBLE,
    ),
    "log2": unary(math.log2, lambda x: mp.log(x, 2), near(1), floats=UP_FLOAT, doubles=UP_DOUBLE),
    "rsqrt": unary(
        lambda x: 1 / math.sqrt(x),
        lambda x: 1 / mp.sqrt(x),
        linear(0, 4),
        floats=UP_FLOAT,
        doubles=UP_DOUBLE,
    ),
    "sin": unary(math.sin, mp.sin, *TRIG, doubles=TURNS),
    "sinh": unary(np.sinh, capped(mp.sinh, 800), linear(-5, 5), linear(-89, 89), ulp=(2.5, 4)),
    "tan": unary(math.tan, mp.tan, *TRIG, ulp=(3.5, 4), doubles=TURNS),
    "tanh": unary(math.tanh, capped(mp.tanh, 100), linear(-4, 4), linear(-20, 20), ulp=(2, 4)),
    "tgamma": unary(
        math.gamma,
        mp.gamma,
        linear(0.01, 5),
        linear(0.01, 34),
        linear(-20.5, -0.01),
        ulp=(2, 4),
        floats=powers(-126, 5, POSITIVE),
        doubles=powers(-1000, 7, POSITIVE),
    ),
    "atan2": Case(
        math.atan2,
        mp.atan2,
        ((linear(-2, 2), linear(-2, 2)), (powers(-60, 60), powers(-60, 60))),
        double_ulp=4,
    ),
    "hypot": Case(
        math.hypot,
        mp.hypot,
        ((linear(-2, 2), linear(-2, 2)), (powers(-60, 60), powers(-60, 60))),
        floats=(ANY_FLOAT, ANY_FLOAT),
        doubles=(ANY_DOUBLE, ANY_DOUBLE),
    ),
    "pow": Case(
        np.power,
        mp.power,
        (
            (linear(0, 4), linear(-20, 20)),
            (powers(-100, 100, POSITIVE), linear(-1.2, 1.2)),
            (near(1, -20), powers(0, 7)),
        ),
        doubles=(powers(-1000, 1000, POSITIVE), linear(-1.05, 1.05)),
    ),
}

# Exact by definition: compared bit by bit below.
EXACT: dict[str, Callable[..., Any]] = {
    "fmod": np.fmod,
    "rint": np.rint,
    "round": lambda x: np.trunc(x) + np.copysign(abs(x - np.trunc(x)) >= 0.5, x),
    "sqrt": np.sqrt,
}


def draws(name: str, elem: str, count: int) -> list[np.ndarray]:
    """One array for each argument of a function, `count` numbers from each of its ranges."""
    case, dtype = CASES[name], DTYPES[elem]
    rng = np.random.default_rng(zlib.crc32(f"{name} {elem}".encode()))
    wide = case.floats if elem == "float" else case.doubles
    groups = [*case.ranges, wide] if wide else list(case.ranges)
    columns = zip(*([draw(rng, count) for draw in group] for group in groups), strict=True)
    return [np.concatenate(column).astype(dtype) for column in columns]


# -- measuring ------------------------------------------------------------------------------
def ulp_errors(got: np.ndarray, want: Sequence[Any]) -> np.ndarray:
    """|got - want| in units of the last place of `want` (floats or mpmath numbers)."""
    info = np.finfo(got.dtype)
    least, top = int(info.minexp) - info.nmant, int(info.maxexp)
    return np.array(
        [ulp_error(float(g), w, info.nmant, least, top) for g, w in zip(got, want, strict=True)]
    )


def ulp_error(got: float, want: Any, fraction: int, least: int, top: int) -> float:
    want = mp.mpf(want)
    if mp.isnan(want) or mp.isinf(want):
        return 0.0 if got == float(want) or (mp.isnan(want) and math.isnan(got)) else math.inf
    if math.isnan(got):
        return math.inf
    exponent = mp.frexp(want)[1] - 1 if want else least
    # Beyond the greatest finite number, infinity counts as the next one, 2^top.
    exponent = min(exponent, top - 1)
    bound = mp.ldexp(1, top)
    got_value = max(min(mp.mpf(got), bound), -bound)
    want = max(min(want, bound), -bound)
    return float(abs(got_value - want) / mp.ldexp(1, max(exponent - fraction, least)))


def assert_close(name: str, elem: str, inputs: list[np.ndarray], want: list[Any]) -> None:
    case = CASES[name]
    limit = case.float_ulp if elem == "float" else case.double_ulp
    got = apply(name, elem, *inputs)
    errors = ulp_errors(got, want)
    worst = int(np.argmax(errors))
    at = ", ".join(repr(float(x[worst])) for x in inputs)
    assert errors[worst] <= limit, (
        f"{name}({at}) = {float(got[worst])!r}, want {want[worst]}: {errors[worst]:.2f} ULP"
    )


def quick_value(f: Callable[..., float], *args: float) -> float:
    try:
        with np.errstate(all="ignore"):
            return float(f(*args))
    except OverflowError:
        return math.inf


# -- tests ----------------------------------------------------------------------------------
def test_every_function_is_tested():
    assert CASES.keys() | EXACT.keys() == FUNCTIONS.keys()


@pytest.mark.parametrize("name", CASES)
def test_floats_against_double_precision(name: str):
    count = 100 if name == "erfinv" else 1500
    inputs = draws(name, "float", count)
    want = [quick_value(CASES[name].quick, *map(float, args)) for args in zip(*inputs, strict=True)]
    assert_close(name, "float", inputs, want)


@pytest.mark.parametrize("name", CASES)
def test_doubles_against_arbitrary_precision(name: str):
    inputs = draws(name, "double", 60 if name in ("erfinv", "tgamma", "lgamma") else 200)
    want = [CASES[name].exact(*map(mp.mpf, map(float, args))) for args in zip(*inputs, strict=True)]
    assert_close(name, "double", inputs, want)


@pytest.mark.parametrize("elem", ELEMS)
@pytest.mark.parametrize("name", EXACT)
def test_exact_functions(name: str, elem: str):
    rng, dtype = np.random.default_rng(5), DTYPES[elem]
    low, high = FLOAT_ALL if elem == "float" else DOUBLE_ALL
    edges = [0.5, 1.5, 2.5, 0.49999997, 0.49999999999999994, 8388609, 2**52 + 1, 0, np.inf, np.nan]
    edges = [*edges, *(-e for e in edges)]
    inputs = [
        np.concatenate([powers(low, high)(rng, 3000), linear(-9, 9)(rng, 3000), edges])
        for _ in range(FUNCTIONS[name].arity)
    ]
    if len(inputs) == 2:  # each special number with each other
        grid = np.meshgrid(edges, edges)
        inputs = [np.concatenate([x, g.ravel()]) for x, g in zip(inputs, grid, strict=True)]
    inputs = [x.astype(dtype) for x in inputs]
    with np.errstate(all="ignore"):
        want = EXACT[name](*inputs)
    got = apply(name, elem, *inputs)
    np.testing.assert_array_equal(got, want)
    valid = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[valid]), np.signbit(want[valid]))


INF, NAN = math.inf, math.nan
# Results at 0, -0, infinity and -infinity; NaN gives NaN.
AT_THE_ENDS: dict[str, tuple[float, float, float, float]] = {
    "acos": (math.pi / 2, math.pi / 2, NAN, NAN),
    "acosh": (NAN, NAN, INF, NAN),
    "asin": (0.0, -0.0, NAN, NAN),
    "asinh": (0.0, -0.0, INF, -INF),
    "atan": (0.0, -0.0, math.pi / 2, -math.pi / 2),
    "atanh": (0.0, -0.0, NAN, NAN),
    "cbrt": (0.0, -0.0, INF, -INF),
    "cos": (1.0, 1.0, NAN, NAN),
    "cosh": (1.0, 1.0, INF, INF),
    "erf": (0.0, -0.0, 1.0, -1.0),
    "erfc": (1.0, 1.0, 0.0, 2.0),
    "erfinv": (0.0, -0.0, NAN, NAN),
    "exp": (1.0, 1.0, INF, 0.0),
    "exp10": (1.0, 1.0, INF, 0.0),
    "exp2": (1.0, 1.0, INF, 0.0),
    "expm1": (0.0, -0.0, INF, -1.0),
    "lgamma": (INF, INF, INF, INF),
    "log": (-INF, -INF, INF, NAN),
    "log10": (-INF, -INF, INF, NAN),
    "log1p": (0.0, -0.0, INF, NAN),
    "log2": (-INF, -INF, INF, NAN),
    "rsqrt": (INF, -INF, 0.0, NAN),
    "sin": (0.0, -0.0, NAN, NAN),
    "sinh": (0.0, -0.0, INF, -INF),
    "tan": (0.0, -0.0, NAN, NAN),
    "tanh": (0.0, -0.0, 1.0, -1.0),
    "tgamma": (INF, -INF, INF, NAN),
}
# Other arguments whose results are known exactly: (argument, result).
KNOWN: dict[str, Sequence[tuple[float, float]]] = {
    "acos": [(1, 0), (1.5, NAN), (-1.5, NAN)],
    "acosh": [(1, 0), (0.5, NAN), (-2e6, NAN)],
    "asin": [(1.5, NAN), (-1.5, NAN)],
    "atanh": [(1, INF), (-1, -INF), (1.5, NAN), (-1.5, NAN)],
    "cbrt": [(1, 1), (-8, -2), (27, 3)],
    "erf": [(6, 1), (-30, -1), (1e30, 1)],
    "erfc": [(40, 0), (-40, 2), (1e30, 0)],
    "erfinv": [(1, INF), (-1, -INF), (1.5, NAN)],
    "exp": [(-1e30, 0), (1e30, INF), (1e-40, 1)],
    "exp10": [(-1e30, 0), (1e30, INF), (1, 10), (2, 100)],
    "exp2": [(-1e30, 0), (1e30, INF), (5, 32), (-126, 2.0**-126), (-149, 2.0**-149)],
    "expm1": [(-1e30, -1), (1e30, INF), (1e-40, 1e-40)],
    "lgamma": [(1, 0), (2, 0), (-1, INF), (-7, INF), (-1e38, INF), (-1.7e308, INF)],
    "log": [(1, 0), (-1, NAN)],
    "log10": [(1, 0), (1000, 3), (-1e-40, NAN)],
    "log1p": [(-1, -INF), (-1.5, NAN), (1e-40, 1e-40)],
    "log2": [(1, 0), (2.0**-149, -149), (2.0**127, 127), (-1, NAN)],
    "rsqrt": [(4, 0.5), (2.0**-148, 2.0**74), (-1, NAN)],
    "sinh": [(1e30, INF), (-1e30, -INF)],
    "tanh": [(1e30, 1), (-1e30, -1), (1e-40, 1e-40)],
    "tgamma": [(1, 1), (2, 1), (-1, NAN), (-2, NAN), (1e30, INF), (-180.5, -0.0)],
}


@pytest.mark.parametrize("elem", ELEMS)
@pytest.mark.parametrize("name", AT_THE_ENDS)
def test_special_values(name: str, elem: str):
    ends = zip((0.0, -0.0, INF, -INF, NAN), (*AT_THE_ENDS[name], NAN), strict=True)
    pairs = [*ends, *KNOWN.get(name, [])]
    if elem == "double":
        pairs = [p for p in pairs if p[0] != -180.5]  # Γ of it is a denormal double
    with np.errstate(over="ignore"):  # the greatest doubles are infinite floats
        x, want = np.array(pairs, DTYPES[elem]).T
    got = apply(name, elem, x)
    exact = np.isin(want, [0, 1, -1, 2, INF, -INF])
    np.testing.assert_allclose(got, want, rtol=4 * np.finfo(got.dtype).eps, atol=0)
    np.testing.assert_array_equal(got[exact], want[exact])
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize("elem", ELEMS)
@pytest.mark.parametrize(
    ("name", "reference"), [("atan2", np.arctan2), ("hypot", np.hypot), ("pow", np.power)]
)
def test_special_values_of_two_arguments(
    name: str, reference: Callable[..., np.ndarray], elem: str
):
    edges = [0.0, 1, 2, 0.5, 3, 7, 1.5, 1e30, 1e-40, INF]
    grid = np.meshgrid([*edges, *(-e for e in edges), NAN], [*edges, *(-e for e in edges), NAN])
    x, y = (g.ravel().astype(DTYPES[elem]) for g in grid)
    with np.errstate(all="ignore"):
        want = reference(x, y)
    got = apply(name, elem, x, y)
    np.testing.assert_allclose(got, want, rtol=4 * np.finfo(got.dtype).eps, atol=0)
    valid = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[valid]), np.signbit(want[valid]))


# The floats and doubles that lie closest to multiples of π/2, where a reduction that keeps too few
# bits shows first (from continued fractions of 2^e 2/π).
HARD_TURNS = {
    "float": "1.f37c8ap+96 1.47d0fep+35 1.f37c8ap+95 1.47d0fep+34 1.f9cbe2p+7 1.32ede2p+85",
    "double": "1.6c6cbc45dc8dep+6 1.b951f1572eba5p+24 1.6c6cbc45dc8dep+5 1.065c829d68730p+39",
}


@pytest.mark.parametrize("elem", ELEMS)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_reduction_near_multiples_of_a_quarter_turn(name: str, elem: str):
    x = np.array([float.fromhex("0x" + text) for text in HARD_TURNS[elem].split()])
    inputs = [np.concatenate([x, -x]).astype(DTYPES[elem])]
    assert_close(name, elem, inputs, [getattr(mp, name)(mp.mpf(float(v))) for v in inputs[0]])


def test_doubles_beyond_the_reduction_are_nan():
    x = np.array([2.0**47, -(2.0**60), 1e300])
    for name in ("sin", "cos", "tan"):
        assert np.isnan(apply(name, "double", x)).all()


@pytest.mark.parametrize("elem", ELEMS)
def test_log_of_gamma_at_negative_arguments(elem: str):
    # Near its zeros there the error is relative to 1.
    x = np.random.default_rng(3).uniform(-30, 0, 300).astype(DTYPES[elem])
    want = np.array([math.lgamma(float(v)) for v in x])
    got = apply("lgamma", elem, x)
    np.testing.assert_allclose(got, want, rtol=8 * np.finfo(got.dtype).eps, atol=2e-15)


@pytest.mark.parametrize("elem", ELEMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_width_gives_the_same_bits(name: str, elem: str):
    rng = np.random.default_rng(11)
    inputs = [np.concatenate([linear(-3, 3)(rng, 70), powers(-100, 100)(rng, 70)]) for _ in "xy"]
    inputs = inputs[: FUNCTIONS[name].arity]
    wide = apply(name, elem, *inputs, lanes=16)
    for lanes in (0, 4):
        np.testing.assert_array_equal(apply(name, elem, *inputs, lanes=lanes), wide)


CALL = re.compile(r"^\s*(?:callq?|bl|blr)\b.*", re.MULTILINE)


@pytest.mark.parametrize(
    ("machine", "vector_bytes"),
    [
        pytest.param(host_machine(), 64, id="host"),
        pytest.param(Machine("x86_64-unknown-linux-gnu", "x86-64-v3"), 32, id="avx2"),
        pytest.param(Machine("x86_64-unknown-linux-gnu", "x86-64-v4"), 64, id="avx512"),
        pytest.param(Machine("aarch64-unknown-linux-gnu", "neoverse-n1"), 16, id="neon"),
    ],
)
def test_no_function_calls_another(machine: Machine, vector_bytes: int):
    calls: dict[str, list[str]] = {}
    for name in FUNCTIONS:
        for elem, dtype in DTYPES.items():
            for lanes in (0, vector_bytes // dtype().itemsize):
                found = CALL.findall(assembly(loop_text(name, LType(elem, lanes)), machine))
                if found:
                    calls[f"{name} {lanes} x {elem}"] = found
    assert calls == {}


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("sine", [Val("%x", F32)], "no math function 'sine'"),
        ("exp", [Val("%x", F32), Val("%y", F32)], "takes 1 of float or double, got (float, float)"),
        ("pow", [Val("%x", F32), Val("%y", LType("float", 4))], "got (float, <4 x float>)"),
        ("exp", [Val("%x", LType("half"))], "got (half)"),
    ],
)
def test_wrong_use_is_an_internal_error(name: str, args: list[Val], message: str):
    with pytest.raises(InternalError, match=re.escape(message)):
        emit_math(Builder(), name, args)
