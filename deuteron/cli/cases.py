"""What the demo runs: each kernel with its data, NumPy's way to do the same, and the truth.

The data is made from a fixed seed.  A case holds its arrays, so it is made when its turn comes and
dropped afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import deuteron as dn
import deuteron.language as tl
from deuteron import ops

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel on one problem.

    `ours` and `numpy` do the work once; `got` and `want` give the kernel's result and the same in
    float64.  `work` counts bytes moved (GB/s) or operations done (GFLOP/s).  `tolerance` bounds the
    largest difference, relative to the largest value of the truth.
    """

    name: str
    shape: str
    dtype: str
    work: int
    unit: str
    tolerance: float
    ours: Callable[[], object]
    numpy: Callable[[], object]
    got: Callable[[], F64]
    want: Callable[[], F64]


def vector_add() -> Case:
    """2^24 float32 sums: nothing but memory traffic."""
    n = 1 << 24
    x, y = _normal(0, n), _normal(1, n)
    out, numpy_out = np.empty_like(x), np.empty_like(x)
    return Case(
        name="vector add",
        shape="2^24",
        dtype="float32",
        work=3 * x.nbytes,
        unit="GB/s",
        tolerance=1e-6,
        ours=lambda: ops.add(x, y, out),
        numpy=lambda: np.add(x, y, out=numpy_out),
        got=lambda: out.astype(np.float64),
        want=lambda: x.astype(np.float64) + y,
    )


def softmax() -> Case:
    """Rows of 1024 float32: one read, one write, an exponential each."""
    x = _normal(0, 4096, 1024) * 4
    out = np.empty_like(x)
    return Case(
        name="softmax",
        shape="4096×1024",
        dtype="float32",
        work=2 * x.nbytes,
        unit="GB/s",
        tolerance=1e-5,
        ours=lambda: ops.softmax(x, out),
        numpy=lambda: numpy_softmax(x),
        got=lambda: out.astype(np.float64),
        want=lambda: numpy_softmax(x.astype(np.float64)),
    )


def layer_norm() -> Case:
    """Rows of 1024 float32 normalised, scaled and shifted."""
    x, w, b = _normal(0, 4096, 1024), _normal(1, 1024), _normal(2, 1024)
    out = np.empty_like(x)
    return Case(
        name="layer norm",
        shape="4096×1024",
        dtype="float32",
        work=2 * x.nbytes,
        unit="GB/s",
        tolerance=1e-5,
        ours=lambda: ops.layer_norm(x, w, b, out=out),
        numpy=lambda: numpy_layer_norm(x, w, b),
        got=lambda: out.astype(np.float64),
        want=lambda: numpy_layer_norm(x.astype(np.float64), w, b),
    )


def matmul_f32() -> Case:
    """A square float32 product; NumPy calls its BLAS."""
    n = 1024
    a, b = _normal(0, n, n), _normal(1, n, n)
    out, numpy_out = np.empty_like(a), np.empty_like(a)
    return Case(
        name="matmul f32",
        shape="1024^3",
        dtype="float32",
        work=2 * n**3,
        unit="GFLOP/s",
        tolerance=1e-5,
        ours=lambda: ops.matmul(a, b, out),
        numpy=lambda: np.matmul(a, b, out=numpy_out),
        got=lambda: out.astype(np.float64),
        want=lambda: a.astype(np.float64) @ b.astype(np.float64),
    )


def matmul_bf16() -> Case:
    """A square bfloat16 product.  NumPy has no bfloat16: its side is the float32 product."""
    n = 1024
    a, b = to_bfloat16(_normal(0, n, n)), to_bfloat16(_normal(1, n, n))
    out = np.empty_like(a)
    a32, b32 = from_bfloat16(a), from_bfloat16(b)
    numpy_out = np.empty_like(a32)
    a16, b16, out16 = (dn.reinterpret(x, tl.bfloat16) for x in (a, b, out))
    return Case(
        name="matmul bf16",
        shape="1024^3",
        dtype="bfloat16",
        work=2 * n**3,
        unit="GFLOP/s",
        tolerance=2.0**-8,  # half a unit in the last place of the result
        ours=lambda: ops.matmul(a16, b16, out16),
        numpy=lambda: np.matmul(a32, b32, out=numpy_out),
        got=lambda: from_bfloat16(out).astype(np.float64),
        want=lambda: a32.astype(np.float64) @ b32.astype(np.float64),
    )


def attention() -> Case:
    """Eight heads of 1024 queries and keys; two products with a softmax between them."""
    heads, n, d = 8, 1024, 64
    q, k, v = (_normal(seed, heads, n, d) for seed in range(3))
    out = np.empty_like(q)
    return Case(
        name="attention",
        shape="8×1024×64",
        dtype="float32",
        work=4 * heads * n * n * d,
        unit="GFLOP/s",
        tolerance=1e-5,
        ours=lambda: ops.attention(q, k, v, out=out),
        numpy=lambda: numpy_attention(q, k, v),
        got=lambda: out.astype(np.float64),
        want=lambda: numpy_attention(*(x.astype(np.float64) for x in (q, k, v))),
    )


CASES: tuple[tuple[str, Callable[[], Case]], ...] = (
    ("vector add", vector_add),
    ("softmax", softmax),
    ("layer norm", layer_norm),
    ("matmul f32", matmul_f32),
    ("matmul bf16", matmul_bf16),
    ("attention", attention),
)


def numpy_softmax(x: Any) -> Any:
    """Softmax over the last axis, as one writes it in NumPy."""
    numerator = np.exp(x - x.max(axis=-1, keepdims=True))
    return numerator / numerator.sum(axis=-1, keepdims=True)


def numpy_layer_norm(x: Any, w: Any, b: Any, eps: float = 1e-5) -> Any:
    """Layer normalisation over the last axis, as one writes it in NumPy."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + eps) * w + b


def numpy_attention(q: Any, k: Any, v: Any) -> Any:
    """Attention over the last two axes, as one writes it in NumPy."""
    scores = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5
    return numpy_softmax(scores) @ v


def to_bfloat16(x: F32) -> NDArray[np.uint16]:
    """The bits of `x` rounded to bfloat16, ties to even.  Finite values only."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: NDArray[np.uint16]) -> F32:
    """The float32 values of bfloat16 bits; exact."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _normal(seed: int, *shape: int) -> F32:
    """Standard normal float32 values, the same at every run."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
