"""The interpreter's elementwise ops against Python integers, exact fractions and torch."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch

from deuteron import dtypes as T
from deuteron.backends.interp import RULES
from deuteron.backends.interp.functions import BINARY, UNARY
from deuteron.backends.interp.values import Array, decode
from deuteron.dtypes import DType
from deuteron.ir import OPS
from tests.oracle.compare import Tolerance, mismatch
from tests.oracle.elementwise import FLOATS, INTEGERS, float_specs, function_specs, integer_specs
from tests.oracle.kernels import Case, Operand, Spec, elementwise
from tests.oracle.runners import InterpRunner

TORCH = {
    T.float16: torch.float16,
    T.bfloat16: torch.bfloat16,
    T.float32: torch.float32,
    T.float64: torch.float64,
}


def results(specs: list[Spec]) -> list[tuple[Spec, list[Array], Array]]:
    """Each spec with the bits of its operands and of its result."""
    case: Case = elementwise("ops", specs, (1024,), masked=False)
    args = case.fresh_args()
    InterpRunner().run(case.function, args, case.grid)
    arrays = {name: bits for name, _, bits in case.arrays(args)}
    return [
        (s, [arrays[o.name] for o in s.operands], arrays[f"out{i}"]) for i, s in enumerate(specs)
    ]


def test_every_op_has_a_rule() -> None:
    assert set(RULES) == set(OPS)


# -- integers -------------------------------------------------------------------------------------
def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGER_FUNCTIONS: dict[str, Callable[..., int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "min": min,
    "max": max,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "idiv": truncated,
    "irem": lambda a, b: a - b * truncated(a, b),
    "shl": operator.lshift,
    "shr": operator.rshift,
    "neg": operator.neg,
    "abs": abs,
    "not": operator.invert,
    "hint": int,
    "select": lambda c, a, b: a if c else b,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}


def integer_reference(spec: Spec, operands: list[int]) -> int:
    """The op on unbounded integers, brought back into the range of the result's dtype."""
    dtype = spec.operands[-1].dtype
    if spec.op == "umulhi":
        low = [o & ((1 << dtype.bits) - 1) for o in operands]
        exact = low[0] * low[1] >> dtype.bits
    else:
        exact = int(INTEGER_FUNCTIONS[spec.op](*operands))
    least = T.int_range(spec.result)[0]
    return least + (exact - least) % (1 << spec.result.bits)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_ops(dtype: DType) -> None:
    for spec, operands, got in results(integer_specs(dtype)):
        values = zip(*(bits.tolist() for bits in operands), strict=True)
        expected = [integer_reference(spec, list(v)) for v in values]
        assert got.tolist() == expected, spec.id


def test_division_by_zero_and_wide_shifts_are_harmless() -> None:
    for dtype in INTEGERS:
        divisions = [Spec(n, _any_pair(dtype)) for n in ("idiv", "irem", "shl", "shr")]
        for spec, (_, divisors), got in results(divisions):
            if spec.op in ("idiv", "irem"):
                assert not got[divisors == 0].any()


def _any_pair(dtype: DType) -> tuple[Operand, ...]:
    return next(s.operands for s in integer_specs(dtype) if s.op == "add")


# -- floats ---------------------------------------------------------------------------------------
FLOAT_FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "neg": torch.neg,
    "abs": torch.abs,
    "hint": torch.clone,
    "select": lambda c, a, b: torch.where(c != 0, a, b),
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "eq": torch.eq,
    "ne": torch.ne,
}
EXTREMA = {
    ("min", False): torch.fmin,
    ("min", True): torch.minimum,
    ("max", False): torch.fmax,
    ("max", True): torch.maximum,
}


def as_torch(bits: Array, dtype: DType) -> torch.Tensor:
    tensor = torch.from_numpy(bits.view(f"i{bits.itemsize}").copy())
    return tensor.view(TORCH[dtype]) if dtype in TORCH else tensor


def as_bits(tensor: torch.Tensor, like: Array) -> Array:
    if tensor.dtype == torch.bool:
        return tensor.to(torch.uint8).numpy()
    return (
        tensor.contiguous().view(getattr(torch, f"int{like.itemsize * 8}")).numpy().view(like.dtype)
    )


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_ops(dtype: DType) -> None:
    for spec, operands, got in results([s for s in float_specs(dtype) if s.op != "fma"]):
        tensors = [as_torch(x, o.dtype) for x, o in zip(operands, spec.operands, strict=True)]
        key = (spec.op, bool(spec.attrs.get("propagate_nan")))
        function = EXTREMA.get(key) or FLOAT_FUNCTIONS[spec.op]
        expected = as_bits(function(*tensors), got)
        assert not mismatch(expected, got, spec.result, spec.tolerance), spec.id


