"""`deuteron compile FILE.py:KERNEL`: a kernel for programs without Python.

For a CPU: an object file (or a shared library), a C header and a JSON description.  For a GPU: PTX
and the description.  See `docs/aot.md`.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from deuteron import config
from deuteron.backends.cpu.target import (
    CpuTarget,
    host_target,
    machine_target,
)
from deuteron.backends.cuda.target import CudaTarget
from deuteron.backends.llvm.compile import host_machine
from deuteron.cli import UsageError
from deuteron.cli.console import output_console
from deuteron.cli.kernels import find_kernel, jit_function
from deuteron.cli.signature import Argument, render, stand_in_arguments
from deuteron.errors import UserError
from deuteron.runtime.ahead.build import Job, Signature, build_for_cpu, build_for_gpu
from deuteron.runtime.ahead.header import SHARED_HEADER, shared_header
from deuteron.runtime.options import parse_options

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMPILERS = ("cc", "gcc", "clang")


def run(arguments: argparse.Namespace) -> int:
    """Serve `deuteron compile`."""
    job = _job(arguments)
    directory: Path = arguments.out
    if arguments.target.startswith("sm_"):
        if arguments.shared:
            raise UsageError("--shared is for CPUs; a GPU's kernels come as PTX")
        written = _write_ptx(job, CudaTarget(arguments.target), directory)
    else:
        target = machine_target(arguments.target) if arguments.target else host_target()
        compiler = _system_compiler(target) if arguments.shared else None
        written = _write_object(job, target, directory, compiler)
    console = output_console()
    for path in written:
        console.print(Text(str(path)), soft_wrap=True)
    return 0


def _job(arguments: argparse.Namespace) -> Job:
    kernel = find_kernel(arguments.kernel)
    jit = jit_function(kernel)
    name = arguments.name or jit.__name__
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"`{name}` cannot name a function in C\n"
            "  expected: letters, digits and _, no digit first\n  remedy:   give another --name"
        )
    signatures = [_signature(kernel, text) for text in arguments.signature or [""]]
    given: dict[str, Any] = {
        option: value
        for option in ("num_warps", "num_stages", "maxnreg")
        if (value := getattr(arguments, option)) is not None
    }
    debug = arguments.debug or jit.debug or config.device_asserts()
    options = parse_options(given, debug, f"kernel {name}")
    return Job(jit, name, arguments.kernel, tuple(signatures), options, arguments.may_overlap)


def _signature(kernel: Any, text: str) -> Signature:
    """A signature that says all; what the kernel itself presets need not be said."""
    arguments = stand_in_arguments(kernel, text)
    if unsaid := [name for name, argument in arguments.items() if argument.origin == "guess"]:
        raise UsageError(
            f"--signature does not say what {', '.join(unsaid)} {_are(unsaid)}\n"
            f"  got:      {text or 'no signature'}\n"
            f"  remedy:   correct what is guessed in --signature '{_guess(arguments)}'"
        )
    return Signature(render(arguments), tuple(argument.stand_in for argument in arguments.values()))


def _are(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"


def _guess(arguments: Mapping[str, Argument]) -> str:
    return render({n: a for n, a in arguments.items() if a.origin != "preset"})


# -- targets ---------------------------------------------------------------------------------
def _system_compiler(target: CpuTarget) -> str:
    """The C compiler that links shared libraries; LLVM comes without a linker."""
    if target.triple != host_machine().triple:
        raise UsageError(
            f"--shared cannot link for {target.triple} here\n"
            "  expected: code for this system\n"
            "  remedy:   leave out --shared, and link the object file there"
        )
    for name in _COMPILERS:
        if found := shutil.which(name):
            return found
    raise UsageError(
        "--shared needs the system's C compiler to link\n"
        f"  expected: one of {', '.join(_COMPILERS)} on the PATH\n  got:      none\n"
        "  remedy:   install one, or leave out --shared: an object file needs none"
    )


# -- files -----------------------------------------------------------------------------------
def _write_object(job: Job, target: CpuTarget, directory: Path, compiler: str | None) -> list[Path]:
    made = build_for_cpu(job, target)
    _make(directory)
    if compiler is None:
        code = directory / f"{job.name}.{'obj' if 'windows' in target.triple else 'o'}"
        code.write_bytes(made.obj)
    else:
        code = directory / _library_name(job.name)
        _link(compiler, made.obj, code)
    header = directory / f"{job.name}.h"
    header.write_text(made.header, encoding="utf-8")
    shared = directory / SHARED_HEADER
    shared.write_text(shared_header(), encoding="utf-8")
    kind = "object" if compiler is None else "library"
    files = {kind: code.name, "header": header.name}
    return [code, header, shared, _describe(job, made.description, files, directory)]


def _write_ptx(job: Job, target: CudaTarget, directory: Path) -> list[Path]:
    made = build_for_gpu(job, target)
    _make(directory)
    paths: list[Path] = []
    for symbol, text in made.ptx.items():
        paths.append(directory / f"{symbol}.ptx")
        paths[-1].write_text(text, encoding="utf-8")
    files = {symbol: f"{symbol}.ptx" for symbol in made.ptx}
    return [*paths, _describe(job, made.description, {"ptx": files}, directory)]


def _describe(
    job: Job, description: Mapping[str, Any], files: Mapping[str, Any], directory: Path
) -> Path:
    path = directory / f"{job.name}.json"
    text = json.dumps({**description, "files": files}, indent=2)
    path.write_text(f"{text}\n", encoding="utf-8")
    return path


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out: cannot make {directory}: {error.strerror}") from error


def _library_name(name: str) -> str:
    if sys.platform == "win32":
        return f"{name}.dll"
    return f"lib{name}.dylib" if sys.platform == "darwin" else f"lib{name}.so"


def _link(compiler: str, obj: bytes, library: Path) -> None:
    """Have the system make a shared library of an object file.  Raises UserError when it fails."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "kernel.o"
        path.write_bytes(obj)
        command = [compiler, "-shared", "-o", str(library), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(
            f"the linker failed: {' '.join(command)}\n{done.stderr.rstrip()}\n"
            "  remedy:   leave out --shared, and link the object file yourself"
        )
