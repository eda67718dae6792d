"""Where threads wait between accesses of one array: on every way through the control flow."""

from __future__ import annotations

import re
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
    after = re.split(r"^(?:join|done)\d+:$", text, flags=re.M)[-1]
    access = ACCESS.search(after)
    assert access is not None
    assert BARRIER in after[: access.start()]


def test_two_arguments_may_be_one_array() -> None:
    """Threads wait where offsets differ, and only there."""
    moving, elementwise = (
        image_of(lower(kernel, int32, int32, B=512), "sm_90a").llvm for kernel in (moves, doubles)
    )
    assert moving.count(f"call void @llvm.nvvm.{BARRIER}") == 1
    assert BARRIER not in elementwise
