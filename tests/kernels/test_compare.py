"""`compare.py` itself: it lets rounding pass, and nothing else."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.compare import Case, check


class Square(torch.autograd.Function):
    """With a gradient that is off by a given factor."""

    @staticmethod
    def forward(ctx, x, result: float, gradient: float):
        ctx.save_for_backward(x)
        ctx.factor = gradient
        return x * x * result

    @staticmethod
    def backward(ctx, upstream):
        (x,) = ctx.saved_tensors
        return 2 * x * upstream * ctx.factor, None, None


def square(result: float, gradient: float) -> Case:
    return Case(
        "square",
        lambda x: Square.apply(x, result, gradient),
        lambda x: x * x,
        lambda draw: (draw.leaf(5, 7),),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_passes(dtype: torch.dtype):
    check(square(1.0, 1.0), dtype)


@pytest.mark.parametrize(
    ("result", "gradient", "what"),
    [
        (1.0001, 1.0, "result 0"),
        (1.0, 1.0001, "gradient of argument 0"),
        (float("nan"), 1.0, "result 0"),
    ],
)
def test_what_is_wrong_is_named(result: float, gradient: float, what: str):
    with pytest.raises(AssertionError, match=f"{what}: off by"):
        check(square(result, gradient), torch.float32)
