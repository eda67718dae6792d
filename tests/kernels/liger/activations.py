"""Liger's activations and gated products.  Run by test_libraries.py."""

from __future__ import annotations

import torch
from liger_kernel import ops
from torch.nn import functional

from tests.kernels.compare import Case, Draw, check, every

ROWS, COLUMNS = 7, 100


def one(draw: Draw):
    return (draw.leaf(ROWS, COLUMNS),)


def two(draw: Draw):
    return draw.leaf(ROWS, COLUMNS), draw.leaf(ROWS, COLUMNS)


def swiglu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return functional.silu(a) * b


def sparsemax(x: torch.Tensor) -> torch.Tensor:
    """Euclidean projection of each row onto the simplex, by sorting (Martins & Astudillo 2016)."""
    z = x.sort(-1, descending=True).values
    sums = z.cumsum(-1)
    ranks = torch.arange(1, x.shape[-1] + 1)
    support = (1 + ranks * z > sums).sum(-1, keepdim=True)
    threshold = (sums.gather(-1, support - 1) - 1) / support
    return (x - threshold).clamp(min=0)


CASES = [
    Case("swiglu", ops.LigerSiLUMulFunction.apply, swiglu, two),
    Case(
        "swiglu_multipliers",
        lambda a, b: ops.LigerSiLUMulFunction.apply(a, b, 0.5, 2.0),
        lambda a, b: swiglu(0.5 * a, b) * 2.0,
        two,
    ),
    Case(
        "swiglu_fused_gate_up",
        ops.LigerFusedGateUpSiLUMulFunction.apply,
        lambda y: swiglu(*y.chunk(2, -1)),
        one,
    ),
    Case(
        "geglu",
        ops.LigerGELUMulFunction.apply,
        lambda a, b: functional.gelu(a, approximate="tanh") * b,
        two,
    ),
    Case(
        "relu_squared",
        ops.LigerReLUSquaredFunction.apply,
        lambda x: functional.relu(x).square(),
        one,
    ),
    Case("softmax", ops.LigerSoftmaxFunction.apply, lambda x: x.softmax(-1), one),
    Case(
        "sparsemax", lambda x: ops.LigerSparsemaxFunction.apply(x, -1), sparsemax, one
    ),
]  # fmt: skip


@every(CASES)
def test_activation(case: Case, dtype: torch.dtype):
    check(case, dtype)
