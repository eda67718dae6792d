# ruff: noqa
"""Kernels with one mistake each; `test_errors.py` compares what the compiler says about them.

Every kernel takes a float32 pointer, an int32 and a constexpr.
"""

import math
from collections import namedtuple

import deuteron.language as tl
from deuteron.lang.jit import jit

PLAIN_NUMBER = 128
A_LIST = [1, 2]
BLOCK = tl.constexpr(16)


def plain_function(x):
    return x + 1


# -- names -------------------------------------------------------------------------------------
@jit
def undefined_name(x_ptr, n, B: tl.constexpr):
    offsets = tl.arange(0, B)
    tl.store(x_ptr + offset, 1.0)


@jit
def undefined_far_from_any(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, qqq)


@jit
def misspelt_function(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr + tl.aranje(0, B), 1.0)


@jit
def global_number(x_ptr, n, B: tl.constexpr):
    offsets = tl.program_id(0) * PLAIN_NUMBER + tl.arange(0, B)
    tl.store(x_ptr + offsets, 1.0)


@jit
def global_list(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, A_LIST[0])


@jit
def global_function(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, plain_function(1.0))


@jit
def set_in_one_branch(x_ptr, n, B: tl.constexpr):
    if n > 0:
        scale = 2.0
    tl.store(x_ptr, scale)


@jit
def set_in_loop(x_ptr, n, B: tl.constexpr):
    for i in range(n):
        last = i * 2
    tl.store(x_ptr, last)


@jit
def counter_after_loop(x_ptr, n, B: tl.constexpr):
    for i in range(n):
        tl.store(x_ptr + i, 0.0)
    tl.store(x_ptr, i)


@jit
def used_before_set(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, later)
    later = 1.0


@jit
def set_in_condition(x_ptr, n, B: tl.constexpr):
    while (m := n + 1) < 10:
        n += m


# -- constexprs --------------------------------------------------------------------------------
@jit
def demoted_constexpr(x_ptr, n, B: tl.constexpr):
    size = B * 4
    tl.store(x_ptr + tl.arange(0, size), 1.0)


@jit
def demoted_through_arithmetic(x_ptr, n, B: tl.constexpr):
    half = B // 2
    x = tl.zeros((B, half * 4), tl.float32)


@jit
def demoted_name_not_to_blame(x_ptr, n, B: tl.constexpr):
    three = 3
    x = tl.full((n,), three, tl.int32)


@jit
def runtime_shape(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, n), 1.0)


@jit
def annotated_with_runtime_value(x_ptr, n, B: tl.constexpr):
    size: tl.constexpr = n * 2


@jit
def constexpr_declared_twice(x_ptr, n, B: tl.constexpr):
    size: tl.constexpr = B
    size: tl.constexpr = B * 2


@jit
def constexpr_changed_in_loop(x_ptr, n, B: tl.constexpr):
    for _ in range(n):
        B = B * 2


@jit
def takes_constexpr(x, SIZE: tl.constexpr):
    return x + SIZE


@jit
def tensor_for_constexpr_parameter(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, takes_constexpr(1.0, n))


@jit
def static_range_of_tensor(x_ptr, n, B: tl.constexpr):
    for i in tl.static_range(n):
        tl.store(x_ptr + i, 0.0)


@jit
def fstring_of_tensor(x_ptr, n, B: tl.constexpr):
    print(f"n is {n}")


@jit
def failed_static_assert(x_ptr, n, B: tl.constexpr):
    tl.static_assert(B % 32 == 0, "B must be a multiple of 32")


# -- types that change -------------------------------------------------------------------------
@jit
def carried_number_changes_type(x_ptr, n, B: tl.constexpr):
    acc = 0
    for i in range(n):
        acc += 0.5
    tl.store(x_ptr, acc)


@jit
def carried_scalar_becomes_tile(x_ptr, n, B: tl.constexpr):
    acc = 0.0
    for i in range(n):
        acc += tl.load(x_ptr + tl.arange(0, B))


@jit
def carried_dtype_widens(x_ptr, n, B: tl.constexpr):
    acc = tl.zeros((B,), tl.float16)
    while n > 0:
        acc = acc + tl.load(x_ptr + tl.arange(0, B))
        n -= 1


@jit
def carried_none(x_ptr, n, B: tl.constexpr):
    best = None
    for i in range(n):
        best = tl.load(x_ptr + i)


@jit
def carried_tuple_grows(x_ptr, n, B: tl.constexpr):
    seen = (0, 0)
    for i in range(n):
        seen = (i, i, i)


@jit
def branches_differ(x_ptr, n, B: tl.constexpr):
    if n > 0:
        scale = 2.0
    else:
        scale = 2
    tl.store(x_ptr, scale)


@jit
def changed_in_branch(x_ptr, n, B: tl.constexpr):
    x = tl.load(x_ptr)
    if n > 0:
        x = tl.load(x_ptr + tl.arange(0, B))
    tl.store(x_ptr, x)


@jit
def conditional_differs(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, tl.load(x_ptr) if n > 0 else n)


@jit
def returns_differ(n):
    if n > 0:
        return n
    return n * 0.5


@jit
def calls_returns_differ(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, returns_differ(n))


@jit
def returns_sometimes(n):
    if n > 0:
        return n


@jit
def calls_returns_sometimes(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, returns_sometimes(n))


@jit
def kernel_returns(x_ptr, n, B: tl.constexpr):
    return tl.load(x_ptr)


