"""Jit functions: binding, specialisation, caches, hooks and errors."""

from __future__ import annotations

import threading
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deuteron import dtypes
from deuteron.backends.cpu.kernel_info import AssertSite, KernelInfo, ParamInfo, PrintSite
from deuteron.dtypes import bfloat16, float16, float32, float64, int1, int8, int64
from deuteron.errors import CompilationError, LaunchError
from deuteron.runtime.arrays import reinterpret
from deuteron.runtime.jit import JITFunction, KernelInterface
from deuteron.runtime.options import LaunchOptions, parse_options
from deuteron.runtime.protocols import Change
from deuteron.runtime.specialize import constant_identity
from tests.unit.launch_fakes import EMPTY, RECORD, Frontend, const, constexpr, four, make, together

Pair = namedtuple("Pair", ["left", "right"])


def vector(count: int = 64, dtype: Any = np.float32) -> np.ndarray:
    """An array whose address is divisible by 64."""
    size = count * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    begin = -raw.ctypes.data % 64
    return raw[begin : begin + size].view(dtype)


@pytest.fixture(autouse=True)
def _own_disk_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEUTERON_CACHE_DIR", str(tmp_path))


# -- specialisation ---------------------------------------------------------------------------
def spec_of(kernel: JITFunction, *args: Any, **kwargs: Any) -> str:
    """The specialisation of a call, as text."""
    return str(kernel.warmup(*args, grid=(1,), **kwargs).spec)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (vector(), "*fp32:16"),
        (vector()[1:], "*fp32"),
        (vector(64, np.bool_), "*i1:16"),
        (torch.zeros(3, dtype=torch.bfloat16)[1:], "*bf16"),
        (reinterpret(vector(64, np.int8), "fp8e5"), "*fp8e5:16"),
        (np.float32, "*fp32:16"),
        (torch.float8_e5m2, "*fp8e5:16"),
        (float16, "*fp16:16"),
        (5, "i32"),
        (0, "i32:16"),
        (-16, "i32:16"),
        (-(2**31), "i32:16"),
        (2**31 - 1, "i32"),
        (2**31, "i64:16"),
        (-(2**63), "i64:16"),
        (2**63, "u64:16"),
        (2**64 - 1, "u64"),
        (np.int8(5), "i32"),
        (np.uint64(2**63 + 1), "u64"),
        (np.int64(1), "=1"),
        (1, "=1"),
        (True, "i1"),
        (np.False_, "i1"),
        (1.0, "fp32"),
        (np.float64(2.0), "fp32"),
        (None, "=None"),
        (constexpr(7), "=7"),
        ((3, 1, vector()), "(x[0]: i32, x[1]=1, x[2]: *fp32:16)"),
        (Pair(3, 2.0), "(x[0]: i32, x[1]: fp32)"),
    ],
)
def test_specialisation(value: object, expected: str) -> None:
    def kernel(x):
        pass

    mark = "" if expected.startswith("=") else ": "
    assert spec_of(make(kernel), value) == f"x{mark}{expected}"


def test_annotations_fix_types() -> None:
    def kernel(
        p: "*kfp32",  # noqa: F722
        q: const,
        n: int64,
        m: dtypes.uint8,
        f: float16,
        d: float32,
        b: int1,
    ):
        pass

    k = make(kernel)
    x = vector()
    expected = "p: *kfp32:16, q: *kfp32:16, n: i64, m: u8, f: fp16, d: fp32, b: i1"
    assert spec_of(k, x, vector(), 1, 1, 2, 3, True) == expected
    assert spec_of(k, x, vector(), 16, 32, 2.0, 3.0, 1).startswith(
        "p: *kfp32:16, q: *kfp32:16, n: i64:16, m: u8:16"
    )


def test_forced_types_reach_the_args_block() -> None:
    def kernel(out, m: int8, f: float16, g: bfloat16, d: float64):
        pass

    out = vector(16, np.int64)
    k = make(kernel, RECORD.replace("COUNT", "9"))
    k[(1,)](out, -3, 1.5, 1.5, 2)
    assert out[5] == -3
    assert out.view(np.float16)[6 * 4] == 1.5
    assert out.view(np.uint16)[7 * 4] == 0x3FC0
    assert out.view(np.float64)[8] == 2.0


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (300, "expected: -128 to 127, for int8\n  got:      300"),
        (2.5, "expected: an int for int8\n  got:      the float 2.5"),
        (vector(), "a number for int8"),
    ],
)
def test_values_that_do_not_fit_their_annotation(value: object, message: str) -> None:
    def kernel(m: int8):
        pass

    with pytest.raises(LaunchError, match=message):
        make(kernel)[(1,)](value)


