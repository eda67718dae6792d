"""What is said when a GPU or its driver does not do as asked.

The driver reports an error by a code such as CUDA_ERROR_ILLEGAL_ADDRESS.  Here a code becomes an
error that says what it means and what to do.
"""

from __future__ import annotations

from deuteron.errors import DeuteronError, DeviceError, LaunchError, Loc, OutOfResources, call_site

MAX_GRID = (2**31 - 1, 65_535, 65_535)
"""The most programs along each axis of a grid, on every GPU."""

# A kernel that ran into one of these was stopped, and took its process's use of the GPU with it.
_FAULTS = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": "a kernel touched memory outside of all arrays",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "a kernel used an address that is not aligned to its items",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": "a kernel used an address of the wrong kind of memory",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "a kernel met an instruction that the GPU cannot execute",
    "CUDA_ERROR_HARDWARE_STACK_ERROR": "a kernel overran its stack",
    "CUDA_ERROR_INVALID_PC": "a kernel jumped out of its code",
    "CUDA_ERROR_ASSERT": "an assertion did not hold while a kernel ran",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "a kernel ran for longer than the system permits",
    "CUDA_ERROR_LAUNCH_FAILED": "a kernel was stopped by the GPU",
}
_MASK = "mask off the lanes that lie outside of the arrays"
_FAULT_REMEDIES = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": _MASK,
    "CUDA_ERROR_MISALIGNED_ADDRESS": "launch it for arrays that are aligned as those it was "
    "compiled for",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "give each launch less work",
}
_CAPTURE = "launch the kernel once before the capture begins, on the stream that is captured"
_REMEDIES = {
    "CUDA_ERROR_NOT_INITIALIZED": "a process that was forked after CUDA was used cannot use it: "
    "start it by multiprocessing's 'spawn'",
    "CUDA_ERROR_DEINITIALIZED": "launch nothing while the process ends",
    "CUDA_ERROR_NO_DEVICE": "make a GPU visible to this process (CUDA_VISIBLE_DEVICES), or pass "
    "arrays that lie in the CPU's memory",
    "CUDA_ERROR_OUT_OF_MEMORY": "free memory of the GPU",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "restart the system: its driver was replaced",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": "install a driver that is made for this GPU",
    "CUDA_ERROR_DEVICES_UNAVAILABLE": "end the process that has the GPU to itself",
    "CUDA_ERROR_JIT_COMPILER_NOT_FOUND": "install the driver's PTX compiler, "
    "libnvidia-ptxjitcompiler, beside it",
    "CUDA_ERROR_JIT_COMPILATION_DISABLED": "unset CUDA_DISABLE_PTX_JIT",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": _CAPTURE,
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": _CAPTURE,
    "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT": _CAPTURE,
}
_ASYNCHRONOUS = (
    "launches are asynchronous, so it may be of an earlier launch;\n"
    "            run again with DEUTERON_CUDA_SYNC=1 to have it raised where it is made"
)


def no_driver(problem: str) -> DeviceError:
    """The error when libcuda cannot be loaded."""
    return DeviceError(
        "no NVIDIA driver on this machine\n"
        "  expected: NVIDIA's driver library\n"
        f"  got:      {problem}\n"
        "  remedy:   install the driver of the GPU (no toolkit is needed), or pass arrays that lie "
        "in the CPU's memory"
    )


def is_fault(code: str) -> bool:
    """True for the code of a kernel that the GPU stopped."""
    return code in _FAULTS


def driver_failure(doing: str, code: str, text: str) -> DeviceError:
    """The error of a call into the driver, or of a kernel's fault that it met."""
    if code in _FAULTS:
        return kernel_fault(doing, code, text, asynchronous=True)
    remedy = _REMEDIES.get(code, "see the driver's documentation of this code")
    return DeviceError(
        f"{doing}: the GPU's driver refused\n"
        "  expected: CUDA_SUCCESS\n"
        f"  got:      {code}: {text}\n"
        f"  remedy:   {remedy}",
        code=code,
    )


