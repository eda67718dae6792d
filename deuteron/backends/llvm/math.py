"""The math library of the LLVM backends: names, and the one way to call them.

Each function is a sequence of plain LLVM instructions (arithmetic, fma, sqrt, select, bit
operations; the target must have fma in hardware) without branches, tables in memory or calls, for
scalars and vectors of any width.  What is promised, in units in the last place (ULP) of the result:

    float   2; 2.5 for asin, acosh, asinh, atanh, sinh; 3.5 for tan
    double  2 for exp*, log*, sin, cos, erf, pow and roots; 4 for the rest

over the whole range of the format, denormals, infinities and NaN included.  The exceptions: sin,
cos and tan of doubles from 2^47 on are NaN, and the error of lgamma at negative arguments is
relative to 1 where the result is smaller.  fmod, round, rint and sqrt are correctly rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deuteron.backends.llvm import (
    math_erf,
    math_exp,
    math_fmod,
    math_gamma,
    math_log,
    math_power,
    math_trig,
)
from deuteron.backends.llvm.builder import Builder, Val
from deuteron.backends.llvm.math_core import FORMATS, Num, round_even, sqrt
from deuteron.errors import InternalError


@dataclass(frozen=True, slots=True)
class MathFunction:
    """A function of the library: how many arguments it takes and what writes it."""

    arity: int
    emit: Callable[..., Num]


FUNCTIONS: dict[str, MathFunction] = {
    "acos": MathFunction(1, math_trig.acos),
    "acosh": MathFunction(1, math_log.acosh),
    "asin": MathFunction(1, math_trig.asin),
    "asinh": MathFunction(1, math_log.asinh),
    "atan": MathFunction(1, math_trig.atan),
    "atan2": MathFunction(2, math_trig.atan2),
    "atanh": MathFunction(1, math_log.atanh),
    "cbrt": MathFunction(1, math_power.cbrt),
    "cos": MathFunction(1, math_trig.cos),
    "cosh": MathFunction(1, math_exp.cosh),
    "erf": MathFunction(1, math_erf.erf),
    "erfc": MathFunction(1, math_erf.erfc),
    "erfinv": MathFunction(1, math_erf.erfinv),
    "exp": MathFunction(1, math_exp.exp),
    "exp10": MathFunction(1, math_exp.exp10),
    "exp2": MathFunction(1, math_exp.exp2),
    "expm1": MathFunction(1, math_exp.expm1),
    "fmod": MathFunction(2, math_fmod.fmod),
    "hypot": MathFunction(2, math_power.hypot),
    "lgamma": MathFunction(1, math_gamma.lgamma),
    "log": MathFunction(1, math_log.log),
    "log10": MathFunction(1, math_log.log10),
    "log1p": MathFunction(1, math_log.log1p),
    "log2": MathFunction(1, math_log.log2),
    "pow": MathFunction(2, math_power.pow),
    "rint": MathFunction(1, round_even),
    "round": MathFunction(1, math_power.round_half_away),
    "rsqrt": MathFunction(1, math_power.rsqrt),
    "sin": MathFunction(1, math_trig.sin),
    "sinh": MathFunction(1, math_exp.sinh),
    "sqrt": MathFunction(1, sqrt),
    "tan": MathFunction(1, math_trig.tan),
    "tanh": MathFunction(1, math_exp.tanh),
    "tgamma": MathFunction(1, math_gamma.tgamma),
}


def emit_math(b: Builder, name: str, args: Sequence[Val]) -> Val:
    """Append the function `name` of `args` and return its result.

    The arguments, scalars or vectors, are all of one type with elements `float` or `double`; the
    result has that type too.  Narrower formats are the caller's to widen.

    Raises InternalError for an unknown name or other arguments.
    """
    function = FUNCTIONS.get(name)
    if function is None:
        raise InternalError(f"no math function {name!r}; there are {', '.join(FUNCTIONS)}")
    types = {a.type for a in args}
    if len(args) != function.arity or len(types) != 1 or args[0].type.elem not in FORMATS:
        got = ", ".join(str(a.type) for a in args)
        raise InternalError(
            f"math function {name!r} takes {function.arity} of float or double, got ({got})"
        )
    return function.emit(*(Num(b, a) for a in args)).val
