"""The kernel library against NumPy in float64, on shapes that no block divides; wrong arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deuteron as dn
import deuteron.language as tl
from deuteron import ops
from deuteron.cli.cases import (
    from_bfloat16,
    numpy_attention,
    numpy_layer_norm,
    numpy_softmax,
    to_bfloat16,
)
from deuteron.errors import LaunchError
from deuteron.ops.matmul import BLOCKS, Blocks, choose_blocks, choose_group

DTYPES = {"float16": 4e-3, "float32": 1e-5}


def normal(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def wide(array: Any) -> Any:
    return array.astype(np.float64)


def assert_near(got: Any, want: Any, tolerance: float) -> None:
    """Equal up to `tolerance` of the largest value."""
    np.testing.assert_allclose(wide(got), want, rtol=0, atol=tolerance * np.abs(want).max())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (20_000,), (3, 5, 7)])
def test_add(shape: tuple[int, ...], dtype: str) -> None:
    x, y = normal(*shape, dtype=dtype), normal(*shape, dtype=dtype)[::-1].copy()
    out = ops.add(x, y)
    assert (out.shape, out.dtype.name) == (shape, dtype)
    np.testing.assert_array_equal(out, x + y)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (5, 300), (2, 3, 64)])
def test_softmax(shape: tuple[int, ...], dtype: str) -> None:
    x = 5 * normal(*shape, dtype=dtype)
    assert_near(ops.softmax(x), numpy_softmax(wide(x)), DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 2), (5, 300), (2, 3, 64)])
def test_layer_norm(shape: tuple[int, ...], dtype: str) -> None:
    x = normal(*shape, dtype=dtype)
    w, b = normal(shape[-1], dtype=dtype), normal(shape[-1], dtype=dtype)
    want = numpy_layer_norm(wide(x), wide(w), wide(b), eps=0.1)
    assert_near(ops.layer_norm(x, w, b, eps=0.1), want, DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("blocks", [None, Blocks(32, 64, 16)])
@pytest.mark.parametrize("size", [(1, 1, 1), (64, 64, 64), (65, 130, 33)])
def test_matmul(size: tuple[int, int, int], blocks: Blocks | None, dtype: str) -> None:
    m, n, k = size
    a, b = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype)
    assert_near(ops.matmul(a, b, blocks=blocks), wide(a) @ wide(b), DTYPES[dtype])


def test_matmul_takes_views_and_writes_into_them() -> None:
    a, b = normal(70, 50).T, normal(2 * 70, 60)[::2]
    out = np.zeros((60, 50), np.float32).T
    assert ops.matmul(a, b, out) is out
    assert_near(out, wide(a) @ wide(b), 1e-5)


def test_matmul_of_bfloat16_without_torch() -> None:
    a, b = to_bfloat16(normal(40, 30)), to_bfloat16(normal(30, 20))
    out: Any = ops.matmul(dn.reinterpret(a, tl.bfloat16), dn.reinterpret(b, tl.bfloat16))
    assert out.dtype == tl.bfloat16
    want = wide(from_bfloat16(a)) @ wide(from_bfloat16(b))
    assert_near(from_bfloat16(out.base), want, 2.0**-8)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(64, 16), (3, 100, 32), (2, 2, 65, 64)])
def test_attention(shape: tuple[int, ...], causal: bool) -> None:
    q, k, v = (normal(*shape) * scale for scale in (1, 2, 3))
    k, v = k[..., ::-1, :].copy(), v[..., ::-1].copy()
    got = ops.attention(q, k, v, causal=causal)
    if causal:
        n, d = shape[-2:]
        scores = wide(q) @ np.swapaxes(wide(k), -1, -2) * d**-0.5
        want = numpy_softmax(np.where(np.tri(n, dtype=bool), scores, -np.inf)) @ wide(v)
    else:
        want = numpy_attention(wide(q), wide(k), wide(v))
    assert_near(got, want, 1e-5)


def test_attention_of_other_lengths_and_scale() -> None:
    q, k, v = normal(2, 30, 16), normal(2, 90, 16), normal(2, 90, 16)
    scores = wide(q) @ np.swapaxes(wide(k), -1, -2) * 0.7
    assert_near(ops.attention(q, k, v, scale=0.7), numpy_softmax(scores) @ wide(v), 1e-5)


def test_torch_tensors_go_in_and_come_out() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(4, 10, dtype=torch.bfloat16)
    out: Any = ops.softmax(x)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), torch.softmax(x.float(), 1), rtol=0, atol=2.0**-8)


def test_blocks_shrink_until_every_thread_has_two() -> None:
    assert choose_blocks(1024, 1024, threads=2) == BLOCKS[0]
    assert choose_blocks(512, 512, threads=2) == Blocks(128, 128, 128)
    assert choose_blocks(8, 8, threads=64) == BLOCKS[-1]


@pytest.mark.parametrize(
    ("tiles_m", "threads", "rows"),
    [(4, 1, 4), (4, 2, 2), (8, 1, 8), (8, 2, 4), (20, 2, 5), (32, 2, 8), (3, 8, 1), (0, 1, 1)],
)
def test_groups_are_whole_within_a_threads_programs(tiles_m: int, threads: int, rows: int) -> None:
    assert choose_group(tiles_m, threads) == rows


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x: ops.add(x, x[:2]), "add: argument `y` has the wrong shape"),
        (lambda x: ops.add(x.T, x.T), "add: argument `x` must be contiguous"),
        (lambda x: ops.softmax(x, x[:1]), "softmax: argument `out` has the wrong shape"),
        (lambda x: ops.layer_norm(x, x, x), "layer_norm: argument `weight` has the wrong shape"),
        (lambda x: ops.matmul(x, x), "matmul: argument `b` has the wrong shape"),
        (lambda x: ops.attention(x, x, x), "the head size must be a power of two"),
    ],
)
def test_wrong_arguments_are_explained(call: Any, expected: str) -> None:
    with pytest.raises(LaunchError, match=expected):
        call(normal(4, 6))
