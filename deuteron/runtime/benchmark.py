"""Timing a callable, by the wall clock or by that of a GPU (`gpu_clock.py`).

Used by the autotuner, which must not count its own resetting of arrays, and offered to users as
`deuteron.testing.do_bench`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, overload

import numpy as np

from deuteron.errors import DeviceError
from deuteron.runtime.gpu_clock import clock_device, measure_gpu_ms

Device = Literal["cpu", "cuda"]


@overload
def do_bench(
    fn: Callable[[], object],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: None = None,
    return_mode: Literal["mean", "median", "min", "max"] = "mean",
    device: Device | None = None,
) -> float: ...
@overload
def do_bench(
    fn: Callable[[], object],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    device: Device | None = None,
) -> float | list[float]: ...
def do_bench(
    fn: Callable[[], object],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    device: Device | None = None,
) -> float | list[float]:
    """Milliseconds that one call of `fn` takes.

    `device` says whose clock counts: "cpu" is the wall clock, "cuda" the time that a GPU spends on
    what `fn` puts on the current stream.  Left out, it is "cuda" in a process that uses a GPU.

    `fn` is called once (it may compile), then for `warmup` ms, then measured for `rep` ms, each
    period at least one call long.  The tensors in `grad_to_none` lose their `.grad` before each
    call.  With `quantiles` the result is a list of them (one alone is a float), otherwise what
    `return_mode` names: "mean", "median", "min", "max", or "all" the measurements.

    Caches of a CPU are as the previous call left them; a GPU's is filled with something else before
    each call.
    """
    if return_mode not in ("mean", "median", "min", "max", "all"):
        raise ValueError(
            f"unknown return_mode {return_mode!r}; expected mean, median, min, max or all"
        )
    tensors = list(grad_to_none or ())

    def drop_gradients() -> None:
        for tensor in tensors:
            tensor.grad = None

    before = drop_gradients if tensors else None
    times_ms = measure_ms(fn, warmup, rep, before=before, device=device)
    if quantiles is not None:
        found = [float(q) for q in np.quantile(times_ms, list(quantiles))]
        return found[0] if len(found) == 1 else found
    match return_mode:
        case "all":
            return times_ms
        case "min":
            return min(times_ms)
        case "max":
            return max(times_ms)
        case "median":
            return statistics.median(times_ms)
        case _:
            return statistics.fmean(times_ms)


def measure_ms(
    fn: Callable[[], object],
    warmup_ms: float,
    rep_ms: float,
    before: Callable[[], object] | None = None,
    after: Callable[[], object] | None = None,
    device: Device | None = None,
) -> list[float]:
    """Milliseconds of each measured call of `fn`; `before` and `after` frame every call, untimed.

    The periods count the time inside `fn` only.  `device` is as in `do_bench`.
    """
    clock = time.perf_counter

    def call_ms() -> float:
        if before is not None:
            before()
        start = clock()
        fn()
        elapsed = clock() - start
        if after is not None:
            after()
        return elapsed * 1e3

    call_ms()
    gpu = None if device == "cpu" else clock_device()
    if gpu is not None:
        return measure_gpu_ms(gpu, fn, warmup_ms, rep_ms, before, after)
    if device == "cuda":
        raise DeviceError(
            "nothing was run on a GPU\n"
            "  expected: a function that launches kernels there\n"
            "  got:      one that uses no GPU\n"
            "  remedy:   measure it with device='cpu'"
        )
    if warmup_ms > 0:
        _repeat(call_ms, warmup_ms)
    return _repeat(call_ms, rep_ms)


def _repeat(call_ms: Callable[[], float], period_ms: float) -> list[float]:
    times_ms: list[float] = []
    total_ms = 0.0
    while not times_ms or total_ms < period_ms:
        times_ms.append(call_ms())
        total_ms += times_ms[-1]
    return times_ms
