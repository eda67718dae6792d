"""Python functions that run while a kernel is compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class ConstexprFunction(Generic[P, R]):
    """A plain Python function that kernels may call with constexprs, giving a constexpr.

    It is called from Python as ever.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self.fn = function
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)


def constexpr_function(function: Callable[P, R]) -> ConstexprFunction[P, R]:
    """Decorator: kernels may call the function with values known at compile time."""
    return ConstexprFunction(function)
