"""From PTX to a module: the driver's linker, the disk cache, and what is said of bad code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deuteron.backends.cuda.driver import Device, driver
from deuteron.backends.cuda.kernel_info import KernelInfo
from deuteron.backends.cuda.linker import Module, load_ptx
from deuteron.backends.cuda.occupancy import Multiprocessor
from deuteron.errors import DeviceError, InternalError
from tests.cuda.fake_cuda import FakeCuda
from tests.cuda.gpu_kernels import ptx_of

PTX = ptx_of("scale", ["u64"]).encode()
CUBIN = b"cubin of " + PTX


INFO = KernelInfo("scale", 0, 8, ())


def load(device: Device, ptx: bytes = PTX, info: KernelInfo = INFO) -> Module:
    with device.current():
        return load_ptx(ptx, info, device)


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


# -- registers --------------------------------------------------------------------------------
OPEN = replace(INFO, registers_open=True)


def limited(limit: int) -> bytes:
    return CUBIN.replace(b".maxntid 256", b".maxntid 256\n.maxnreg %d" % limit)


@pytest.mark.parametrize(("least", "limit"), [(33, 40), (41, 64), (65, None)])
def test_few_programs_get_fewer_registers(cuda: FakeCuda, least: int, limit: int | None) -> None:
    cuda.function_attributes = {0: 1024, 3: 0, 4: 80}
    cuda.least_registers = least
    device = driver().device(0)
    module = load(device, info=OPEN)
    assert module.cubin == (CUBIN if limit is None else limited(limit))
    assert cuda.calls.count("cuModuleLoadDataEx") - cuda.calls.count("cuModuleUnload") == 1
    with device.current():
        function = device.find_function(module.handle, "scale")
        assert device.function_attribute(function, 4) == (limit or 80)
    cuda.calls.clear()
    assert load(device, info=OPEN).cubin == module.cubin
    assert "cuLinkCreate_v2" not in cuda.calls


@pytest.mark.parametrize(
    ("info", "registers", "local_bytes"),
    [
        (INFO, 80, 0),  # whoever wrote it chose, or it has dots
        (OPEN, 64, 0),  # four programs
        (OPEN, 80, 8),  # too few registers already
        (replace(OPEN, shared_bytes=100_000), 80, 0),  # it is memory that holds the second up
    ],
)
def test_who_keeps_the_registers(
    cuda: FakeCuda, info: KernelInfo, registers: int, local_bytes: int
) -> None:
    cuda.function_attributes = {0: 1024, 3: local_bytes, 4: registers}
    assert load(driver().device(0), info=info).cubin == CUBIN
    assert cuda.calls.count("cuLinkCreate_v2") == 1


@pytest.mark.parametrize(
    ("num_warps", "registers", "held", "limits"),
    [
        (8, 80, 3, (40, 64)),
        (8, 96, 2, (48, 80)),
        (16, 48, 2, (32, 40)),
        (32, 64, 1, (32,)),
        (4, 168, 3, (96, 128)),
        (4, 128, 4, ()),
        (1, 255, 8, ()),
    ],
)
def test_limits_of_registers(
    cuda: FakeCuda, num_warps: int, registers: int, held: int, limits: tuple[int, ...]
) -> None:
    room = Multiprocessor.of(driver().device(0))
    assert room.held(num_warps, 0, registers) == held
    assert room.register_limits(num_warps, 0, registers) == limits
    for limit in limits:
        assert room.held(num_warps, 0, limit) > held
        assert room.held(num_warps, 0, limit + 1) < room.held(num_warps, 0, limit)


# -- refusals ---------------------------------------------------------------------------------
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
