"""From PTX to a module: the driver's linker, the disk cache, and what is said of bad code."""

from __future__ import annotations

import pytest

from deuteron.backends.cuda.driver import Device, driver
from deuteron.backends.cuda.linker import Module, load_ptx
from deuteron.errors import DeviceError, InternalError
from tests.cuda.fake_cuda import FakeCuda
from tests.cuda.gpu_kernels import ptx_of

PTX = ptx_of("scale", ["u64"]).encode()
CUBIN = b"cubin of " + PTX


def load(device: Device, ptx: bytes = PTX) -> Module:
    with device.current():
        return load_ptx(ptx, "scale", device)


def test_machine_code_is_kept_for_the_next_process(cuda: FakeCuda) -> None:
    assert load(driver().device(0)).cubin == CUBIN
    assert cuda.calls.count("cuLinkComplete") == cuda.calls.count("cuLinkDestroy") == 1
    cuda.calls.clear()
    assert load(driver().device(1)).cubin == CUBIN
    assert "cuLinkCreate_v2" not in cuda.calls


@pytest.mark.parametrize("change", ["driver", "gpu", "code"])
def test_what_makes_it_anew(cuda: FakeCuda, change: str) -> None:
    load(driver().device(0))
    cuda.calls.clear()
    if change == "driver":
        driver().__dict__["version"] = "13.1"
    elif change == "gpu":
        cuda.attributes[76] = 3
    load(driver().device(1), PTX + b"\n" if change == "code" else PTX)
    assert cuda.calls.count("cuLinkCreate_v2") == 1


def test_what_the_linker_refuses_the_loader_compiles(cuda: FakeCuda) -> None:
    cuda.fail["cuLinkAddData_v2"] = 218
    device = driver().device(0)
    assert load(device).cubin == b""
    assert cuda.calls.count("cuLinkDestroy") == 1
    with device.current():
        assert device.find_function(1, "scale") == 1


@pytest.mark.parametrize(
    ("status", "log"),
    [(222, ""), (218, "ptxas application ptx input, line 1; fatal   : Unsupported .version 8.0")],
)
def test_a_driver_older_than_the_code(cuda: FakeCuda, status: int, log: str) -> None:
    cuda.fail = {"cuLinkAddData_v2": status, "cuModuleLoadDataEx": status}
    cuda.version, cuda.log = 11_040, log
    with pytest.raises(DeviceError) as caught:
        load(driver().device(0))
    assert caught.value.error_message == (
        "kernel scale: the NVIDIA driver is too old for this GPU's instructions\n"
        "  expected: a driver that reads PTX 8.0\n"
        "  got:      a driver for CUDA 11.4\n"
        "  remedy:   install a newer driver"
    )


def test_rejected_code_is_our_defect(cuda: FakeCuda) -> None:
    cuda.fail["cuModuleLoadDataEx"] = 218
    with pytest.raises(InternalError, match=r"rejected generated code(.*\n)*.*please report"):
        load(driver().device(0))


def test_any_other_refusal_passes_through(cuda: FakeCuda) -> None:
    cuda.fail["cuModuleLoadDataEx"] = 900
    with pytest.raises(DeviceError, match=r"kernel scale: .*refused(.*\n)*.*before the capture"):
        load(driver().device(0))
