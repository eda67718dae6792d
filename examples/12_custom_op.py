"""12: a kernel as an operator of torch, inside torch.compile.

`custom_op` makes the kernel one node that the compiler does not look into, `register_fake` tells
the shape of its result without running it, and `register_autograd` its gradient, an operator too.
The graph is captured whole.  The backend here stops at ahead-of-time autograd, so that no C++
compiler is needed; with one, torch.compile's own backend takes the same operators.
"""

import torch
from devices import chosen_device

import deuteron as dn
import deuteron.language as tl


@dn.jit
def rms_norm_kernel(x_ptr, w_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    w = tl.load(w_ptr + cols, mask=cols < n)
    scale = 1 / tl.sqrt(tl.sum(x * x, axis=0) / n + eps)
    tl.store(y_ptr + row * n + cols, x * scale * w, mask=cols < n)


@dn.jit
def rms_norm_backward_kernel(x_ptr, w_ptr, dy_ptr, dx_ptr, dw_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    at, mask = row * n + cols, cols < n
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    dy = tl.load(dy_ptr + at, mask=mask, other=0.0)
    g = dy * tl.load(w_ptr + cols, mask=mask, other=0.0)
    scale = 1 / tl.sqrt(tl.sum(x * x, axis=0) / n + eps)
    along_x = tl.sum(g * x, axis=0) / n * scale * scale
    tl.store(dx_ptr + at, (g - x * along_x) * scale, mask=mask)
    tl.store(dw_ptr + at, dy * x * scale, mask=mask)


@torch.library.custom_op("deuteron_examples::rms_norm", mutates_args=())
def rms_norm(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * w along the last of two axes."""
    x, (rows, n) = x.contiguous(), x.shape
    y = torch.empty_like(x)
    rms_norm_kernel[(rows,)](x, w, y, n, eps, BLOCK=dn.next_power_of_2(n))
    return y


@torch.library.custom_op("deuteron_examples::rms_norm_backward", mutates_args=())
def rms_norm_backward(
    x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    x, dy, (rows, n) = x.contiguous(), dy.contiguous(), x.shape
    dx, dw = torch.empty_like(x), torch.empty_like(x)
    block = dn.next_power_of_2(n)
    rms_norm_backward_kernel[(rows,)](x, w, dy, dx, dw, n, eps, BLOCK=block)
    return dx, dw.sum(0)


rms_norm.register_fake(lambda x, w, eps: x.new_empty(x.shape))
rms_norm_backward.register_fake(
    lambda x, w, dy, eps: (x.new_empty(x.shape), w.new_empty(w.shape))
)  # fmt: skip


def keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:2])
    ctx.eps = inputs[2]


def backward(ctx, dy):
    return *rms_norm_backward(*ctx.saved_tensors, dy, ctx.eps), None


rms_norm.register_autograd(backward, setup_context=keep)


def model(x, w, norm):
    return torch.tanh(norm(torch.relu(x) + x, w, 1e-5)).square().sum()


def main(device="cpu"):
    torch.manual_seed(0)
    x = torch.randn(64, 300, device=device, requires_grad=True)
    w = torch.randn(300, device=device, requires_grad=True)
    torch.library.opcheck(rms_norm, (x, w, 1e-5))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    reference = lambda x, w, eps: torch.nn.functional.rms_norm(x, w.shape, w, eps)  # noqa: E731
    ours, theirs = compiled(x, w, rms_norm), model(x, w, reference)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    gradients = (torch.autograd.grad(loss, (x, w)) for loss in (ours, theirs))
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4)
    print("12 custom op: compiled whole, its value and gradients agree with torch's own")


if __name__ == "__main__":
    main(chosen_device())
