"""Small models compiled by torch's Inductor to Triton kernels for the CPU, beside eager torch.

    deuteron run tests/inductor/models.py

Prints a line for each model that differs, in its results or in the gradients of its parameters.
"""

from __future__ import annotations

import copy
import sys
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._inductor import config
from torch.nn import functional


class Attention(nn.Module):
    """Self-attention over 4 heads of 16, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, 4, 16).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) / 4).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, time, width))


class TokenModel(nn.Module):
    """Embedding, a linear layer, log-softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(100, 32), nn.Linear(32, 100)

    def forward(self, tokens: Tensor) -> Tensor:
        return functional.log_softmax(self.head(self.embedding(tokens)), -1)


class RMSNorm(nn.Module):
    """Root-mean-square normalisation, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(96))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class SwiGLU(nn.Module):
    """A gated feed-forward block."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(48, 96), nn.Linear(48, 96), nn.Linear(96, 48)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class ResidualBlock(nn.Module):
    """Layer norm and a feed-forward block around a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.block = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(self.norm(x))


class Poolings(nn.Module):
    """Reductions, arg-reductions and a scan."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        pooled = functional.max_pool2d(x, 2).sum((2, 3)), functional.avg_pool2d(x, 2).amax(1)
        return *pooled, x.argmax(-1), x.cumsum(1), x.std(0), torch.cat([x, x.sin()], 1)


class AutoencoderLoss(nn.Module):
    """The loss of a variational autoencoder, with its noise as an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(20, 8), nn.Linear(4, 20)

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        mean, log_variance = self.encode(x).chunk(2, -1)
        shown = self.decode(mean + torch.exp(log_variance / 2) * noise)
        distance = (1 + log_variance - mean**2 - log_variance.exp()).mean()
        return functional.binary_cross_entropy_with_logits(shown, x) - distance / 2


class Case(NamedTuple):
    """A model, its arguments, and by how much results and gradients may differ."""

    model: nn.Module
    arguments: tuple[Tensor, ...]
    tolerance: float = 1e-5


def cases() -> dict[str, Callable[[], Case]]:
    """Makers of the models, by name."""
    randn = torch.randn

    def perceptron() -> nn.Module:
        return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 10))

    def convolution() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())

    return {
        "mlp": lambda: Case(perceptron(), (randn(16, 32),)),
        "mlp_bfloat16": lambda: Case(perceptron().bfloat16(), (randn(16, 32).bfloat16(),), 2e-2),
        "attention": lambda: Case(Attention(), (randn(2, 17, 64),)),
        "conv_bn_relu": lambda: Case(convolution().eval(), (randn(2, 3, 16, 16),)),
        "conv_bn_relu_train": lambda: Case(convolution(), (randn(2, 3, 10, 10),)),
        "layer_norm": lambda: Case(nn.LayerNorm(100), (randn(33, 100),)),
        "group_norm": lambda: Case(nn.GroupNorm(2, 8), (randn(2, 8, 5, 5),)),
        "rms_norm": lambda: Case(RMSNorm(), (randn(7, 96),)),
        "embedding_softmax": lambda: Case(TokenModel(), (torch.randint(0, 100, (4, 9)),)),
        "swiglu": lambda: Case(SwiGLU(), (randn(5, 48),)),
        "residual_block": lambda: Case(ResidualBlock(), (randn(3, 11, 64),)),
        "poolings": lambda: Case(Poolings(), (randn(2, 4, 8, 8),)),
        "autoencoder_loss": lambda: Case(
            AutoencoderLoss(), (torch.rand(6, 20), randn(6, 4))
        ),
    }  # fmt: skip


def compare(case: Case) -> None:
    """Raise AssertionError unless the compiled model is the eager one."""
    eager = copy.deepcopy(case.model)
    torch._dynamo.reset()
    compiled: Any = torch.compile(case.model, options={"cpu_backend": "triton"})
    got, expected = compiled(*case.arguments), eager(*case.arguments)
    close = {"rtol": case.tolerance * 10, "atol": case.tolerance}
    torch.testing.assert_close(got, expected, **close)
    weights = list(case.model.parameters())
    if not weights:
        return
    seed = torch.randn_like(expected)
    got.backward(seed)
    expected.backward(seed)
    for ours, theirs in zip(weights, eager.parameters(), strict=True):
        assert theirs.grad is not None
        size = float(theirs.grad.abs().max())
        close = {"rtol": 0.0, "atol": case.tolerance * 10 * max(size, 1.0)}
        torch.testing.assert_close(ours.grad, theirs.grad, **close)


def main(names: list[str]) -> int:
    """Compare the models named, or all; the exit code is the number that differ."""
    config.fx_graph_cache = False  # type: ignore[assignment]
    failed = 0
    for name, make in cases().items():
        if names and name not in names:
            continue
        torch.manual_seed(0)
        try:
            compare(make())
            print(f"{name}: right", flush=True)
        except Exception:  # one model's failure says nothing about the next
            traceback.print_exc(file=sys.stdout)
            print(f"{name}: WRONG", flush=True)
            failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
