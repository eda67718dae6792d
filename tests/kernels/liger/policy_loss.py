"""Liger's losses of policy gradients (GRPO and its kin).  Run by test_libraries.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from liger_kernel import ops

from tests.kernels.compare import Case, Draw, check, every

BATCH, LENGTH, VOCABULARY = 2, 5, 60
TEMPERATURE, BETA, LOW, HIGH = 0.9, 0.04, 0.2, 0.3
WEIGHTS = (0.5, 1.5)
"""VESPO's, one a sequence."""


def drawn(draw: Draw) -> Sequence[Any]:
    """Logits, old and reference log-probabilities, tokens, advantages, mask."""
    mask = torch.ones(BATCH, LENGTH, dtype=torch.int32)
    mask[1, 3:] = 0
    return (
        draw.leaf(BATCH, LENGTH + 1, VOCABULARY),
        draw.fixed(BATCH, LENGTH, scale=0.2, shift=-4.5),
        draw.fixed(BATCH, LENGTH, scale=0.2, shift=-4.5),
        draw.integers(VOCABULARY, BATCH, LENGTH),
        draw.fixed(BATCH),
        mask,
    )


def called(kind: str, level: str = "token"):
    weights = torch.tensor(WEIGHTS) if kind == "vespo" else None

    def call(*given: torch.Tensor) -> torch.Tensor:
        further = (TEMPERATURE, BETA, LOW, HIGH, False, kind, None, True, level)
        rest = (1.0, 1.05, None, None, False, None, weights)
        return ops.GrpoLossFunction.apply(*given, *further, *rest)[0]

    return call


def log_probability(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    scaled = (logits[:, :-1] / TEMPERATURE).log_softmax(-1)
    return scaled.gather(-1, ids[..., None]).squeeze(-1)


def expected(kind: str, level: str = "token"):
    def reference(logits, old, of_reference, ids, advantages, mask):
        logp = log_probability(logits, ids)
        ratio = logp - old
        if level == "sequence":
            ratio = ((ratio * mask).sum(-1) / mask.sum(-1))[:, None].expand_as(logp)
        loss = per_token(kind, ratio.exp(), logp, advantages[:, None])
        distance = of_reference - logp
        loss = loss + BETA * (distance.exp() - distance - 1)
        if kind in ("cispo", "vespo"):
            return (loss * mask).sum() / mask.sum()
        return ((loss * mask).sum(-1) / mask.sum(-1)).mean()

    return reference


def per_token(
    kind: str, coefficient: torch.Tensor, logp: torch.Tensor, advantage: torch.Tensor
) -> torch.Tensor:
    match kind:
        case "grpo":
            clipped = coefficient.clamp(1 - LOW, 1 + HIGH)
            return -torch.minimum(coefficient * advantage, clipped * advantage)
        case "cispo":
            return -coefficient.clamp(max=HIGH).detach() * advantage * logp
        case "vespo":
            return -torch.tensor(WEIGHTS)[:, None] * advantage * logp
        case _:
            steepness = torch.where(advantage > 0, 1.0, 1.05).double()
            gate = torch.sigmoid(steepness * (coefficient - 1)) * 4 / steepness
            return -gate * advantage


CASES = [
    *(
        Case(kind, called(kind), expected(kind), drawn, slack=2)  # gradients cancel in part
        for kind in ("grpo", "cispo", "sapo", "vespo")
    ),
    Case("sequence", called("grpo", "sequence"), expected("grpo", "sequence"), drawn),
]


@every(CASES)
def test_policy_loss(case: Case, dtype: torch.dtype):
    check(case, dtype)
