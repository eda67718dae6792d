"""Kernels around dots, and their launch on the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, no_type_check

import numpy as np
from numpy.typing import NDArray

import deuteron.language as tl
from deuteron import jit
from deuteron.backends.cuda.compiler import KernelImage, compile_function
from deuteron.backends.cuda.target import CudaTarget
from deuteron.dtypes import DType, bfloat16, float16, float32, float64, int32, int64
from deuteron.ir import Pointer, Type, verify
from deuteron.lang.codegen import Argument, lower_kernel
from tests.cuda.simt import run_kernel
from tests.cuda.simt_memory import GlobalMemory
from tests.cuda.simt_types import fp8_table, from_floats, to_floats

Array = NDArray[Any]


@jit
@no_type_check
def product_kernel(
    a_ptr, b_ptr, c_ptr,
    stride_am, stride_ak, stride_bk, stride_bn,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    PRECISION: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    """c = 2 + a @ b, one tile."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * stride_am + k[None, :] * stride_ak)
    b = tl.load(b_ptr + k[:, None] * stride_bk + n[None, :] * stride_bn)
    acc = tl.full((M, N), 2, OUT)
    c = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=OUT)
    tl.store(c_ptr + m[:, None] * N + n[None, :], c)


@jit
@no_type_check
def loop_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    """c = a @ b, block by block, any sizes."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a_ptrs = a_ptr + m[:, None] * stride_am + k[None, :] * stride_ak
    b_ptrs = b_ptr + k[:, None] * stride_bk + n[None, :] * stride_bn
    acc = tl.zeros((BM, BN), OUT)
    for start in range(0, K, BK):
        left = K - start
        a = tl.load(a_ptrs, mask=(m[:, None] < M) & (k[None, :] < left), other=0)
        b = tl.load(b_ptrs, mask=(k[:, None] < left) & (n[None, :] < N), other=0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BK * stride_ak
        b_ptrs += BK * stride_bk
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc, mask=inside)


@jit
@no_type_check
def batched_kernel(
    a_ptr, b_ptr, c_ptr, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    """c[i] = a[i] @ b[i]^T, with b's last two axes swapped in registers or in shared memory."""
    i, m, n, k = tl.arange(0, B), tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + i[:, None, None] * (M * K) + m[None, :, None] * K + k[None, None, :])
    b = tl.load(b_ptr + i[:, None, None] * (N * K) + n[None, :, None] * K + k[None, None, :])
    c = tl.dot(a, tl.permute(b, (0, 2, 1)))
    tl.store(c_ptr + i[:, None, None] * (M * N) + m[None, :, None] * N + n[None, None, :], c)


@jit
@no_type_check
def chain_kernel(
    a_ptr, b_ptr, d_ptr, c_ptr, steps,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, L: tl.constexpr,
):  # fmt: skip
    """c = sum over steps of f(a @ b) @ d, where f is rounding to a's dtype after doubling.

    a stays, b and d move; the second dot's A is the first one's result.
    """
    m, n, k, x = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K), tl.arange(0, L)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    acc = tl.zeros((M, L), tl.float32)
    for step in range(steps):
        b = tl.load(b_ptr + step * (K * N) + k[:, None] * N + n[None, :])
        d = tl.load(d_ptr + step * (N * L) + n[:, None] * L + x[None, :])
        p = tl.dot(a, b) * 2.0
        acc = tl.dot(p.to(a.dtype), d, acc)
    tl.store(c_ptr + m[:, None] * L + x[None, :], acc)


@jit
@no_type_check
def scaled_kernel(
    a_ptr, w_ptr, c_ptr, steps, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    """c = sum over steps of a @ w, w being int8 that is made a's dtype on the way."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    acc = tl.zeros((M, N), tl.float32)
    for step in range(steps):
        a = tl.load(a_ptr + m[:, None] * (K * steps) + step * K + k[None, :])
        w = tl.load(w_ptr + (step * K + k[:, None]) * N + n[None, :])
        acc = tl.dot(a, w.to(a.dtype), acc)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc)


# -- arrays as they are in memory ---------------------------------------------------------------
_INTEGERS = {"int8": np.int8, "uint8": np.uint8, "int32": np.int32}
_FLOATS = {float16: np.float16, float32: np.float32, float64: np.float64}
_FP8 = {"float8e4nv": "e4m3", "float8e5": "e5m2"}


def stored(values: Array, dtype: DType) -> Array:
    """Numbers as an array of a dtype (or of its bits)."""
    if dtype is bfloat16:
        return from_floats(values.astype(np.float64), "bfloat").astype(np.uint16)
    if dtype.is_fp8():
        table = fp8_table(_FP8[dtype.name])
        finite = np.where(np.isfinite(table), table, np.inf)
        return (
            np.abs(finite[None, :] - values.reshape(-1, 1))
            .argmin(1)
            .astype(np.uint8)
            .reshape(values.shape)
        )
    return values.astype(_FLOATS.get(dtype) or _INTEGERS[dtype.name])


def numbers(array: Array, dtype: DType) -> Array:
    """The inverse of `stored`, in float64."""
    if dtype is bfloat16:
        return to_floats(array.astype(np.uint64), "bfloat")
    if dtype.is_fp8():
        return fp8_table(_FP8[dtype.name])[array]
    return array.astype(np.float64)


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Random numbers that a dtype holds, as they are stored."""
    if dtype.is_floating():
        return stored(rng.standard_normal(shape), dtype)
    low = 0 if dtype.is_int_unsigned() else -9
    return stored(rng.integers(low, 9, shape), dtype)


# -- launches ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Launch:
    """How a kernel is compiled and run."""

    arch: str = "sm_80"
    num_warps: int = 4
    num_stages: int = 3


def compile_kernel(
    kernel: Any,
    arguments: Mapping[str, tuple[Array, DType] | int | float],
    constants: Mapping[str, object],
    launch: Launch,
) -> KernelImage:
    """The compiled kernel; integers that are multiples of 16 are compiled as such, 1 as 1."""
    given: dict[str, object] = dict(constants)
    for name, value in arguments.items():
        if isinstance(value, tuple):
            given[name] = Argument(Type(Pointer(value[1])), {"divisibility": 16})
        elif isinstance(value, float):
            given[name] = Argument(Type(float32))
        elif value == 1:
            given[name] = 1
        else:
            dtype = int32 if abs(value) < 1 << 31 else int64
            attrs = {"divisibility": 16} if value % 16 == 0 else {}
            given[name] = Argument(Type(dtype), attrs)
    function = lower_kernel(kernel, given)
    verify(function)
    target = CudaTarget(launch.arch)
    return compile_function(
        function, target, num_warps=launch.num_warps, num_stages=launch.num_stages
    )


def simulate(
    kernel: Any,
    arguments: Mapping[str, tuple[Array, DType] | int | float],
    constants: Mapping[str, object],
    launch: Launch,
    grid: tuple[int, int, int] = (1, 1, 1),
) -> KernelImage:
    """Compile and run a kernel; arrays are read and written in place."""
    image = compile_kernel(kernel, arguments, constants, launch)
    memory = GlobalMemory()
    args: list[int | float] = []
    for value in arguments.values():
        if isinstance(value, tuple):
            args.append(memory.add(value[0]))
        elif value != 1:
            args.append(value)
    shared_bytes = image.metadata["shared_bytes"]
    run_kernel(image.llvm, grid, 32 * launch.num_warps, shared_bytes, memory, args)
    return image
