"""What programs written for Triton ask of a jit function beside launching it."""

from __future__ import annotations

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deuteron as dn
import deuteron.language as tl
from deuteron import config
from deuteron.errors import CompileTimeAssertionFailure
from deuteron.runtime import knobs
from deuteron.runtime.async_compile import AsyncCompileMode, FutureKernel, active_mode
from deuteron.runtime.autotune import AutotunerError
from deuteron.runtime.file_cache import FileCacheManager, RemoteCacheManager
from deuteron.runtime.specialization_text import PreloadError
from deuteron.testing.arrays import fresh_knobs


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DEUTERON_CACHE_DIR", str(tmp_path / "cache"))
    with knobs.runtime.scope(), knobs.autotuning.scope(), knobs.cache.scope():
        yield


@dn.jit
def seventeen():
    return 17


@dn.jit
def thirty():
    return 30


@dn.jit
def call_kernel(out_ptr, FN: tl.constexpr, SHAPE: tl.constexpr = ((2, 3), (5,))):
    tl.static_assert(SHAPE[0][1] < 10)
    tl.store(out_ptr, FN() + SHAPE[1][0])


# -- preload ----------------------------------------------------------------------------------
def test_preload_compiles_what_a_hook_was_told():
    told: list[str] = []
    knobs.runtime.jit_cache_hook = lambda **told_of: told.append(
        told_of["compile"]["specialization_data"]
    )
    out = np.zeros(1, np.int32)
    first = call_kernel.warmup(out, seventeen, grid=(1,))
    call_kernel.device_caches[0][0].clear()
    loaded = call_kernel.preload(told[0])
    assert loaded.spec == first.spec
    assert loaded.hash == first.hash
    asked = len(told)
    call_kernel[(1,)](out, seventeen)
    assert len(told) == asked  # it was there
    assert out[0] == 22
    with pytest.raises(PreloadError, match=r"is for .*call_kernel, not for .*seventeen"):
        seventeen.preload(told[0])
    with pytest.raises(RuntimeError, match="unheard-of"):
        call_kernel.preload(told[0].replace('"backend": "cpu"', '"backend": "unheard-of"'))
    with pytest.raises(PreloadError, match="gone, which cannot be found"):
        call_kernel.preload(told[0].replace("seventeen", "gone"))


# -- sources that change ----------------------------------------------------------------------
def test_a_callee_with_another_source_changes_its_callers():
    out = np.zeros(1, np.int32)
    call_kernel[(1,)](out, thirty)
    before = call_kernel.cache_key
    source = thirty.src
    thirty._unsafe_update_src(source.replace("30", "40"))
    try:
        call_kernel[(1,)](out, thirty)
        assert out[0] == 45
    finally:
        thirty._unsafe_update_src(source)
    call_kernel[(1,)](out, thirty)
    assert out[0] == 35
    assert call_kernel.cache_key == before
    assert thirty.src == source


@dn.constexpr_function
def flag():
    return 1


@dn.jit
def flag_kernel(out_ptr):
    value: tl.constexpr = flag()
    tl.store(out_ptr, value)


def test_a_constexpr_function_with_another_source():
    out = np.zeros(1, np.int32)
    flag_kernel[(1,)](out)
    before, source = flag_kernel.cache_key, flag.src
    flag._unsafe_update_src(source.replace("1", "2"))
    assert flag_kernel.cache_key != before
    flag_kernel[(1,)](out)
    assert out[0] == 2
    flag._unsafe_update_src(source)
    assert flag_kernel.cache_key == before


WIDTH = 4


def double(x: int) -> int:
    return x * WIDTH


@dn.constexpr_function
def width_of_two() -> int:
    return double(2)


@dn.jit
def reads_a_width(out):
    tl.store(out, width_of_two())


def test_the_key_covers_what_constexpr_functions_read(monkeypatch: pytest.MonkeyPatch):
    keys: list[str] = []
    for width in (4, 5, 4):
        monkeypatch.setitem(globals(), "WIDTH", width)
        reads_a_width.frontend.forget()
        keys.append(reads_a_width.cache_key)
    assert keys[0] == keys[2] != keys[1]


def test_a_constexpr_that_is_set_after_compiling():
    size = tl.constexpr(4)

    @dn.jit
    def kernel(out_ptr):
        tl.store(out_ptr, size)

    out = np.zeros(1, np.int32)
    kernel[(1,)](out)
    size.value = 5
    with pytest.raises(RuntimeError, match=r"size has changed .* from constexpr\[4\] to const"):
        kernel[(1,)](out)


