"""`deuteron env`: what was detected on this machine, and why something is off.

Its output belongs into every bug report.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from rich.table import Table
from rich.text import Text

from deuteron import __version__, config
from deuteron.backends.cpu.target import CpuTarget, host_target
from deuteron.backends.cuda.driver import MULTIPROCESSORS, Device, driver, driver_problem
from deuteron.backends.cuda.target import CudaTarget
from deuteron.backends.llvm.object_cache import cache_info
from deuteron.cli.console import output_console
from deuteron.cli.machine import cpu_model, package_version
from deuteron.errors import UserError


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the report; `note` says why, `off` that something is missing or disabled."""

    name: str
    value: str
    note: str = ""
    off: bool = False


def run(arguments: argparse.Namespace) -> int:
    """Serve `deuteron env`."""
    console = output_console()
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    table.add_column(overflow="fold", style="dim")
    for fact in facts():
        value = Text(fact.value, style="yellow" if fact.off else "")
        table.add_row(fact.name, value, Text(fact.note))
    console.print(table)
    return 0


def facts() -> Iterator[Fact]:
    """Everything the report says, in order."""
    target = host_target()
    yield from _software()
    yield from _processor(target)
    yield from (_feature(target, *row) for row in FEATURES)
    yield from _gpus()
    yield _threads()
    yield from _cache()
    yield from _modes()


def _software() -> Iterator[Fact]:
    yield Fact("deuteron", __version__, str(_package_folder()))
    yield Fact("python", platform.python_version(), sys.executable)
    yield Fact("llvmlite", package_version("llvmlite") or "unknown", f"LLVM {_llvm_version()}")
    yield Fact("numpy", package_version("numpy") or "unknown")
    torch = package_version("torch")
    if torch is None:
        yield Fact("torch", "off", "not installed; needed only to pass torch tensors", off=True)
    else:
        yield Fact("torch", torch, "its tensors are taken without a copy")


def _llvm_version() -> str:
    return ".".join(map(str, import_module("llvmlite.binding").llvm_version_info))


def _package_folder() -> Path:
    return Path(__file__).resolve().parents[1]


def _processor(target: CpuTarget) -> Iterator[Fact]:
    yield Fact("system", platform.system(), platform.platform())
    yield Fact("cpu", cpu_model())
    named = config.target_cpu() is not None
    note = "named by DEUTERON_CPU" if named else "detected; DEUTERON_CPU names another"
    yield Fact("compiled for", f"{target.cpu} ({target.triple})", note)
    registers = f"{target.vector_registers} registers"
    yield Fact("vector width", f"{target.vector_bits} bits", registers)


# Name, property of the target, what it is good for, and what happens without it.
FEATURES: tuple[tuple[str, Callable[[CpuTarget], bool], str, str], ...] = (
    (
        "fma",
        lambda target: target.has_fma,
        "multiply and add in one instruction",
        "the CPU lacks it: products and sums are two instructions",
    ),
    (
        "float16",
        lambda target: target.has_f16c,
        "converted to and from float32 by instruction",
        "the CPU lacks F16C: conversions are computed with integers",
    ),
    (
        "bfloat16 AMX",
        lambda target: target.has_amx_bf16,
        "AMX: tdpbf16ps for dots of whole 16 x 16 x 32 tiles",
        "the CPU has no AMX, or the system does not permit it",
    ),
    (
        "bfloat16 dot",
        lambda target: target.has_fast_bf16_dot,
        "vdpbf16ps",
        "absent, or slower here than the alternative: operands are widened to float32",
    ),
    (
        "int8 dot",
        lambda target: target.has_vnni,
        "vpdpbusd",
        "the CPU lacks VNNI at this vector width: operands are widened",
    ),
)


def _feature(
    target: CpuTarget, name: str, has: Callable[[CpuTarget], bool], use: str, without: str
) -> Fact:
    if has(target):
        return Fact(name, "on", use)
    return Fact(name, "off", without, off=True)


def _gpus() -> Iterator[Fact]:
    if problem := driver_problem():
        yield Fact("gpu driver", "off", f"{problem}; needed only for arrays on a GPU", off=True)
        return
    count = driver().device_count
    yield Fact("gpu driver", f"CUDA {driver().version}", "its newest CUDA version")
    yield from (_gpu(driver().device(ordinal)) for ordinal in range(count))


def _gpu(device: Device) -> Fact:
    name = f"cuda:{device.ordinal}"
    size = f"{device.attribute(MULTIPROCESSORS)} SMs, {device.memory_bytes / 1e9:.0f} GB"
    try:
        target = CudaTarget.of_capability(*device.capability)
    except UserError as error:
        return Fact(name, f"off ({device.name})", str(error).split("\n")[0], off=True)
    return Fact(name, device.name, f"{size}; kernels are compiled for {target.arch}")


def _threads() -> Fact:
    threads, cpus = config.num_threads(), os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cpus
    if threads != allowed:
        note = f"set by DEUTERON_NUM_THREADS; this process may use {allowed} CPUs"
    elif allowed != cpus:
        note = f"this process may use {allowed} of {cpus} CPUs"
    else:
        note = "one for each CPU; DEUTERON_NUM_THREADS changes it"
    return Fact("threads", str(threads), note)


def _cache() -> Iterator[Fact]:
    info = cache_info()
    if not config.cache_enabled():
        note = "DEUTERON_DISABLE_CACHE is set: every process compiles its kernels anew"
        yield Fact("disk cache", "off", note, off=True)
        return
    kernels = f"{info.entries} kernels, {info.bytes / 1e6:.1f} MB"
    if problem := _write_problem(info.path):
        note = f"not writable: {problem}; DEUTERON_CACHE_DIR names another place"
        yield Fact("disk cache", f"off ({kernels})", note, off=True)
    else:
        yield Fact("disk cache", kernels, f"writable; {info.path}")


def _write_problem(path: Path) -> str:
    """Why no file can be made under `path`, which need not exist yet; empty when one can."""
    place = next(folder for folder in (path, *path.parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=place):
            return ""
    except OSError as error:
        return f"{error.strerror} ({place})"


def _modes() -> Iterator[Fact]:
    if config.interpret():
        yield Fact(
            "compiler",
            "off",
            "DEUTERON_INTERPRET is set: kernels run on the NumPy interpreter, slowly",
            off=True,
        )
    else:
        yield Fact("compiler", "on", "DEUTERON_INTERPRET=1 runs kernels on the interpreter")
    if topics := config.debug_topics():
        yield Fact("printing", ", ".join(sorted(topics)), "DEUTERON_DEBUG is set")
