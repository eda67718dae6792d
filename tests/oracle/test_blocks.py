"""Block pointers and tensor descriptors against NumPy, compiled and on the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import deuteron as dn
import deuteron.language as tl
from deuteron.lang.frontend import PythonFrontend
from deuteron.runtime.jit import JITFunction
from tests.oracle.two_ways import both_ways, run_both


def floats(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


def padded_block(x: Any, starts: tuple[int, ...], block: tuple[int, ...], fill: float) -> Any:
    """What a block reads: `fill` outside of the array."""
    out = np.full(block, fill, x.dtype)
    for place in np.ndindex(*block):
        at = tuple(s + p for s, p in zip(starts, place, strict=True))
        if all(0 <= a < n for a, n in zip(at, x.shape, strict=True)):
            out[place] = x[at]
    return out


# -- block pointers ----------------------------------------------------------------------------
def matmul(a, b, c, M, N, K, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    rows, columns = tl.program_id(0) * A, tl.program_id(1) * B
    left = tl.make_block_ptr(a, (M, K), (K, 1), (rows, 0), (A, C), (1, 0))
    right = tl.make_block_ptr(
        base=b, shape=(K, N), strides=(N, 1), offsets=(0, columns), block_shape=(C, B), order=(1, 0)
    )
    acc = tl.zeros((A, B), tl.float32)
    for _ in range(0, K, C):
        x = tl.load(left, boundary_check=(0, 1), padding_option="zero")
        acc += tl.dot(x, tl.load(right, boundary_check=(0, 1)))
        left = tl.advance(left, (0, C))
        right = right.advance((C, 0))
    out = tl.make_block_ptr(c, (M, N), (N, 1), (rows, columns), (A, B), (1, 0))
    tl.store(out, acc, boundary_check=(0, 1))


@pytest.mark.parametrize("sizes", [(64, 64, 64), (50, 30, 41)])
def test_matmul(sizes):
    m, n, k = sizes
    a, b = floats(m, k), floats(k, n)
    out = np.zeros((m, n), np.float32)
    results = run_both(matmul, a, b, out, m, n, k, grid=(4, 4), A=16, B=16, C=16)
    for _, _, got, *_ in results:
        np.testing.assert_allclose(got, a @ b, 1e-4, 1e-4)


def copy_block(
    x, out, M, N, row, column, PAD: tl.constexpr, A: tl.constexpr, B: tl.constexpr
):  # fmt: skip
    block = tl.make_block_ptr(x, (M, N), (N, 1), (row, column), (A, B), (1, 0))
    tile = tl.load(block, boundary_check=(0, 1), padding_option=PAD)
    tl.store(out + tl.arange(0, A)[:, None] * B + tl.arange(0, B)[None, :], tile)


@pytest.mark.parametrize("start", [(0, 0), (-3, 5), (6, -2), (9, 12), (-64, 0)])
@pytest.mark.parametrize("pad", ["", "zero", "nan"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_what_lies_outside_is_padding(start, pad, dtype):
    x = floats(10, 13, dtype=dtype)
    want = padded_block(x, start, (8, 16), np.nan if pad == "nan" else 0)
    out = np.ones((8, 16), dtype)
    for _, got, *_ in run_both(copy_block, x, out, 10, 13, *start, PAD=pad, A=8, B=16):
        np.testing.assert_array_equal(got, want)


def choose_and_walk(x, out, n, N: tl.constexpr, B: tl.constexpr):
    """Block pointers through a branch, a call and a loop that swaps two of them."""
    first = tl.make_block_ptr(x, (N,), (1,), (0,), (B,), (0,))
    second = tl.advance(first, (B,))
    if n > 2:
        first = tl.advance(first, [2 * B])
    for _ in range(n):
        first, second = tl.advance(second, (B,)), first
    tl.store(tl.make_block_ptr(out, (2 * B,), (1,), (0,), (B,), (0,)), tl.load(first))
    tl.store(out + B + tl.arange(0, B), tl.load(second, boundary_check=[0]))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_block_pointers_through_control_flow(n):
    x = floats(128)
    first, second = (16 if n > 2 else 0), 8
    for _ in range(n):
        first, second = second + 8, first
    want = np.concatenate((x[first : first + 8], x[second : second + 8]))
    for _, got, _ in run_both(choose_and_walk, x, np.zeros(16, np.float32), n, N=128, B=8):
        np.testing.assert_array_equal(got, want)


def negate_bools(x, out, M, B: tl.constexpr):
    block = tl.make_block_ptr(x, (M,), (1,), (tl.program_id(0) * B,), (B,), (0,))
    target = tl.make_block_ptr(out, (M,), (1,), (tl.program_id(0) * B,), (B,), (0,))
    tl.store(target, ~tl.load(block, boundary_check=(0,)), boundary_check=(0,))


def test_block_pointers_to_booleans():
    x = floats(100) > 0
    for _, got, _ in run_both(negate_bools, x, np.zeros(100, bool), 100, grid=(7,), B=16):
        np.testing.assert_array_equal(got, ~x)


# -- tensor descriptors made in the kernel -----------------------------------------------------
def scale(x, out, M, N, A: tl.constexpr, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[A, B])
    target = tl.make_tensor_descriptor(out, [M, N], [N, 1], [A, B])
    tl.static_assert(source.dtype == tl.float32)
    tl.static_assert(source.block_shape[1] == B)
    row, column = tl.program_id(0) * A, tl.program_id(1) * B
    tl.store_tensor_descriptor(target, [row, column], source.load([row, column]) * 2)
    if source.shape[0] == 7:
        target.store([row, column], tl.load_tensor_descriptor(source, [row, column]))


@pytest.mark.parametrize("rows", [7, 16, 21])
def test_load_and_store(rows):
    x = floats(rows, 37)
    want = x if rows == 7 else 2 * x
    for _, got, *_ in run_both(scale, x, np.zeros_like(x), rows, 37, grid=(3, 3), A=8, B=16):
        np.testing.assert_array_equal(got, want)


def read_cube(x, out, A, B, C, PAD: tl.constexpr):
    cube = tl.make_tensor_descriptor(x, [A, B, C], [B * C, C, 1], [2, 4, 8], padding_option=PAD)
    at = (tl.arange(0, 2)[:, None] * 4 + tl.arange(0, 4)[None, :])[:, :, None] * 8
    tl.store(out + at + tl.arange(0, 8)[None, None, :], cube.load([A - 1, -1, 3]))


@pytest.mark.parametrize("pad", ["zero", "nan"])
def test_load_of_three_axes(pad):
    x = floats(3, 5, 6)
    want = padded_block(x, (2, -1, 3), (2, 4, 8), np.nan if pad == "nan" else 0)
    for _, got, *_ in run_both(read_cube, x, np.zeros((2, 4, 8), np.float32), 3, 5, 6, PAD=pad):
        np.testing.assert_array_equal(got, want)


def move_rows(x, rows, out, M, N, column, K: tl.constexpr, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [1, B])
    target = tl.make_tensor_descriptor(out, [M, N], [N, 1], [1, B])
    chosen = tl.load(rows + tl.arange(0, K))
    target.scatter(source.gather(chosen, column), M - 1 - chosen, column)


@pytest.mark.parametrize("column", [0, 8, 30])
def test_gather_and_scatter(column):
    x, out = floats(20, 40), np.zeros((20, 40), np.float32)
    rows = np.random.default_rng(0).permutation(20)[:8].astype(np.int32)
    want = out.copy()
    want[19 - rows, column : column + 16] = x[rows, column : column + 16]
    constants = {"K": 8, "B": 16}
    for _, _, got, *_ in run_both(move_rows, x, rows, out, 20, 40, column, **constants):
        np.testing.assert_array_equal(got, want)


def combine(x, M, N, KIND: tl.constexpr, A: tl.constexpr, B: tl.constexpr):
    array = tl.make_tensor_descriptor(x, [M, N], [N, 1], [A, B])
    tile = tl.full((A, B), 5, x.dtype.element_ty)
    at = [tl.program_id(0) * A, tl.program_id(1) * B]
    if KIND == "add":
        array.atomic_add(at, tile)
    elif KIND == "min":
        array.atomic_min(at, tile)
    elif KIND == "max":
        array.atomic_max(at, tile)
    elif KIND == "and":
        array.atomic_and(at, tile)
    elif KIND == "or":
        array.atomic_or(at, tile)
    else:
        array.atomic_xor(at, tile)


ATOMICS = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


@pytest.mark.parametrize("kind", ATOMICS)
@pytest.mark.parametrize("dtype", [np.int32, np.uint64, np.float32])
def test_atomics(kind, dtype):
    if dtype == np.float32 and kind != "add":
        pytest.skip("not of floats")
    x = np.arange(11 * 13).reshape(11, 13).astype(dtype)
    want = ATOMICS[kind](x, np.array(5, dtype))
    for got, *_ in run_both(combine, x, 11, 13, grid=(2, 1), KIND=kind, A=8, B=16):
        np.testing.assert_array_equal(got, want)


# -- tensor descriptors made on the host -------------------------------------------------------
def add_blocks(x, y, out, A: tl.constexpr, B: tl.constexpr):
    at = [tl.program_id(0) * A, tl.program_id(1) * B]
    out.store(at, x.load(at) + y.load(at))


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy])
def test_descriptors_as_arguments(make):
    x, y = floats(30, 70), floats(30, 64)[:, :50]
    for kernel in both_ways(add_blocks):
        for rows, block in ((30, (8, 16)), (1, (8, 16)), (17, (16, 32))):
            out = np.zeros((rows, 50), np.float32)
            arrays = (make(x[:rows, :50]), make(y[:rows]), make(out))
            args = (dn.TensorDescriptor.from_tensor(a, block) for a in arrays)
            kernel[(4, 4)](*args, A=block[0], B=block[1])
            np.testing.assert_array_equal(out, x[:rows, :50] + y[:rows])


def sum_pairs(pairs, out, B: tl.constexpr):
    total = tl.zeros((B,), tl.float32)
    for i in tl.static_range(len(pairs)):
        array, start = pairs[i]
        total += array.load([start])
    tl.store(out + tl.arange(0, B), total)


def test_descriptors_inside_of_tuples():
    x, y = floats(40), floats(9)
    want = x[24:40] + np.pad(y[2:], (0, 9))
    for kernel in both_ways(sum_pairs):
        out = np.zeros(16, np.float32)
        pairs = tuple((dn.TensorDescriptor.from_tensor(a, [16]), s) for a, s in ((x, 24), (y, 2)))
        kernel[(1,)](pairs, out, B=16)
        np.testing.assert_allclose(out, want)


def test_the_block_shape_belongs_to_the_key():
    def kernel(x, out):
        tile = x.load([0])
        tl.store(out + tl.arange(0, tile.shape[0]), tile)

    compiled = JITFunction(kernel, PythonFrontend())
    x = floats(16)
    for block, padding in ((4, "zero"), (32, "zero"), (32, "nan")):
        out = np.zeros(32, np.float32)
        compiled[(1,)](dn.TensorDescriptor(x, [16], [1], [block], padding), out)
        want = padded_block(x, (0,), (block,), np.nan if padding == "nan" else 0)
        np.testing.assert_array_equal(out[:block], want)


def test_a_hook_may_set_the_block_shape():
    def copy(x, out, B: tl.constexpr):
        out.store([tl.program_id(0) * B], x.load([tl.program_id(0) * B]))

    compiled = JITFunction(copy, PythonFrontend())
    x, out = floats(50), np.zeros(50, np.float32)
    source, target = (dn.TensorDescriptor.from_tensor(a, [1]) for a in (x, out))
    for block in (16, 64):
        out[:] = 0
        source.block_shape = target.block_shape = [block]
        compiled[(4,)](source, target, B=block)
        np.testing.assert_array_equal(out, x)
    source.block_shape = [16, 16]
    with pytest.raises(dn.LaunchError, match="one length"):
        compiled[(4,)](source, target, B=16)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (((4, 4), (4, 1), (4,)), "one length"),
        (((4, 4), (1, 4), (4, 4)), "a last stride of 1"),
        (((4,), (1,), (4,), "edge"), 'padding "zero" or "nan"'),
    ],
)
def test_wrong_descriptors(arguments, expected):
    with pytest.raises(dn.LaunchError, match=expected):
        dn.TensorDescriptor(floats(4, 4), *arguments)


def test_a_descriptor_needs_an_array():
    with pytest.raises(dn.LaunchError, match="an array"):
        dn.TensorDescriptor.from_tensor([1.0, 2.0], [2])
