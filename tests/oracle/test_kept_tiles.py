"""Packed tiles that a thread keeps for other programs must never be told apart from fresh ones.

Each kernel is run on the interpreter, which keeps nothing, and compiled, with the store as it is
and with stores so small that tiles push each other out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import deuteron as dn
import deuteron.language as tl
from deuteron.backends.cpu import tile_store, tile_store_ir
from deuteron.lang.frontend import PythonFrontend
from deuteron.ops.matmul import matmul_kernel
from deuteron.runtime.jit import JITFunction
from tests.unit.launch_fakes import together

B = 32  # tiles of 32 x 32 floats are large enough to be kept


@pytest.fixture(autouse=True)
def _compile_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEUTERON_DISABLE_CACHE", "1")


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = dn.get_num_threads()
    dn.set_num_threads(request.param)
    yield request.param
    dn.set_num_threads(before)


@pytest.fixture(params=[64 << 20, 5 * 2 * 4096, 1], ids=["whole", "4 slots", "1 slot"])
def store_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The size of the store that kernels compiled from now on are given."""
    monkeypatch.setattr(tile_store, "STORE_BYTES", request.param)
    return request.param


def floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def fresh(kernel: JITFunction) -> JITFunction:
    """A kernel that was not compiled yet."""
    return dn.jit(kernel.fn)


def on_interpreter(kernel: JITFunction) -> JITFunction:
    return JITFunction(kernel.fn, PythonFrontend(), interpret=True)


def keeps_tiles(kernel: JITFunction, *args: Any, **constants: Any) -> bool:
    """Whether a kernel compiled for a call wants a store."""
    compiled = fresh(kernel).warmup(*args, grid=(4,), **constants)
    return "call { ptr, i1 } @tile_store.find" in compiled.asm["llir"]


def assert_same(kernel: JITFunction, grid: tuple[int, ...], *args: Any, **constants: Any) -> None:
    """Launch compiled and on the interpreter, on copies of the arguments, and compare arrays."""
    want, got = ([np.copy(a) if isinstance(a, np.ndarray) else a for a in args] for _ in range(2))
    on_interpreter(kernel)[grid](*want, **constants)
    fresh(kernel)[grid](*got, **constants)
    for left, right in zip(want, got, strict=True):
        np.testing.assert_allclose(right, left, rtol=0, atol=2e-3)


