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
from deuteron.dtypes import float32, int32, int64
from deuteron.ir import For, Function, If, Pointer, Type, verify, walk
from deuteron.lang.codegen import Argument, lower_kernel
from deuteron.lang.constexpr_function import constexpr_function
from deuteron.lang.jit import jit
from deuteron.lang.values import constexpr

I32 = Argument(Type(int32))
F32 = Argument(Type(float32))
I32_PTR = Argument(Type(Pointer(int32)))
I64_PTR = Argument(Type(Pointer(int64)))
F32_PTR = Argument(Type(Pointer(float32)))

Pair = namedtuple("Pair", ["first", "second"])
THREE = tl.constexpr(3)
FOUR: tl.constexpr = 4  # type: ignore[valid-type]


@jit
def apply(out_ptr, a, b, FUNCTION: tl.constexpr):
    tl.store(out_ptr, FUNCTION(a, b))


def build(kernel: Any, **arguments: object) -> Function:
    function = lower_kernel(kernel, arguments)
    verify(function)
    return function


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
        return undefined_name  # type: ignore[name-defined] # noqa: F821
    c: Any = None
    if c is None:
        c = 4
    if c is not None:
        return c + a
    return undefined_name  # type: ignore[name-defined] # noqa: F821


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


# -- constants and tensors ---------------------------------------------------------------------
@jit
def static_shapes(out_ptr, BLOCK: tl.constexpr):
    HALF: tl.constexpr = BLOCK // 2
    shape = (HALF, THREE + 1)
    x = tl.zeros(shape, tl.int32) + tl.arange(0, FOUR)[None, :]
    tl.static_assert(x.shape[0] == 4 and x.dtype == tl.int32)
    tl.store(out_ptr, tl.sum(tl.sum(x, axis=1), axis=0))


def test_annotated_names_and_tuples_stay_constants() -> None:
    out = np.zeros(1, np.int32)
    run(build(static_shapes, out_ptr=I32_PTR, BLOCK=constexpr(8)), [out], (1, 1, 1))
    assert out[0] == 4 * (0 + 1 + 2 + 3)


@jit
def unrolled(out_ptr, N: tl.constexpr):
    for i in tl.static_range(N, 0, -1):
        size: tl.constexpr = 1 << i
        tl.store(out_ptr + tl.arange(0, size), tl.full((size,), i, tl.int32))
    tl.store(out_ptr, i)


def test_static_range_is_unrolled_with_constant_counters() -> None:
    function = build(unrolled, out_ptr=I32_PTR, N=constexpr(3))
    assert not any(isinstance(node, For) for node in walk(function.body))
    out = np.zeros(8, np.int32)
    run(function, [out], (1, 1, 1))
    assert out.tolist() == [1, 1, 2, 2, 3, 3, 3, 3]


@jit
def factorial(n: tl.constexpr):
    if n <= 1:
        return 1
    return n * factorial(n - 1)


@jit
def recursive_kernel(out_ptr):
    tl.store(out_ptr, factorial(6))


def test_recursion_on_a_constant_ends() -> None:
    out = np.zeros(1, np.int32)
    run(build(recursive_kernel, out_ptr=I32_PTR), [out], (1, 1, 1))
    assert out[0] == 720


@constexpr_function
def log2_of(n):
    return n.bit_length() - 1


@jit
def constexpr_call(out_ptr, N: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.arange(0, log2_of(N) + 1), axis=0))


def test_constexpr_function_runs_at_compile_time() -> None:
    out = np.zeros(1, np.int32)
    run(build(constexpr_call, out_ptr=I32_PTR, N=constexpr(128)), [out], (1, 1, 1))
    assert out[0] == sum(range(8))


