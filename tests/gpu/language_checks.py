"""Kernels in the language on a GPU: the library against torch, the oracle's against the CPU.

The oracle's test functions are called as they are, with a comparison that puts the arrays on the
GPU.  The kernels here try what only a GPU can get wrong: threads that run ahead of each other.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import torch

import deuteron as dn
import deuteron.language as tl
from deuteron import ops
from tests.oracle import (
    test_aggregates,
    test_beyond_triton,
    test_map_elementwise,
    test_sorting,
)
from tests.oracle import test_language_kernels as oracle
from tests.oracle.two_ways import both_ways

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE_TIMEOUT_S = 110
# Oracle kernels with float32 dots, which a GPU computes in TF32: ten bits of each factor.
WITH_DOTS = ("dots_that_share", "dots_of_other_lengths", "narrow_accumulators")
TF32_TOLERANCE = 3e-2
ON_THE_CPU = (
    "test_arguments_that_overlap", "test_views_of_every_stride",  # do not use assert_same
    "test_dots_of_other_lengths",  # see `check_long_dots`
)  # fmt: skip

# Modules of the oracle whose kernels leave the same on a GPU.
REFERENCED = (test_aggregates, test_beyond_triton, test_map_elementwise, test_sorting)

# They compare float32 products more closely than TF32 allows; topic "product" has such dots.
WITH_FLOAT32_DOTS = ("test_dots_of_any_size",)

Check = Callable[[int], None]


# -- the oracle's kernels -------------------------------------------------------------------------
def oracle_checks() -> Iterator[tuple[str, Check]]:
    """Every test function of the oracle's language kernels, for each of its parameters."""
    for name, function in vars(oracle).items():
        if name.startswith("test_") and name not in ON_THE_CPU:
            for label, arguments in _parametrizations(function):
                yield name + label, partial(_run_on_gpu, function, arguments)


