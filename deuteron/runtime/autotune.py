"""`autotune` and `heuristics`: wrappers that choose a kernel's meta-parameters at launch.

Both stand between the caller and a jit function: they add keyword arguments to `run`.  The
semantics are Triton's.  The autotuner measures every config once for each key, in this process's
memory or, with `cache_results`, on disk.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from deuteron import config as settings
from deuteron.errors import CompileTimeAssertionFailure, LaunchError, OutOfResources, UserError
from deuteron.runtime import knobs
from deuteron.runtime.arrays import lies_on_gpu
from deuteron.runtime.benchmark import measure_ms
from deuteron.runtime.jit import JITFunction, KernelInterface
from deuteron.runtime.tuned_configs import (
    Config,
    read_timings,
    results_path,
    unwrapped,
    write_timings,
)

QUANTILES = (0.5, 0.2, 0.8)
"""What is kept of a config's measurements, in milliseconds; the first decides."""

_UNUSABLE = (OutOfResources, CompileTimeAssertionFailure)
_PRUNE_OPTIONS = frozenset({"perf_model", "top_k", "early_config_prune"})


class AutotunerError(UserError):
    """There is nothing to choose from.  The text is Triton's, which programs compare."""

    def __init__(self, message: str) -> None:
        super().__init__(f"Autotuner error: {message}")


