"""Liger's attention, embeddings and rotations.  Run by test_libraries.py."""

from __future__ import annotations

import math

import torch
from liger_kernel import ops
from torch.nn import functional

from tests.kernels.compare import Case, Draw, check, every

BATCH, HEADS, KEY_HEADS, LENGTH, DEPTH = 2, 3, 2, 9, 16


def queries_and_keys(draw: Draw):
    return draw.leaf(BATCH, HEADS, LENGTH, DEPTH), draw.leaf(BATCH, KEY_HEADS, LENGTH, DEPTH)


def angles(draw: Draw, *lead: int):
    """Cosines and sines of angles that both halves of a head share."""
    half = draw.fixed(*lead, LENGTH, DEPTH // 2, scale=3.0)
    both = torch.cat([half, half], -1)
    return both.cos(), both.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


def rope(q, k, cos, sin):
    return rotate(q, cos[:, None], sin[:, None]), rotate(k, cos[:, None], sin[:, None])


def sections(table: torch.Tensor, lengths: tuple[int, ...]) -> torch.Tensor:
    """Each section of a head's half from one of three tables."""
    parts = [table[i][..., at] for i, at in enumerate(torch.arange(DEPTH // 2).split(lengths))]
    return torch.cat(parts * 2, -1)[:, None]


def multimodal_rope(q, k, cos, sin):
    cos, sin = sections(cos, (3, 3, 2)), sections(sin, (3, 3, 2))
    return rotate(q, cos, sin), rotate(k, cos, sin)


def rotate_pairs(x: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    """Neighbours are a complex number each."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    turns = torch.view_as_complex(frequencies)[None, :, None]
    return torch.view_as_real(pairs * turns).flatten(-2)


def neighbourhood_attention(q, k, v):
    """Of 5 neighbours, every second one."""
    distance = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    near = (distance.abs() <= 4) & (distance % 2 == 0)
    scores = (q @ k.mT / math.sqrt(DEPTH)).masked_fill(~near, float("-inf"))
    return scores.softmax(-1) @ v


def multi_token_attention(scores, weight, bias):
    below = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    weights = scores.masked_fill(~below, float("-inf")).softmax(-1)
    return functional.conv2d(weights, weight, bias, padding=1).masked_fill(~below, 0.0)


CASES = [
    Case(
        "rope",
        ops.LigerRopeFunction.apply,
        rope,
        lambda draw: (*queries_and_keys(draw), *angles(draw, BATCH)),
    ),
    Case(
        "qwen2vl_mrope",
        lambda *given: ops.LigerQwen2VLMRopeFunction.apply(*given, (3, 3)),
        multimodal_rope,
        lambda draw: (*queries_and_keys(draw), *angles(draw, 3, BATCH)),
    ),
    Case(
        "llama4_rope",
        lambda q, k, turns: ops.LigerLlama4RopeFunction.apply(q, k, torch.view_as_complex(turns)),
        lambda q, k, turns: (rotate_pairs(q, turns), rotate_pairs(k, turns)),
        lambda draw: (
            draw.leaf(BATCH, LENGTH, HEADS, DEPTH),
            draw.leaf(BATCH, LENGTH, KEY_HEADS, DEPTH),
            draw.fixed(LENGTH, DEPTH // 2, 2),
        ),
        dtypes=(torch.float32, torch.float16),  # complex numbers of bfloat16 there are none
    ),
    Case(
        "embedding",
        ops.LigerEmbeddingFunction.apply,
        lambda table, at: table[at],
        lambda draw: (draw.leaf(20, DEPTH), draw.integers(20, BATCH, LENGTH)),
    ),
    Case(
        "fused_neighborhood_attention",
        lambda q, k, v: ops.LigerFusedNeighborhoodAttentionFunction.apply(q, k, v, 5, 2),
        neighbourhood_attention,
        lambda draw: [draw.leaf(BATCH, HEADS, LENGTH, DEPTH) for _ in range(3)],
    ),
    Case(
        "multi_token_attention",
        lambda *given: ops.LigerMultiTokenAttentionFunction.apply(*given, 1, 1),
        multi_token_attention,
        lambda draw: (
            draw.leaf(BATCH, 4, LENGTH, LENGTH), draw.leaf(4, 4, 3, 3, scale=0.3), draw.leaf(4)
        ),
    ),
]  # fmt: skip


@every(CASES)
def test_attention(case: Case, dtype: torch.dtype):
    check(case, dtype)
