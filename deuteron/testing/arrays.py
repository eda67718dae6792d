"""Arrays for tests of kernels: random ones of each dtype, on a device and back.

Triton's own tests and those of many kernel libraries are written with these names.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from deuteron import config
from deuteron.dtypes import BY_ARRAY_NAME, BY_NAME, BY_SHORT, DType
from deuteron.runtime import knobs
from deuteron.runtime.active_driver import driver
from deuteron.runtime.arrays import TensorWrapper, reinterpret

int_dtypes = ["int8", "int16", "int32", "int64"]
uint_dtypes = ["uint8", "uint16", "uint32", "uint64"]
integral_dtypes = int_dtypes + uint_dtypes
float_dtypes = ["float16", "float32", "float64"]
float_dtypes_with_bfloat16 = [*float_dtypes, "bfloat16"]
dtypes = integral_dtypes + float_dtypes
dtypes_with_bfloat16 = [*dtypes, "bfloat16"]
torch_float8_dtypes = ["float8_e4m3fn", "float8_e5m2"]
torch_dtypes = ["bool", *int_dtypes, "uint8", *float_dtypes, "bfloat16"]
tma_dtypes = sorted(set(dtypes_with_bfloat16) - {"int64", "uint64", "float64"})

SEED = 17
_FLOAT8_CODES = (20, 40)  # of numbers near 1 in every 8-bit format


# -- which machine -------------------------------------------------------------------------
def is_interpreter() -> bool:
    """False: kernels are compiled."""
    return False


def is_compile_warmup() -> bool:
    """False: kernels are compiled when they are called."""
    return False


def _is_target(backend: str) -> bool:
    return driver.active.get_current_target().backend == backend


def _is_never() -> bool:
    """False: there is no code for such a device."""
    return False


def _capability() -> int:
    target = driver.active.get_current_target()
    return target.arch if target.backend == "cuda" else 0


def is_cuda() -> bool:
    """Whether kernels run on an NVIDIA GPU."""
    return _is_target("cuda")


def is_ampere_or_newer() -> bool:
    """Whether kernels run on an NVIDIA GPU of compute capability 8 at least."""
    return _capability() >= 80


def is_hopper_or_newer() -> bool:
    """Whether kernels run on an NVIDIA GPU of compute capability 9 at least."""
    return _capability() >= 90


def is_hopper() -> bool:
    """Whether kernels run on an NVIDIA GPU of compute capability 9."""
    return _capability() // 10 == 9


def is_blackwell() -> bool:
    """Whether kernels run on an NVIDIA GPU of compute capability 10 or 11."""
    return _capability() // 10 in (10, 11)


def is_blackwell_ultra() -> bool:
    """Whether kernels run on an NVIDIA GPU of compute capability 10.3."""
    return _capability() == 103


def is_rubin() -> bool:
    """Whether kernels run on an NVIDIA GPU of compute capability 10.7."""
    return _capability() == 107


def is_sm12x() -> bool:
    """Whether kernels run on an NVIDIA GPU of compute capability 12."""
    return _capability() // 10 == 12


is_hip = is_hip_cdna = is_hip_cdna2 = is_hip_cdna3 = is_hip_cdna4 = _is_never
is_hip_rdna = is_hip_rdna3 = is_hip_rdna4 = is_hip_rdna4m = is_hip_gfx1250 = _is_never
is_hip_cdna3_or_newer = _is_never
is_xpu = is_xpu_arl_h = is_xpu_arl_s = is_xpu_bmg = is_xpu_cri = is_xpu_dg2 = _is_never
is_xpu_lnl = is_xpu_mtl = is_xpu_ptl_h = is_xpu_ptl_u = is_xpu_pvc = _is_never
is_xpu_xe2 = is_xpu_xe3 = is_xpu_xe3p = _is_never
supports_ws = supports_clc = _is_never


def supports_tma(byval_only: bool = False) -> bool:
    """True: tensor descriptors work on every device here, whatever moves the data."""
    return True


def tma_skip_msg(byval_only: bool = False) -> str:
    """Why a test would be skipped without tensor descriptors."""
    return "needs tensor descriptors"


def requires_tma(test: Any) -> Any:
    """A mark of tests that need tensor descriptors: they run."""
    return test


def get_arch() -> str:
    """The architecture that kernels are compiled for."""
    return str(driver.active.get_current_target().arch)


# -- data ----------------------------------------------------------------------------------
def random_int(low: int, high: int, *, warmup_value: object = None, **kwargs: Any) -> int:
    """A random integer by torch: low <= it < high."""
    import torch

    return int(torch.randint(low, high, size=(), **kwargs).item())


def random_float(*, warmup_value: float = 0.5, **kwargs: Any) -> float:
    """A random float of [0, 1) by torch."""
    import torch

    return float(torch.rand((), **kwargs).item())


def numpy_random(
    shape: int | Sequence[int],
    dtype_str: str,
    rs: np.random.RandomState | None = None,
    low: int | None = None,
    high: int | None = None,
) -> Any:
    """Random numbers of a dtype by name: whole ones without 0, normal floats, bools.

    bfloat16 comes as float32 of that precision, 8-bit floats as the codes of numbers near 1.
    """
    rs = rs or np.random.RandomState(seed=SEED)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if dtype_str in integral_dtypes:
        limits = np.iinfo(dtype_str)
        least = limits.min if low is None else max(low, limits.min)
        end = limits.max if high is None else min(high, limits.max)
        whole: Any = rs.randint(least, end, shape, dtype=np.dtype(dtype_str).type)
        whole[whole == 0] = 1  # so that it divides
        return whole
    if "float8" in dtype_str:
        return rs.randint(*_FLOAT8_CODES, shape, dtype=np.int8)
    if dtype_str in float_dtypes:
        return rs.normal(0, 1, shape).astype(dtype_str)
    if dtype_str == "bfloat16":
        bits = rs.normal(0, 1, shape).astype(np.float32).view(np.uint32)
        return (bits & np.uint32(0xFFFF0000)).view(np.float32)
    if dtype_str in ("bool", "int1", "bool_"):
        return rs.normal(0, 1, shape) > 0.0
    raise ValueError(f"no random numbers of dtype {dtype_str!r}")


def to_triton(x: Any, device: Any, dst_type: str | None = None) -> Any:
    """A NumPy array as a torch tensor on a device, or as one seen under `dst_type`.

    float32 becomes bfloat16 where that is asked for.
    """
    import torch

    name = x.dtype.name
    if name in uint_dtypes:
        signed = torch.tensor(x.view(name.removeprefix("u")), device=device)
        return reinterpret(signed, BY_NAME[name])
    tensor = torch.tensor(x, device=device)
    if dst_type and "float8" in dst_type:
        return reinterpret(tensor, BY_NAME.get(dst_type) or BY_ARRAY_NAME[dst_type])
    return tensor.bfloat16() if name == "float32" and dst_type == "bfloat16" else tensor


def to_numpy(x: Any) -> Any:
    """A torch tensor, or one seen under another dtype, as a NumPy array; bfloat16 as float32."""
    import torch

    if isinstance(x, TensorWrapper):
        return x.base.cpu().numpy().astype(torch_dtype_name(x.dtype))
    if isinstance(x, torch.Tensor):
        return (x.float() if x.dtype is torch.bfloat16 else x).cpu().numpy()
    raise ValueError(f"a torch tensor is needed, not {type(x).__name__}")


def unwrap_tensor(t: Any) -> Any:
    """The array itself under a reinterpreted one."""
    return t.base if isinstance(t, TensorWrapper) else t


def str_to_triton_dtype(x: str) -> DType:
    """The dtype of a long or short name."""
    return BY_ARRAY_NAME.get(x) or BY_NAME.get(x) or BY_SHORT[x]


def torch_dtype_name(dtype: Any) -> str:
    """The name without its package: "int64" of `torch.int64`."""
    if isinstance(dtype, DType):
        return dtype.name
    found = re.fullmatch(r"torch\.(\w+)", str(dtype))
    if found is None:
        raise TypeError(f"neither a dtype of the language nor of torch: {type(dtype).__name__}")
    return found[1]


def default_alloc_fn(size: int, alignment: int, stream: int | None) -> Any:
    """Memory on the active device."""
    import torch

    return torch.empty(size, dtype=torch.int8, device=driver.active.get_active_torch_device())


def fresh_knobs(
    skipped_attr: Collection[str] = (),
) -> tuple[Callable[[], Any], Callable[[], None]]:
    """Two functions: one sets all knobs but some groups back, one makes them as they were."""
    held = ExitStack()

    def fresh() -> Any:
        for name, group in knobs.GROUPS.items():
            if name not in (skipped_attr or ()):
                held.enter_context(group.scope())
                group.reset()
        return knobs

    return fresh, held.close


# -- processes -----------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class ProcessResult:
    """How a function ended in a process of its own, and what was written to its stderr."""

    exc: BaseException | None
    driver_stderr_output: str


def run_in_process(
    client_fn: Callable[..., object],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> ProcessResult:
    """Call a function in a new process; raises RuntimeError when that one dies."""
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    ours, theirs = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "stderr")
        packed = (client_fn, tuple(args), dict(kwargs or {}), dict(env or {}), path, theirs)
        process = context.Process(target=_client, args=packed)
        process.start()
        theirs.close()
        try:
            error = ours.recv()
        except EOFError:
            process.join()
            raise RuntimeError(f"the process ended with code {process.exitcode}") from None
        process.join()
        with open(path, encoding="utf-8", errors="replace") as file:
            return ProcessResult(error, file.read())


def _client(
    function: Callable[..., object],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    env: Mapping[str, str],
    stderr_path: str,
    pipe: Any,
) -> None:
    config.set_environment(env)
    with open(stderr_path, "w+b") as file:
        os.dup2(file.fileno(), 2)
        error: BaseException | None = None
        try:
            function(*args, **kwargs)
        except Exception as raised:
            error = raised
        pipe.send(error)
