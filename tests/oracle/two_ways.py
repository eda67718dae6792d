"""Kernels of the language, run compiled and on the interpreter, for tests against references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

import deuteron as dn
from deuteron.lang.frontend import PythonFrontend
from deuteron.runtime.jit import JITFunction


@cache
def both_ways(function: Callable[..., Any]) -> tuple[JITFunction, JITFunction]:
    """A kernel on the interpreter and compiled."""
    return JITFunction(function, PythonFrontend(), interpret=True), dn.jit(function)


def _copy(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    return value.clone() if hasattr(value, "clone") else value


def run_both(
    function: Callable[..., Any], *args: Any, grid: tuple[int, ...] = (1,), **constants: Any
) -> Sequence[list[Any]]:
    """Run a kernel both ways on copies of the arguments; the arguments afterwards, for each."""
    results: list[list[Any]] = []
    for kernel in both_ways(function):
        copies = [_copy(a) for a in args]
        kernel[grid](*copies, **constants)
        results.append(copies)
    return results
