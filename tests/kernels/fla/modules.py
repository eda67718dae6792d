"""flash-linear-attention's layers, activations, losses and reductions.  Run by make conformance."""

from __future__ import annotations

import torch
from fla import ops
from fla.modules import activations, fused_kl_div, rotary, token_shift
from fla.modules.causal_conv1d import causal_conv1d
from fla.modules.norm import fused_norm_gate, l2norm, layernorm
from fla.ops import utils
from torch.nn import functional

from tests.kernels.compare import Case, Draw, check, every

BATCH, LENGTH, HEADS, DEPTH, WIDTH = 2, 70, 2, 32, 60
CHUNK = 16


def rows(draw: Draw):
    return draw.leaf(BATCH, LENGTH, WIDTH), draw.leaf(WIDTH)


def rms(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


def in_chunks(x: torch.Tensor) -> torch.Tensor:
    """Sums up to each element within its chunk."""
    return torch.cat([part.cumsum(1) for part in x.split(CHUNK, 1)], 1)


def short_convolution(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    padded = functional.pad(x.mT, (w.shape[1] - 1, 0))
    return functional.silu(functional.conv1d(padded, w[:, None], b, groups=WIDTH)).mT


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


def turned(draw: Draw):
    angles = draw.fixed(LENGTH, DEPTH // 2, scale=3.0)
    return draw.leaf(BATCH, LENGTH, HEADS, DEPTH), angles.cos(), angles.sin()


def attention(q, k, v):
    scores = torch.einsum("bthk,bshk->bhts", q, k) * DEPTH**-0.5
    ahead = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(ahead, float("-inf")).softmax(-1)
    return torch.einsum("bhts,bshv->bthv", weights, v)


def pooled(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([part.mean(1) for part in x.split(CHUNK, 1)], 1)


CASES = [
    Case(
        "layer_norm",
        layernorm.layer_norm,
        lambda x, w, b: functional.layer_norm(x, (WIDTH,), w, b),
        lambda draw: (*rows(draw), draw.leaf(WIDTH)),
    ),
    Case(
        "rms_norm",
        lambda x, w: layernorm.rms_norm(x, w, None),
        lambda x, w: rms(x) * w,
        rows,
    ),
    Case(
        "rms_norm_gated",
        lambda x, w, g: fused_norm_gate.rms_norm_gated(x, g, w, None, eps=1e-5),
        lambda x, w, g: rms(x) * w * functional.silu(g),
        lambda draw: (*rows(draw), draw.leaf(BATCH, LENGTH, WIDTH)),
    ),
    Case(
        "l2norm",
        lambda x: l2norm.l2norm(x),
        lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6),
        lambda draw: (draw.leaf(BATCH, LENGTH, WIDTH),),
    ),
    Case(
        "swiglu",
        activations.swiglu,
        lambda x, y: functional.silu(x) * y,
        lambda draw: (draw.leaf(LENGTH, WIDTH), draw.leaf(LENGTH, WIDTH)),
    ),
    Case(
        "logsigmoid",
        lambda x: activations.logsigmoid(x),
        functional.logsigmoid,
        lambda draw: (draw.leaf(LENGTH, WIDTH),),
    ),
    Case(
        "kl_div",
        lambda x, w, y, v: fused_kl_div.FusedKLDivLoss()(x, y, w, v),
        lambda x, w, y, v: functional.kl_div(
            (x @ w.mT).log_softmax(-1), (y @ v.mT).log_softmax(-1), log_target=True,
            reduction="batchmean",
        ),
        lambda draw: (
            draw.leaf(LENGTH, DEPTH), draw.leaf(WIDTH, DEPTH, scale=0.3),
            draw.fixed(LENGTH, DEPTH), draw.fixed(WIDTH, DEPTH, scale=0.3),
        ),
        slack=2,
    ),
    Case(
        "token_shift",
        token_shift.token_shift,
        lambda x: functional.pad(x, (0, 0, 1, -1)) - x,
        lambda draw: (draw.leaf(BATCH, LENGTH, WIDTH),),
    ),
    Case("rotary", rotary.rotary_embedding, rotate, turned),
    Case(
        "causal_conv1d",
        lambda x, w, b: causal_conv1d(x, w, b, activation="silu")[0],
        short_convolution,
        lambda draw: (draw.leaf(BATCH, LENGTH, WIDTH), draw.leaf(WIDTH, 4), draw.leaf(WIDTH)),
    ),
    Case(
        "parallel_attn",
        ops.parallel_attn,
        attention,
        lambda draw: [draw.leaf(BATCH, LENGTH, HEADS, DEPTH) for _ in range(3)],
    ),
    Case(
        "chunk_local_cumsum",
        lambda x: utils.chunk_local_cumsum(x, CHUNK),
        in_chunks,
        lambda draw: (draw.fixed(BATCH, LENGTH, HEADS, DEPTH),),
    ),
    Case(
        "chunk_global_cumsum",
        utils.chunk_global_cumsum,
        lambda x: x.cumsum(1),
        lambda draw: (draw.fixed(BATCH, LENGTH, HEADS, DEPTH),),
    ),
    Case(
        "softmax",
        utils.softmax_fwd,
        lambda x: x.softmax(-1),
        lambda draw: (draw.fixed(BATCH, LENGTH, HEADS, DEPTH),),
    ),
    Case(
        "logsumexp",
        utils.logsumexp_fwd,
        lambda x: x.logsumexp(-1),
        lambda draw: (draw.fixed(LENGTH, WIDTH),),
    ),
    Case(
        "mean_pooling",
        lambda x: utils.mean_pooling(x, CHUNK),
        pooled,
        lambda draw: (draw.leaf(BATCH, LENGTH, HEADS, DEPTH),),
    ),
]  # fmt: skip


@every(CASES)
def test_module(case: Case, dtype: torch.dtype):
    check(case, dtype)
