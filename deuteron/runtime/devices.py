"""Which backend serves a device."""

from __future__ import annotations

from functools import cache

from deuteron.runtime.arrays import CPU, CUDA
from deuteron.runtime.cpu_backend import CpuBackend
from deuteron.runtime.protocols import Backend


@cache
def backend_of(device: str) -> Backend:
    """The backend of "cpu", "cuda:0", …; a GPU's is imported when first asked for.

    Raises DeviceError when there is no such GPU, or no driver for it.
    """
    if device == CPU:
        return CpuBackend()
    kind, _, ordinal = device.partition(":")
    assert kind == CUDA, device
    from deuteron.runtime.cuda_backend import gpu_backend

    return gpu_backend(int(ordinal))