@jit
def optional_pointer(out_ptr, bias_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = at.to(tl.float32)
    if bias_ptr is not None:
        x += tl.load(bias_ptr + at)
    tl.store(out_ptr + at, x)


@pytest.mark.parametrize("with_bias", [True, False])
def test_none_argument_is_static(with_bias: bool) -> None:
    out, bias = np.zeros(4, np.float32), np.full(4, 0.5, np.float32)
    bias_ptr: object = F32_PTR if with_bias else constexpr(None)
    function = build(optional_pointer, out_ptr=F32_PTR, bias_ptr=bias_ptr, N=constexpr(4))
    run(function, [out, bias] if with_bias else [out], (1, 1, 1))
    np.testing.assert_array_equal(out, np.arange(4) + 0.5 * with_bias)


@jit
def specialised_one(out_ptr, n):
    while n < 10:
        n = n * 3
    tl.store(out_ptr, n)


@pytest.mark.parametrize("n", [1, 2])
def test_argument_specialised_to_one_may_be_carried(n: int) -> None:
    out = np.zeros(1, np.int32)
    function = build(specialised_one, out_ptr=I32_PTR, n=constexpr(1) if n == 1 else I32)
    run(function, [out] if n == 1 else [out, n], (1, 1, 1))
    assert out[0] == {1: 27, 2: 18}[n]


@jit
def tuple_arguments(pointers, values, scale):
    for i in tl.static_range(len(pointers)):
        tl.store(pointers[i], values[i] * scale)


def test_tuple_arguments() -> None:
    first, second = np.zeros(1, np.int32), np.zeros(1, np.int32)
    function = build(
        tuple_arguments,
        pointers=(I32_PTR, I32_PTR),
        values=(I32, constexpr(1)),
        scale=constexpr(5),
    )
    assert [p.name for p in function.params] == ["pointers.0", "pointers.1", "values.0"]
    run(function, [first, second, 7], (1, 1, 1))
    assert (first[0], second[0]) == (35, 5)


# -- calls -------------------------------------------------------------------------------------
@jit
def variadic(a, b=2, *rest, scale: tl.constexpr = 10):
    total = a + b
    for i in tl.static_range(len(rest)):
        total += rest[i] * scale
    return total, a


@jit
def calls(out_ptr, x):
    more = (x, 4)
    first, _ = variadic(x)
    second, _ = variadic(x, 3, *more)
    third, back = variadic(b=x, a=1, scale=2)
    tl.store(out_ptr, first)
    tl.store(out_ptr + 1, second)
    tl.store(out_ptr + 2, third + back)


def test_defaults_spread_and_keyword_arguments() -> None:
    out = np.zeros(3, np.int32)
    run(build(calls, out_ptr=I32_PTR, x=I32), [out, 7], (1, 1, 1))
    assert out.tolist() == [7 + 2, 7 + 3 + 70 + 40, 7 + 1 + 1]


@jit
def divide(a, b):
    return a // b, a % b


@jit
def division_kernel(out_ptr, a, b, A: tl.constexpr, B: tl.constexpr):
    q, r = divide(a, b)
    tl.store(out_ptr, q)
    tl.store(out_ptr + 1, r)
    q, r = divide(A, B)
    tl.store(out_ptr + 2, q)
    tl.store(out_ptr + 3, r)


def test_division_truncates_on_tensors_and_floors_on_constants() -> None:
    out = np.zeros(4, np.int32)
    function = build(
        division_kernel, out_ptr=I32_PTR, a=I32, b=I32, A=constexpr(-7), B=constexpr(2)
    )
    run(function, [out, -7, 2], (1, 1, 1))
    assert out.tolist() == [-3, -1, -4, 1]


@jit
def halve(x):
    if x > 1.0:
        return x * 0.5
    return 0


@jit
def return_promotes(out_ptr, x):
    tl.store(out_ptr, halve(x))


@pytest.mark.parametrize("x", [3.0, 0.5])
def test_constant_return_takes_the_type_of_the_other_path(x: float) -> None:
    out = np.full(1, 9, np.float32)
    run(build(return_promotes, out_ptr=F32_PTR, x=F32), [out, x], (1, 1, 1))
    assert out[0] == (x * 0.5 if x > 1 else 0)


# -- loops -------------------------------------------------------------------------------------
@jit
def wide_counter(out_ptr, start, n):
    last = start
    for i in range(start, start + n):
        last = i
    tl.store(out_ptr, last)


def test_counter_has_the_promoted_dtype_of_the_bounds() -> None:
    out = np.zeros(1, np.int64)
    start = Argument(Type(int64))
    run(build(wide_counter, out_ptr=I64_PTR, start=start, n=I32), [out, 2**40, 3], (1, 1, 1))
    assert out[0] == 2**40 + 2


@jit
def hinted(out_ptr, n):
    total = 0
    for i in tl.range(0, n, num_stages=2, loop_unroll_factor=4):
        total += i
    tl.store(out_ptr, total)


def test_loop_hints_reach_the_ir() -> None:
    function = build(hinted, out_ptr=I32_PTR, n=I32)
    (loop,) = [node for node in walk(function.body) if isinstance(node, For)]
    assert loop.attrs == {"num_stages": 2, "loop_unroll_factor": 4}


@jit
def carried_pointer(out_ptr, x_ptr, n):
    total = tl.zeros((4,), tl.int32)
    for _ in range(n):
        total += tl.load(x_ptr + tl.arange(0, 4))
        x_ptr += 4
    tl.store(out_ptr + tl.arange(0, 4), total)


def test_pointers_and_tiles_are_carried() -> None:
    out, x = np.zeros(4, np.int32), np.arange(12, dtype=np.int32)
    function = build(carried_pointer, out_ptr=I32_PTR, x_ptr=I32_PTR, n=I32)
    run(function, [out, x, 3], (1, 1, 1))
    np.testing.assert_array_equal(out, x.reshape(3, 4).sum(axis=0))


@jit
def unchanged_names(out_ptr, x_ptr, n, FLAG: tl.constexpr):
    mask = None
    for _ in range(n):
        if FLAG:
            mask = tl.arange(0, 4) < n
        tl.store(out_ptr + tl.arange(0, 4), tl.load(x_ptr + tl.arange(0, 4), mask=mask))


def test_none_stays_none_in_a_loop_that_does_not_set_it() -> None:
    out, x = np.zeros(4, np.int32), np.arange(4, dtype=np.int32)
    function = build(unchanged_names, out_ptr=I32_PTR, x_ptr=I32_PTR, n=I32, FLAG=constexpr(False))
    run(function, [out, x, 1], (1, 1, 1))
    np.testing.assert_array_equal(out, x)


# -- statements --------------------------------------------------------------------------------
@jit
def early_exit_kernel(out_ptr, n):
    pid = tl.program_id(0)
    if pid >= n:
        return
    tl.store(out_ptr + pid, pid + 1)


def test_kernel_returns_early_without_a_copy_of_the_rest() -> None:
    function = build(early_exit_kernel, out_ptr=I32_PTR, n=I32)
    (branch,) = [node for node in walk(function.body) if isinstance(node, If)]
    assert branch.then.nodes == []
    out = np.zeros(4, np.int32)
    run(function, [out, 2], (4, 1, 1))
    assert out.tolist() == [1, 2, 0, 0]


@jit
def after_static_return(out_ptr, DONE: tl.constexpr):
    tl.store(out_ptr, 1)
    if DONE:
        return
    tl.store(out_ptr, undefined_name)  # noqa: F821


def test_code_after_a_static_return_is_not_compiled() -> None:
    out = np.zeros(1, np.int32)
    run(build(after_static_return, out_ptr=I32_PTR, DONE=constexpr(True)), [out], (1, 1, 1))
    assert out[0] == 1


@jit
def prints(x, N: tl.constexpr):
    print(f"x of {N:>3}, {tl.float32}", x)
    print(x)
    assert x > N, f"x <= {N}"


def test_print_and_assert_become_device_calls(capsys: pytest.CaptureFixture[str]) -> None:
    function = build(prints, x=I32, N=constexpr(2))
    run(function, [5], (1, 1, 1))
    printed = capsys.readouterr().out
    assert "x of   2, float32" in printed
    assert printed.count("5") == 2


def make_scaled(scale: tl.constexpr) -> Any:
    @jit
    def scaled(out_ptr, x):
        tl.store(out_ptr, x * scale)

    return scaled


def test_closures_over_constants() -> None:
    out = np.zeros(1, np.int32)
    for scale in (3, 5):
        kernel = make_scaled(tl.constexpr(scale))
        run(build(kernel, out_ptr=I32_PTR, x=I32), [out, 7], (1, 1, 1))
        assert out[0] == 7 * scale


def test_values_are_named_after_their_first_assignment() -> None:
    function = build(early_exit_kernel, out_ptr=I32_PTR, n=I32)
    assert function.body.nodes[0].results[0].name == "pid"


def test_places_of_inlined_code_know_their_caller() -> None:
    function = build(return_promotes, out_ptr=F32_PTR, x=F32)
    (branch,) = [node for node in walk(function.body) if isinstance(node, If)]
    assert branch.loc.function == "halve"
    assert branch.loc.caller is not None
    assert branch.loc.caller.function == "return_promotes"
    assert branch.loc.source_line.strip() == "if x > 1.0:"