# -- shapes and dtypes -------------------------------------------------------------------------
@jit
def shapes_do_not_broadcast(x_ptr, n, B: tl.constexpr):
    x = tl.arange(0, B) + tl.arange(0, 2 * B)


@jit
def ranks_do_not_broadcast(x_ptr, n, B: tl.constexpr):
    rows = tl.arange(0, B)[:, None] * tl.arange(0, B)[None, :]
    x = rows + tl.arange(0, 2 * B)


@jit
def dot_of_wrong_shapes(x_ptr, n, B: tl.constexpr):
    a = tl.zeros((B, B), tl.float32)
    b = tl.zeros((2 * B, B), tl.float32)
    c = tl.dot(a, b)


@jit
def dot_of_wrong_dtypes(x_ptr, n, B: tl.constexpr):
    a = tl.zeros((B, B), tl.float32)
    c = tl.dot(a, a.to(tl.float16))


@jit
def dot_of_vectors(x_ptr, n, B: tl.constexpr):
    a = tl.zeros((B,), tl.float32)
    c = tl.dot(a, a)


@jit
def load_from_number(x_ptr, n, B: tl.constexpr):
    x = tl.load(n)


@jit
def wrong_dtype_of_operand(x_ptr, n, B: tl.constexpr):
    x = tl.load(x_ptr) & 1


@jit
def signedness_mixed(x_ptr, n, B: tl.constexpr):
    x = n // n.to(tl.uint32)


@jit
def assigned_item(x_ptr, n, B: tl.constexpr):
    x = tl.arange(0, B)
    x[0] = 1


# -- conditions and loops ----------------------------------------------------------------------
@jit
def tile_as_condition(x_ptr, n, B: tl.constexpr):
    if tl.arange(0, B) < n:
        tl.store(x_ptr, 1.0)


@jit
def function_as_condition(x_ptr, n, B: tl.constexpr):
    if tl.program_id:
        tl.store(x_ptr, 1.0)


@jit
def endless_loop(x_ptr, n, B: tl.constexpr):
    while True:
        n += 1


@jit
def float_bounds(x_ptr, n, B: tl.constexpr):
    for i in range(n / 2):
        tl.store(x_ptr + i, 0.0)


@jit
def zero_step(x_ptr, n, B: tl.constexpr):
    for i in range(0, n, 0):
        tl.store(x_ptr + i, 0.0)


@jit
def loop_over_tile(x_ptr, n, B: tl.constexpr):
    for i in tl.arange(0, B):
        tl.store(x_ptr, i)


@jit
def return_in_loop(x_ptr, n, B: tl.constexpr):
    for i in range(n):
        if i > 3:
            return


@jit
def loop_else(x_ptr, n, B: tl.constexpr):
    for i in range(n):
        tl.store(x_ptr + i, 0.0)
    else:
        tl.store(x_ptr, 1.0)


@jit
def two_counters(x_ptr, n, B: tl.constexpr):
    for i, j in range(n):
        pass


# -- statements and expressions that do not exist ------------------------------------------------
@jit
def has_try(x_ptr, n, B: tl.constexpr):
    try:
        tl.store(x_ptr, 1.0)
    except ValueError:
        pass


@jit
def has_import(x_ptr, n, B: tl.constexpr):
    import math


@jit
def has_global(x_ptr, n, B: tl.constexpr):
    global PLAIN_NUMBER
    PLAIN_NUMBER = 3


@jit
def has_with(x_ptr, n, B: tl.constexpr):
    with n:
        pass


@jit
def has_nested_function(x_ptr, n, B: tl.constexpr):
    def add(a, b):
        return a + b


@jit
def has_lambda(x_ptr, n, B: tl.constexpr):
    x = tl.reduce(tl.arange(0, B), 0, lambda a, b: a + b)


@jit
def has_dict(x_ptr, n, B: tl.constexpr):
    sizes = {"m": n}


@jit
def has_in(x_ptr, n, B: tl.constexpr):
    if B in (16, 32):
        tl.store(x_ptr, 1.0)


@jit
def has_star_assignment(x_ptr, n, B: tl.constexpr):
    first, *rest = (1, 2, 3)


@jit
def has_raise(x_ptr, n, B: tl.constexpr):
    raise ValueError("no")


@jit
def has_match(x_ptr, n, B: tl.constexpr):
    match n:
        case 1:
            pass


@jit
def has_double_star_call(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, 1.0, **n)


@jit
def unpacked_wrongly(x_ptr, n, B: tl.constexpr):
    a, b, c = n, B


# -- calls -------------------------------------------------------------------------------------
@jit
def inner(a, b):
    return a + b


@jit
def middle(a):
    return inner(a, tl.arange(0, 2) + tl.arange(0, 4))


@jit
def error_in_called_function(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, middle(n))


@jit
def too_few_arguments(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, inner(n))


@jit
def too_many_arguments(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, inner(n, n, n))


@jit
def unknown_argument(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, inner(n, c=n))


@jit
def builtin_called_wrongly(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, 1.0, masc=n > 0)


@jit
def endless(n):
    return endless(n) + 1


@jit
def endless_recursion(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, endless(n))


@jit
def number_called(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, n(3))


@jit
def kernel_launched(x_ptr, n, B: tl.constexpr):
    inner[(1,)](n, n)


@jit
def python_function(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, sorted((1, 2)))


@jit
def float_of_tensor(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, float(n))


@jit
def unknown_attribute(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, x_ptr.stride)


@jit
def constant_arithmetic_fails(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, B // (B - 16))