class Kernel(Protocol):
    """What can be wrapped: a jit function, or another wrapper."""

    arg_names: list[str]
    fn: Any

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of a tuned kernel: positional arguments, also by name, and keywords with `grid`."""

    args: tuple[Any, ...]
    named: dict[str, Any]
    kwargs: dict[str, Any]

    def arguments(self, config: Config) -> dict[str, Any]:
        """Everything a hook gets to see."""
        return {**self.named, **self.kwargs, **config.all_kwargs()}


class Autotuner(KernelInterface):
    """A kernel that measures its configs and launches the fastest; made by `autotune`.

    `best_config` is that of the last launch, `configs_timings` the quantiles (ms) of the last
    tuning, `cache` the best config by key: the values of the key arguments, then the dtype of every
    array as a string.  Parameters and attributes have Triton's names and order, for programs that
    derive tuners of their own.
    """

    def __init__(
        self,
        fn: Kernel,
        arg_names: list[str],
        configs: Sequence[Config],
        key: Sequence[str],
        reset_to_zero: Sequence[str] | None = None,
        restore_value: Sequence[str] | None = None,
        pre_hook: Callable[..., object] | None = None,
        post_hook: Callable[..., object] | None = None,
        prune_configs_by: Mapping[str, Any] | None = None,
        warmup: float | None = None,
        rep: float | None = None,
        use_cuda_graph: bool = False,
        do_bench: Callable[..., Any] | None = None,
        cache_results: bool | None = None,
    ) -> None:
        self.fn = fn
        self.arg_names = arg_names
        self.configs = list(configs) or [Config({})]
        self.keys = list(key)
        self.cache_results = settings.cache_autotuning() if cache_results is None else cache_results
        self.cache: dict[tuple[object, ...], Config] = {}
        self.best_config: Config | None = None
        self.configs_timings: dict[Config, list[float]] = {}
        self.bench_time = 0.0
        self.base_fn = unwrapped(fn)
        self.__name__ = str(getattr(self.base_fn, "__name__", "kernel"))
        self.reset_to_zero = list(reset_to_zero or ())
        self.restore_value = list(restore_value or ())
        self._saved: dict[str, Any] = {}
        self.user_defined_pre_hook = pre_hook is not None
        self.user_defined_post_hook = post_hook is not None
        self.pre_hook = pre_hook or self._prepare
        self.post_hook = post_hook or self._restore
        self._warmup_ms = 25.0 if warmup is None else warmup
        self._rep_ms = 100.0 if rep is None else rep
        self._do_bench = do_bench
        self.use_cuda_graph = use_cuda_graph
        prune = _checked_prune_options(prune_configs_by or {})
        self.early_config_prune: Callable[..., Any] | None = prune.get("early_config_prune")
        self.perf_model: Callable[..., Any] | None = prune.get("perf_model")
        self.configs_top_k: int | float = prune.get("top_k", 1.0)
        # Tuning in two threads at once would disturb both measurements and mix saved arrays.
        self._tuning = threading.RLock()

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> list[Any]:
        """Compile every config that survives pruning; returns the compiled kernels."""
        call = self._call(args, {**kwargs, "grid": grid})
        return [
            self.fn.run(*args, warmup=True, **call.kwargs, **config.all_kwargs())
            for config in self._pruned(call)
        ]

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch with the best config, tuning first for a key that has not been seen."""
        if warmup:
            return self.warmup(*args, grid=grid, **kwargs)
        call = self._call(args, {**kwargs, "grid": grid})
        config = self._choose(call)
        self.best_config = config
        chosen = self._meta(config, call)
        if config.pre_hook is not None:
            config.pre_hook(call.arguments(config))
        return self.fn.run(*args, warmup=False, **call.kwargs, **chosen)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
        return _Call(args, dict(zip(self.arg_names, args, strict=False)), kwargs)

    def _meta(self, config: Config, call: _Call) -> dict[str, Any]:
        """What the config adds to the call, which must not say it too."""
        chosen = config.all_kwargs()
        if clashes := chosen.keys() & call.kwargs.keys():
            names = ", ".join(sorted(clashes))
            raise LaunchError(
                f"{self.__name__}: {names} given by the call and by the autotuner\n"
                f"  remedy:   leave {names} out of the call, or out of the configs"
            )
        return chosen

    # -- choosing ---------------------------------------------------------------------------
    def _choose(self, call: _Call) -> Config:
        if len(self.configs) == 1:
            return self.configs[0]
        key = self._key(call)
        best = self.cache.get(key)
        if best is not None:
            return best
        with self._tuning:
            if key not in self.cache:
                self.cache[key] = self._tune(key, call)
            return self.cache[key]

    def _key(self, call: _Call) -> tuple[object, ...]:
        """The values of the key arguments and the dtype of every array."""
        everything = {**call.named, **call.kwargs}
        given = {name: value for name, value in everything.items() if name in self.arg_names}
        values = [given[name] for name in self.keys if name in given]
        return (*values, *(str(value.dtype) for value in given.values() if hasattr(value, "dtype")))

    def _pruned(self, call: _Call) -> list[Config]:
        """The configs worth measuring for a call."""
        configs = self.configs
        if early := self.early_config_prune:
            configs = list(early(configs, call.named, **call.kwargs))
            if not configs:
                raise AutotunerError(
                    "No valid autotuner configs after pruning. `early_config_prune` should return "
                    "at least one config."
                )
        if model := self.perf_model:
            top_k = self.configs_top_k
            count = max(1, int(len(self.configs) * top_k)) if isinstance(top_k, float) else top_k
            if len(configs) > count:
                cost = {config: model(**call.arguments(config)) for config in configs}
                configs = sorted(configs, key=cost.__getitem__)[:count]
        return configs

    # -- measuring --------------------------------------------------------------------------
    def _tune(self, key: tuple[object, ...], call: _Call) -> Config:
        configs = self._pruned(call)
        if len(configs) == 1:
            return configs[0]
        path = results_path(self, key, configs) if self.cache_results else None
        timings = read_timings(path, configs) if path else None
        if timings is not None:
            self.configs_timings = timings
            best = min(timings, key=timings.__getitem__)
            self._tell(key, best, None)
            return best
        start = time.perf_counter()
        timings = self._measure_all(configs, call)
        self.bench_time = time.perf_counter() - start
        self.configs_timings = timings
        best = min(timings, key=timings.__getitem__)
        self.pre_hook(call.arguments(best), reset_only=True)
        self._tell(key, best, self.bench_time)
        if path:
            write_timings(path, timings)
        if settings.print_autotuning():
            print(
                f"deuteron: autotuned {self.__name__} for ({', '.join(map(str, key))}) "
                f"in {self.bench_time:.2f} s; best config: {best} ({timings[best][0]:.4g} ms)"
            )
        return best

    def _tell(self, key: tuple[object, ...], best: Config, duration_s: float | None) -> None:
        """Call the listener; without a duration the timings come from the disk."""
        listener = knobs.autotuning.listener
        if listener is None:
            return
        kernel: Any = self.fn
        while not isinstance(kernel, JITFunction) and hasattr(kernel, "fn"):
            kernel = kernel.fn
        listener(
            fn=kernel,
            key=key,
            best_config=best,
            configs_timings=self.configs_timings,
            duration=duration_s,
            cache_hit=duration_s is None,
        )

    def _measure_all(self, configs: Sequence[Config], call: _Call) -> dict[Config, list[float]]:
        timings: dict[Config, list[float]] = {}
        measured: dict[object, list[float]] = {}
        unusable: UserError | None = None
        for config in configs:
            code = self._code(config, call)
            if code not in measured:
                try:
                    measured[code] = self._measure(config, call)
                except _UNUSABLE as error:
                    measured[code] = [math.inf] * len(QUANTILES)
                    unusable = unusable or error
            timings[config] = measured[code]
        if unusable is not None and all(math.isinf(times[0]) for times in timings.values()):
            raise unusable
        return timings

    def _code(self, config: Config, call: _Call) -> object:
        """Equal for configs that are the same program here, so that one of them tells of all."""
        own_clock = self._do_bench is not None
        return config if own_clock or _on_gpu(call) else config.on_cpu(self.arg_names)

    def _measure(self, config: Config, call: _Call) -> list[float]:
        """Quantiles (ms) of launches with one config."""
        chosen = self._meta(config, call)
        arguments = call.arguments(config)

        def before() -> None:
            if config.pre_hook is not None:
                config.pre_hook(arguments)
            self.pre_hook(arguments)

        def launch() -> None:
            try:
                self.fn.run(*call.args, warmup=False, **call.kwargs, **chosen)
            except Exception as error:
                self.post_hook(arguments, exception=error)
                raise

        def after() -> None:
            self.post_hook(arguments, exception=None)

        if self._do_bench is None:
            device = "cuda" if _on_gpu(call) else "cpu"
            times_ms = measure_ms(launch, self._warmup_ms, self._rep_ms, before, after, device)
            return list(map(float, np.quantile(times_ms, QUANTILES)))

        def framed() -> None:
            before()
            launch()
            after()

        result: Any = self._do_bench(framed, quantiles=QUANTILES)
        return [float(q) for q in (result if np.ndim(result) else (result,))]

    # -- hooks ------------------------------------------------------------------------------
    def _prepare(self, arguments: Mapping[str, Any], reset_only: bool = False) -> None:
        for name in self.reset_to_zero:
            if arguments[name] is not None:
                arguments[name][...] = 0
        if not reset_only:
            arrays = {name: arguments[name] for name in self.restore_value}
            self._saved = {n: _copy(array) for n, array in arrays.items() if array is not None}

    def _restore(self, arguments: Mapping[str, Any], exception: Exception | None) -> None:
        for name, saved in self._saved.items():
            arguments[name][...] = saved
        self._saved = {}


