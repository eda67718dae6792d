"""Autotuning and heuristics, on a kernel that only pretends to run."""

from __future__ import annotations

import json
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deuteron.backends.cpu.pool import get_num_threads, set_num_threads
from deuteron.errors import (
    CompilationError,
    CompileTimeAssertionFailure,
    LaunchError,
    OutOfResources,
    UserError,
)
from deuteron.runtime.autotune import Autotuner, autotune, heuristics
from deuteron.runtime.tuned_configs import Config


class FakeKernel:
    """Records its launches; each adds 1 to `out`, as a kernel with an atomic would."""

    def __init__(self, cache_key: str = "source") -> None:
        self.arg_names = ["x", "out", "n", "BLOCK", "FLAG"]
        self.launches: list[dict[str, Any]] = []
        self.compiled: list[dict[str, Any]] = []
        self.failures: dict[int, Exception] = {}
        self.cache_key = cache_key

    @staticmethod
    def fn(x: Any, out: Any, n: int, BLOCK: int, FLAG: bool) -> None:
        """A kernel's Python function."""

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs, "grid": grid}
        if warmup:
            self.compiled.append(named)
            return f"compiled {named['BLOCK']}"
        self.launches.append(named)
        if named.get("out") is not None:
            named["out"] += 1
        if failure := self.failures.get(named.get("BLOCK", 0)):
            raise failure
        return "launched"

    def count(self, block: int) -> int:
        return sum(launch.get("BLOCK") == block for launch in self.launches)


class FakeClock:
    """Stands in for do_bench: runs each config twice and charges what the test says."""

    def __init__(self, kernel: FakeKernel, cost: dict[int, float]) -> None:
        self.kernel, self.cost = kernel, cost
        self.blocks: list[int] = []

    def __call__(self, fn: Any, quantiles: Any) -> list[float]:
        assert quantiles == (0.5, 0.2, 0.8)
        fn()
        fn()
        block = self.kernel.launches[-1]["BLOCK"]
        self.blocks.append(block)
        return [self.cost[block]] * 3


CONFIGS = [Config({"BLOCK": block}) for block in (16, 32, 64)]
COST = {16: 3.0, 32: 1.0, 64: 2.0}


def tuned(kernel: FakeKernel, **options: Any) -> tuple[Autotuner, FakeClock]:
    clock = FakeClock(kernel, options.pop("cost", COST))
    options = {"configs": CONFIGS, "key": ["n"], **options}
    return autotune(**options, do_bench=clock)(kernel), clock


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEUTERON_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("DEUTERON_DISABLE_CACHE", raising=False)
    return tmp_path


def floats(n: int = 4) -> Any:
    return np.zeros(n, np.float32)


# -- choosing -------------------------------------------------------------------------------
def test_the_fastest_config_is_launched():
    kernel = FakeKernel()
    tuner, clock = tuned(kernel)
    assert tuner[(2,)](floats(), None, 4, FLAG=True) == "launched"
    assert clock.blocks == [16, 32, 64]
    last = kernel.launches[-1]
    assert (last["BLOCK"], last["FLAG"], last["grid"]) == (32, True, (2,))
    assert (last["num_warps"], last["num_stages"], last["num_ctas"]) == (4, 3, 1)
    assert "maxnreg" not in last
    assert tuner.best_config is CONFIGS[1]
    assert {c.kwargs["BLOCK"]: t for c, t in tuner.configs_timings.items()} == {
        block: [cost] * 3 for block, cost in COST.items()
    }


