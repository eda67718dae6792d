"""Expressions longer than Python's recursion: compiled all the same, or refused by name."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

import deuteron as dn
import deuteron.language as tl
from deuteron.runtime import deep_stack
from deuteron.runtime.deep_stack import call_deeply


def depth(n: int) -> int:
    return 0 if n == 0 else 1 + depth(n - 1)


def test_deep_calls() -> None:
    before = sys.getrecursionlimit(), threading.stack_size()
    assert call_deeply(lambda: depth(50_000)) == 50_000
    assert (sys.getrecursionlimit(), threading.stack_size()) == before
    with pytest.raises(RecursionError):
        depth(50_000)


def test_what_a_deep_call_raises() -> None:
    before = sys.getrecursionlimit()
    with pytest.raises(ZeroDivisionError):
        call_deeply(lambda: 1 // 0)
    assert sys.getrecursionlimit() == before


def test_a_long_expression_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEUTERON_DISABLE_CACHE", "1")

    @dn.jit
    def kernel(x_ptr, COUNT: tl.constexpr):
        at = tl.arange(0, 16)
        x = tl.load(x_ptr + at)
        for i in tl.static_range(COUNT):
            x = x * 3 + i
        tl.store(x_ptr + at, x)

    x = np.arange(16, dtype=np.uint32)
    expected = x.copy()
    for i in range(400):
        expected = expected * np.uint32(3) + np.uint32(i)
    kernel[(1,)](x, COUNT=400)
    np.testing.assert_array_equal(x, expected)

    monkeypatch.setattr(deep_stack, "DEPTH", 1000)
    with pytest.raises(dn.CompilationError) as caught:
        kernel[(1,)](x, COUNT=401)
    assert "too long to compile" in str(caught.value)
    assert "def kernel(x_ptr, COUNT: tl.constexpr):" in str(caught.value)