# -- compiling in the background --------------------------------------------------------------
class Queue(Executor):
    """Runs what was submitted when told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run_all(self) -> None:
        for future, work in self.waiting:
            future.set_result(work())
        self.waiting.clear()


@dn.jit
def set_kernel(out_ptr, VALUE: tl.constexpr):
    tl.static_assert(VALUE != 13)
    tl.store(out_ptr, VALUE)


def test_warmup_in_the_background_submits_each_kernel_once():
    set_kernel.device_caches.clear()
    out = np.zeros(1, np.float32)
    queue = Queue()
    with AsyncCompileMode(queue):
        for value in (3, 4, 3):
            assert isinstance(set_kernel.warmup(out, value, grid=(1,)), FutureKernel)
        assert len(queue.waiting) == len(set_kernel.device_caches["cpu"][0]) == 2
        queue.run_all()
        set_kernel[(1,)](out, 4)
        assert out[0] == 4
    assert active_mode.get() is None


def test_errors_of_the_background_are_raised_at_the_end():
    out = np.zeros(1, np.float32)
    with (
        pytest.raises(CompileTimeAssertionFailure),
        ThreadPoolExecutor(1) as pool,
        AsyncCompileMode(pool),
    ):
        set_kernel.warmup(out, 13, grid=(1,))
    assert active_mode.get() is None
    with ThreadPoolExecutor(1) as pool, AsyncCompileMode(pool, ignore_errors=True):
        set_kernel.warmup(out, 13, grid=(1,))


# -- knobs -------------------------------------------------------------------------------------
def test_knobs_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("TRITON_PRINT_AUTOTUNING", "1")
    assert knobs.autotuning.print
    monkeypatch.setenv("DEUTERON_PRINT_AUTOTUNING", "0")
    assert not knobs.autotuning.print
    with knobs.cache.scope(), knobs.compilation.scope():
        knobs.cache.dir = str(tmp_path / "there")
        knobs.compilation.always_compile = True
        assert config.cache_dir() == tmp_path / "there"
        assert not config.cache_enabled()
    assert config.cache_dir() == tmp_path / "cache"
    assert config.cache_enabled()
    assert knobs.language.knobs == {"fp32_default": None, "default_fp_fusion": True}


def test_scopes_hold_hooks():
    with knobs.runtime.scope():
        knobs.runtime.launch_enter_hook.add(print)
    assert not knobs.runtime.launch_enter_hook


def test_fresh_knobs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRITON_DEBUG", "1")
    monkeypatch.setenv("TRITON_HOME", "/there")
    fresh, close = fresh_knobs({"cache"})
    assert fresh() is knobs
    assert not knobs.runtime.debug
    assert knobs.cache.home_dir == "/there"
    close()
    assert knobs.runtime.debug


LIMIT = 3


@dn.jit
def limit_kernel(out_ptr):
    tl.store(out_ptr, LIMIT)


def test_plain_globals_where_they_are_allowed():
    out = np.zeros(1, np.int32)
    with knobs.compilation.scope():
        knobs.compilation.allow_non_constexpr_globals = True
        limit_kernel[(1,)](out)
    assert out[0] == 3


# -- autotuning --------------------------------------------------------------------------------
def test_a_listener_hears_of_tuning():
    heard: list[dict[str, Any]] = []
    knobs.autotuning.listener = lambda **told: heard.append(told)
    tuned = dn.autotune(
        [dn.Config({"VALUE": 1}), dn.Config({"VALUE": 2})],
        key=[],
        do_bench=lambda fn, quantiles: [1.0, 1.0, 1.0],
        cache_results=True,
    )
    for _ in range(2):
        tuned(set_kernel)[(1,)](np.zeros(1, np.float32))
    assert [told["cache_hit"] for told in heard] == [False, True]
    assert heard[0]["fn"] is set_kernel
    assert heard[0]["duration"] > 0
    assert heard[1]["duration"] is None
    assert len(heard[1]["configs_timings"]) == 2


def test_nothing_left_to_tune():
    tuned = dn.autotune(
        [dn.Config({"VALUE": 1}), dn.Config({"VALUE": 2})],
        key=[],
        prune_configs_by={"early_config_prune": lambda configs, named, **rest: []},
    )
    with pytest.raises(AutotunerError, match="No valid autotuner configs"):
        tuned(set_kernel)[(1,)](np.zeros(1, np.float32))


# -- files by key ------------------------------------------------------------------------------
def test_groups_of_files():
    manager = FileCacheManager("key")
    first = manager.put("text", "a.json", binary=False)
    second = manager.put(b"\x00", "b.bin")
    manager.put_group("a.json", {"a.json": first, "b.bin": second})
    assert manager.get_group("a.json") == {"a.json": first, "b.bin": second}
    Path(second).unlink()
    assert not manager.has_file("b.bin")
    assert manager.get_group("a.json") is None


def test_a_store_of_the_callers():
    class Store:
        data: dict[str, bytes] = {}  # noqa: RUF012

        def __init__(self, key: str) -> None:
            self.key = key

        def get(self, filenames: list[str]) -> dict[str, bytes]:
            return {name: self.data[name] for name in filenames if name in self.data}

        def put(self, filename: str, data: bytes) -> None:
            self.data[filename] = data

    knobs.cache.remote_manager_class = Store
    manager = RemoteCacheManager("key")
    manager.put("text", "a.json", binary=False)
    manager.put_group("a.json", {"a.json": "anywhere"})
    found = manager.get_group("a.json")
    assert found is not None
    assert Path(found["a.json"]).read_text(encoding="utf-8") == "text"
    del Store.data["a.json"]
    assert manager.get_group("a.json") is None