def old_driver(doing: str, got: str) -> DeviceError:
    """The error when the driver does not know what this package needs of it."""
    return DeviceError(
        f"{doing}: the NVIDIA driver is too old\n"
        "  expected: a driver of the year 2022 or later\n"
        f"  got:      {got}\n"
        "  remedy:   install a newer driver"
    )


def old_driver_for_ptx(
    kernel: str, ptx_version: str, driver_version: str, code: str
) -> DeviceError:
    """The error when the driver cannot read code as new as the GPU's instructions need."""
    return DeviceError(
        f"kernel {kernel}: the NVIDIA driver is too old for this GPU's instructions\n"
        f"  expected: a driver that reads PTX {ptx_version}\n"
        f"  got:      a driver for CUDA {driver_version}\n"
        "  remedy:   install a newer driver",
        code=code,
    )


def launch_failure(
    kernel: str, grid: tuple[int, int, int], threads: int, code: str, text: str
) -> DeuteronError:
    """The error of a launch that the driver refused, or that an earlier kernel's fault met."""
    if code == "CUDA_ERROR_INVALID_VALUE" and (error := grid_failure(kernel, grid)):
        return error
    if code == "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES":
        return LaunchError(
            f"kernel {kernel}: the GPU cannot hold one program of it\n"
            "  expected: registers and shared memory for a program\n"
            f"  got:      {threads} threads a program; {code}: {text}\n"
            "  remedy:   use smaller blocks, fewer num_warps, or maxnreg=…"
        )
    return driver_failure(f"kernel {kernel}", code, text)


def grid_failure(kernel: str, grid: tuple[int, int, int]) -> LaunchError | None:
    """The error for a grid that no GPU runs, or None."""
    for axis, (size, most) in enumerate(zip(grid, MAX_GRID, strict=True)):
        if size > most:
            return LaunchError(
                f"kernel {kernel}: axis {axis} of the grid is too large for a GPU\n"
                f"  expected: at most {most:,}\n"
                f"  got:      {size:,}\n"
                "  remedy:   let axis 0 be the long one: it may have 2**31 - 1 programs"
            )
    return None


def kernel_fault(doing: str, code: str, text: str, *, asynchronous: bool) -> DeviceError:
    """The error for a kernel that the GPU stopped.

    `asynchronous` says that it came to light in a call which need not be to blame.
    """
    remedy = _FAULT_REMEDIES.get(code, "run it under compute-sanitizer, which finds the place")
    order = f"{_ASYNCHRONOUS};\n            then {remedy}" if asynchronous else remedy
    return DeviceError(
        f"{doing}: {_FAULTS[code]}\n"
        "  expected: kernels that end\n"
        f"  got:      {code}: {text}; this process cannot use the GPU any more\n"
        f"  remedy:   {order}",
        code=code,
    )


def too_many_threads(kernel: str, num_warps: int, limit: int) -> OutOfResources:
    """The error for more warps than a program can have."""
    return OutOfResources(
        f"threads of a program of kernel {kernel}",
        32 * num_warps,
        limit,
        f"use num_warps={limit // 32} or fewer",
        got=f": num_warps={num_warps} of 32 threads each",
        loc=call_site(),
    )


def too_much_shared_memory(
    kernel: str, required: int, limit: int, loc: Loc | None = None
) -> OutOfResources:
    """The error for tiles that do not fit into shared memory; by default placed at the call."""
    return OutOfResources(
        f"shared memory bytes of kernel {kernel}",
        required,
        limit,
        "use smaller blocks, or a lower num_stages: each stage holds the tiles of one turn",
        loc=loc or call_site(),
    )


def too_many_registers(kernel: str, threads: int, registers: int, limit: int) -> OutOfResources:
    """The error for a program whose threads need more registers than a GPU has."""
    return OutOfResources(
        f"registers of a program of kernel {kernel}",
        threads * registers,
        limit,
        f"use fewer num_warps, smaller blocks, or maxnreg={limit // threads // 8 * 8}",
        got=f": {threads} threads × {registers}",
        loc=call_site(),
    )
