"""Mathematics beyond `tl.math`, under the names of CUDA's libdevice.

The table below makes one function a row.  Each takes tensors or numbers and computes elementwise,
in the dtype of its operands.
"""

from __future__ import annotations

from collections.abc import Callable

from deuteron.dtypes import integer
from deuteron.lang.context import Context, builtin
from deuteron.lang.math import sqrt_rn as sqrt_rn
from deuteron.lang.semantic import arith, casts
from deuteron.lang.values import Operand, Tensor

Unary = Callable[[Operand], Tensor]
Binary = Callable[[Operand, Operand], Tensor]


def _unary(name: str, doc: str, op: str = "") -> Unary:
    def function(ctx: Context, x: Operand) -> Tensor:
        return arith.float_unary(ctx, op or name, x)

    function.__name__, function.__doc__ = name, doc
    return builtin(function)


def _binary(name: str, doc: str, op: str = "") -> Binary:
    def function(ctx: Context, x: Operand, y: Operand) -> Tensor:
        return arith.float_binary(ctx, op or name, x, y)

    function.__name__, function.__doc__ = name, doc
    return builtin(function)


def _rounded(name: str, op: str, doc: str) -> Binary:
    def function(ctx: Context, x: Operand, y: Operand) -> Tensor:
        with ctx.ieee_arithmetic():
            return arith.float_binary(ctx, op, x, y)

    function.__name__, function.__doc__ = name, doc
    return builtin(function)


# -- powers, logarithms, roots -------------------------------------------------------------
exp = _unary("exp", "e to the power x.")
exp2 = _unary("exp2", "2 to the power x.")
exp10 = _unary("exp10", "10 to the power x.")
expm1 = _unary("expm1", "e to the power x, minus 1, exact near 0.")
log = _unary("log", "The natural logarithm.")
log2 = _unary("log2", "The logarithm to base 2.")
log10 = _unary("log10", "The logarithm to base 10.")
log1p = _unary("log1p", "The logarithm of 1 + x, exact near 0.")
sqrt = _unary("sqrt", "The square root.")
rsqrt = _unary("rsqrt", "One over the square root.")
rsqrt_rn = _unary("rsqrt_rn", "One over the square root.", "rsqrt")
cbrt = _unary("cbrt", "The cube root.")
pow = _binary("pow", "x to the power y, as in C.")
hypot = _binary("hypot", "The length of the vector (x, y).")
fast_expf = _unary("fast_expf", "e to the power x.", "exp")
fast_exp10f = _unary("fast_exp10f", "10 to the power x.", "exp10")
fast_logf = _unary("fast_logf", "The natural logarithm.", "log")
fast_log2f = _unary("fast_log2f", "The logarithm to base 2.", "log2")
fast_log10f = _unary("fast_log10f", "The logarithm to base 10.", "log10")
fast_powf = _binary("fast_powf", "x to the power y.", "pow")

# -- trigonometry --------------------------------------------------------------------------
sin = _unary("sin", "The sine of x radians.")
cos = _unary("cos", "The cosine of x radians.")
tan = _unary("tan", "The tangent of x radians.")
asin = _unary("asin", "The angle in [-π/2, π/2] whose sine is x.")
acos = _unary("acos", "The angle in [0, π] whose cosine is x.")
atan = _unary("atan", "The angle in [-π/2, π/2] whose tangent is x.")
atan2 = _binary("atan2", "The angle of the vector (y, x): atan2(x, y) has x as its ordinate.")
sinh = _unary("sinh", "The hyperbolic sine.")
cosh = _unary("cosh", "The hyperbolic cosine.")
tanh = _unary("tanh", "The hyperbolic tangent.")
asinh = _unary("asinh", "The inverse hyperbolic sine.")
acosh = _unary("acosh", "The inverse hyperbolic cosine.")
atanh = _unary("atanh", "The inverse hyperbolic tangent.")
fast_sinf = _unary("fast_sinf", "The sine of x radians.", "sin")
fast_cosf = _unary("fast_cosf", "The cosine of x radians.", "cos")
fast_tanf = _unary("fast_tanf", "The tangent of x radians.", "tan")
fast_tanhf = _unary("fast_tanhf", "The hyperbolic tangent.", "tanh")

# -- special functions ---------------------------------------------------------------------
erf = _unary("erf", "The error function.")
erfc = _unary("erfc", "1 - erf(x), exact where erf is near 1.")
erfinv = _unary("erfinv", "The x whose error function is the operand.")
lgamma = _unary("lgamma", "The logarithm of |Γ(x)|.")
tgamma = _unary("tgamma", "The gamma function Γ(x).")