def test_tuples_are_flattened() -> None:
    def kernel(out, pair, rest):
        pass

    out = vector(16, np.int64)
    k = make(kernel, RECORD.replace("COUNT", "8"))
    for _ in range(2):
        k[(1,)](out, Pair(3, (4, 1)), 5)
        assert list(out[5:8]) == [3, 4, 5]


def test_variadic_kernels() -> None:
    def kernel(out, *rest, BLOCK: constexpr):
        pass

    out = vector(16, np.int64)
    k = make(kernel, RECORD.replace("COUNT", "8"))
    k[(1,)](out, 3, 4, 5, BLOCK=2)
    assert list(out[5:8]) == [3, 4, 5]


def test_constants_differ_by_type() -> None:
    values: list[object] = [1, 1.0, True, 0.0, -0.0, 0, False, None, "1", (1,), (True,)]
    assert len({constant_identity(value) for value in values}) == len(values)
    assert constant_identity(constexpr(constexpr(3))) == constant_identity(3)
    assert constant_identity(float("nan")) == constant_identity(float("nan"))


# -- binding ----------------------------------------------------------------------------------
def test_arguments_bind_as_in_python() -> None:
    def kernel(a, b, n=7, *, B: constexpr = 3, m=9):
        pass

    k, x = make(kernel), vector()
    assert spec_of(k, x, vector()) == "a: *fp32:16, b: *fp32:16, n: i32, B=3, m: i32"
    assert spec_of(k, x, x) == "a: *fp32:16, b: *fp32:16 = a, n: i32, B=3, m: i32"
    assert spec_of(k, b=x, a=x[1:], m=16, n=2) == "a: *fp32, b: *fp32:16, n: i32, B=3, m: i32:16"
    for launch in (k.warmup, k[(1,)]):
        with pytest.raises(
            LaunchError, match=r"too many arguments\n(.*\n)*  expected: at most 3: a"
        ):
            launch(x, x, 1, 2)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1, 2), {}, "no argument for c, n\n(.*\n)*  expected: a, b, c, n, BLOCK"),
        ((1, 2, 3, 4), {"a": 5}, "argument 'a' is given twice"),
        ((1, 2, 3, 4), {"BLOK": 5}, "no parameter 'BLOK'(.*\n)*.*did you mean 'BLOCK'"),
        ((1, 2, 3, 4), {"num_wraps": 5}, "did you mean 'num_warps'"),
        ((1, 2, 3, 4, 5, 6), {}, "at most 5.*\n  got:      6"),
        (([1], 2, 3, 4), {}, "argument 'a': a list cannot be an argument.*(\n.*)*numpy.asarray"),
        (("s", 2, 3, 4), {}, "argument 'a': a str.*(\n.*)*tl.constexpr"),
        ((1j, 2, 3, 4), {}, "argument 'a': a complex.*(\n.*)*real and imaginary"),
        ((object(), 2, 3, 4), {}, "argument 'a': an object cannot be an argument"),
        ((2**64, 2, 3, 4), {}, "an integer of at most 64 bits"),
        ((1, 2, 3, 4, [5]), {}, "argument 'BLOCK': a constexpr must be hashable"),
        ((1, 2, 3, 4, vector()), {}, "argument 'BLOCK': an array cannot be a constexpr"),
        (
            (1, 2, 3, 4),
            {"num_warps": 3},
            "num_warps cannot be 3\n(.*\n)*  expected: a power of two",
        ),
        ((1, 2, 3, 4), {"num_stages": -1}, "num_stages cannot be -1"),
        ((1, 2, 3, 4), {"debug": 1}, "debug cannot be 1"),
    ],
)
def test_bad_calls(args: tuple[object, ...], kwargs: dict[str, Any], message: str) -> None:
    k = make(four)
    for _ in range(2):
        with pytest.raises(LaunchError, match=f"kernel four(.*\n)*.*{message}"):
            k[(1,)](*args, **kwargs)


def test_launch_errors_are_type_and_value_errors() -> None:
    with pytest.raises(TypeError):
        make(four)[(1,)]()
    with pytest.raises(ValueError, match="no argument"):
        make(four)[(1,)]()


def test_devices() -> None:
    k, x = make(four), vector()
    elsewhere = torch.zeros(4, device="meta")
    for _ in range(2):
        with pytest.raises(
            LaunchError, match=r"different devices\n(.*\n)*  got:      a on cpu, c on meta"
        ):
            k[(1,)](x, 5, elsewhere, 5)
        with pytest.raises(LaunchError, match=r"no backend for meta yet(\n.*)*x.cpu\(\)"):
            k[(1,)](elsewhere, 5, elsewhere, 5)