def exact_fma(a: float, b: float, c: float, mantissa_bits: int, least_exponent: int) -> float:
    """a × b + c rounded once to nearest even, in integers."""
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not exact:
        return a * b + c
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    quantum = Fraction(2) ** (max(exponent, least_exponent) - mantissa_bits)
    rounded = round(size / quantum) * quantum  # round() of a Fraction goes to even
    too_large = rounded >= Fraction(2) ** (2 - least_exponent)
    sign = -1.0 if exact < 0 else 1.0
    return sign * (math.inf if too_large else float(rounded))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_fma(dtype: DType) -> None:
    least = {T.float64: -1022, T.float16: -14}.get(dtype, -126)
    [(spec, operands, got)] = results([s for s in float_specs(dtype) if s.op == "fma"])
    values = (decode(bits, dtype).astype(np.float64).tolist() for bits in operands)
    exact = [exact_fma(*v, dtype.mantissa_bits, least) for v in zip(*values, strict=True)]
    expected = as_bits(torch.tensor(exact, dtype=torch.float64).to(TORCH[dtype]), got)
    assert not mismatch(expected, got, dtype), spec.id


# -- functions ------------------------------------------------------------------------------------
def torch_gamma(x: torch.Tensor) -> torch.Tensor:
    """By the logarithm, and below one half by Euler's reflection."""
    mirrored = torch.pi / (torch.sin(torch.pi * x) * torch.exp(torch.lgamma(1 - x)))
    at_pole = (x <= 0) & (x == torch.floor(x))
    result = torch.where(x < 0.5, mirrored, torch.exp(torch.lgamma(x)))
    result = torch.where(at_pole, torch.where(x == 0, 1 / x, torch.nan), result)
    return result


def torch_round_away(x: torch.Tensor) -> torch.Tensor:
    whole = torch.trunc(x)
    return torch.copysign(whole.abs() + ((x - whole).abs() >= 0.5), x)


def python_fmod(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    def one(a: float, b: float) -> float:
        return math.nan if math.isinf(a) or b == 0 else math.fmod(a, b)

    return torch.tensor(list(map(one, x.tolist(), y.tolist())), dtype=torch.float64)


REFERENCES: dict[str, Callable[..., torch.Tensor]] = {
    "exp10": lambda x: torch.pow(10.0, x),
    "cbrt": lambda x: torch.copysign(x.abs() ** (1 / 3), x),
    "rint": torch.round,
    "round": torch_round_away,
    "tgamma": torch_gamma,
    "pow": torch.pow,
    "hypot": torch.hypot,
    "fmod": python_fmod,
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_functions(dtype: DType) -> None:
    for spec, operands, got in results(function_specs(dtype)):
        values = [torch.from_numpy(decode(x, dtype).astype(np.float64)) for x in operands]
        reference = REFERENCES.get(spec.op) or getattr(torch, spec.op)
        expected = as_bits(reference(*values).to(TORCH[dtype]), got)
        loose = 4e-9 if spec.op == "tgamma" else 2e-14
        tolerance = Tolerance(ulps=1, relative=loose, absolute=4e-15)
        if spec.op == "tgamma" and dtype == T.float64:
            near_zero = np.abs(decode(operands[0], dtype)) < 1e-300  # the reference overflows
            got, expected = got[~near_zero], expected[~near_zero]
        assert not mismatch(expected, got, dtype, tolerance), spec.id


def test_functions_at_corners() -> None:
    """Where C's rules are easily missed."""

    def of(name: str, *values: float) -> float:
        table = UNARY if name in UNARY else BINARY
        with np.errstate(all="ignore"):
            return float(table[name](*(np.array(v) for v in values)))

    assert of("tgamma", 0.0) == math.inf
    assert of("tgamma", -0.0) == -math.inf
    assert math.isnan(of("tgamma", -3.0))
    assert math.isnan(of("tgamma", -math.inf))
    assert of("lgamma", -2.0) == of("lgamma", -math.inf) == math.inf
    assert of("erfinv", 1.0) == math.inf
    assert math.isnan(of("erfinv", 1.5))
    assert math.copysign(1.0, of("round", -0.25)) == -1.0
    assert of("round", 2.5) == 3.0
    assert of("round", 0.49999999999999994) == 0.0
    assert of("rint", 2.5) == 2.0
    assert of("fmod", -7.0, 2.5) == -2.0
    assert of("pow", -2.0, 3.0) == -8.0
    assert of("pow", 1.0, math.nan) == of("pow", math.nan, 0.0) == 1.0
    assert of("atan2", -0.0, -1.0) == -math.pi
    assert of("hypot", math.inf, math.nan) == math.inf