def _parametrizations(function: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The arguments that pytest would call a test with."""
    marks = [m for m in getattr(function, "pytestmark", []) if m.name == "parametrize"]
    choices = [[(mark.args[0], value) for value in mark.args[1]] for mark in marks]
    for chosen in product(*choices):
        arguments: dict[str, Any] = {}
        for names, value in chosen:
            one = isinstance(names, str)
            arguments |= {names: value} if one else dict(zip(names, value, strict=True))
        shown = (getattr(v, "__name__", v) for v in arguments.values())
        yield "".join(f"-{v}" for v in shown), arguments


def _run_on_gpu(function: Any, arguments: dict[str, Any], num_warps: int) -> None:
    with mock.patch.object(oracle, "assert_same", partial(_assert_same, num_warps)):
        function(**arguments)


def _assert_same(
    num_warps: int,
    function: Callable[..., Any],
    args: Sequence[Any],
    grid: tuple[int, ...] = (1,),
    **constants: Any,
) -> None:
    """As the oracle's, with the compiled kernel on the GPU."""
    want = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    got = [torch.from_numpy(a.copy()).cuda() if isinstance(a, np.ndarray) else a for a in args]
    interpreted, compiled = oracle.both_ways(function)
    with np.errstate(all="ignore"):
        interpreted[grid](*want, **constants)
    compiled[grid](*got, **constants, num_warps=num_warps)
    limit = TF32_TOLERANCE if function.__name__ in WITH_DOTS else oracle.TOLERANCE
    for name, left, right in zip(function.__code__.co_varnames, want, got, strict=False):
        if isinstance(left, np.ndarray):
            right = right.cpu().numpy()
            exact = left.dtype.kind != "f"
            limits = (0, 0) if exact else (limit, limit)
            left, right = (v if exact else v.astype(np.float64) for v in (left, right))
            np.testing.assert_allclose(right, left, *limits, err_msg=name)


# -- the oracle's kernels with references ----------------------------------------------------------
def referenced_checks() -> Iterator[tuple[str, Check]]:
    """The test functions of the oracle that compare what kernels leave with NumPy or torch."""
    for module in REFERENCED:
        for name, function in vars(module).items():
            if not name.startswith("test_") or name in WITH_FLOAT32_DOTS:
                continue
            if "run_both" in function.__code__.co_names:
                for label, arguments in _parametrizations(function):
                    yield name + label, partial(_with_references, module, function, arguments)


def _with_references(
    module: ModuleType, function: Any, arguments: dict[str, Any], num_warps: int
) -> None:
    with mock.patch.object(module, "run_both", partial(_run_once, num_warps)):
        function(**arguments)


def _run_once(
    num_warps: int,
    function: Callable[..., Any],
    *args: Any,
    grid: tuple[int, ...] = (1,),
    **constants: Any,
) -> list[list[Any]]:
    """As the oracle's `run_both`, on the GPU only."""
    compiled = both_ways(function)[1]
    given = [_on_gpu(arg) for arg in args]
    compiled[grid](*given, **constants, num_warps=num_warps)
    return [[_on_cpu(left, arg) for left, arg in zip(given, args, strict=True)]]


def _on_gpu(arg: Any) -> Any:
    """A copy of an array in the GPU's memory; all else as it is."""
    if isinstance(arg, np.ndarray):
        arg = torch.from_numpy(arg.copy())
    return arg.cuda() if isinstance(arg, torch.Tensor) else arg


def _on_cpu(left: Any, arg: Any) -> Any:
    """What a kernel left of an argument, as the argument was given."""
    if isinstance(arg, np.ndarray):
        return left.cpu().numpy()
    return left.cpu() if isinstance(left, torch.Tensor) else left


def check_long_dots(num_warps: int) -> None:
    """The oracle's dots of other lengths; in its own size their tiles exceed shared memory."""
    arguments = (oracle.floats(1 << 15), oracle.floats(4096), 2)
    _assert_same(num_warps, oracle.dots_of_other_lengths, arguments, B=32)


# -- threads that run ahead -----------------------------------------------------------------------
@dn.jit
def counts_up(counter, out, n, B: tl.constexpr):
    at = tl.arange(0, B)
    for i in range(n):
        v = tl.load(counter)
        tl.store(counter, v + 1)
        tl.store(out + i * B + at, v + at * 0)


@dn.jit
def changes_a_small_tile(x, out, n, B: tl.constexpr):
    few, many = tl.arange(0, 32), tl.arange(0, B)
    places = x + few
    for i in range(n):
        v = tl.load(places)
        tl.store(places, v + 1)
        total = tl.sum(v, axis=0)
        if total % 64 == 32:  # all threads must decide alike
            tl.store(out + i * B + many, total + many * 0)
        else:
            tl.store(out + i * B + many, tl.cumsum(many, 0) * 0 + total)


@dn.jit
def passes_a_baton(x, out, n, B: tl.constexpr):
    at = tl.arange(0, B)
    for _ in range(n):
        v = tl.load(x + (at + 1) % B)
        tl.store(x + at, v)
    tl.store(out + at, tl.load(x + B - 1 - at))


@dn.jit
def spins(lock, out, B: tl.constexpr):
    at = tl.arange(0, B)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + at, tl.load(out + at) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def check_counting(num_warps: int) -> None:
    counter, out = _zeros(1), _zeros(500 * 256)
    counts_up[(1,)](counter, out, 500, B=256, num_warps=num_warps)
    expected = torch.arange(500, dtype=torch.int32).repeat_interleave(256)
    assert torch.equal(out.cpu(), expected)
    assert counter.item() == 500


def check_small_tiles(num_warps: int) -> None:
    x, out = _zeros(32), _zeros(500 * 256)
    changes_a_small_tile[(1,)](x, out, 500, B=256, num_warps=num_warps)
    expected = (32 * torch.arange(500, dtype=torch.int32)).repeat_interleave(256)
    assert torch.equal(out.cpu(), expected)


def check_batons(num_warps: int) -> None:
    x = torch.arange(1024, dtype=torch.int32).cuda()
    out = _zeros(1024)
    passes_a_baton[(1,)](x, out, 300, B=1024, num_warps=num_warps)
    expected = (torch.arange(1024, dtype=torch.int32) + 300) % 1024
    assert torch.equal(x.cpu(), expected)
    assert torch.equal(out.cpu(), expected.flip(0))


def check_locks(num_warps: int) -> None:
    lock, out = _zeros(1), _zeros(512)
    spins[(300,)](lock, out, B=512, num_warps=num_warps)
    assert (out == 300).all()


def _zeros(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int32, device="cuda")


# -- the library ----------------------------------------------------------------------------------
def check_add(num_warps: int) -> None:
    for n in (1, 1000, 98_432, (1 << 22) + 3):
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64):
            x, y = (_values(n, dtype=dtype, seed=s) for s in (0, 1))
            assert torch.equal(ops.add(x, y), x + y), (n, dtype)


