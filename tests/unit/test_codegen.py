"""What Python means in a kernel: the same functions, run by Python and as compiled kernels.

Each function of `PROGRAMS` is called by Python with ints, and by a kernel on the interpreter with
run-time scalars and with constants; all three must agree.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import deuteron.language as tl
from deuteron.backends.interp import run
from deuteron.lang.jit import jit
from deuteron.lang.values import constexpr
from tests.unit.lowered import I32, I32_PTR, build

Pair = namedtuple("Pair", ["first", "second"])


@jit
def apply(out_ptr, a, b, FUNCTION: tl.constexpr):
    tl.store(out_ptr, FUNCTION(a, b))


def on_interpreter(function: Any, a: int, b: int, *, constant: bool = False) -> int:
    """What `function(a, b)` gives in a kernel."""
    out = np.full(1, -12345, np.int32)
    if constant:
        built = build(
            apply, out_ptr=I32_PTR, a=constexpr(a), b=constexpr(b), FUNCTION=constexpr(function)
        )
        run(built, [out], (1, 1, 1))
    else:
        built = build(apply, out_ptr=I32_PTR, a=I32, b=I32, FUNCTION=constexpr(function))
        run(built, [out, a, b], (1, 1, 1))
    return int(out[0])


# -- programs that Python runs too -------------------------------------------------------------
def choose(a, b):
    if a < b:
        c = a + 1
    elif a == b:
        c = a * 10
    else:
        c = b - 1
    return c


def keep_or_change(a, b):
    c = a
    if a > b:
        c = b
    return c * 2 + a


def early_return(a, b):
    if a < 0:
        return -1
    if b < 0:
        return -2
    c = a * b
    return c + 1


def nested_return(a, b):
    c = 5
    if a > 2:
        if b > 2:
            return a * 100 + b
        c = c + a
    else:
        c = c * 2
        if b == 0:
            return c
    c += 1
    return c


def return_then_else(a, b):
    if a > b:
        return a
    else:
        b = b + a
    return b


def count_up(a, b):
    total = 0
    for i in range(a, b):
        total += i * i
    return total


def count_down(a, b):
    total = 1
    for i in range(b, a, -2):
        total = total * 3 + i
    return total


def two_carried(a, b):
    x, y = 0, 1
    for _ in range(a):
        x, y = y, x + y
    return x * 1000 + y + b


def nested_loops(a, b):
    total = 0
    for i in range(a):
        inner = 0
        for j in range(b):
            inner += i * j
        total += inner
    return total


def loop_with_branch(a, b):
    even, odd = 0, 0
    for i in range(a):
        if i % 2 == 0:
            even += i
        else:
            odd += i * b
    return even * 1000 + odd


def collatz(a, b):
    steps = 0
    n = a + 1
    while n != 1 and steps < 200:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps + b


def gcd(a, b):
    x, y = a, b
    while y > 0:
        x, y = y, x % y
    return x


def while_never(a, b):
    n = a
    while n > 1000:
        n = n - 1
    return n + b


def carried_tuple(a, b):
    state = (a, b)
    for i in range(4):
        state = (state[1], state[0] + i)
    return state[0] * 1000 + state[1]


def chained(a, b):
    c = 7
    if 0 < a < b <= 10 != 3:
        c = 8
    return c


def middle_of_chain_once(a, b):
    return (1 if a < (c := b + 1) < 20 else 0) + c


def conditional(a, b):
    return (a if a > b else b) * 10 + (1 if b > 3 else 0)


def walrus(a, b):
    if (c := a * 2) > b:
        c = c + 100
    return c


def logic(a, b):
    c = 1 if a > 1 and b > 1 else 0
    d = 2 if a > 1 or b > 1 else 0
    e = 4 if not a > 1 else 0
    return c + d + e


def constant_logic(a, b):
    c = (0 and a) or 5
    d = 3 and 4
    e = None or 6
    return c * 100 + d * 10 + e


def bits(a, b):
    c = ((a & 6) | (b << 2)) ^ 5
    c >>= 1
    c |= 64
    return ~c + (-a) + (+b)


def extremes(a, b):
    return min(a, b) * 100 + max(a, b, 4) + min((7, 5)) + abs(a - b)


def unpacking(a, b):
    (x, y), z = (a, b), 3
    x, y = y, x
    w = v = z + 1
    return x * 100 + y * 10 + w - v


def tuples(a, b):
    t = (a, b, 9)
    u = t[:2] + (4,)
    last = t[-1]
    return len(u) * 1000 + u[0] * 100 + u[2] * 10 + last


def comprehension(a, b):
    squares = tuple([x * x for x in (a, b, 3)])
    odd = [i for i in range(6) if i % 2 == 1]
    return squares[0] + squares[1] * 10 + squares[2] * 100 + odd[2]


def named_tuples(a, b):
    pair = Pair(a, second=b)
    x, y = pair
    return pair.first * 10 + pair.second + x - y


def asked(a, b):
    c = 0
    t = (a, b)
    if isinstance(t, tuple) and len(t) == 2:
        c += 1
    if hasattr(Pair, "_fields"):
        c += 2
    if getattr(a, "no_such_thing", None) is None:
        c += 4
    return c + int(2.9) + int(bool(3)) + len(str(12))


def dead_branch(a, b):
    if None:
        return undefined_name  # noqa: F821
    c: Any = None
    if c is None:
        c = 4
    if c is not None:
        return c + a
    return undefined_name  # noqa: F821


def annotated(a, b):
    c: int = a
    d: Any
    d = c + b
    return d


def docstring_and_pass(a, b):
    """Nothing."""
    pass
    ...
    return a


def same_name_after_loop(a, b):
    total = 0
    for k in range(a):
        total += k
    for k in range(b):
        total += 10 * k
    return total


def set_in_both(a, b):
    if a > b:
        x, y = 1, a
    else:
        y = b
        x = 2
    return x * 100 + y


PROGRAMS = [
    choose, keep_or_change, early_return, nested_return, return_then_else, count_up, count_down,
    two_carried, nested_loops, loop_with_branch, collatz, gcd, while_never, carried_tuple, chained,
    middle_of_chain_once, conditional, walrus, logic, constant_logic, bits, extremes, unpacking,
    tuples, comprehension, named_tuples, asked, dead_branch, annotated, docstring_and_pass,
    same_name_after_loop, set_in_both,
]  # fmt: skip
INPUTS = [(0, 0), (1, 5), (5, 1), (3, 3), (7, 9), (6, 4), (-2, 3), (4, -3)]
NEEDS_NATURAL = {collatz, gcd}  # `//` and `%` round differently below zero


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("constant", [False, True], ids=["run time", "constants"])
def test_program_agrees_with_python(program: Callable[..., Any], constant: bool) -> None:
    function = jit(program)
    for a, b in INPUTS:
        if program in NEEDS_NATURAL and min(a, b) < 0:
            continue
        assert on_interpreter(function, a, b, constant=constant) == program(a, b), (a, b)
