"""Deuteron: one package from a tile kernel to a served model.

    import deuteron as dn
    import deuteron.language as tl

    @dn.jit
    def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask)
        y = tl.load(y_ptr + offsets, mask)
        tl.store(out_ptr + offsets, x + y, mask)

    add[(dn.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)  # NumPy arrays or torch tensors

`import deuteron` costs neither torch nor a compiler: LLVM is loaded by the first compilation, or,
where there is a GPU, by a thread from the first kernel on.
"""

from deuteron.backends.cpu.pool import get_num_threads, set_num_threads
from deuteron.errors import (
    CompilationError,
    CompileTimeAssertionFailure,
    DeuteronError,
    DeviceAssertionError,
    InternalError,
    LaunchError,
    OutOfResources,
    UserError,
)
from deuteron.lang.aggregates import aggregate
from deuteron.lang.constexpr_function import constexpr_function
from deuteron.lang.jit import jit
from deuteron.runtime.arrays import TensorWrapper, reinterpret
from deuteron.runtime.autotune import autotune, heuristics
from deuteron.runtime.descriptors import TensorDescriptor
from deuteron.runtime.jit import JITFunction, KernelInterface
from deuteron.runtime.tuned_configs import Config

__version__ = "0.1.0"


@constexpr_function
def cdiv(x: int, y: int) -> int:
    """x / y rounded up: how many blocks of y elements cover x.  Kernels may call it, too."""
    return -(-x // y)


@constexpr_function
def next_power_of_2(n: int) -> int:
    """The least power of two that is not below n (1 for n < 1).  Kernels may call it, too."""
    return 1 << max(0, n - 1).bit_length()


from deuteron import language, testing  # noqa: E402 - both build on the names above

__all__ = [
    "CompilationError", "CompileTimeAssertionFailure", "Config", "DeuteronError",
    "DeviceAssertionError", "InternalError", "JITFunction", "KernelInterface", "LaunchError",
    "OutOfResources", "TensorDescriptor", "TensorWrapper", "UserError", "aggregate", "autotune",
    "cdiv", "constexpr_function", "get_num_threads", "heuristics", "jit", "language",
    "next_power_of_2", "reinterpret", "set_num_threads", "testing",
]  # fmt: skip
