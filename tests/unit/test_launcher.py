"""The launcher: what machine code reads of arguments, packs, runs and reports."""

from __future__ import annotations

import ctypes
import gc
import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from deuteron.backends.cpu import native
from deuteron.backends.cpu.device_print import format_site
from deuteron.backends.cpu.kernel_info import AssertSite, PrintSite
from deuteron.backends.cpu.pool import get_num_threads, set_num_threads
from deuteron.backends.cpu.structs import Struct, expand
from deuteron.backends.llvm.compile import Machine, compile_object
from deuteron.dtypes import float32, float64, int32, int64
from deuteron.errors import DeviceAssertionError, LaunchError, OutOfResources
from deuteron.runtime.jit import JITFunction
from tests.unit.launch_fakes import (
    COUNT,
    EMPTY,
    FAIL,
    NAP,
    PRINT,
    RECORD,
    constexpr,
    four,
    make,
    together,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _no_disk_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEUTERON_DISABLE_CACHE", "1")


def words(count: int) -> str:
    return RECORD.replace("COUNT", str(count))


@contextmanager
def machine_code_only(kernel: JITFunction) -> Iterator[None]:
    """Fail when a launch in this block takes the plain way."""

    def refuse(*args: object) -> None:
        raise AssertionError("the launch took the plain way")

    kernel._launch_slowly = refuse  # type: ignore[method-assign]
    try:
        yield
    finally:
        del kernel._launch_slowly


ARRAYS: dict[str, Callable[[int], Any]] = {
    "numpy": lambda n: np.zeros(n, np.int64),
    "torch": lambda n: torch.zeros(n, dtype=torch.int64),
}


def address(array: Any) -> int:
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr()


@pytest.mark.parametrize("kind", ARRAYS)
def test_args_block(kind: str) -> None:
    def kernel(out, x, i, j, f, g: float64, flag, none, one, B: constexpr, last):
        pass

    k = make(kernel, words(12))
    out, x = ARRAYS[kind](16), ARRAYS[kind](16)

    def launch() -> list[int]:
        out[:] = 0
        k[(3, 4, 5)](out, x[1:], -5, 2**40, 1.5, 2.5, True, None, 1, 64, last=7)
        return [int(word) for word in out]

    slow = launch()
    assert launch()[:3] == slow[:3]  # after the first, machine code knows the arrays' type
    with machine_code_only(k):
        fast = launch()
    assert fast[:3] == slow[:3] == [3, 4, 5]
    assert fast[4:] == slow[4:]
    assert fast[4:12] == [
        address(out),
        address(x[1:]),
        -5,
        2**40,
        struct.unpack("=i", struct.pack("=f", 1.5))[0],
        struct.unpack("=q", struct.pack("=d", 2.5))[0],
        1,
        7,
    ]


def test_first_launch_loads_the_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, k, out = native.code(), make(four, COUNT, scratch_bytes=1000), np.zeros(1, np.int64)
    monkeypatch.setattr(native, "_CODE", [])
    monkeypatch.setattr(native, "load_code", lambda *machine: loaded)
    bound = k[(1,)]
    assert not native.is_loaded()
    bound(out, out, out, 5)
    assert native.is_loaded()
    with machine_code_only(k):
        bound(out, out, out, 5)
        k[(1,)](out, out, out, 5)
    assert out.tolist() == [3]


@pytest.mark.parametrize("kind", ARRAYS)
def test_every_program_runs_once(kind: str) -> None:
    k = make(four, COUNT, scratch_bytes=1000)
    out = ARRAYS[kind](24)
    for _ in range(3):
        k[(2, 3, 4)](out, out, out, 5)
    assert [int(n) for n in out] == [3] * 24


class Calls:
    """Counts how often a kernel is compiled and which of its calls need the plain way."""

    def __init__(self, fn: Callable[..., Any] = four, **options: Any) -> None:
        self.kernel = make(fn, EMPTY, **options)
        self.slow = 0
        plain = self.kernel._launch_slowly

        def counted(*args: Any) -> Any:
            self.slow += 1
            return plain(*args)

        self.kernel._launch_slowly = counted  # type: ignore[method-assign]

    def compiled(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """(compilations, plain launches) that this call caused."""
        backend: Any = self.kernel.backend
        before = len(backend.compiled), self.slow
        self.kernel[(1,)](*args, **kwargs)
        return len(backend.compiled) - before[0], self.slow - before[1]


NEW, HIT, KNOWN = (1, 1), (0, 0), (0, 1)


def aligned(count: int, dtype: Any = np.float32, offset: int = 0) -> np.ndarray:
    """An array whose address is `offset` bytes past a multiple of 64."""
    raw = np.zeros(count * np.dtype(dtype).itemsize + 128, np.uint8)
    begin = -raw.ctypes.data % 64 + offset
    return raw[begin : begin + count * np.dtype(dtype).itemsize].view(dtype)


def test_what_compiles_anew() -> None:
    calls = Calls()
    a, b, c = aligned(8), aligned(8), aligned(8)
    assert calls.compiled(a, b, c, 5) == NEW
    assert calls.compiled(a, b, c, 6) == HIT
    assert calls.compiled(c, a, b, n=7) == HIT
    assert calls.compiled(a, b, c, 16) == NEW
    assert calls.compiled(a, b, c, 0) == HIT
    assert calls.compiled(a, b, c, 1) == NEW
    assert calls.compiled(a, b, c, 2**31 - 1) == HIT
    assert calls.compiled(a, b, c, 2**31) == NEW  # divisible by 16
    assert calls.compiled(a, b, c, 2**31 + 1) == NEW
    assert calls.compiled(a, b, c, -(2**31) - 1) == HIT
    assert calls.compiled(a, b, c, 2**63 + 1) == NEW
    assert calls.compiled(a, b, c, 2**63 + 3) == KNOWN  # unsigned ints take the plain way
    assert calls.compiled(a, b, c, 5.0) == NEW
    assert calls.compiled(a, b, c, 1.0) == HIT
    assert calls.compiled(a, b, c, True) == NEW
    assert calls.compiled(a, b, c, False) == HIT
    assert calls.compiled(a, b, c, None) == NEW
    assert calls.compiled(a, b, None, None) == NEW


def test_arrays_by_dtype_and_address() -> None:
    calls = Calls()
    a, b, c = aligned(8), aligned(8), aligned(8)
    assert calls.compiled(a, b, c, 5) == NEW
    assert calls.compiled(a, b, aligned(8, offset=4), 5) == NEW
    assert calls.compiled(a, b, aligned(8, offset=8), 5) == HIT
    assert calls.compiled(a, b, aligned(8, offset=32), 5) == HIT
    assert calls.compiled(a, b, aligned(8, np.int32), 5) == NEW
    assert calls.compiled(a, b, aligned(8, np.uint32), 5) == NEW
    assert calls.compiled(a, b, aligned(8, np.float64), 5) == NEW
    assert calls.compiled(a, b, aligned(8, np.bool_), 5) == NEW
    t = [torch.zeros(64) for _ in range(3)]
    assert calls.compiled(*t, 5) == KNOWN  # compiled for NumPy's
    assert calls.compiled(*t, 5) in (HIT, KNOWN)  # the type may be new to machine code
    assert calls.compiled(*t, 5) == HIT
    assert calls.compiled(a, b, t[0], 5) == KNOWN
    assert calls.compiled(a, b, t[1], 5) == HIT
    assert calls.compiled(*t[:2], t[2].to(torch.bfloat16), 5) == NEW
    assert calls.compiled(*t[:2], torch.zeros(64, dtype=torch.float8_e5m2), 5) == NEW


def test_constexprs_and_options() -> None:
    calls = Calls()
    a = aligned(8)
    assert calls.compiled(a, a, a, 5) == NEW
    assert calls.compiled(a, a, a, 5, BLOCK=64) == HIT
    assert calls.compiled(a, a, a, 5, 64) == HIT
    assert calls.compiled(a, a, a, 5, BLOCK=128) == NEW
    assert calls.compiled(a, a, a, 5, 1) == NEW
    assert calls.compiled(a, a, a, 5, True) == NEW
    assert calls.compiled(a, a, a, 5, 1.0) == NEW
    assert calls.compiled(a, a, a, 5, 0.0) == NEW
    assert calls.compiled(a, a, a, 5, -0.0) == NEW
    assert calls.compiled(a, a, a, 5, None) == NEW
    first, second = "".join(["ab", "cd"]), "".join(["abc", "d"])
    assert calls.compiled(a, a, a, 5, first) == NEW
    assert calls.compiled(a, a, a, 5, second) == KNOWN
    assert calls.compiled(a, a, a, 5, second) == HIT
    assert calls.compiled(a, a, a, 5, num_warps=8) == NEW
    assert calls.compiled(a, a, a, 5, num_warps=8) == HIT
    assert calls.compiled(a, a, a, 5, num_warps=4) == KNOWN
    assert calls.compiled(a, a, a, 5, num_warps=4, num_stages=3) == KNOWN
    assert calls.compiled(a, a, a, 5, num_stages=2, num_warps=4) == NEW


def test_do_not_specialize() -> None:
    calls = Calls(do_not_specialize=["n", 0], do_not_specialize_on_alignment=["b"])
    a, b, c = (aligned(16) for _ in range(3))
    shifted = aligned(16, offset=4)
    assert calls.compiled(a, b, c, 5) == NEW
    assert calls.compiled(a, b, c, 1) == HIT
    assert calls.compiled(a, b, c, 16) == HIT
    assert calls.compiled(shifted, b, c, 16) == HIT
    assert calls.compiled(a, shifted, c, 16) == HIT
    assert calls.compiled(a, b, shifted, 16) == NEW
    assert calls.compiled(a, b, c, 2**40) == NEW


def test_forced_types() -> None:
    def kernel(x: "*fp32", n: int64, m: int32, f: float32):  # noqa: F722
        pass

    calls = Calls(kernel)
    x = aligned(8)
    assert calls.compiled(x, 5, 5, 1.0) == NEW
    assert calls.compiled(x, 1, 1, 2.0) == HIT
    assert calls.compiled(x, 5, 5, 3) == KNOWN  # an int for a float is converted the plain way
    assert calls.compiled(x, 5, 5, 3) == KNOWN
    with pytest.raises(LaunchError, match=r"argument 'm'.*\n(.*\n)*.*int32"):
        calls.compiled(x, 5, 2**31 + 1, 3.0)
    with pytest.raises(LaunchError, match="an array of float32"):
        calls.compiled(aligned(8, np.int64), 5, 5, 3.0)


def test_overlapping_arrays_are_a_case_of_their_own() -> None:
    calls = Calls()
    base = aligned(1024)
    other = aligned(64)
    assert calls.compiled(base, other, base, 5) == NEW  # equal is not aliased
    assert not only_spec(calls, 0).aliased
    assert [param.same_as for param in only_spec(calls, 0).params[:3]] == ["", "", "a"]
    assert calls.compiled(base[:64], other, base[64:128], 5) == NEW  # neighbours
    assert calls.compiled(base[:64], other, base[60:128], 5) == NEW
    assert only_spec(calls, 2).aliased
    assert calls.compiled(base[:64], base[16:32], base[64:], 5) == HIT
    assert calls.compiled(base[128::-1], other, base[64:], 5) == HIT  # ends are 0 and 128
    assert calls.compiled(base[::4], other, base[128:], 5) == HIT
    assert calls.compiled(base[:0], other, base, 5) in (HIT, NEW)
    t = torch.zeros(64, 64)
    Calls().compiled(t, t, t, 5)  # the first tensor of a process goes the plain way
    assert calls.compiled(t, other, t[1:], 5) == KNOWN
    assert calls.compiled(t[:32], other, t[32:], 5) == KNOWN
    assert calls.compiled(t[:32], other, t.T[4:], 5) == HIT
    rows = [spec.aliased for spec in calls.kernel._kernels]
    assert rows == [False, False, True]


def test_one_array_of_two_types_overlaps_itself() -> None:
    calls = Calls()
    a, c = aligned(64), aligned(64)
    frozen = a[:]
    frozen.flags.writeable = False
    assert calls.compiled(a, a.view(np.int32), c, 5) == NEW
    assert only_spec(calls, 0).aliased
    assert calls.compiled(a, frozen, c, 5) == NEW
    assert only_spec(calls, 1).aliased


def test_an_array_without_elements_counts_among_the_others() -> None:
    calls = Calls()
    a, b = aligned(64), aligned(64)
    assert calls.compiled(a, b, a, 5) == NEW
    assert calls.compiled(a[:0], b, b, 5) == NEW
    assert only_spec(calls, 1).params[2].same_as == "b"


def only_spec(calls: Calls, index: int) -> Any:
    return list(calls.kernel._kernels)[index]


@pytest.mark.parametrize("seed", range(5))
def test_machine_code_and_python_agree_on_overlap(seed: int) -> None:
    """Random views of one buffer: a launch by key must never differ from a plain one."""
    rng = np.random.default_rng(seed)
    calls = Calls()
    buffer = aligned(4096)
    for _ in range(60):
        views = [random_view(rng, buffer) for _ in range(3)]
        calls.compiled(*views, 5)
        fresh = Calls()
        fresh.compiled(*views, 5)
        (spec,) = fresh.kernel._kernels
        launched = calls.kernel[(1,)](*views, 5)
        assert launched.spec == spec


def random_view(rng: np.random.Generator, buffer: np.ndarray) -> np.ndarray:
    begin = int(rng.choice([0, 64, rng.integers(0, 256) * 4]))
    view = buffer[begin : begin + 4 * int(rng.integers(0, 40))].reshape(-1, 4)
    view = view[:: int(rng.choice([1, 2, -1, -3]))]
    return view.T[:: int(rng.choice([1, -1]))]


def test_read_only_arrays() -> None:
    k = make(four, EMPTY, written=("c",))
    a, c = aligned(8), aligned(8)
    frozen = aligned(8)
    frozen.flags.writeable = False
    k[(1,)](a, a, c, 5)
    for _ in range(2):
        with pytest.raises(LaunchError, match=r"argument 'c'.*read-only\n(.*\n)*.*remedy.*copy"):
            k[(1,)](a, a, frozen, 5)
        k[(1,)](a, frozen, c, 5)


@pytest.mark.parametrize(
    ("grid", "programs"),
    [
        ((5,), 5),
        ((2, 3), 6),
        ((2, 3, 4), 24),
        ((0,), 0),
        ((4, 0), 0),
        ([7], 7),
        ((np.int64(3),), 3),
    ],
)
def test_grids(grid: Any, programs: int) -> None:
    k = make(four, COUNT, scratch_bytes=1000)
    out = np.zeros(32, np.int64)
    for form in (grid, lambda meta: grid):
        for _ in range(2):
            out[:] = 0
            k[form](out, out, out, 5)
            assert out.sum() == programs
            assert (out[:programs] == 1).all()


def test_a_callable_grid_sees_the_arguments_by_name() -> None:
    k = make(four, EMPTY)
    seen: list[dict[str, Any]] = []

    def grid(meta: dict[str, Any]) -> tuple[int]:
        seen.append(meta)
        return (meta["n"] // meta["BLOCK"],)

    a = aligned(8)
    for _ in range(3):
        k[grid](a, a, a, n=128)
    assert all(meta == {"a": a, "b": a, "c": a, "n": 128, "BLOCK": 64} for meta in seen)
    assert all(type(meta) is dict for meta in seen)
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ((-1,), r"axis 0 of the grid is out of range\n(.*\n)*  expected: 0 to 2\*\*31 - 1\n.*-1"),
        ((1, 2**31), "axis 1 of the grid is out of range"),
        ((2**31 - 1,) * 3, "too many programs"),
        ((), "0 sizes"),
        ((1, 1, 1, 1), "4 sizes"),
        ((1.5,), r"1.5 \(float\) for axis 0"),
        (("3",), r"'3' \(str\) for axis 0"),
        (7, "got:      int\n  remedy"),
        ("abc", "is no grid"),
        (None, "is no grid"),
        (lambda meta: 3 / 2, "is no grid"),
    ],
)
def test_bad_grids(grid: Any, message: str) -> None:
    k = make(four, EMPTY)
    a = aligned(8)
    k[(1,)](a, a, a, 5)
    for _ in range(2):
        with pytest.raises(LaunchError, match=message):
            k[grid](a, a, a, 5)


def test_an_exception_in_the_grid_passes_through() -> None:
    k = make(four, EMPTY)
    a = aligned(8)
    k[(1,)](a, a, a, 5)
    for _ in range(2):
        with pytest.raises(KeyError, match="missing"):
            k[lambda meta: meta["missing"]](a, a, a, 5)


def test_device_assert() -> None:
    k = make(four, FAIL, asserts=(AssertSite("x < 4", "kernel.py", 12),))
    a = aligned(8)
    for _ in range(3):
        k[(4,)](a, 4, a, 5)
        with pytest.raises(DeviceAssertionError) as caught:
            k[(5,)](a, 4, a, 5)
        assert str(caught.value) == (
            "kernel.py:12: device_assert: x < 4\n  kernel:   kernel\n  program:  (4, 0, 0)"
        )


def test_device_print(capfd: pytest.CaptureFixture[str]) -> None:
    k = make(four, PRINT, prints=(PrintSite(" x: ", "float32", (2, 2)),))
    a = np.array([1.5, -2.0, np.inf, 0.1], np.float32)
    for _ in range(2):
        k[(2,)](a, a, a, 5)
        lines = sorted(capfd.readouterr().out.splitlines())
        shown = ["(0, 0) x: 1.500000", "(0, 1) x: -2.000000", "(1, 0) x: inf", "(1, 1) x: 0.100000"]
        assert lines == [f"pid ({p}, 0, 0) idx {text}" for p in range(2) for text in shown]


@pytest.mark.parametrize(
    ("site", "data", "expected"),
    [
        (PrintSite("n", "int8", (2,), hex=True), b"\xff\x07", ["(0) n 0xff", "(1) n 0x07"]),
        (PrintSite("n", "int1", ()), b"\x01", ["() n 1"]),
        (PrintSite("b", "bfloat16", ()), b"\xc0\x3f", ["() b 1.500000"]),
        (PrintSite("e", "float8e4nv", ()), b"\x3c", ["() e 1.500000"]),
        (PrintSite("p", "pointer", ()), (255).to_bytes(8, "little"), ["() p 0xff"]),
        (PrintSite("v", "int32", (), operand=1), b"\7\0\0\0", ["() v (operand 1) 7"]),
        (PrintSite(":", "int32", (), operand=1), b"\7\0\0\0", ["(): (operand 1) 7"]),
    ],
)
def test_printed_values(site: PrintSite, data: bytes, expected: list[str]) -> None:
    lines = list(format_site(site, (1, 2, 3), data))
    assert lines == [f"pid (1, 2, 3) idx {text}" for text in expected]


def test_a_print_without_operands() -> None:
    assert list(format_site(PrintSite("here", "int32", ()), (0, 0, 0), b"")) == [
        "pid (0, 0, 0) here"
    ]


def test_too_much_scratch() -> None:
    k = make(four, EMPTY, scratch_bytes=2 << 30)
    a = aligned(8)
    for _ in range(2):
        with pytest.raises(
            OutOfResources, match=r"scratch bytes of kernel four(.*\n)*.*blocks smaller"
        ):
            k[(1,)](a, a, a, 5)


def test_the_result_is_the_compiled_kernel() -> None:
    k = make(four, EMPTY)
    a = aligned(8)
    results = {id(k[(1,)](a, a, a, 5)) for _ in range(3)}
    assert len(results) == 1
    assert k[(1,)](a, a, a, 5).asm["llir"] == EMPTY


def test_concurrent_launches_of_one_kernel() -> None:
    k = make(four, COUNT, scratch_bytes=1000)
    before = get_num_threads()
    set_num_threads(3)
    try:

        def work(number: int) -> None:
            out = np.zeros(40, np.int64)
            for _ in range(100):
                k[(40,)](out, out, out, number)
            assert (out == 100).all()

        assert together(4, work) == []
    finally:
        set_num_threads(before)


def test_the_gil_is_released() -> None:
    k = make(four, NAP)
    out = np.zeros(100, np.int64)
    finished = threading.Event()
    ticks = 0

    def launch() -> None:
        k[(100,)](out, out, out, 5)
        finished.set()

    thread = threading.Thread(target=launch)
    thread.start()
    while not finished.wait(0.001):
        ticks += 1
    thread.join()
    assert ticks > 5


def test_nothing_is_leaked() -> None:
    k = make(four, EMPTY)
    a = np.zeros(4, np.float32)
    holder = weakref.ref(a)
    for grid in ((1,), lambda meta: (1,), [1]):
        for n in (5, 6, 2**63 + 1):
            k[grid](a, a, a, n)
    with pytest.raises(LaunchError):
        k[(1,)](a, [1], a, 5)
    del a
    gc.collect()
    assert holder() is None
    kernel = weakref.ref(k)
    launcher = k[(1,)]
    del k
    gc.collect()
    assert kernel() is not None  # `launcher` needs it
    launcher(np.zeros(4, np.float32), 1, 2, 3)
    del launcher
    gc.collect()
    assert kernel() is None


def test_many_keys_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deuteron.backends.cpu.launcher._CACHE_LIMIT", 8)
    calls = Calls()
    a = aligned(8)
    for i in range(100):
        calls.compiled(a, a, a, 5, "".join(["x", str(i % 3)]))
    assert len(calls.kernel._fast._records) <= 8  # type: ignore[union-attr]
    assert len(calls.kernel.backend.compiled) == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "machine", "futex", "numpy_major"),
    [
        ("x86_64", Machine("x86_64-unknown-linux-gnu", "x86-64"), True, 1),
        ("x86_64", Machine("x86_64-unknown-linux-gnu", "x86-64"), False, 2),
        ("aarch64", Machine("aarch64-unknown-linux-gnu", "generic"), True, 2),
        ("aarch64", Machine("aarch64-unknown-linux-gnu", "generic"), False, 1),
    ],
)
def test_the_machine_code_of_other_machines(
    name: str, machine: Machine, futex: bool, numpy_major: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "NUMPY_MAJOR", numpy_major)
    text = native.launch_path_ir(name, futex)
    assert ("@syscall" in text) == futex
    assert compile_object(text, machine).obj


def test_shared_structs() -> None:
    inner = Struct("Inner", {"a": "i32", "b": "ptr"})
    outer = Struct("Outer", {"n": "i8", "items": "[3 x %Inner]", "pad": "[5 x i8]"}, (inner,))
    lines = ["%x = get Inner.b %p", "%q = at Outer.items[%i] %o", "set Outer.n %o, 7"]
    text = expand("\n".join(f"  {line}" for line in lines), [inner, outer])
    assert text.splitlines() == [
        "%Inner = type { i32, ptr }",
        "%Outer = type { i8, [3 x %Inner], [5 x i8] }",
        "  %b.0 = getelementptr %Inner, ptr %p, i32 0, i32 1",
        "  %x = load ptr, ptr %b.0",
        "  %q = getelementptr %Outer, ptr %o, i32 0, i32 1, i64 %i",
        "  %n.1 = getelementptr %Outer, ptr %o, i32 0, i32 0",
        "  store i8 7, ptr %n.1",
    ]
    assert ctypes.sizeof(outer.mirror) == 8 + 3 * 16 + 8
    assert outer.mirror.items.offset == 8