def test_grid_functions_and_keyword_arguments_pass_through():
    kernel = FakeKernel()
    tuner, _ = tuned(kernel)

    def grid(meta: dict[str, Any]) -> tuple[int]:
        return (meta["n"] // meta["BLOCK"],)

    tuner[grid](floats(), out=None, n=64)
    assert kernel.launches[-1]["grid"] is grid
    tuner.run(floats(), None, 64, grid=(3,))
    assert kernel.launches[-1]["grid"] == (3,)


def test_tuning_happens_once_a_key():
    kernel = FakeKernel()
    tuner, clock = tuned(kernel)
    for n, dtype, tunings in [(4, "f4", 1), (4, "f4", 1), (8, "f4", 2), (8, "f8", 3), (4, "f4", 3)]:
        tuner[(1,)](np.zeros(4, dtype), None, n)
        assert len(clock.blocks) == 3 * tunings
    assert len(tuner.cache) == 3


def test_the_dtype_of_every_array_is_part_of_the_key():
    kernel = FakeKernel()
    tuner, clock = tuned(kernel, key=[])
    tuner[(1,)](floats(), floats(), 4)
    tuner[(1,)](floats(), np.zeros(4), 4)
    tuner[(1,)](floats(), out=np.zeros(4), n=4)
    assert len(clock.blocks) == 6


def test_one_config_is_not_measured():
    kernel = FakeKernel()
    tuner, clock = tuned(kernel, configs=[Config({"BLOCK": 16}, num_warps=8)])
    tuner[(1,)](floats(), None, 4)
    assert (clock.blocks, len(kernel.launches)) == ([], 1)
    assert kernel.launches[0]["num_warps"] == 8


def test_no_configs_means_the_defaults():
    kernel = FakeKernel()
    tuner, _ = tuned(kernel, configs=[])
    tuner[(1,)](floats(), None, 4, 16)
    assert (kernel.launches[0]["BLOCK"], kernel.launches[0]["num_warps"]) == (16, 4)


def test_the_default_clock_counts_the_kernel_only():
    kernel = FakeKernel()
    tuner = autotune(CONFIGS, ["n"], warmup=0, rep=0)(kernel)
    tuner[(1,)](floats(), None, 4)
    assert len(kernel.launches) == 2 * 3 + 1  # a first and a measured run each, then the launch
    assert all(times[0] > 0 for times in tuner.configs_timings.values())


def test_on_a_cpu_launch_options_make_no_other_program():
    kernel = FakeKernel()
    configs = [
        Config({"BLOCK": block}, num_warps=warps, num_stages=stages)
        for block in (16, 32)
        for warps in (4, 8)
        for stages in (2, 3)
    ]
    tuner = autotune(configs, ["n"], warmup=0, rep=0)(kernel)
    tuner[(1,)](floats(), None, 4)
    assert (len(kernel.launches), len(tuner.configs_timings)) == (2 * 2 + 1, 8)
    assert tuner.best_config in (configs[0], configs[4])


def test_a_launch_option_that_is_a_parameter_too_makes_another_program():
    kernel = FakeKernel()
    kernel.arg_names.append("num_warps")
    configs = [Config({"BLOCK": 16}, num_warps=warps) for warps in (4, 8)]
    autotune(configs, ["n"], warmup=0, rep=0)(kernel)[(1,)](floats(), None, 4)
    assert len(kernel.launches) == 2 * 2 + 1


class Remembering(Autotuner):
    """As libraries derive tuners: by position, with hooks of its own, filling the cache itself."""

    def __init__(self, fn: Any, arg_names: Any, configs: Any, key: Any, reset: Any, restore: Any):
        super().__init__(
            fn, arg_names, configs, key, reset, restore,
            pre_hook=None, post_hook=None, prune_configs_by=None, warmup=None, rep=None,
            use_cuda_graph=False, do_bench=None, cache_results=False,
        )  # fmt: skip
        assert not any((self.user_defined_pre_hook, self.user_defined_post_hook))
        assert (self.reset_to_zero, self.restore_value) == (["out"], [])
        self.zeroed = 0
        self.pre_hook = self._count

    def _count(self, arguments: Any, reset_only: bool = False) -> None:
        self.zeroed += 1

    def run(self, *args: Any, **kwargs: Any) -> Any:
        key = [args[self.arg_names.index(name)] for name in self.keys]
        types = [str(arg.dtype) for arg in args if hasattr(arg, "dtype")]
        if args[2] == 7:
            self.cache[*key, *types] = self.configs[2]
        return super().run(*args, **kwargs)


def test_tuners_may_be_derived():
    kernel = FakeKernel()
    tuner = Remembering(kernel, kernel.arg_names, CONFIGS, ["n"], ["out"], None)
    tuner[(1,)](floats(), None, 7)
    assert (tuner.best_config, tuner.zeroed, len(kernel.launches)) == (CONFIGS[2], 0, 1)
    tuner[(1,)](floats(), None, 4)
    assert tuner.zeroed > len(CONFIGS)


def test_a_clock_may_return_a_number():
    kernel = FakeKernel()

    def clock(fn: Any, quantiles: Any) -> float:
        fn()
        return COST[kernel.launches[-1]["BLOCK"]]

    tuner = autotune(CONFIGS, ["n"], do_bench=clock)(kernel)
    tuner[(1,)](floats(), None, 4)
    assert tuner.best_config is CONFIGS[1]


def test_warmup_compiles_every_config():
    kernel = FakeKernel()
    tuner, clock = tuned(kernel)
    expected = ["compiled 16", "compiled 32", "compiled 64"]
    assert tuner.warmup(floats(), None, 4, grid=(1,)) == expected
    assert tuner.run(floats(), None, 4, grid=(1,), warmup=True) == expected
    assert (clock.blocks, kernel.launches) == ([], [])


def test_threads_tune_once():
    kernel = FakeKernel()
    tuner, clock = tuned(kernel)
    threads = [threading.Thread(target=lambda: tuner[(1,)](floats(), None, 4)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(clock.blocks) == 3
    assert kernel.count(32) == 2 + 8


def test_the_winner_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    kernel = FakeKernel()
    tuner, _ = tuned(kernel)
    tuner[(1,)](floats(), None, 4)
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("DEUTERON_PRINT_AUTOTUNING", "1")
    tuner[(1,)](floats(), None, 5)
    printed = capsys.readouterr().out
    assert printed.startswith("deuteron: autotuned fn for (5, float32) in ")
    assert "BLOCK: 32, num_warps: 4, num_ctas: 1, num_stages: 3 (1 ms)" in printed


# -- failing configs ------------------------------------------------------------------------
@pytest.mark.parametrize(
    "failure",
    [OutOfResources("scratch", 1 << 30, 1 << 20), CompileTimeAssertionFailure("BLOCK > 16")],
)
def test_a_config_that_does_not_fit_is_left_out(failure: Exception):
    kernel = FakeKernel()
    kernel.failures[32] = failure
    tuner, _ = tuned(kernel)
    tuner[(1,)](floats(), None, 4)
    assert tuner.best_config is CONFIGS[2]
    assert tuner.configs_timings[CONFIGS[1]] == [float("inf")] * 3


def test_when_no_config_fits_the_first_error_is_raised():
    kernel = FakeKernel()
    errors = {block: OutOfResources("scratch", block, 8) for block in COST}
    kernel.failures.update(errors)
    tuner, _ = tuned(kernel, cache_results=True)
    with pytest.raises(OutOfResources) as caught:
        tuner[(1,)](floats(), None, 4)
    assert caught.value is errors[16]
    assert tuner.cache == {}


def test_other_errors_of_the_kernel_propagate():
    kernel = FakeKernel()
    kernel.failures[32] = CompilationError("undefined name 'foo'")
    tuner, _ = tuned(kernel)
    with pytest.raises(CompilationError, match="foo"):
        tuner[(1,)](floats(), None, 4)
    assert tuner.cache == {}


@pytest.mark.parametrize("name", ["BLOCK", "num_warps"])
def test_a_meta_parameter_given_twice(name: str):
    tuner, _ = tuned(FakeKernel())
    with pytest.raises(LaunchError, match=rf"fn: {name} given by the call and by the autotuner"):
        tuner[(1,)](floats(), None, 4, **{name: 8})


# -- arrays while tuning --------------------------------------------------------------------
def test_without_help_tuning_leaves_its_traces():
    out = floats()
    tuner, _ = tuned(FakeKernel())
    tuner[(1,)](floats(), out, 4)
    assert out.tolist() == [7.0] * 4


def test_reset_to_zero():
    kernel = FakeKernel()
    out = floats()
    tuner, _ = tuned(kernel, reset_to_zero=["out"])
    tuner[(1,)](floats(), out, 4)
    assert out.tolist() == [1.0] * 4
    tuner[(1,)](floats(), out, 4)  # tuned already: the array is the caller's
    assert out.tolist() == [2.0] * 4


def test_restore_value():
    out = np.full(4, 10.0, np.float32)
    tuner, _ = tuned(FakeKernel(), restore_value=["out"])
    tuner[(1,)](floats(), out, 4)
    assert out.tolist() == [11.0] * 4


def test_restore_value_after_a_failure():
    kernel = FakeKernel()
    kernel.failures[16] = OutOfResources("scratch", 2, 1)
    out = np.full(4, 10.0, np.float32)
    tuner, _ = tuned(kernel, restore_value=["out"])
    tuner[(1,)](floats(), out, 4)
    assert out.tolist() == [11.0] * 4


def test_torch_tensors_are_reset_and_restored():
    torch = pytest.importorskip("torch")
    x, out = torch.full((4,), 10.0), torch.zeros(4)
    tuner, clock = tuned(FakeKernel(), reset_to_zero=["out"], restore_value=["x"])
    tuner[(1,)](x, out, 4)
    assert (x.tolist(), out.tolist()) == ([10.0] * 4, [1.0] * 4)
    tuner[(1,)](x.bfloat16(), out, 4)
    assert len(clock.blocks) == 6


def test_arrays_that_are_not_given_need_no_reset():
    tuner, _ = tuned(FakeKernel(), reset_to_zero=["out"], restore_value=["out"])
    tuner[(1,)](floats(), None, 4)


def test_hooks_see_every_run():
    kernel = FakeKernel()
    kernel.failures[16] = OutOfResources("scratch", 2, 1)
    seen: list[Any] = []

    def before(arguments: dict[str, Any], reset_only: bool = False) -> None:
        seen.append((arguments["BLOCK"], arguments["n"], reset_only))

    def after(arguments: dict[str, Any], exception: Exception | None) -> None:
        seen.append(exception)

    tuner, _ = tuned(kernel, configs=CONFIGS[:2], pre_hook=before, post_hook=after)
    tuner[(1,)](floats(), None, 4)
    failed = [(16, 4, False), kernel.failures[16]]
    ran = [(32, 4, False), None]
    assert seen == [*failed, *ran, *ran, (32, 4, True)]


def test_a_configs_own_hook_runs_before_each_of_its_launches():
    seen: list[int] = []
    configs = [Config({"BLOCK": b}, pre_hook=lambda args: seen.append(args["BLOCK"])) for b in COST]
    tuner, _ = tuned(FakeKernel(), configs=configs)
    tuner[(1,)](floats(), None, 4)
    tuner[(1,)](floats(), None, 4)
    assert seen == [16, 16, 32, 32, 64, 64, 32, 32]


# -- pruning --------------------------------------------------------------------------------
def test_early_config_prune():
    def prune(configs: list[Config], arguments: dict[str, Any], **kwargs: Any) -> list[Config]:
        assert (arguments["n"], kwargs["FLAG"], kwargs["grid"]) == (40, True, (1,))
        return [c for c in configs if c.kwargs["BLOCK"] <= arguments["n"]]

    tuner, clock = tuned(FakeKernel(), prune_configs_by={"early_config_prune": prune})
    tuner[(1,)](floats(), None, 40, FLAG=True)
    assert clock.blocks == [16, 32]


def test_pruning_everything_is_an_error():
    tuner, _ = tuned(FakeKernel(), prune_configs_by={"early_config_prune": lambda *a, **k: []})
    with pytest.raises(UserError, match="No valid autotuner configs after pruning"):
        tuner[(1,)](floats(), None, 4)


def test_a_single_survivor_is_not_measured():
    kernel = FakeKernel()
    tuner, clock = tuned(
        kernel, prune_configs_by={"early_config_prune": lambda configs, *a, **k: configs[2:]}
    )
    tuner[(1,)](floats(), None, 4)
    assert (clock.blocks, kernel.count(64)) == ([], 1)


@pytest.mark.parametrize(("top_k", "measured"), [(2, [64, 32]), (0.7, [64, 32]), (3, [16, 32, 64])])
def test_perf_model(top_k: float, measured: list[int]):
    def model(n: int, BLOCK: int, num_warps: int, **_: Any) -> float:
        return n * num_warps / BLOCK

    prune = {"perf_model": model, "top_k": top_k}
    tuner, clock = tuned(FakeKernel(), prune_configs_by=prune)
    tuner[(1,)](floats(), None, 4)
    assert clock.blocks == measured


@pytest.mark.parametrize("options", [{"top_k": 0}, {"top_k": 1.5}, {"topk": 2}])
def test_bad_prune_options(options: dict[str, Any]):
    with pytest.raises((TypeError, ValueError), match=r"prune_configs_by(.|\n)*expected"):
        autotune(CONFIGS, ["n"], prune_configs_by=options)(FakeKernel())


# -- results on disk ------------------------------------------------------------------------
def test_results_are_found_by_another_process(cache_folder: Path):
    first, clock = tuned(FakeKernel(), cache_results=True)
    first[(1,)](floats(), None, 4)
    assert len(clock.blocks) == 3
    (file,) = (cache_folder / "autotune").iterdir()
    assert len(json.loads(file.read_text())["timings_ms"]) == 3

    second, clock = tuned(FakeKernel(), cache_results=True)
    second[(1,)](floats(), None, 4)
    assert clock.blocks == []
    assert second.best_config == CONFIGS[1]
    assert second.configs_timings == first.configs_timings


def retuned(**options: Any) -> bool:
    """Whether a tuner with these options measures, after one with the defaults has."""
    tuner, _ = tuned(FakeKernel(), cache_results=True)
    tuner[(1,)](floats(), None, 4)
    kernel = FakeKernel(options.pop("source", "source"))
    n, dtype = options.pop("n", 4), options.pop("dtype", "f4")
    tuner, clock = tuned(kernel, cache_results=True, **options)
    tuner[(1,)](np.zeros(4, dtype), None, n)
    return bool(clock.blocks)


@pytest.mark.parametrize(
    "options",
    [{"source": "edited"}, {"n": 5}, {"dtype": "f8"}, {"configs": CONFIGS[:2]}],
    ids=["source", "key", "dtype", "configs"],
)
def test_what_makes_stored_results_stale(options: dict[str, Any]):
    assert retuned(**options)


def test_the_machine_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch):
    assert not retuned()
    monkeypatch.setenv("DEUTERON_CPU", "x86-64-v3")
    tuner, clock = tuned(FakeKernel(), cache_results=True)
    tuner[(1,)](floats(), None, 4)
    assert clock.blocks


def test_the_threads_in_use_are_part_of_the_key():
    assert not retuned()
    before = get_num_threads()
    set_num_threads(before + 1)
    try:
        tuner, clock = tuned(FakeKernel(), cache_results=True)
        tuner[(1,)](floats(), None, 4)
        assert clock.blocks
    finally:
        set_num_threads(before)


def test_configs_with_hooks_are_not_stored(cache_folder: Path):
    hooked = [Config({"BLOCK": block}, pre_hook=lambda args: None) for block in COST]
    tuner, _ = tuned(FakeKernel(), configs=hooked, cache_results=True)
    tuner[(1,)](floats(), None, 4)
    assert list(cache_folder.iterdir()) == []


def test_damaged_results_are_measured_again(cache_folder: Path):
    assert not retuned()
    (file,) = (cache_folder / "autotune").iterdir()
    for damage in ["", "{", "[]", '{"timings_ms": {}}', '{"timings_ms": {"a": null}}']:
        file.write_text(damage)
        tuner, clock = tuned(FakeKernel(), cache_results=True)
        tuner[(1,)](floats(), None, 4)
        assert len(clock.blocks) == 3
        assert len(json.loads(file.read_text())["timings_ms"]) == 3


def test_configs_that_did_not_fit_are_remembered():
    kernel = FakeKernel()
    kernel.failures[32] = OutOfResources("scratch", 2, 1)
    tuner, _ = tuned(kernel, cache_results=True)
    tuner[(1,)](floats(), None, 4)
    again, clock = tuned(FakeKernel(), cache_results=True)
    again[(1,)](floats(), None, 4)
    assert (clock.blocks, again.best_config) == ([], CONFIGS[2])


def test_without_cache_results_nothing_is_written(cache_folder: Path):
    tuner, _ = tuned(FakeKernel())
    tuner[(1,)](floats(), None, 4)
    assert list(cache_folder.iterdir()) == []


# -- configs --------------------------------------------------------------------------------
def test_configs_are_compared_by_what_they_launch():
    config = Config({"BLOCK": 16}, num_warps=2, maxnreg=64)
    assert config == Config({"BLOCK": 16}, num_warps=2, maxnreg=64)
    assert hash(config) == hash(Config({"BLOCK": 16}, num_warps=2, maxnreg=64))
    assert config != Config({"BLOCK": 16}, num_warps=2)
    assert config != Config({"BLOCK": 16}, num_warps=2, maxnreg=64, pre_hook=print)
    assert str(config) == "BLOCK: 16, num_warps: 2, num_ctas: 1, num_stages: 3, maxnreg: 64"


# -- heuristics -----------------------------------------------------------------------------
def test_heuristics_compute_meta_parameters_at_each_launch():
    kernel = FakeKernel()
    wrapped = heuristics(
        {
            "BLOCK": lambda args: 2 * args["n"],
            "FLAG": lambda args: args["BLOCK"] > 10 and args["x"].size == 4,
        }
    )(kernel)
    assert wrapped[(7,)](floats(), None, 4) == "launched"
    assert wrapped[(7,)](floats(), out=None, n=8) == "launched"
    seen = [(run["BLOCK"], run["FLAG"], run["grid"]) for run in kernel.launches]
    assert seen == [(8, False, (7,)), (16, True, (7,))]


def test_heuristics_compile_too():
    kernel = FakeKernel()
    wrapped = heuristics({"BLOCK": lambda args: 2 * args["n"]})(kernel)
    assert wrapped.warmup(floats(), None, 4, grid=(1,)) == "compiled 8"
    assert kernel.launches == []


def test_heuristics_inside_autotune():
    kernel = FakeKernel()
    inner = heuristics({"FLAG": lambda args: args["n"] % args["BLOCK"] == 0})(kernel)
    clock = FakeClock(kernel, COST)
    tuner = autotune(CONFIGS, ["n"], do_bench=clock)(inner)
    tuner[(1,)](floats(), None, 96)
    assert [run["FLAG"] for run in kernel.launches] == [True] * 4 + [False] * 2 + [True]
    assert tuner.base_fn is FakeKernel.fn


def test_autotune_inside_heuristics():
    kernel = FakeKernel()
    tuner, clock = tuned(kernel)
    outer = heuristics({"FLAG": lambda args: args["n"] > 3})(tuner)
    outer[(1,)](floats(), None, 4)
    assert len(clock.blocks) == 3
    assert all(run["FLAG"] is True for run in kernel.launches)


def test_tuning_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuner = autotune(CONFIGS, ["n"], warmup=0, rep=0, use_cuda_graph=True)(FakeKernel())
        tuner[(1,)](floats(), None, 4)