class Product:
    """Launches one compiled kernel again and again, comparing with NumPy."""

    def __init__(self, kernel: JITFunction = matmul_kernel, block: int = B) -> None:
        self.kernel = fresh(kernel)
        self.block = block

    def check(self, a: Any, b: Any) -> None:
        (m, k), n = a.shape, b.shape[1]
        c = np.full((m, n), np.nan, np.float32)
        strides = [s // 4 for x in (a, b, c) for s in x.strides]
        size = self.block
        self.kernel[(dn.cdiv(m, size) * dn.cdiv(n, size),)](
            a, b, c, m, n, k, *strides, BLOCK_M=size, BLOCK_N=size, BLOCK_K=size, GROUP_M=2
        )
        want = a.astype(np.float64) @ b.astype(np.float64)
        np.testing.assert_allclose(c, want, rtol=0, atol=1e-5 * np.abs(want).max())


@pytest.mark.usefixtures("threads", "store_bytes")
@pytest.mark.parametrize("shape", [(128, 192, 256), (130, 70, 100), (1, 300, 33), (256, 1, 64)])
def test_products_of_changing_arrays(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b, product = floats(m, k), floats(k, n, seed=1), Product()
    for _ in range(4):
        product.check(a, b)
        a += 1
        b *= -0.5


@pytest.mark.usefixtures("threads", "store_bytes")
def test_transposed_operands() -> None:
    a, b = floats(128, 96).T, floats(160, 128, seed=1).T
    product = Product()
    for _ in range(3):
        product.check(a, b)
        a += 1


@pytest.mark.usefixtures("threads")
def test_kernels_that_share_a_thread() -> None:
    a, b, wide = floats(128, 128), floats(128, 128, seed=1), floats(128, 512, seed=2)
    products = [Product(), Product(block=64), Product()]
    for _ in range(3):
        for product in products:
            product.check(a, b)
            a += 1
        products[0].check(a, wide)


@pytest.mark.usefixtures("threads")
def test_launches_at_the_same_time() -> None:
    """One launch has the workers, the others run beside it, each with stores of its own."""
    product = Product()

    def work(number: int) -> None:
        a, b = floats(128, 128, seed=number), floats(128, 96, seed=10 + number)
        for _ in range(5):
            product.check(a, b)
            a += 1

    product.check(floats(128, 128), floats(128, 96))
    assert together(3, work) == []


@pytest.mark.usefixtures("threads", "store_bytes")
def test_tiles_that_never_come_back() -> None:
    """After the first launch the store rests, and takes tiles again later."""
    b, product = floats(128, 1024, seed=1), Product()
    for turn in range(2 * tile_store_ir.REST):
        product.check(floats(B, 128, seed=turn), b)
        b += 0.125
    product.check(floats(4 * B, 128), b)


@pytest.mark.usefixtures("threads", "store_bytes")
def test_full_stores_start_over_or_wait() -> None:
    """Long rows of tiles for one column of programs, then for many."""
    product = Product()
    product.check(floats(3 * B, 40 * B), floats(40 * B, B, seed=1))
    product.check(floats(8 * B, 10 * B), floats(10 * B, 6 * B, seed=1))


# -- what may be kept ------------------------------------------------------------------------------
@dn.jit
def scaled_kernel(x_ptr, w_ptr, out_ptr, scale_ptr, K):
    """Programs whose tiles differ by a factor that was loaded."""
    pid = tl.program_id(0)
    i = tl.arange(0, 32)
    square = i[:, None] * 32 + i[None, :]
    scale = tl.load(scale_ptr + pid)
    acc = tl.zeros((32, 32), dtype=tl.float32)
    for k in range(K):
        x = tl.load(x_ptr + k * 1024 + square) * scale
        acc = tl.dot(x, tl.load(w_ptr + k * 1024 + square) + k % 2, acc)
    tl.store(out_ptr + pid * 1024 + square, acc)


@pytest.mark.usefixtures("threads", "store_bytes")
@pytest.mark.parametrize("turns", [0, 1, 5])
def test_computed_operands(turns: int) -> None:
    x, w = floats(5, 32, 32), floats(5, 32, 32, seed=1)
    out, scale = np.ones((6, 32, 32), np.float32), np.array([1, 2, 1, 2, 3, 1], np.float32)
    assert keeps_tiles(scaled_kernel, x, w, out, scale, 5)
    assert_same(scaled_kernel, (6,), x, w, out, scale, turns)


@dn.jit
def row_scaled_kernel(x_ptr, w_ptr, out_ptr, scale_ptr, rows_ptr, INDIRECT: tl.constexpr):
    """Programs whose tiles differ by a row that was loaded before the loop."""
    pid = tl.program_id(0)
    i = tl.arange(0, 32)
    square = i[:, None] * 32 + i[None, :]
    row = tl.load(rows_ptr + pid * 32 + i) if INDIRECT else pid * 32 + i
    scale = tl.load(scale_ptr + row)
    acc = tl.zeros((32, 32), dtype=tl.float32)
    for k in range(3):
        x = tl.load(x_ptr + k * 1024 + square) * scale[None, :]
        acc = tl.dot(tl.load(w_ptr + k * 1024 + square), x, acc)
    tl.store(out_ptr + pid * 1024 + square, acc)


@pytest.mark.usefixtures("threads", "store_bytes")
@pytest.mark.parametrize("indirect", [False, True])
def test_operands_with_a_part_from_before_the_loop(indirect: bool) -> None:
    x, w = floats(3, 32, 32), floats(3, 32, 32, seed=1)
    out, scale = np.ones((6, 32, 32), np.float32), floats(6, 32, seed=2)
    rows = np.random.default_rng(3).permutation(6 * 32).astype(np.int32)
    assert keeps_tiles(row_scaled_kernel, x, w, out, scale, rows, INDIRECT=indirect)
    assert_same(row_scaled_kernel, (6,), x, w, out, scale, rows, INDIRECT=indirect)


@dn.jit
def repeated_kernel(x_ptr, w_ptr, out_ptr, TURNS: tl.constexpr):
    """out = x @ w, again and again: in place when out is x."""
    i = tl.arange(0, 32)
    square = i[:, None] * 32 + i[None, :]
    tile = tl.program_id(0) * 1024 + square
    for _ in range(TURNS):
        product = tl.dot(tl.load(x_ptr + tile), tl.load(w_ptr + square))
        tl.store(out_ptr + tile, product)


@pytest.mark.usefixtures("threads", "store_bytes")
def test_an_output_that_is_an_input() -> None:
    x, w = floats(4, 32, 32), floats(32, 32, seed=1) / 6
    want = x.astype(np.float64) @ w @ w @ w
    assert keeps_tiles(repeated_kernel, x, w, x.copy(), TURNS=3)
    fresh(repeated_kernel)[(4,)](x, w, x, TURNS=3)
    np.testing.assert_allclose(x, want, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("threads", "store_bytes")
def test_an_output_that_overlaps_an_input() -> None:
    memory = floats(5, 32, 32)
    w = floats(32, 32, seed=1) / 6
    compiled = fresh(repeated_kernel)
    for _ in range(3):
        want = memory[1].astype(np.float64) @ w
        compiled[(1,)](memory[1:], w, memory, TURNS=1)  # out[0] = in[0], a tile further on
        np.testing.assert_allclose(memory[0], want, rtol=0, atol=1e-5)
        memory[1] += 1


@dn.jit
def own_output_kernel(x_ptr, w_ptr, TURNS: tl.constexpr):
    """Loads through the pointer that it stores through, store first."""
    i = tl.arange(0, 32)
    square = i[:, None] * 32 + i[None, :]
    tile = x_ptr + tl.program_id(0) * 1024 + square
    for k in range(TURNS):
        tl.store(tile, tl.load(tile) + k)
        tl.store(tile, tl.dot(tl.load(tile), tl.load(w_ptr + square)))


@dn.jit
def volatile_kernel(x_ptr, w_ptr, out_ptr, flag_ptr, TURNS: tl.constexpr):
    """Looks at a flag that somebody else may set: what is loaded after may have changed."""
    i = tl.arange(0, 32)
    square = i[:, None] * 32 + i[None, :]
    acc = tl.zeros((32, 32), dtype=tl.float32)
    for k in range(TURNS):
        step = tl.load(flag_ptr, volatile=True) + k
        acc = tl.dot(tl.load(x_ptr + step * 1024 + square), tl.load(w_ptr + square), acc)
    tl.store(out_ptr + tl.program_id(0) * 1024 + square, acc)


@dn.jit
def atomic_kernel(x_ptr, w_ptr, out_ptr, flag_ptr, TURNS: tl.constexpr):
    """Counts its turns: others may wait for the count."""
    i = tl.arange(0, 32)
    square = i[:, None] * 32 + i[None, :]
    acc = tl.zeros((32, 32), dtype=tl.float32)
    for k in range(TURNS):
        tl.atomic_add(flag_ptr, 1)
        acc = tl.dot(tl.load(x_ptr + k * 1024 + square), tl.load(w_ptr + square), acc)
    tl.store(out_ptr + tl.program_id(0) * 1024 + square, acc)


def test_memory_that_may_change_is_not_kept() -> None:
    x, w, out = floats(4, 32, 32), floats(32, 32, seed=1) / 6, np.zeros((4, 32, 32), np.float32)
    flag = np.zeros(1, np.int32)
    for kernel in (volatile_kernel, atomic_kernel):
        assert not keeps_tiles(kernel, x, w, out, flag, TURNS=3)
        assert_same(kernel, (4,), x, w, out, flag, TURNS=3)
    assert_same(own_output_kernel, (4,), x, w, TURNS=3)


@dn.jit
def single_kernel(x_ptr, w_ptr, out_ptr, TURNS: tl.constexpr):
    """One dot, and no loop."""
    i = tl.arange(0, 32)
    square = i[:, None] * 32 + i[None, :]
    tile = tl.program_id(0) * 1024 + square
    tl.store(out_ptr + tile, tl.dot(tl.load(x_ptr + tile), tl.load(w_ptr + square)))


def test_tiles_of_one_program_are_not_kept() -> None:
    x, w, out = floats(4, 32, 32), floats(32, 32, seed=1), np.zeros((4, 32, 32), np.float32)
    assert not keeps_tiles(single_kernel, x, w, out, TURNS=1)
    assert_same(single_kernel, (4,), x, w, out, TURNS=1)


# -- accumulators that the first turn begins -----------------------------------------------------
@dn.jit
def begun_kernel(x_ptr, w_ptr, out_ptr, first, last, step, CHAIN: tl.constexpr, PEEK: tl.constexpr):
    """Adds products over any range, perhaps twice a turn, perhaps looking at the sum before."""
    i = tl.arange(0, 32)
    square = i[:, None] * 32 + i[None, :]
    acc = tl.zeros((32, 32), dtype=tl.float32)
    seen = tl.zeros((32,), dtype=tl.float32)
    for k in range(first, last, step):
        if PEEK:
            seen += tl.sum(acc, axis=1)
        x = tl.load(x_ptr + k * 1024 + square)
        acc = tl.dot(x, tl.load(w_ptr + square), acc)
        if CHAIN:
            acc = tl.dot(tl.load(w_ptr + square), x, acc)
    tl.store(out_ptr + tl.program_id(0) * 1024 + square, acc + seen[:, None])


@pytest.mark.parametrize("span", [(0, 4, 1), (1, 4, 2), (3, 0, -1), (2, 2, 1), (3, 1, 1)])
@pytest.mark.parametrize(("chain", "peek"), [(False, False), (True, False), (False, True)])
def test_accumulators_begin_at_zero(span: tuple[int, int, int], chain: bool, peek: bool) -> None:
    x, w, out = floats(4, 32, 32), floats(32, 32, seed=1), np.ones((3, 32, 32), np.float32)
    assert_same(begun_kernel, (3,), x, w, out, *span, CHAIN=chain, PEEK=peek)
