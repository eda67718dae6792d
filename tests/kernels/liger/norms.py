"""Liger's normalisations.  Run by test_libraries.py."""

from __future__ import annotations

import torch
from liger_kernel import ops
from liger_kernel.ops import dyt
from torch.nn import functional

from tests.kernels.compare import Case, Draw, check, every

ROWS, COLUMNS = 7, 100
EPS = 1e-6

# It has as many programs as a device has multiprocessors, and knows none for a CPU; for an NPU it
# asks the driver that Triton found.
dyt.infer_device = lambda: "npu"


def rms(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)


def rms_norm(offset: float, mode: str):
    return (
        lambda x, w: ops.LigerRMSNormFunction.apply(x, w, EPS, offset, mode, False),
        lambda x, w: rms(x) * (w + offset),
    )


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor):
    return rms(x + residual) * w, x + residual


def poly_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return w[0] * rms(x**3) + w[1] * rms(x**2) + w[2] * rms(x) + b


def attention_over_depth(v: torch.Tensor, query: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    scores = (rms(v) * w * query).sum(-1)
    return (scores.softmax(0)[..., None] * v).sum(0)


def x_and_weight(draw: Draw):
    return draw.leaf(2, ROWS, COLUMNS), draw.leaf(COLUMNS)


CASES = [
    Case("rms_norm_gemma", *rms_norm(1.0, "gemma"), x_and_weight),
    Case("rms_norm", *rms_norm(0.0, "llama"), x_and_weight),
    Case(
        "rms_norm_many_rows",
        lambda x, w: ops.LigerRMSNormFunction.apply(x, w, EPS, 0.0, "llama", True, False),
        lambda x, w: rms(x) * w,
        lambda draw: (draw.leaf(64, 40), draw.leaf(40)),
    ),
    Case(
        "fused_add_rms_norm",
        lambda *given: ops.LigerFusedAddRMSNormFunction.apply(*given, EPS),
        add_rms_norm,
        lambda draw: (draw.leaf(ROWS, COLUMNS), draw.leaf(ROWS, COLUMNS), draw.leaf(COLUMNS)),
    ),
    Case(
        "modulated_rms_norm",
        lambda *given: ops.LigerModulatedRMSNormFunction.apply(*given, EPS, 0.0, "llama", False),
        lambda x, w, scale, shift: (1 + scale[:, None]) * rms(x) * w + shift[:, None],
        lambda draw: (*x_and_weight(draw), draw.leaf(2, COLUMNS), draw.leaf(2, COLUMNS)),
    ),
    Case(
        "layer_norm",
        lambda x, w, b: ops.LigerLayerNormFunction.apply(x, w, b, EPS),
        lambda x, w, b: functional.layer_norm(x, (COLUMNS,), w, b, EPS),
        lambda draw: (*x_and_weight(draw), draw.leaf(COLUMNS)),
    ),
    Case(
        "group_norm",
        lambda x, w, b: ops.LigerGroupNormFunction.apply(x, w, b, 6, 3, EPS),
        lambda x, w, b: functional.group_norm(x, 3, w, b, EPS),
        lambda draw: (draw.leaf(2, 6, 35), draw.leaf(6), draw.leaf(6)),
    ),
    Case(
        "poly_norm",
        lambda x, w, b: ops.LigerPolyNormFunction.apply(x, w, b, EPS, False),
        poly_norm,
        lambda draw: (draw.leaf(ROWS, COLUMNS), draw.leaf(3), draw.leaf()),
    ),
    Case(
        "dyt",
        ops.LigerDyTFunction.apply,
        lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta,
        lambda draw: (
            draw.leaf(ROWS, COLUMNS), draw.leaf(1), draw.leaf(COLUMNS), draw.leaf(COLUMNS)
        ),
    ),
    Case(
        "attn_res",
        lambda *given: ops.LigerAttnResFunction.apply(*given, EPS),
        attention_over_depth,
        lambda draw: (draw.leaf(3, 2, ROWS, COLUMNS), draw.leaf(COLUMNS), draw.leaf(COLUMNS)),
        slack=2,  # rounds the keys before it sums them up, as models do
    ),
]  # fmt: skip


@every(CASES)
def test_norm(case: Case, dtype: torch.dtype):
    check(case, dtype)