def test_kernels_with_impossible_signatures() -> None:
    def options(a, **rest):
        pass

    with pytest.raises(LaunchError, match=r"takes \*\*rest"):
        make(options)
    with pytest.raises(LaunchError, match="no parameter 'm'"):
        make(four, do_not_specialize=["m"])


def test_calling_without_a_grid() -> None:
    with pytest.raises(LaunchError, match=r"without a grid\n(.*\n)*  expected: four\[grid\]"):
        make(four)(1, 2, 3, 4)


# -- options ----------------------------------------------------------------------------------
def test_options_reach_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    k = make(four)
    backend: Any = k.backend
    k[(1,)](1, 2, 3, 4, num_warps=8, num_stages=2, maxnreg=64, num_ctas=1, enable_fp_fusion=False)
    assert backend.compiled == [LaunchOptions(8, 2, enable_fp_fusion=False, maxnreg=64)]
    monkeypatch.setenv("DEUTERON_DEVICE_ASSERT", "1")
    k[(1,)](1, 2, 3, 5)
    assert backend.compiled[-1].debug
    assert parse_options({}, True, "").debug
    assert not parse_options({"debug": False}, True, "").debug
    assert make(four, debug=True).warmup(1, 2, 3, 4, debug=False).spec.options.debug is False


def test_a_parameter_may_be_called_as_an_option_is() -> None:
    def kernel(x, num_stages: constexpr, num_warps):
        pass

    k = make(kernel)
    for _ in range(2):
        done = k[(1,)](5, num_stages=7, num_warps=9)
        assert str(done.spec) == "x: i32, num_stages=7, num_warps: i32"
        assert done.spec.options == LaunchOptions(num_stages=7)


# -- caches -----------------------------------------------------------------------------------
def test_one_compilation_for_each_specialisation() -> None:
    k, x = make(four), vector()
    first = k[(1,)](x, x, x, 5)
    assert k[(2,)](x, x, x, 6) is first
    assert k.warmup(x, x, x, 6) is first
    assert k.run(x, x, x, 7, grid=(1,)) is first
    assert k.run(x, x, x, 7, grid=(1,), warmup=True) is first
    assert k[(1,)](x, x, x, 16) is not first
    assert len(k.device_caches[0][0]) == 2


def test_the_disk_cache_spares_front_end_and_backend() -> None:
    x = vector()
    first = make(four)
    first[(1,)](x, x, x, 5)
    second = make(four)
    done = second[(1,)](x, x, x, 5)
    frontend: Any = second.frontend
    backend: Any = second.backend
    assert (frontend.lowered, backend.compiled) == ([], [])
    assert done.asm["llir"] == EMPTY


@pytest.mark.parametrize(
    "different",
    [
        {"name": "another compiler"},
        {"written": ("a",)},
        {"version": 2},
        {"debug": True},
    ],
)
def test_what_the_disk_cache_tells_apart(different: dict[str, Any]) -> None:
    x = vector()
    make(four)[(1,)](x, x, x, 5)
    other = make(four, **different)
    other[(1,)](x, x, x, 5)
    backend: Any = other.backend
    assert len(backend.compiled) == 1


def test_constants_without_a_stable_text_stay_off_the_disk() -> None:
    x, constant = vector(), object()
    for _ in range(2):
        k = make(four)
        k[(1,)](x, x, x, 5, constant)
        backend: Any = k.backend
        assert len(backend.compiled) == 1


def test_kernel_info_survives_json() -> None:
    info = KernelInfo(
        "k", 128, (ParamInfo("x", "pointer", "float32", True),),
        (PrintSite("p", "int32", (2, 2), True, 1),), (AssertSite("m", "f.py", 3),),
        "cpu", "ir", "ll",
    )  # fmt: skip
    assert KernelInfo.from_json(info.to_json()) == info


def test_threads_compile_once_and_others_wait() -> None:
    entered = threading.Event()

    def gate() -> None:
        entered.set()
        threading.Event().wait(0.05)

    frontend = Frontend(gate=gate)
    k, x = make(four, frontend=frontend), vector()
    results: list[object] = []
    assert together(6, lambda _: results.append(k[(1,)](x, x, x, 5))) == []
    assert len(frontend.lowered) == 1
    assert len(set(map(id, results))) == 1


