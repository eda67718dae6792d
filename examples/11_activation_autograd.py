"""11: an activation of one's own, with its gradients, as a torch.autograd.Function.

Snake, x + sin(a x)^2 / a, whose frequency a is learned.  The gradient of a is a sum over all of x:
each program adds up its share, and torch adds the shares.  `gradcheck` compares both gradients with
finite differences, for which the kernels run in float64; one source serves every dtype.
"""

import torch
from devices import chosen_device

import deuteron as dn
import deuteron.language as tl


@dn.jit
def snake_kernel(x_ptr, a_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    a = tl.load(a_ptr)
    wave = tl.sin(a * x)
    tl.store(y_ptr + at, x + wave * wave / a, mask=at < n)


@dn.jit
def snake_backward_kernel(x_ptr, a_ptr, dy_ptr, dx_ptr, da_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    at = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    dy = tl.load(dy_ptr + at, mask=at < n, other=0.0)
    a = tl.load(a_ptr)
    wave = tl.sin(a * x)
    slope = tl.sin(2 * a * x)
    tl.store(dx_ptr + at, dy * (1 + slope), mask=at < n)
    tl.store(da_ptr + pid, tl.sum(dy * (x * slope - wave * wave / a) / a, axis=0))


class Snake(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, a):
        x = x.contiguous()
        y, n = torch.empty_like(x), x.numel()
        block = 1024
        snake_kernel[(dn.cdiv(n, block),)](x, a, y, n, BLOCK=block)
        ctx.save_for_backward(x, a)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, a = ctx.saved_tensors
        dx, n, block = torch.empty_like(x), x.numel(), 1024
        shares = x.new_empty(dn.cdiv(n, block))
        snake_backward_kernel[shares.shape](
            x, a, dy.contiguous(), dx, shares, n, BLOCK=block
        )  # fmt: skip
        return dx, shares.sum()


def snake(x, a):
    """x + sin(a x)^2 / a, element by element; `a` is a tensor of one number."""
    return Snake.apply(x, a)


def main(device="cpu"):
    torch.manual_seed(0)
    make = {"device": device, "requires_grad": True}
    x = torch.randn(37, 29, dtype=torch.float64, **make)
    a = torch.tensor(1.7, dtype=torch.float64, **make)
    torch.autograd.gradcheck(snake, (x, a))

    x32 = torch.randn(5000, **make)
    a32 = torch.tensor(0.6, **make)
    ours = torch.autograd.grad(snake(x32, a32).square().mean(), (x32, a32))
    wide = [t.detach().double().requires_grad_() for t in (x32, a32)]
    plain = wide[0] + torch.sin(wide[1] * wide[0]).square() / wide[1]
    theirs = torch.autograd.grad(plain.square().mean(), wide)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6, check_dtype=False)
    print("11 activation with autograd: gradients agree with finite differences and with torch's")


if __name__ == "__main__":
    main(chosen_device())
