"""Liger's layers: experts, gated MLPs, hyper-connections.  Run by test_libraries.py."""

from __future__ import annotations

import torch
from liger_kernel import ops
from liger_kernel.ops import mlp
from torch.nn import functional

from tests.kernels.compare import Case, Draw, check, every

TOKENS, HIDDEN, INNER, EXPERTS, CHOSEN = 10, 32, 24, 4, 2
STREAMS, WIDTH = 4, 20

for _kernel in (mlp._swiglu_kernel_forward, mlp._swiglu_kernel_backward_dI):
    _kernel.configs = _kernel.configs[:1]  # whichever were the fastest, all are the same kernel
SINKHORN = {"turns": 3, "pre_eps": 1e-4, "eps": 1e-6, "times": 2.0}


def experts(x, gate_up, down, index, weights):
    out = torch.zeros_like(x)
    for chosen in range(CHOSEN):
        for token in range(TOKENS):
            expert = index[token, chosen]
            gate, up = (gate_up[expert] @ x[token]).chunk(2)
            row = down[expert] @ (functional.silu(gate) * up)
            out[token] = out[token] + weights[token, chosen] * row
    return out


def routed(draw: Draw):
    order = torch.stack([torch.randperm(EXPERTS, generator=draw.random) for _ in range(TOKENS)])
    return (
        draw.leaf(TOKENS, HIDDEN),
        draw.leaf(EXPERTS, 2 * INNER, HIDDEN, scale=0.2),
        draw.leaf(EXPERTS, HIDDEN, INNER, scale=0.2),
        order[:, :CHOSEN].int().contiguous(),
        draw.leaf(TOKENS, CHOSEN),
    )


def sinkhorn(logits: torch.Tensor) -> torch.Tensor:
    eps = SINKHORN["eps"]
    matrix = logits.softmax(-1) + eps
    for turn in range(SINKHORN["turns"]):
        if turn:
            matrix = matrix / (matrix.sum(-1, keepdim=True) + eps)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
    return matrix


def coefficients(x, phi, b, of_pre, of_post, of_res):
    flat = x.flatten(-2)
    mix = (flat @ phi) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + 1e-6)
    sizes = (STREAMS, STREAMS, STREAMS**2)
    (pre, post, res), (b_pre, b_post, b_res) = mix.split(sizes, -1), b.split(sizes)
    return (
        torch.sigmoid(pre * of_pre + b_pre) + SINKHORN["pre_eps"],
        torch.sigmoid(post * of_post + b_post) * SINKHORN["times"],
        sinkhorn((res * of_res + b_res).unflatten(-1, (STREAMS, STREAMS))),
    )


def coefficients_drawn(draw: Draw):
    columns = STREAMS**2 + 2 * STREAMS
    return (
        draw.leaf(TOKENS, STREAMS, WIDTH),
        draw.leaf(STREAMS * WIDTH, columns, scale=0.1),
        draw.leaf(columns),
        *(draw.leaf(1, shift=1.0).detach()[0].requires_grad_() for _ in range(3)),
    )


def mix_streams(x, f, post, res):
    return torch.einsum("toi,tic->toc", res, x) + post[..., None] * f[:, None]


class GatedProjections(torch.autograd.Function):
    """LigerMLPFunction without its demand for a GPU: the same kernels in the same order."""

    @staticmethod
    def forward(ctx, x, gate, up, down):
        ctx.activations, ctx.config = mlp.gemm_swiglu(x, gate, up, 1.0)
        ctx.save_for_backward(x, gate, up, down)
        return ctx.activations[..., :INNER] @ down.T

    @staticmethod
    def backward(ctx, grad):
        x, gate, up, down = ctx.saved_tensors
        rows = ctx.activations.flatten(0, 1)
        of_down = grad.flatten(0, 1).T @ rows[:, :INNER]
        mlp.swiglu_backward_dGU(grad.contiguous(), down, ctx.activations, ctx.config, 1.0, 1.0)
        of_gate, of_up = (rows[:, INNER:].T @ x.flatten(0, 1)).chunk(2)
        return mlp.swiglu_backward_dI(gate, up, ctx.activations), of_gate, of_up, of_down


def gated_projections(x, gate, up, down):
    return (functional.silu(x @ gate.T) * (x @ up.T)) @ down.T


def projections(draw: Draw):
    weights = [draw.leaf(INNER, HIDDEN, scale=0.2) for _ in range(2)]
    return draw.leaf(2, TOKENS, HIDDEN), *weights, draw.leaf(HIDDEN, INNER, scale=0.2)


def tiled(x: torch.Tensor) -> torch.Tensor:
    """An MLP without weights, in two parts."""
    activate = ops.LigerSiLUMulFunction.apply
    return ops.LigerTiledMLPFunction.apply(lambda _, part: activate(part + 1, part * 2), None, x, 2)


CASES = [
    Case("mlp", GatedProjections.apply, gated_projections, projections),
    Case(
        "tiled_mlp",
        tiled,
        lambda x: functional.silu(x + 1) * x * 2,
        lambda draw: (draw.leaf(2, TOKENS, HIDDEN),),
    ),
    Case("fused_moe", ops.LigerFusedMoEFunction.apply, experts, routed),
    Case(
        "mhc_coeffs",
        lambda *given: ops.LigerMHCCoeffsFunction.apply(
            *given, True, SINKHORN["turns"], 1e-6, SINKHORN["pre_eps"], SINKHORN["eps"],
            SINKHORN["times"],
        ),
        coefficients,
        coefficients_drawn,
    ),
    Case(
        "mhc_pre",
        ops.LigerMHCPreFunction.apply,
        lambda x, h: (x * h[..., None]).sum(-2),
        lambda draw: (draw.leaf(TOKENS, STREAMS, WIDTH), draw.leaf(TOKENS, STREAMS)),
    ),
    Case(
        "mhc_post_res",
        ops.LigerMHCPostResFunction.apply,
        mix_streams,
        lambda draw: (
            draw.leaf(TOKENS, STREAMS, WIDTH),
            draw.leaf(TOKENS, WIDTH),
            draw.leaf(TOKENS, STREAMS),
            draw.leaf(TOKENS, STREAMS, STREAMS),
        ),
    ),
]  # fmt: skip


@every(CASES)
def test_layer(case: Case, dtype: torch.dtype):
    check(case, dtype)
