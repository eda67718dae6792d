"""Which hardware a kernel is compiled for: `tl.target_info`.

Kernels ask it to choose between ways of doing something; the answers are constants.  From plain
Python they tell of this machine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from deuteron.dtypes import GPUTarget
from deuteron.lang.context import Context
from deuteron.lang.values import unwrap, wrap

P = ParamSpec("P")
R = TypeVar("R")


_CPU = GPUTarget("cpu", 0, 1)


def _query(answer: Callable[Concatenate[GPUTarget, P], R]) -> Callable[P, R]:
    """A question that kernels ask of their target, and Python of this machine."""

    @wraps(answer)
    def ask(*args: Any, _ctx: Context | None = None, **kwargs: Any) -> Any:
        target = _CPU if _ctx is None else _target(_ctx)
        named = {name: unwrap(value) for name, value in kwargs.items()}
        result = cast(Any, answer)(target, *map(unwrap, args), **named)
        return result if _ctx is None else wrap(result)

    cast(Any, ask).is_builtin = True
    return cast(Any, ask)


def _target(ctx: Context) -> GPUTarget:
    name = ctx.options.target
    return _CPU if name == "cpu" else GPUTarget(name, ctx.options.target_arch, 32)


@_query
def current_target(target: GPUTarget) -> GPUTarget:
    """The hardware itself; its `backend` is "cpu" or "cuda"."""
    return target


@_query
def is_cuda(target: GPUTarget) -> bool:
    """Whether it is a GPU by CUDA."""
    return target.backend == "cuda"


@_query
def cuda_capability_geq(target: GPUTarget, major: int, minor: int = 0) -> bool:
    """Whether it is a GPU by CUDA of that compute capability at least."""
    return target.backend == "cuda" and target.arch >= 10 * major + minor


@_query
def is_hip(target: GPUTarget) -> bool:
    """Whether it is a GPU by HIP."""
    return target.backend == "hip"


@_query
def is_hip_cdna3(target: GPUTarget) -> bool:
    """False: there is no code for GPUs by HIP."""
    return False


@_query
def is_hip_cdna4(target: GPUTarget) -> bool:
    """False: there is no code for GPUs by HIP."""
    return False


@_query
def is_hip_gfx1250(target: GPUTarget) -> bool:
    """False: there is no code for GPUs by HIP."""
    return False


@_query
def is_xpu(target: GPUTarget) -> bool:
    """False: there is no code for GPUs by SYCL."""
    return False