def autotune(
    configs: Sequence[Config],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., object] | None = None,
    post_hook: Callable[..., object] | None = None,
    warmup: float | None = None,
    rep: float | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool | None = None,
) -> Callable[[Kernel], Autotuner]:
    """Decorator for a jit function: measure `configs` and launch the fastest.

    They are measured anew whenever the value of an argument named in `key`, or the dtype of an
    array argument, has not been seen before.  Measuring runs the kernel many times on the caller's
    arrays, so name those it adds to in `reset_to_zero` (zeroed before every run) and those it
    overwrites in `restore_value` (put back after every run); `pre_hook(arguments, reset_only)` and
    `post_hook(arguments, exception)` replace these two.  A config that does not fit the machine or
    fails a `static_assert` is left out; any other error of the kernel propagates.

    `prune_configs_by` may hold "early_config_prune" (configs, arguments, **kwargs → configs),
    "perf_model" (all arguments by name → expected time) and "top_k" (how many to measure, or a
    fraction as a float).  `warmup` and `rep` are milliseconds per config (25 and 100), unless
    `do_bench(fn, quantiles=…)` measures.  On a CPU configs that differ by launch options alone are
    one program, of which one is measured unless `do_bench` is given; `use_cuda_graph` has no
    meaning there.  With `cache_results` the results are kept on disk by kernel source, machine,
    threads and key; left out, DEUTERON_CACHE_AUTOTUNING decides.
    DEUTERON_PRINT_AUTOTUNING prints each winner.

        @autotune([Config({"BLOCK": 1024}), Config({"BLOCK": 4096})], key=["n"])
        @jit
        def add(x, y, out, n, BLOCK: tl.constexpr): ...
    """

    def decorate(fn: Kernel) -> Autotuner:
        return Autotuner(
            fn,
            fn.arg_names,
            configs,
            key,
            reset_to_zero=reset_to_zero,
            restore_value=restore_value,
            pre_hook=pre_hook,
            post_hook=post_hook,
            prune_configs_by=prune_configs_by,
            warmup=warmup,
            rep=rep,
            use_cuda_graph=use_cuda_graph,
            do_bench=do_bench,
            cache_results=cache_results,
        )

    return decorate


