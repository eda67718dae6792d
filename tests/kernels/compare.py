"""Kernels of other people's libraries beside plain torch: results and gradients.

A `Case` draws its arguments, gives them to the library as they are and to the reference in float64,
and compares what comes out, then the gradients of all that asks for one, under the same random
gradient of each result.  So nothing of the library or of this package is part of what is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

Function = Callable[..., Any]

STEPS = {torch.float32: 32, torch.float16: 4, torch.bfloat16: 4}
"""How many units of a dtype's precision a result may be off.

Kernels compute in float32 and round to a narrow dtype a few times at most; float32 has no wider
type behind it, so that its own rounding adds up.
"""


class Draw:
    """Reproducible arguments of a case; floats are made in float32 and rounded to `dtype`."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.random = torch.Generator().manual_seed(0)

    def leaf(self, *shape: int, scale: float = 1.0, shift: float = 0.0) -> torch.Tensor:
        """Normally distributed, and differentiated by the case."""
        return self.fixed(*shape, scale=scale, shift=shift).requires_grad_()

    def fixed(self, *shape: int, scale: float = 1.0, shift: float = 0.0) -> torch.Tensor:
        """Normally distributed."""
        drawn = torch.randn(shape, generator=self.random)
        return (drawn * scale + shift).to(self.dtype)

    def distribution(self, *shape: int, log: bool = False, leaf: bool = False) -> torch.Tensor:
        """Probabilities along the last axis, or their logarithms."""
        drawn = torch.randn(shape, generator=self.random)
        drawn = drawn.log_softmax(-1) if log else drawn.softmax(-1)
        return drawn.to(self.dtype).requires_grad_(leaf)

    def integers(self, limit: int, *shape: int) -> torch.Tensor:
        """From 0 to `limit`, exclusive."""
        return torch.randint(limit, shape, generator=self.random)


@dataclass(frozen=True, slots=True)
class Case:
    """What is called with the drawn arguments, and what must come out, for each of `dtypes`.

    An element may differ from the reference by `slack` times the dtype's `STEPS`, relative to
    itself and to the root mean square of its tensor: sums lose to rounding in proportion to what
    was added, not to what is left.
    """

    name: str
    call: Function
    reference: Function
    arguments: Callable[[Draw], Sequence[Any]]
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16)
    slack: float = 1


def every(cases: Iterable[Case]) -> pytest.MarkDecorator:
    """Parametrize a test's `case` and `dtype`."""
    values = [
        pytest.param(case, dtype, id=f"{case.name}-{str(dtype).removeprefix('torch.')}")
        for case in cases
        for dtype in case.dtypes
    ]
    return pytest.mark.parametrize(("case", "dtype"), values)


def check(case: Case, dtype: torch.dtype) -> None:
    """Raise AssertionError where the library's results or gradients are wrong."""
    ours = case.arguments(Draw(dtype))
    wanted_of = [_in_double(one) for one in ours]
    limit = STEPS[dtype] * case.slack * torch.finfo(dtype).eps
    got, wanted = _results(case.call(*ours)), _results(case.reference(*wanted_of))
    assert len(got) == len(wanted)
    for at, (one, other) in enumerate(zip(got, wanted, strict=True)):
        _compare(f"result {at}", one, other, limit)
    _differentiate(got, wanted)
    for at, (one, other) in enumerate(zip(ours, wanted_of, strict=True)):
        if isinstance(one, torch.Tensor) and one.requires_grad:
            assert one.grad is not None, f"argument {at} got no gradient"
            _compare(f"gradient of argument {at}", one.grad, other.grad, limit)


def _in_double(value: Any) -> Any:
    """A copy for the reference, of which the library cannot know."""
    if not isinstance(value, torch.Tensor):
        return value
    copy = value.detach().clone()
    if copy.is_floating_point():
        copy = copy.double().requires_grad_(value.requires_grad)
    return copy


def _results(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [one for one in value if one is not None]


def _differentiate(got: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
    random = torch.Generator().manual_seed(1)
    pairs = [(one, other) for one, other in zip(got, wanted, strict=True) if other.requires_grad]
    if not pairs:
        return
    upstream = [torch.randn(one.shape, generator=random).to(one.dtype) for one, _ in pairs]
    doubled = [gradient.double() for gradient in upstream]
    torch.autograd.backward([one for one, _ in pairs], upstream)
    torch.autograd.backward([other for _, other in pairs], doubled)


def _compare(what: str, got: torch.Tensor, wanted: torch.Tensor, limit: float) -> None:
    assert got.shape == wanted.shape, f"{what}: shape {got.shape}, expected {wanted.shape}"
    if not wanted.is_floating_point():
        assert torch.equal(got.to(wanted.dtype), wanted), f"{what} differs"
        return
    got, wanted = got.detach().double(), wanted.detach()
    scale = wanted.abs() + wanted.square().mean().sqrt()
    off = (got - wanted).abs() / scale.clamp(min=torch.finfo(torch.float32).tiny)
    worst = off.nan_to_num(nan=float("inf")).max().item()
    assert worst <= limit, f"{what}: off by {worst:.3g} of its size, {limit:.3g} is allowed"
