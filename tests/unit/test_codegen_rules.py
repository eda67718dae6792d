"""Rules of the language that Python does not have: constants, unrolling, calls, places, names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deuteron.language as tl
from deuteron.backends.interp import run
from deuteron.dtypes import int64
from deuteron.ir import For, If, Type, walk
from deuteron.lang.codegen import Argument
from deuteron.lang.constexpr_function import constexpr_function
from deuteron.lang.jit import jit
from deuteron.lang.values import constexpr
from tests.unit.lowered import F32, F32_PTR, I32, I32_PTR, I64_PTR, build

THREE = tl.constexpr(3)
FOUR: tl.constexpr = 4


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


@jit
def announced(out_ptr):
    n: tl.constexpr
    m, n = 2, 4
    tl.store(out_ptr, tl.sum(tl.arange(0, n), axis=0) + m)


def test_annotation_without_a_value_holds_for_the_next_assignment() -> None:
    out = np.zeros(1, np.int32)
    run(build(announced, out_ptr=I32_PTR), [out], (1, 1, 1))
    assert out[0] == 6 + 2


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