class Heuristics(KernelInterface):
    """A kernel some of whose meta-parameters are computed; made by `heuristics`."""

    def __init__(
        self, fn: Kernel, arg_names: list[str], values: Mapping[str, Callable[..., Any]]
    ) -> None:
        self.fn = fn
        self.arg_names = arg_names
        self.values = dict(values)
        self.__name__ = str(getattr(unwrapped(fn), "__name__", "kernel"))

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch, or compile, with the computed meta-parameters; later ones see the earlier."""
        named = dict(zip(self.arg_names, args, strict=False))
        for name, compute in self.values.items():
            kwargs[name] = compute({**named, **kwargs})
        return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs)

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Compile with the computed meta-parameters."""
        return self.run(*args, grid=grid, warmup=True, **kwargs)


def heuristics(values: Mapping[str, Callable[..., Any]]) -> Callable[[Kernel], Heuristics]:
    """Decorator for a jit function: compute meta-parameters from the arguments.

    Each value is called with all arguments by name (a dict) at every launch.

        @heuristics({"BLOCK": lambda args: next_power_of_2(args["n"])})
        @jit
        def softmax(x, out, n, BLOCK: tl.constexpr): ...
    """

    def decorate(fn: Kernel) -> Heuristics:
        return Heuristics(fn, fn.arg_names, values)

    return decorate


def _on_gpu(call: _Call) -> bool:
    return any(lies_on_gpu(value) for value in (*call.named.values(), *call.kwargs.values()))


def _copy(array: Any) -> Any:
    return array.clone() if hasattr(array, "clone") else array.copy()


def _checked_prune_options(options: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := sorted(options.keys() - _PRUNE_OPTIONS):
        raise ValueError(
            f"unknown prune_configs_by: {', '.join(unknown)}\n"
            f"  expected: {', '.join(sorted(_PRUNE_OPTIONS))}"
        )
    top_k = options.get("top_k", 1.0)
    is_count = isinstance(top_k, int) and top_k >= 1
    is_fraction = isinstance(top_k, float) and 0.0 < top_k <= 1.0
    if not (is_count or is_fraction):
        raise TypeError(
            f"prune_configs_by: bad top_k\n"
            f"  expected: a positive int, or a float up to 1.0\n"
            f"  got:      {top_k!r}"
        )
    return dict(options)
