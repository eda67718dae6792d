"""Error functions: erf, erfc, erfinv.

All polynomials are minimax fits (Remez).  erf has its own polynomials in float; the other two
evaluate float arguments in double.
"""

from __future__ import annotations

import math

from deuteron.backends.llvm.math_core import (
    Num,
    at_most,
    copysign,
    fma,
    poly,
    sqrt,
    through_double,
    where,
)
from deuteron.backends.llvm.math_exp import exp_sum
from deuteron.backends.llvm.math_log import log

# erf x / x - 1 in x².  Float: |x| <= 1.05; double: |x| <= 1.  Relative error of erf 2^-28.5 and
# 2^-55.6.
_ERF_INNER = {
    "float": (
        0.128379166, -0.3761262, 0.11283493, -0.026849363, 0.00517907972, -0.000792344275,
        7.55230649e-05,
    ),
    "double": (
        0.12837916709551256, -0.37612638903183343, 0.11283791670936953, -0.026866170641960258,
        0.005223977596750612, -0.0008548325485984769, 0.00012055280534607242,
        -1.4924466534771583e-05, 1.6444163613361629e-06, -1.61841059649235e-07,
        1.3617257912510643e-08, -7.608965841243389e-10,
    ),
}  # fmt: skip

# erf x in x - 2.375, 1.05 <= x <= 3.95; error 2^-24.9.  At 3.94 it gives exactly 1.
_ERF_OUTER = (
    0.999217093, 0.00400657393, -0.00951671693, 0.0137289008, -0.0131229619, 0.00836394075,
    -0.00314420415, 0.00011385409, 0.000636898854, -0.000333874079, 2.30387741e-05,
    3.46369197e-05, -9.02734428e-06,
)  # fmt: skip

# (1 + 2 x) e^x² erfc x in (x - 4) / (x + 4), 0 <= x <= 27.3; relative error 2^-54.5.
_ERFC = (
    1.2329951186255526, -0.13962111684056253, 0.01537965210260627, 0.06809705425469424,
    -0.10103906603564573, 0.0937328349983069, -0.0663303658247947, 0.03716751553787358,
    -0.01619773393400123, 0.005031969977098276, -0.000757774007102281, -0.0001992567017735297,
    0.00015062432969965375, -2.4399144139661464e-05, -1.1228557056841945e-05,
    5.709377254815626e-06, 3.047189766251452e-07, -8.242272474559311e-07, 6.243828397513976e-08,
    1.0757113211285858e-07, -9.557120224499443e-09, -1.133111111394747e-08,
    -8.278724018121775e-10,
)  # fmt: skip

# erfinv x / x in w - 3.125, w = -log(1 - x²) <= 6.25; relative error 2^-55.8.
_ERFINV_CENTER = (
    1.6536545626831027, 0.24015818242558834, -0.006033670871427536, -0.0007407025341546654,
    0.00018673420802309095, -1.3882523393789921e-05, -1.3654691820218809e-06,
    4.2347881648914503e-07, -2.9070385334646483e-08, -4.11266012678772e-09,
    1.0512199893488953e-09, -5.4143195346245826e-11, -1.297758130574428e-11,
    2.630578815084662e-12, -8.101032429581159e-14, -4.0030576211706246e-14,
    6.567495853363851e-15, -3.803967074676319e-17, -1.2699173099620097e-16,
    1.5402220965471826e-17, 9.287018516972676e-19, -3.4248251710148915e-19,
    7.735124334939073e-21, 3.1002317589530056e-21, -1.5464825537817405e-22,
)  # fmt: skip

# The same in √w - 3.25 for 2.5 <= √w <= 4, and in √w - 5.04 up to 6.08; 2^-52.9 and 2^-54.0.
_ERFINV_MIDDLE = (
    3.0838856104922203, 1.0052589676941652, 0.005370914553631569, -0.003751208508050923,
    0.0024914420947853033, -0.0016882755451745582, 0.0009532893987290838,
    -0.0003550376314208765, 2.4030959839479563e-05, 6.828546358614576e-05,
    -4.731751887418004e-05, 1.247336626252456e-05, 2.921409090492384e-06,
    -4.010337606845781e-06, 1.5062115986630176e-06, 1.4802128779844147e-08,
    -2.784051514968364e-07, 9.214329966566836e-08, 3.476371096492595e-09,
)  # fmt: skip
_ERFINV_TAIL = (
    4.89031818448288, 1.0102883543801167, -0.00016380580276995166, -0.00020318007799096136,
    7.216536594284742e-05, -1.8628084128996472e-05, 4.257909131215467e-06,
    -9.234127403031165e-07, 2.0670949025149303e-07, -5.718754910538395e-08,
    2.2970404372075398e-08, -1.1905911967790554e-08, 6.349891954675645e-09,
    -2.801930630435139e-09, 9.326378677385199e-10, -3.878357684191693e-10,
    1.5784403539114934e-10, 2.920441269170991e-11, -3.289885656192246e-11,
)  # fmt: skip


def erf(x: Num) -> Num:
    """The error function."""
    a = abs(x)
    elem = x.format.elem
    inner = fma(poly(x * x, _ERF_INNER[elem]), x, x)
    if elem == "float":
        edge, outer = 1.05, poly(at_most(a, 3.94) - 2.375, _ERF_OUTER)
    else:
        edge, outer = 1.0, 1.0 - _erfc_positive(a)
    return where(a < edge, inner, copysign(outer, x))


def erfc(x: Num) -> Num:
    """1 - erf x, without cancellation for large x."""
    return through_double(_erfc)(x)


def erfinv(x: Num) -> Num:
    """The y whose erf is x."""
    return through_double(_erfinv)(x)


def _erfc(x: Num) -> Num:
    positive = _erfc_positive(abs(x))
    return where(x < 0.0, 2.0 - positive, positive)


def _erfc_positive(a: Num) -> Num:
    """erfc a for a >= 0."""
    a = at_most(a, 27.3)  # the result is 0 from 27.23 on
    # (a - 4) / (a + 4), written so that it is most exact where the polynomial is steepest.
    q = fma(a + a, 1.0 / (a + 4.0), -1.0)
    # e^-a² with what the square lost in rounding.
    square = a * a
    gauss = exp_sum(-square, fma(a, -a, square))
    return poly(q, _ERFC) / fma(a, 2.0, 1.0) * gauss


def _erfinv(x: Num) -> Num:
    w = -log(fma(x, -x, 1.0))
    s = sqrt(w)
    center, middle = poly(w - 3.125, _ERFINV_CENTER), poly(s - 3.25, _ERFINV_MIDDLE)
    outer = where(s < 4.0, middle, poly(s - 5.04, _ERFINV_TAIL))
    ratio = where(w < 6.25, center, outer)
    return where(w.eq(math.inf), copysign(math.inf, x), x * ratio)
