"""Python functions that run while a kernel is compiled."""

from __future__ import annotations

import hashlib
import inspect
import textwrap
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

from deuteron.runtime.jit import forget_compiled

P = ParamSpec("P")
R = TypeVar("R")


class ConstexprFunction(Generic[P, R]):
    """A plain Python function that kernels may call with constexprs, giving a constexpr.

    It is called from Python as ever.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self.fn: Any = function
        self._src: str | None = None
        update_wrapper(self, function)

    @property
    def src(self) -> str:
        """The source from `def` on, without indentation."""
        if self._src is None:
            text = textwrap.dedent(inspect.getsource(self.fn))
            self._src = text[text.index("def ") :]
        return self._src

    @property
    def cache_key(self) -> str:
        """A hash of the source."""
        return hashlib.sha256(self.src.encode()).hexdigest()

    def _unsafe_update_src(self, new_src: str) -> None:
        """Run `new_src` from now on: a `def` of the same name.  Under Triton's name."""
        names: dict[str, Any] = {}
        exec(compile(new_src, inspect.getfile(self.fn), "exec"), self.fn.__globals__, names)
        self.fn = names[self.fn.__name__]
        self._src = new_src
        forget_compiled()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)


def constexpr_function(function: Callable[P, R]) -> ConstexprFunction[P, R]:
    """Decorator: kernels may call the function with values known at compile time."""
    return ConstexprFunction(function)