def check_softmax(num_warps: int) -> None:
    for shape in ((128, 781), (5, 1), (64, 8192), (3, 20_000)):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            x = 4 * _values(*shape, dtype=dtype)
            _close(ops.softmax(x), torch.softmax(x.double(), -1))


def check_layer_norm(num_warps: int) -> None:
    for shape in ((151, 1000), (4, 8192), (7, 64)):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            x, w, b = (_values(*s, dtype=dtype, seed=len(s)) for s in (shape, shape[1:], shape[1:]))
            expected = torch.nn.functional.layer_norm(
                x.double(), shape[1:], w.double(), b.double(), 1e-5
            )
            _close(ops.layer_norm(x, w, b), expected)


def check_matmul(num_warps: int) -> None:
    for m, n, k in ((512, 512, 512), (300, 170, 200), (1, 64, 64), (129, 1000, 96)):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            a, b = _values(m, k, dtype=dtype), _values(k, n, dtype=dtype, seed=1)
            limit = 2e-3 if dtype == torch.float32 else None
            _close(ops.matmul(a, b), a.double() @ b.double(), limit)
            turned = _values(n, k, dtype=dtype, seed=2).T
            _close(ops.matmul(a, turned), a.double() @ turned.double(), limit)


def check_attention(num_warps: int) -> None:
    reference = torch.nn.functional.scaled_dot_product_attention
    for heads, length, head in ((3, 200, 32), (2, 1024, 64), (2, 512, 128)):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            q, k, v = (_values(heads, length, head, dtype=dtype, seed=s) for s in range(3))
            for causal in (False, True):
                got = ops.attention(q, k, v, causal=causal)
                expected = reference(q.double(), k.double(), v.double(), is_causal=causal)
                _close(got, expected, 1e-2)


def _values(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if not dtype.is_floating_point:
        return torch.randint(-1000, 1000, shape, generator=generator, dtype=dtype).cuda()
    return torch.randn(shape, generator=generator).to(dtype).cuda()


def _close(got: torch.Tensor, expected: torch.Tensor, limit: float | None = None) -> None:
    """Demand a relative error of the whole (Frobenius) and of the worst element."""
    limit = limit or {torch.float32: 1e-5, torch.float16: 2e-3}.get(got.dtype, 1e-2)
    off = got.double() - expected
    assert not off.isnan().any()
    assert off.norm() <= limit * expected.norm(), (off.norm() / expected.norm()).item()
    scale = expected.abs().max()
    assert off.abs().max() <= 4 * limit * scale, (off.abs().max() / scale).item()


# -- the examples ---------------------------------------------------------------------------------
def check_example(path: Path, num_warps: int) -> None:
    """Run an example as a person would."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error::UserWarning"}
    run = subprocess.run(
        [sys.executable, str(path), "--device", "cuda"],
        env=environment, capture_output=True, text=True, timeout=EXAMPLE_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith(path.stem[:2])


@cache
def language_checks() -> Mapping[str, Mapping[str, Check]]:
    """Checks by topic and name; each is called with the number of warps of a program."""
    examples = sorted((ROOT / "examples").glob("[0-9][0-9]_*.py"))
    return {
        "kernels": {**dict(oracle_checks()), "long_dots": check_long_dots},
        "references": dict(referenced_checks()),
        "order": {
            "counting": check_counting,
            "small_tiles": check_small_tiles,
            "batons": check_batons,
            "locks": check_locks,
        },
        "ops": {
            "add": check_add,
            "softmax": check_softmax,
            "layer_norm": check_layer_norm,
            "matmul": check_matmul,
            "attention": check_attention,
        },
        "examples": {path.stem: partial(check_example, path) for path in examples},
    }
