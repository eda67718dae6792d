"""Functions whose results are not to be thrown away.

The mark is looked at where a call stands as a statement: `calls.visit_expression`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F")


def must_use_result(function: F | str, reason: str | bool = True) -> F | Callable[[F], F]:
    """Decorator of a function of the language: a call that drops its result is an error.

    `@must_use_result("why")` adds a reason to the error.
    """
    if isinstance(function, str):
        why = function
        return lambda decorated: must_use_result(decorated, why)  # pyright: ignore
    marked: Any = function
    marked.must_use_result = reason
    return function
