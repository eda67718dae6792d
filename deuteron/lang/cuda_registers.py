"""What only threads of a GPU can be asked: `tl.extra.cuda`."""

from __future__ import annotations

from deuteron.dtypes import DType, int32, int64
from deuteron.lang.context import Context, builtin
from deuteron.lang.values import Tensor

_WARP_SIZE = 32


def _register(ctx: Context, text: str, constraint: str, dtype: DType, *, volatile: bool) -> Tensor:
    attrs = {"asm": text, "constraints": constraint, "dtypes": (dtype,), "pack": 1}
    if volatile:
        attrs["volatile"] = True
    return Tensor(ctx.builder.ops("inline_asm", **attrs)[0])


@builtin
def globaltimer(ctx: Context) -> Tensor:
    """The GPU's clock, in nanoseconds: an int64."""
    return _register(ctx, "mov.u64 $0, %globaltimer;", "=l", int64, volatile=True)


@builtin
def smid(ctx: Context) -> Tensor:
    """The number of the multiprocessor that this program runs on: an int32."""
    return _register(ctx, "mov.u32 $0, %smid;", "=r", int32, volatile=True)


@builtin
def num_warps(ctx: Context) -> int:
    """How many warps run this program: a constant."""
    return ctx.options.num_warps


@builtin
def num_threads(ctx: Context) -> int:
    """How many threads run this program: a constant."""
    return _WARP_SIZE * ctx.options.num_warps
