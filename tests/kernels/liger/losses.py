"""Liger's losses.  Run by test_libraries.py."""

from __future__ import annotations

import torch
from liger_kernel import ops
from torch.nn import functional

from tests.kernels.compare import Case, Draw, check, every

ROWS, VOCABULARY = 7, 100
IGNORED = -100


def labels(draw: Draw, *shape: int) -> torch.Tensor:
    drawn = draw.integers(VOCABULARY, *shape)
    drawn.view(-1)[2] = IGNORED
    return drawn


def logits_and_labels(draw: Draw):
    return draw.leaf(ROWS, VOCABULARY), labels(draw, ROWS)


def full_cross_entropy(x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor):
    """Of soft-capped logits, with class weights, label smoothing and the z-loss."""
    x = 30 * torch.tanh(x / 30)
    kept = target != IGNORED
    loss = functional.cross_entropy(
        x, target, weight, ignore_index=IGNORED, label_smoothing=0.1, reduction="mean"
    )
    z_loss = 1e-3 * (x.logsumexp(-1).square() * kept).sum() / kept.sum()
    return loss + z_loss, z_loss.detach()


def ce_and_tvd(student: torch.Tensor, teacher: torch.Tensor, target: torch.Tensor):
    kept = target != IGNORED
    ce = functional.cross_entropy(student, target, ignore_index=IGNORED, reduction="none")
    return ce, 0.5 * (student.softmax(-1) - teacher.softmax(-1)).abs().sum(-1) * kept


def jsd(beta: float):
    """Generalised Jensen-Shannon divergence of log-probabilities; 0 and 1 are the two KLs."""

    def kl(p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
        return p.exp() * (p - log_q)

    def reference(x: torch.Tensor, y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        kept = target != IGNORED
        if beta in (0, 1):
            loss = kl(y, x) if beta == 0 else kl(x, y)
        else:
            middle = (beta * y.exp() + (1 - beta) * x.exp()).log()
            loss = beta * kl(y, middle) + (1 - beta) * kl(x, middle)
        return (loss * kept[:, None]).sum() / kept.sum()

    return lambda x, y, target: ops.LigerJSDFunction.apply(x, y, target, beta, IGNORED), reference


def vocabulary_parallel(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    flat = functional.cross_entropy(
        x.flatten(0, 1), target.flatten(), ignore_index=IGNORED, label_smoothing=0.1,
        reduction="none",
    )  # fmt: skip
    return flat.view(target.shape)


CASES = [
    Case(
        "cross_entropy",
        lambda x, target: ops.LigerCrossEntropyFunction.apply(x, target, None)[0],
        lambda x, target: functional.cross_entropy(x, target, ignore_index=IGNORED),
        logits_and_labels,
    ),
    Case(
        "cross_entropy_in_parts",
        lambda x, target: ops.LigerCrossEntropyFunction.apply(x, target, None)[0],
        functional.cross_entropy,
        lambda draw: (draw.leaf(2, 40_000), draw.integers(40_000, 2)),
        dtypes=(torch.float32,),
    ),
    Case(
        "cross_entropy_every_option",
        lambda x, target, weight: ops.LigerCrossEntropyFunction.apply(
            x, target, weight, IGNORED, 1e-3, 0.1, "mean", 30.0, True
        )[:2],
        full_cross_entropy,
        lambda draw: (*logits_and_labels(draw), draw.fixed(VOCABULARY, scale=0.1, shift=1.0)),
    ),
    Case(
        "cross_entropy_tokens",
        lambda x, target: ops.LigerCrossEntropyFunction.apply(
            x, target, None, IGNORED, 0.0, 0.0, "none", None, False, False, True
        )[3],
        lambda x, target: torch.where(target == IGNORED, -1, x.argmax(-1)),
        lambda draw: (draw.fixed(ROWS, VOCABULARY), labels(draw, ROWS)),
    ),
    Case(
        "vocab_parallel_cross_entropy",
        lambda x, target: ops.LigerVocabParallelCEFunction.apply(
            x, target, None, IGNORED, 0.1, "pytorch", "global"
        ),
        vocabulary_parallel,
        lambda draw: (draw.leaf(3, 4, VOCABULARY), labels(draw, 3, 4)),
    ),
    Case(
        "fused_ce_tvd",
        ops.LigerFusedCETVDFunction.apply,
        ce_and_tvd,
        lambda draw: (
            draw.leaf(ROWS, VOCABULARY), draw.fixed(ROWS, VOCABULARY), labels(draw, ROWS)
        ),
    ),
    *(
        Case(
            f"kl_div_{reduction}",
            lambda x, y, reduction=reduction: ops.LigerKLDivLossFunction.apply(x, y, reduction),
            lambda x, y, reduction=reduction: functional.kl_div(x, y, reduction=reduction),
            lambda draw: (
                draw.distribution(ROWS, VOCABULARY, log=True, leaf=True),
                draw.distribution(ROWS, VOCABULARY),
            ),
        )
        for reduction in ("batchmean", "none")
    ),
    Case(
        "tvd",
        lambda p, q, target: ops.LigerTVDLossFunction.apply(p, q, target, "mean"),
        lambda p, q, target: (
            (0.5 * (p - q).abs() * (target != IGNORED)[:, None]).sum()
            / ((target != IGNORED).sum() * VOCABULARY)
        ),
        lambda draw: (
            draw.distribution(ROWS, VOCABULARY, leaf=True),
            draw.distribution(ROWS, VOCABULARY),
            labels(draw, ROWS),
        ),
    ),
    *(
        Case(
            f"jsd_{beta}",
            *jsd(beta),
            lambda draw: (
                draw.distribution(ROWS, VOCABULARY, log=True, leaf=True),
                draw.distribution(ROWS, VOCABULARY, log=True),
                labels(draw, ROWS),
            ),
        )
        for beta in (0, 0.3, 1)
    ),
]  # fmt: skip


@every(CASES)
def test_loss(case: Case, dtype: torch.dtype):
    check(case, dtype)
