"""The `@jit` decorator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, overload

from deuteron.lang.frontend import PythonFrontend
from deuteron.runtime.jit import JITFunction, use_frontend
from deuteron.runtime.preparation import prepare_for_gpu

# What is written in the language itself comes with every import.
_LANGUAGE = __name__.removesuffix("jit")

use_frontend(PythonFrontend)


@overload
def jit(fn: Callable[..., Any]) -> JITFunction: ...


@overload
def jit(
    fn: None = None,
    *,
    version: object = None,
    repr: Callable[[Any], str] | None = None,
    launch_metadata: Callable[..., Any] | None = None,
    do_not_specialize: Iterable[int | str] | None = None,
    do_not_specialize_on_alignment: Iterable[int | str] | None = None,
    debug: bool | None = None,
    noinline: bool | None = None,
    strict: bool | None = None,
) -> Callable[[Callable[..., Any]], JITFunction]: ...


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    version: object = None,
    repr: Callable[[Any], str] | None = None,
    launch_metadata: Callable[..., Any] | None = None,
    do_not_specialize: Iterable[int | str] | None = None,
    do_not_specialize_on_alignment: Iterable[int | str] | None = None,
    debug: bool | None = None,
    noinline: bool | None = None,
    strict: bool | None = None,
) -> JITFunction | Callable[[Callable[..., Any]], JITFunction]:
    """Make a kernel of a Python function: `kernel[grid](*args)` compiles and runs it.

    Other kernels may call it too; it then becomes part of them.  `do_not_specialize` names the
    parameters (or gives their places) for which value 1 and divisibility by 16 make no difference,
    `do_not_specialize_on_alignment` those for which divisibility does not.  `repr` and
    `launch_metadata` name and describe launches for hooks.  `debug` keeps `device_assert`.
    `version` is part of the cache key.  `noinline` is accepted and changes nothing: calls are
    always inlined.  `strict` refuses what Triton could not compile, so that the kernel stays
    portable.
    """

    def make(function: Callable[..., Any]) -> JITFunction:
        if not str(function.__module__).startswith(_LANGUAGE):
            prepare_for_gpu()
        return JITFunction(
            function,
            version=version,
            repr=repr,
            launch_metadata=launch_metadata,
            do_not_specialize=do_not_specialize,
            do_not_specialize_on_alignment=do_not_specialize_on_alignment,
            debug=debug,
            noinline=noinline,
            strict=strict,
        )

    return make if fn is None else make(fn)
