"""Milliseconds from call to result of every example kernel's first launch, as one JSON object.

`cpu.py` runs this twice with one cache folder: the first run compiles, the second finds objects on
disk.  Problems are tiny, so that almost nothing but getting the kernel ready is measured.  What a
process pays once, such as loading LLVM, is paid by a kernel of its own beforehand.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, no_type_check

import numpy as np

import deuteron as dn
import deuteron.language as tl

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

Launch = Callable[[], object]


@dn.jit
@no_type_check
def first_kernel(out_ptr, BLOCK: tl.constexpr):
    """Any kernel: it pays for what a process does once."""
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, at)


def launches() -> Iterator[tuple[str, Launch]]:
    """Every kernel of the examples with a launch of it."""
    yield from _elementwise()
    yield from _rows()
    yield from _products()
    yield from _packed_products()
    yield from _in_torch()


def _elementwise() -> Iterator[tuple[str, Launch]]:
    x = _zeros(256)
    add, dropout, extra = (
        _example("01_vector_add"),
        _example("04_dropout"),
        _example("07_libdevice"),
    )
    yield "01 add", lambda: add.add(x, x)
    yield "04 dropout", lambda: dropout.dropout(x, 0.5, 7)
    yield "07 asin", lambda: extra.apply(extra.asin_kernel, x)
    yield "07 gelu by erf", lambda: extra.apply(extra.gelu_kernel, x, TANH=False)
    yield "07 gelu by tanh", lambda: extra.apply(extra.gelu_kernel, x, TANH=True)
    yield "07 softplus", lambda: extra.apply(extra.softplus_kernel, x)


def _rows() -> Iterator[tuple[str, Launch]]:
    softmax, norm = _example("02_fused_softmax"), _example("05_layer_norm")
    n = 1024
    x, y, row, one = _zeros(4, n), _zeros(4, n), _zeros(n), _zeros(4)
    yield "02 softmax", lambda: softmax.softmax(x)
    yield (
        "05 layer norm forward",
        lambda: norm.forward_kernel[(4,)](x, row, row, y, one, one, n, 1e-5, BLOCK=n),
    )
    yield (
        "05 layer norm backward",
        lambda: norm.backward_kernel[(1,)](x, row, x, one, one, y, row, row, 4, n, BLOCK=n),
    )
    yield (
        "05 sum of rows",
        lambda: norm.sum_rows_kernel[(1,)](_zeros(16, 128), row, 128, ROWS=16, BLOCK=128),
    )


def _products() -> Iterator[tuple[str, Launch]]:
    product, flash, grouped = (
        _example(name) for name in ("03_matmul", "06_flash_attention", "08_grouped_gemm")
    )
    a, c = _zeros(128, 128), _zeros(128, 128)
    sizes = dict.fromkeys(("BLOCK_M", "BLOCK_N", "BLOCK_K"), 64) | {"GROUP_M": 8}
    strides = (128, 1) * 3
    # The autotuner would compile every config; underneath it is the kernel.
    kernel = product.matmul_kernel.fn
    yield (
        "03 matmul",
        lambda: kernel[(4,)](a, a, c, 128, 128, 128, *strides, ACTIVATION="", **sizes),
    )
    q, out, row = _zeros(1, 128, 64), _zeros(1, 128, 64), _zeros(1, 128)
    options = {"n": 128, "scale": 0.125, "CAUSAL": False, "M": 64, "N": 64, "D": 64}
    yield (
        "06 attention forward",
        lambda: flash.forward_kernel[(2, 1)](q, q, q, out, row, **options),
    )
    yield (
        "06 attention backward",
        lambda: flash.backward_kernel[(2, 1)](q, q, q, q, q, row, out, out, out, **options),
    )
    yield "08 grouped gemm", lambda: grouped.grouped_matmul([a, a], [a, a])


def _packed_products() -> Iterator[tuple[str, Launch]]:
    int4, sparse = _example("09_int4_matmul"), _example("10_block_sparse_matmul")
    x, out, scales = _zeros(64, 64), _zeros(64, 128), np.zeros((1, 128), np.float16)
    packed, zeros, groups, ends = (np.zeros(n, np.int32) for n in (8 * 128, 16, 64, 2))
    blocks = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64}
    yield (
        "09 int4 matmul",
        lambda: int4.int4_matmul_kernel[(1, 1)](
            x, packed, zeros, scales, groups, out, 64, 128, 64, **blocks
        ),
    )
    tile, b, c = _zeros(1, 32, 32), _zeros(32, 128), _zeros(32, 128)
    yield (
        "10 block-sparse matmul",
        lambda: sparse.block_sparse_matmul_kernel[(1, 1)](
            tile, groups, ends, b, c, 128, BLOCK=32, BLOCK_N=128
        ),
    )


def _in_torch() -> Iterator[tuple[str, Launch]]:
    """Kernels behind torch's functions and operators, launched by themselves."""
    activation, norm = _example("11_activation_autograd"), _example("12_custom_op")
    n = 1024
    x, y, dx, dw, row, one = (_zeros(4, n) for _ in range(6))
    yield "11 snake", lambda: activation.snake_kernel[(4,)](x, one, y, 4 * n, BLOCK=n)
    yield (
        "11 snake backward",
        lambda: activation.snake_backward_kernel[(4,)](x, one, y, dx, row, 4 * n, BLOCK=n),
    )
    yield "12 RMS norm", lambda: norm.rms_norm_kernel[(4,)](x, row, y, n, 1e-5, BLOCK=n)
    yield (
        "12 RMS norm backward",
        lambda: norm.rms_norm_backward_kernel[(4,)](x, row, y, dx, dw, n, 1e-5, BLOCK=n),
    )


def _example(name: str) -> Any:
    return import_module(name)


def _zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def main() -> int:
    """Print the times."""
    sys.path.insert(0, str(EXAMPLES))
    first_kernel[(1,)](np.zeros(16, np.int32), BLOCK=16)
    times_ms: dict[str, float] = {}
    for name, launch in launches():
        begin = time.perf_counter()
        launch()
        times_ms[name] = (time.perf_counter() - begin) * 1e3
    print(json.dumps(times_ms))
    return 0


if __name__ == "__main__":
    sys.exit(main())