# -- rounding ------------------------------------------------------------------------------
ceil = _unary("ceil", "The least whole number not below x.")
floor = _unary("floor", "The greatest whole number not above x.")
trunc = _unary("trunc", "x without its fraction.")
rint = _unary("rint", "The nearest whole number, ties to even.")
nearbyint = _unary("nearbyint", "The nearest whole number, ties to even.", "rint")
round = _unary("round", "The nearest whole number, ties away from zero.")

# -- arithmetic ----------------------------------------------------------------------------
fmod = _binary("fmod", "The remainder of x / y, with the sign of x.")
copysign = _binary("copysign", "|x| with the sign of y.")
div_rn = _rounded("div_rn", "div", "x / y, rounded to nearest.")
fast_dividef = _binary("fast_dividef", "x / y.", "div")
add_rn = _rounded("add_rn", "add", "x + y, rounded to nearest.")
sub_rn = _rounded("sub_rn", "sub", "x - y, rounded to nearest.")
mul_rn = _rounded("mul_rn", "mul", "x * y, rounded to nearest.")


@builtin
def abs(ctx: Context, x: Operand) -> Tensor:
    """|x| of floats and integers."""
    return arith.absolute(ctx, x)


@builtin
def min(ctx: Context, x: Operand, y: Operand) -> Tensor:
    """The lesser of x and y; a NaN operand loses."""
    return ctx.op("min", *arith.numbers(ctx, "min", x, y))


@builtin
def max(ctx: Context, x: Operand, y: Operand) -> Tensor:
    """The greater of x and y; a NaN operand loses."""
    return ctx.op("max", *arith.numbers(ctx, "max", x, y))


@builtin
def fma(ctx: Context, x: Operand, y: Operand, z: Operand) -> Tensor:
    """x * y + z, rounded once."""
    return arith.fma(ctx, x, y, z)


@builtin
def fma_rn(ctx: Context, x: Operand, y: Operand, z: Operand) -> Tensor:
    """x * y + z, rounded once, to nearest."""
    return arith.fma(ctx, x, y, z)


@builtin
def rcp_rn(ctx: Context, x: Operand) -> Tensor:
    """1 / x, rounded to nearest."""
    with ctx.ieee_arithmetic():
        return arith.fdiv(ctx, 1.0, x, "rcp_rn")


@builtin
def fdim(ctx: Context, x: Operand, y: Operand) -> Tensor:
    """x - y where x is greater, else 0."""
    a, b = arith.numbers(ctx, "fdim", x, y)
    arith.require_float(ctx, "fdim", a)
    # Not max(a - b, 0): a NaN operand must stay.
    return arith.where(ctx, arith.compare(ctx, "<=", a, b), 0.0, arith.sub(ctx, a, b))


@builtin
def saturatef(ctx: Context, x: Operand) -> Tensor:
    """x limited to [0, 1]; NaN gives 0."""
    return arith.clamp(ctx, x, 0.0, 1.0)


# -- questions about floats ----------------------------------------------------------------
def _float_tensor(ctx: Context, name: str, x: Operand) -> Tensor:
    tensor = casts.to_tensor(ctx, float(x) if isinstance(x, int) else x)
    arith.require_float(ctx, name, tensor)
    return tensor


@builtin
def isnan(ctx: Context, x: Operand) -> Tensor:
    """Whether x is not a number; int1."""
    value = _float_tensor(ctx, "isnan", x)
    return arith.compare(ctx, "!=", value, value)


@builtin
def isinf(ctx: Context, x: Operand) -> Tensor:
    """Whether x is an infinity; int1."""
    size = arith.absolute(ctx, _float_tensor(ctx, "isinf", x))
    return arith.compare(ctx, "==", size, float("inf"))


@builtin
def isfinited(ctx: Context, x: Operand) -> Tensor:
    """Whether x is neither NaN nor an infinity; int1."""
    size = arith.absolute(ctx, _float_tensor(ctx, "isfinited", x))
    return arith.compare(ctx, "<", size, float("inf"))


@builtin
def finitef(ctx: Context, x: Operand) -> Tensor:
    """Whether x is neither NaN nor an infinity; int1."""
    size = arith.absolute(ctx, _float_tensor(ctx, "finitef", x))
    return arith.compare(ctx, "<", size, float("inf"))


@builtin
def signbit(ctx: Context, x: Operand) -> Tensor:
    """Whether the sign bit of x is set, as for -0.0 too; int1."""
    value = _float_tensor(ctx, "signbit", x)
    bits = casts.bitcast(ctx, value, integer(value.number.bits))
    return arith.compare(ctx, "<", bits, 0)