def test_a_failed_compilation_leaves_nothing_behind() -> None:
    def fail() -> None:
        raise CompilationError("no such thing")

    frontend = Frontend(gate=fail)
    k, x = make(four, frontend=frontend), vector()
    for _ in range(2):
        with pytest.raises(CompilationError, match="no such thing"):
            k[(1,)](x, x, x, 5)
    assert not k.device_caches[0][0]
    frontend.gate = lambda: None
    k[(1,)](x, x, x, 5)
    assert len(k.device_caches[0][0]) == 1


def test_changed_globals() -> None:
    frontend = Frontend()
    k, x = make(four, frontend=frontend), vector()
    for _ in range(3):
        k[(1,)](x, x, x, 5)
    frontend.changed = Change("SIZE", 1, 2)
    for _ in range(2):
        with pytest.raises(
            LaunchError, match="SIZE has changed since we compiled this kernel, from 1 to 2"
        ):
            k[(1,)](x, x, x, 5)
    frontend.changed = None
    k[(1,)](x, x, x, 5)


def test_an_error_of_the_front_end_while_checking_globals() -> None:
    class Broken(Frontend):
        def globals_changed(self, fn: JITFunction) -> Change | None:
            raise KeyError("gone")

    k = make(four, frontend=Broken())
    with pytest.raises(KeyError, match="gone"):
        k[(1,)](1, 2, 3, 4)


# -- hooks and the interpreter ----------------------------------------------------------------
def test_pre_run_hooks() -> None:
    k, x = make(four), vector()
    k[(1,)](x, x, x, 5)
    k[(1,)](x, x, x, 5)
    seen: list[tuple[tuple[object, ...], dict[str, object]]] = []
    k.add_pre_run_hook(lambda *args, **kwargs: seen.append((args, kwargs)))
    for _ in range(3):
        k[(1,)](x, x, x, n=5)
    assert len(seen) == 3
    assert seen[0][0][0] is x
    assert seen[0][1] == {"n": 5}


def test_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEUTERON_INTERPRET", "1")
    k, x = make(four), vector()
    for _ in range(2):
        done = k[lambda meta: (meta["n"], 2)](x, x, x, 5)
    backend: Any = k.backend
    assert backend.compiled == []
    address = x.ctypes.data
    assert [call[1:] for call in backend.interpreted] == [((address,) * 3 + (5,), (5, 2, 1))] * 2
    assert set(done.asm) == {"ir"}
    assert make(four, interpret=False).interpret is False


# -- compiled kernels -------------------------------------------------------------------------
def test_launching_a_compiled_kernel() -> None:
    def kernel(out, n, one, BLOCK: constexpr):
        pass

    out = vector(16, np.int64)
    k = make(kernel, RECORD.replace("COUNT", "6"))
    compiled = k.warmup(out, 5, 1, BLOCK=64, grid=(1,))
    for args in ((out, 7), (out, 7, 1, 64)):
        out[:] = 0
        assert compiled[(2, 3)](*args) is compiled
        assert list(out[:3]) == [2, 3, 1]
        assert out[5] == 7
    for args, message in [
        ((out, 7, 1), "expected: all 4, or the 2 that are no constants\n  got:      3"),
        ((out, 2**40), "argument 'n'\n(.*\n)*  expected: n: i32\n  got:      n: i64:16"),
        ((out, 7, 1, 32), "another argument 'BLOCK'"),
        ((out[1:], 7), "another argument 'out'"),
        ((out.view(np.float64), 7), "another argument 'out'"),
    ]:
        with pytest.raises(LaunchError, match=message):
            compiled[(1,)](*args)


def test_what_callers_read_off_a_compiled_kernel() -> None:
    compiled = make(four, scratch_bytes=512).warmup(np.float32, np.float32, 3, 4, grid=(1,))
    assert compiled.metadata.scratch_bytes == 512
    assert (compiled.metadata.num_warps, compiled.metadata.shared) == (4, 512)
    assert compiled.name == "four"
    assert compiled.n_regs in (16, 32)  # vector registers of CPUs
    assert compiled.n_spills == 0
    assert set(compiled.asm) == {"ir", "llir", "asm"}
    assert "kernel" in compiled.asm["asm"]
    with pytest.raises(KeyError):
        compiled.asm["ptx"]


def test_what_callers_read_off_a_jit_function() -> None:
    k = make(four)
    assert isinstance(k, KernelInterface)
    assert (k.__name__, k.__doc__) == ("four", four.__doc__)
    assert k.arg_names == ["a", "b", "c", "n", "BLOCK"]
    assert k.src.startswith("def four(a: Any, b: Any")
    assert [param.is_constexpr for param in k.params] == [False] * 4 + [True]
    assert k.params[4].default == 64
