"""Where threads wait between accesses of one array: on every way through the control flow."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import no_type_check

import pytest

import deuteron.language as tl
from deuteron import jit
from deuteron.dtypes import int32
from deuteron.runtime.jit import JITFunction
from tests.cuda.lowering import image_of, lower

BARRIER, ACCESS = "barrier.cta.sync", re.compile(r"= load \S+, ptr addrspace\(1\)|ld\.global")


@jit
@no_type_check
def waits_on_one_side(x, out, n, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(x + at, at)
    if n > 0:
        tl.store(out + at, tl.load(x + (at + 1) % B))
    tl.store(out + at, tl.load(x + (at + 3) % B))


@jit
@no_type_check
def waits_in_a_for(x, out, n, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(x + at, at)
    for _ in range(n):
        tl.store(out + at, tl.load(x + (at + 1) % B))
    tl.store(out + at, tl.load(x + (at + 3) % B))


@jit
@no_type_check
def waits_in_a_while(x, out, n, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(x + at, at)
    i = 0
    while i < n:
        tl.store(out + at, tl.load(x + (at + 1) % B))
        i += 1
    tl.store(out + at, tl.load(x + (at + 3) % B))


@jit
@no_type_check
def moves(x, out, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(out + at, tl.load(x + (at + 1) % B))


@jit
@no_type_check
def doubles(x, out, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(out + at, tl.load(x + at) * 2)


@pytest.mark.parametrize("kernel", [waits_on_one_side, waits_in_a_for, waits_in_a_while])
def test_a_wait_on_one_way_does_not_count_for_the_other(kernel: JITFunction) -> None:
    text = image_of(lower(kernel, int32, int32, 7, B=512), "sm_90a").llvm
    before = text[: list(ACCESS.finditer(text))[-1].start()]
    assert BARRIER in re.split(r"^(?:join|done)\d+:$", before, flags=re.M)[-1]


def test_two_arguments_may_be_one_array() -> None:
    """Threads wait where offsets differ, and only there."""
    moving, elementwise = (
        image_of(lower(kernel, int32, int32, B=512), "sm_90a").llvm for kernel in (moves, doubles)
    )
    assert moving.count(f"call void @llvm.nvvm.{BARRIER}") == 1
    assert BARRIER not in elementwise


# -- turns of loops ------------------------------------------------------------------------------
@jit
@no_type_check
def streams(x, out, n, B: tl.constexpr):
    for i in range(n):
        at = i * B + tl.arange(0, B)
        tl.store(out + at, tl.load(out + at) + tl.load(x + at))


@jit
@no_type_check
def slides(x, out, n, B: tl.constexpr):
    for i in range(n):
        at = i + tl.arange(0, B)
        tl.store(out + at, at)


@jit
@no_type_check
def shifts_between(x, out, n, B: tl.constexpr):
    at = tl.arange(0, B)
    for _ in range(n):
        tl.store(out + at, tl.load(x + (at + 1) % B))


def barriers(kernel: JITFunction, **attrs: object) -> tuple[int, int]:
    """How many barriers there are, and how many only where two arguments are one array."""
    function = lower(kernel, int32, int32, 7, B=512)
    function = replace(function, attrs={**function.attrs, **attrs})
    text = image_of(function, "sm_90a").llvm
    total = text.count(f"call void @llvm.nvvm.{BARRIER}")
    conditional = len(re.findall(rf"^then\d+:\n  call void @llvm.nvvm.{BARRIER}", text, re.M))
    return total, conditional


def test_turns_that_are_apart_do_not_wait() -> None:
    assert barriers(streams) == (0, 0)


def test_turns_that_overlap_wait() -> None:
    assert barriers(slides) == (1, 0)


def test_turns_meet_where_two_arguments_are_one_array() -> None:
    """What one turn wrote to one argument, the next one reads through the other."""
    total, conditional = barriers(shifts_between)
    assert total == conditional == 2


def test_arrays_that_overlap_are_always_waited_for() -> None:
    total, conditional = barriers(shifts_between, aliased=True)
    assert (total, conditional) == (2, 0)
