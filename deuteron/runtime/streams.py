"""On which stream of a GPU a kernel is put.

stream=… in the call             that one
a torch tensor among the arrays  torch's current stream of the device
an array that names its stream   that one (CuPy's current stream)
otherwise                        CUDA's default stream
"""

from __future__ import annotations

import sys
from typing import Any

from deuteron.errors import LaunchError
from deuteron.runtime.arrays import CUDA, is_torch_tensor
from deuteron.runtime.specialize import Request

DEFAULT_STREAM = 0


def launch_stream(request: Request, where: str) -> int:
    """The handle of the stream for a call.  Raises LaunchError when `stream=…` is none."""
    own = requested_stream(request, where)
    if own is not None:
        return own
    arrays = [array for _, array in request.arrays]
    if any(is_torch_tensor(array.owner) for array in arrays):
        return torch_stream(int(request.spec.device.removeprefix(f"{CUDA}:")))
    streams = [array.stream for array in arrays if array.stream is not None]
    return streams[0] if streams else DEFAULT_STREAM


def requested_stream(request: Request, where: str) -> int | None:
    """The handle of the stream that the call names, or None when it names none."""
    stream: Any = request.stream
    if stream is None:
        return None
    if hasattr(stream, "__cuda_stream__"):  # the protocol of cuda.core; (version, handle)
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr"):  # torch's and CuPy's
        if hasattr(stream, name):
            return int(getattr(stream, name))
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    raise LaunchError(
        f"{where}: launch option stream cannot be {stream!r}\n"
        "  expected: a stream of torch or CuPy, or a stream's handle as an int\n"
        f"  got:      {type(stream).__name__}\n"
        "  remedy:   pass torch.cuda.Stream(), or leave it out: torch's current stream is used"
    )


def torch_stream(device: int) -> int:
    """The handle of torch's current stream; the default stream where torch is not in use."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return DEFAULT_STREAM
    return int(torch.cuda.current_stream(device).cuda_stream)
