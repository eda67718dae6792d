"""Every elementwise op at every dtype it takes, gathered into few kernels.

A `Recipe` is a case that is built when its test runs.  How far a result may be off stands here:
arithmetic is exact, mathematical functions have bounds in units in the last place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from deuteron import dtypes as T
from deuteron.dtypes import DType
from deuteron.ir.optable import COMPARISONS, FLOAT_BINARY, FLOAT_UNARY
from tests.oracle.compare import EXACT, Tolerance
from tests.oracle.kernels import Case, Operand, Spec, elementwise, spec

INTEGERS = tuple(d for d in T.ALL if d.is_int())
FLOATS = (T.float16, T.bfloat16, T.float32, T.float64)
FP8 = tuple(T.FLOAT8)

Shape = tuple[int, ...]
SHAPES: tuple[tuple[Shape, bool], ...] = (
    ((1024,), False), ((1024,), True), ((16,), False), ((8, 32), True), ((4, 4, 8), False),
    ((), False), ((), True),
)  # fmt: skip
FEW_SHAPES = (((1024,), False), ((8, 32), True), ((), False))

NO_ZERO_SIGN = Tolerance(zero_sign=False)
EXACT_FUNCTIONS = ("sqrt", "ceil", "floor", "trunc", "rint", "round", "fmod", "copysign")
# What `backends/llvm/math.py` promises, and for float64 the oracle's own error besides.
# Results in 16 bits are computed in float32 and off by one at most.
ULPS = {T.float32: 3, T.float64: 5}
GAMMA_ULPS = 8
# Near its zeros lgamma is only as near as a difference of greater numbers can be.
LGAMMA_ABSOLUTE = {T.float16: 1e-6, T.bfloat16: 1e-6, T.float32: 2e-6, T.float64: 4e-15}


@dataclass(frozen=True, slots=True)
class Recipe:
    """A case by name, built when it is needed."""

    id: str
    make: Callable[[], Case]


def function_tolerance(name: str, dtype: DType) -> Tolerance:
    """How far a backend's mathematical function may be from the oracle's."""
    if name in EXACT_FUNCTIONS:
        return EXACT
    ulps = 1 if dtype.bits == 16 else ULPS[dtype]
    if name in ("lgamma", "tgamma") and dtype == T.float64:
        ulps = GAMMA_ULPS
    return Tolerance(ulps, absolute=LGAMMA_ABSOLUTE[dtype] if name == "lgamma" else 0.0)


def _choice(dtype: DType) -> Spec:
    condition = Operand(T.int1, "any", 0)
    return Spec("select", (condition, Operand(dtype, "any", 0), Operand(dtype, "any", 1)))


def _comparisons(dtype: DType) -> list[Spec]:
    return [spec(name, dtype, "any", "any") for name in COMPARISONS]


def integer_specs(dtype: DType) -> list[Spec]:
    """All ops that take an integer dtype, but casts."""
    plain = ("add", "sub", "mul", "min", "max", "and", "or", "xor", "umulhi")
    return [
        *(spec(name, dtype, "any", "any") for name in plain),
        *(spec(name, dtype, "dividend", "divisor") for name in ("idiv", "irem")),
        *(spec(name, dtype, "any", "shift") for name in ("shl", "shr")),
        *(spec(name, dtype, "any") for name in ("neg", "abs", "not", "hint")),
        *_comparisons(dtype),
        _choice(dtype),
    ]


def float_specs(dtype: DType) -> list[Spec]:
    """All ops that take a float dtype, but casts and functions."""
    return [
        *(spec(name, dtype, "any", "any") for name in ("add", "sub", "mul", "div")),
        *(
            spec(name, dtype, "any", "any", tolerance=NO_ZERO_SIGN, propagate_nan=propagate)
            for name in ("min", "max")
            for propagate in (False, True)
        ),
        *(spec(name, dtype, "any") for name in ("neg", "abs", "hint")),
        spec("fma", dtype, "any", "any", "any"),
        *_comparisons(dtype),
        _choice(dtype),
    ]


def function_specs(dtype: DType) -> list[Spec]:
    """The mathematical functions of one and two floats."""
    periodic = "trig" if dtype == T.float64 else "any"
    unary = [
        spec(
            name,
            dtype,
            periodic if name in ("sin", "cos", "tan") else "any",
            tolerance=function_tolerance(name, dtype),
        )
        for name in FLOAT_UNARY
    ]
    binary = [
        spec(name, dtype, "any", "any", tolerance=function_tolerance(name, dtype))
        for name in FLOAT_BINARY
    ]
    return unary + binary


def cast_spec(source: DType, to: DType, rounding: str = "") -> Spec:
    """A cast; values that do not fit an integer are left out, for they may become anything."""
    into_integer = source.is_floating() and to.is_int() and to != T.int1
    domain = f"into:{to.name}" if into_integer else "any"
    attrs = {"to": to, "rounding": rounding} if rounding else {"to": to}
    # By way of float32 a long mantissa is rounded twice.
    twice = to.is_floating() and to.bits < 32 and (source.bits == 64 or source.bits == 32)
    twice &= source.is_int() or source == T.float64
    return Spec("cast", (Operand(source, domain, 0),), attrs, Tolerance(ulps=1) if twice else EXACT)


def cast_specs(source: DType) -> list[Spec]:
    """Casts from one dtype to every other."""
    towards_zero = ((T.float32, T.bfloat16), (T.float32, T.float16), (T.float64, T.float32))
    return [
        *(cast_spec(source, to) for to in T.ALL if to != source),
        *(cast_spec(s, to, "rtz") for s, to in towards_zero if s == source),
    ]


def bitcast_specs(source: DType) -> list[Spec]:
    """Bitcasts to every other dtype of that width."""
    domain = "finite" if source.is_fp8() else "any"  # the bits of an fp8 NaN may change
    return [
        Spec("bitcast", (Operand(source, domain, 0),), {"to": to})
        for to in T.ALL
        if to.bits == source.bits and to != source
    ]


def _recipes(
    topic: str, specs: Sequence[Spec], size: int, shapes: Sequence[tuple[Shape, bool]]
) -> Iterator[Recipe]:
    for number, start in enumerate(range(0, len(specs), size)):
        group = specs[start : start + size]
        for shape, masked in shapes:
            sizes = "x".join(map(str, shape)) or "scalar"
            name = f"{topic}-{number}-{sizes}{'-masked' if masked else ''}"
            yield Recipe(name, partial(elementwise, name, group, shape, masked=masked))


def elementwise_recipes() -> list[Recipe]:
    """Kernels that hold every elementwise op but those on pointers."""
    recipes: list[Recipe] = []
    for dtype in INTEGERS:
        recipes += _recipes(f"integer-{dtype.short}", integer_specs(dtype), 12, SHAPES)
    for dtype in FLOATS:
        recipes += _recipes(f"float-{dtype.short}", float_specs(dtype), 12, SHAPES)
    for dtype in FLOATS:
        recipes += _recipes(f"function-{dtype.short}", function_specs(dtype), 8, FEW_SHAPES)
    for dtype in FP8:
        specs = [*_comparisons(dtype), _choice(dtype)]
        recipes += _recipes(f"fp8-{dtype.short}", specs, 12, FEW_SHAPES)
    for dtype in T.ALL:
        recipes += _recipes(f"cast-{dtype.short}", cast_specs(dtype), 16, FEW_SHAPES)
        if specs := bitcast_specs(dtype):
            recipes += _recipes(f"bitcast-{dtype.short}", specs, 8, FEW_SHAPES)
    return recipes
