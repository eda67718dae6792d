"""Liger's losses fused with the projection before them.  Run by test_libraries.py."""

from __future__ import annotations

import torch
from liger_kernel import ops
from torch.nn import functional

from tests.kernels.compare import Case, Draw, check, every

ROWS, HIDDEN, VOCABULARY = 12, 24, 100
IGNORED = -100


def labels(draw: Draw) -> torch.Tensor:
    drawn = draw.integers(VOCABULARY, ROWS)
    drawn[2] = IGNORED
    return drawn


def projection(draw: Draw, leaf: bool = True):
    make = draw.leaf if leaf else draw.fixed
    return make(ROWS, HIDDEN), make(VOCABULARY, HIDDEN, scale=0.3)


def cross_entropy(reduction: str):
    def call(x, w, b, target):
        given = (x, w, target, b, None, IGNORED, 0.0, 0.1, reduction)
        return ops.LigerFusedLinearCrossEntropyFunction.apply(*given)[0]

    def reference(x, w, b, target):
        return functional.cross_entropy(
            x @ w.T + b, target, ignore_index=IGNORED, label_smoothing=0.1, reduction=reduction
        )

    return call, reference


def jsd(x, w, teacher_x, teacher_w, target):
    p, q = (teacher_x @ teacher_w.T).log_softmax(-1), (x @ w.T).log_softmax(-1)
    middle = ((p.exp() + q.exp()) / 2).log()
    loss = (p.exp() * (p - middle) + q.exp() * (q - middle)) / 2
    kept = target != IGNORED
    return (loss * kept[:, None]).sum() / kept.sum()


def scaled_cross_entropy(x, w, target):
    logits = (x @ w.T) / 0.7
    kept = target != IGNORED
    loss = functional.cross_entropy(logits, target, ignore_index=IGNORED, reduction="none")
    entropy = torch.special.entr(logits.softmax(-1)).sum(-1)
    return loss, entropy * kept


CASES = [
    *(
        Case(
            f"fused_linear_cross_entropy_{reduction}",
            *cross_entropy(reduction),
            lambda draw: (*projection(draw), draw.leaf(VOCABULARY), labels(draw)),
        )
        for reduction in ("mean", "none")
    ),
    Case(
        "fused_linear_jsd",
        ops.LigerFusedLinearJSDFunction.apply,
        jsd,
        lambda draw: (*projection(draw), *projection(draw, leaf=False), labels(draw)),
    ),
    Case(
        "fused_linear_kl_div",
        lambda x, w, y: ops.LigerFusedLinearKLDivFunction.apply(
            x, w, y, None, "batchmean", IGNORED, 2.0
        ),
        lambda x, w, y: functional.kl_div(
            (x @ w.T / 2.0).log_softmax(-1), y, reduction="batchmean"
        ),
        lambda draw: (*projection(draw), draw.distribution(ROWS, VOCABULARY)),
    ),
    Case(
        "fused_linear_scaled_cross_entropy",
        lambda x, w, target: ops.LigerFusedLinearScaledCrossEntropyFunction.apply(
            x, w, target, 0.7, IGNORED, 1, True
        ),
        scaled_cross_entropy,
        lambda draw: (*projection(draw), labels(draw)),
        slack=2,
    ),
]


@every(CASES)
def test_linear_loss(case: Case, dtype: torch.dtype):
    check(case, dtype)
