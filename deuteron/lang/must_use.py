"""Functions whose results are not to be thrown away.

The mark is looked at where a call stands as a statement: `calls.visit_expression`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])


@overload
def must_use_result(function: str, reason: str | bool = True) -> Callable[[F], F]: ...
@overload
def must_use_result(function: F, reason: str | bool = True) -> F: ...
def must_use_result(function: Any, reason: str | bool = True) -> Any:
    """Decorator of a function of the language: a call that drops its result is an error.

    `@must_use_result("why")` adds a reason to the error.
    """
    if isinstance(function, str):
        return partial(_mark, reason=function)
    return _mark(function, reason)


def _mark(function: Any, reason: str | bool) -> Any:
    function.must_use_result = reason
    return function
