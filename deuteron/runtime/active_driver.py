"""The machine as Triton's scripts ask for it: `triton.runtime.driver.active`.

There is one driver for a CPU, and one for NVIDIA GPUs where torch sees one that this package can
use; a GPU comes first.  torch is imported only by what gives objects of torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from deuteron import config
from deuteron.backends.cpu.pool import get_num_threads
from deuteron.dtypes import GPUTarget
from deuteron.runtime.benchmark import do_bench

_CACHE_TO_EMPTY_BYTES = 64 * 2**20  # more than a CPU's share of its last cache


@dataclass(frozen=True, slots=True)
class DeviceUtils:
    """Questions about a device."""

    properties: Callable[[int], Mapping[str, int]]

    def get_device_properties(self, device: int | None = 0) -> Mapping[str, int]:
        """Counts and sizes (bytes, kHz) by Triton's names."""
        return self.properties(device or 0)


class Driver:
    """One kind of device."""

    name: str

    @classmethod
    def is_active(cls) -> bool:
        """Whether this is the driver that scripts are given."""
        return type(driver.active) is cls

    def get_current_target(self) -> GPUTarget:
        """What kernels are compiled for."""
        raise NotImplementedError

    def get_active_torch_device(self) -> Any:
        """The torch device that arrays belong on."""
        raise NotImplementedError

    def get_current_device(self) -> int:
        """The index of the device that is used."""
        raise NotImplementedError

    def set_current_device(self, device: int) -> None:
        """Use another device."""
        raise NotImplementedError

    def get_current_stream(self, device: int | None = None) -> int:
        """The handle of the stream that kernels are put on."""
        raise NotImplementedError

    def get_device_interface(self) -> Any:
        """torch's module of this kind of device."""
        return getattr(import_module("torch"), self.name)

    def get_benchmarker(self) -> Callable[..., Any]:
        """What measures a function: see `deuteron.testing.do_bench`."""
        return do_bench

    def get_empty_cache_for_benchmark(self) -> Any:
        """An array that is larger than what caches keep."""
        torch = import_module("torch")
        return torch.empty(_CACHE_TO_EMPTY_BYTES, dtype=torch.int8, device=self.name)

    def clear_cache(self, cache: Any) -> None:
        """Fill an array made by `get_empty_cache_for_benchmark`."""
        cache.zero_()

    @property
    def utils(self) -> DeviceUtils:
        return DeviceUtils(self._properties)

    def _properties(self, device: int) -> Mapping[str, int]:
        raise NotImplementedError


class CpuDriver(Driver):
    """This machine's CPU."""

    name = "cpu"

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cpu", 0, 1)

    def get_active_torch_device(self) -> Any:
        return import_module("torch").device("cpu")

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        if device not in (0, None):
            raise ValueError(f"there is one CPU, device 0, and no device {device}")

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def _properties(self, device: int) -> Mapping[str, int]:
        # A program may keep as much as it likes: what scripts compute with are the bounds of GPUs.
        return {
            "multiprocessor_count": get_num_threads(), "max_shared_mem": 2**20, "warpSize": 1,
            "max_num_regs": 65536, "sm_clock_rate": 0, "mem_clock_rate": 0, "mem_bus_width": 0,
        }  # fmt: skip


class CudaDriver(Driver):
    """NVIDIA GPUs, as torch has chosen them."""

    name = "cuda"

    def get_current_target(self) -> GPUTarget:
        major, minor = self.get_device_interface().get_device_capability()
        return GPUTarget("cuda", 10 * major + minor, 32)

    def get_active_torch_device(self) -> Any:
        return import_module("torch").device("cuda", self.get_current_device())

    def get_current_device(self) -> int:
        return self.get_device_interface().current_device()

    def set_current_device(self, device: int) -> None:
        self.get_device_interface().set_device(device)

    def get_current_stream(self, device: int | None = None) -> int:
        return self.get_device_interface().current_stream(device).cuda_stream

    def _properties(self, device: int) -> Mapping[str, int]:
        known = self.get_device_interface().get_device_properties(device)
        return {
            "multiprocessor_count": known.multi_processor_count, "warpSize": known.warp_size,
            "max_shared_mem": known.shared_memory_per_block_optin,
            "max_num_regs": known.regs_per_multiprocessor, "sm_clock_rate": known.clock_rate,
            "mem_clock_rate": known.memory_clock_rate, "mem_bus_width": known.memory_bus_width,
        }  # fmt: skip


class ActiveDriver:
    """The driver that scripts are given: `default` unless another was made `active`."""

    def __init__(self) -> None:
        self._active: Driver | None = None
        self._default: Driver | None = None

    @property
    def default(self) -> Driver:
        if self._default is None:
            self._default = CudaDriver() if _gpu_is_usable() else CpuDriver()
        return self._default

    @property
    def active(self) -> Driver:
        return self._active or self.default

    def set_active(self, driver: Driver) -> None:
        """Give scripts this one."""
        self._active = driver

    def reset_active(self) -> None:
        """Give scripts the default one again."""
        self._active = None


def _gpu_is_usable() -> bool:
    torch: Any = sys.modules.get("torch") or import_module("torch")
    if config.interpret() or not torch.cuda.is_available():
        return False
    return import_module("deuteron.backends.cuda.driver").driver_problem() is None


@dataclass(frozen=True, slots=True)
class BackendEntry:
    """One entry of `triton.backends.backends`."""

    driver: type[Driver]


backends = {"cpu": BackendEntry(CpuDriver), "nvidia": BackendEntry(CudaDriver)}
driver = ActiveDriver()
set_active = driver.set_active
reset_active = driver.reset_active
