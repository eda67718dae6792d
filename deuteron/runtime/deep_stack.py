"""Recursion far beyond what Python allows by default.

A compiler follows an expression to its leaves, and a loop that `tl.static_range` writes out makes
expressions of thousands of operations.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from deuteron.errors import CompilationError, Loc

R = TypeVar("R")

DEPTH = 100_000
"""Python frames inside each other; an operation of an expression takes about five."""

_STACK_BYTES = 256 << 20  # of address space: memory is used as deep as calls go
_one_at_a_time = threading.Lock()  # both settings are the process's


def compile_deeply(compile: Callable[[], R], loc: Loc) -> R:
    """The result of compiling a kernel that stands at `loc`, however deep its expressions are.

    Raises CompilationError for one too deep even for `call_deeply`.
    """
    try:
        return compile()
    except RecursionError:
        pass
    try:
        return call_deeply(compile)
    except RecursionError as error:
        raise CompilationError(
            "the expressions of this kernel are too long to compile",
            loc,
            remedy="use tl.range instead of tl.static_range, or store parts of the result",
        ) from error


def call_deeply(function: Callable[[], R]) -> R:
    """The result of a function, called where it may recurse `DEPTH` deep.

    It runs in a thread of its own.  Raises what the function raises.
    """
    outcome: list[R] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(function())
        except BaseException as error:
            failure.append(error)

    with _one_at_a_time:
        limit, stack = sys.getrecursionlimit(), threading.stack_size(_STACK_BYTES)
        sys.setrecursionlimit(max(limit, DEPTH))
        try:
            thread = threading.Thread(target=run, name="deuteron-compile")
            thread.start()
            thread.join()
        finally:
            threading.stack_size(stack)
            sys.setrecursionlimit(limit)
    if failure:
        raise failure[0]
    return outcome[0]
