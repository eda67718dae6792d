"""LLVM text to machine code: parse, verify, optimise, emit an object, load it.

The last stage of a CPU kernel's compilation, after `backends.cpu` has written the text; objects
come back through here from the disk cache too.  llvmlite is imported on first use, because its
90 ms must not be part of `import deuteron`.

LLVM ends the whole process on a fatal error, so nothing may reach code generation unchecked: text
is verified, CPU names are known ones, and only checksummed objects are loaded.

One lock guards every use of LLVM (llvmlite serialises its calls anyway).  It is held across
`os.fork`, so that a child never inherits an LLVM that another thread was in the middle of.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from deuteron import config
from deuteron.errors import InternalError, UserError

# The names LLVM knows that can run 64-bit code: any other x86 name makes it end the process.
_X86_64_NAMES = """
x86-64 x86-64-v2 x86-64-v3 x86-64-v4
nocona core2 penryn nehalem westmere sandybridge ivybridge haswell broadwell skylake
skylake-avx512 cascadelake cooperlake cannonlake icelake-client icelake-server rocketlake
tigerlake sapphirerapids emeraldrapids graniterapids graniterapids-d diamondrapids alderlake
raptorlake meteorlake arrowlake arrowlake-s lunarlake pantherlake novalake
bonnell silvermont goldmont goldmont-plus tremont gracemont sierraforest grandridge
clearwaterforest knl knm
k8 opteron k8-sse3 amdfam10 barcelona btver1 btver2 bdver1 bdver2 bdver3 bdver4
znver1 znver2 znver3 znver4 znver5
"""
_X86_64_CPUS = frozenset(_X86_64_NAMES.split())

_PARSE_ERROR = re.compile(r"<string>:(?P<line>\d+):\d+: error: (?P<what>.*)")
_RESULT = re.compile(r"%\S+ =")

_LOCK = threading.RLock()
_LOADED: list[Any] = []
_LIBRARY_NUMBERS = itertools.count()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release
    )


@dataclass(frozen=True, slots=True)
class Machine:
    """What code is generated for: LLVM's triple, CPU name and feature string (`+avx2,-avx512f`)."""

    triple: str
    cpu: str
    features: str = ""

    @property
    def architecture(self) -> str:
        """The processor's family, by the triple: "x86_64", "aarch64" or another."""
        family = self.triple.partition("-")[0]
        return "aarch64" if family == "arm64" else family


@dataclass(frozen=True, slots=True)
class CompileTimings:
    """Wall seconds of each stage of one compilation."""

    parse_s: float
    optimize_s: float
    codegen_s: float

    @property
    def total_s(self) -> float:
        return self.parse_s + self.optimize_s + self.codegen_s


@dataclass(frozen=True, slots=True)
class CompiledObject:
    """A relocatable object file and what it was made from."""

    obj: bytes
    text: str
    machine: Machine
    timings: CompileTimings

    def asm(self) -> str:
        """The assembly; generated anew at each call, as few callers ask for it."""
        return assembly(self.text, self.machine)


def load() -> None:
    """Load LLVM, if it is not: whoever uses it first need not wait for that."""
    with _LOCK:
        _llvm()


def host_machine() -> Machine:
    """This computer, or the CPU named by DEUTERON_CPU with LLVM's features for that name."""
    host = _detected_machine()
    named = config.target_cpu()
    return Machine(host.triple, named) if named else host


def compile_object(text: str, machine: Machine) -> CompiledObject:
    """Compile LLVM IR text to an object file for `machine`.

    Raises UserError for a CPU that LLVM does not know, InternalError with the offending line for
    text that LLVM rejects.
    """
    topics = config.debug_topics()
    if "llvm" in topics:
        print(text, file=sys.stderr)
    with _LOCK:
        start = time.perf_counter()
        target = _target_machine(machine)
        with _parsed(text, target) as module:
            parsed = time.perf_counter()
            _optimize(module, target)
            optimized = time.perf_counter()
            obj = bytes(target.emit_object(module))
            emitted = time.perf_counter()
    timings = CompileTimings(parsed - start, optimized - parsed, emitted - optimized)
    if "asm" in topics:
        print(assembly(text, machine), file=sys.stderr)
    return CompiledObject(obj, text, machine, timings)


def assembly(text: str, machine: Machine) -> str:
    """The assembly that `compile_object` would encode.  Raises as that does."""
    with _LOCK:
        target = _target_machine(machine)
        with _parsed(text, target) as module:
            _optimize(module, target)
            return str(target.emit_assembly(module))


def link_texts(texts: Sequence[str]) -> str:
    """One module out of several, whose internal functions may bear the same names.

    Raises InternalError for text that LLVM rejects, and for two definitions of one symbol.
    """
    llvm = _llvm()
    with _LOCK, llvm.create_context() as context:
        modules: list[Any] = []
        for text in texts:
            try:
                modules.append(llvm.parse_assembly(text, context))
            except RuntimeError as error:
                raise _rejected(text, str(error)) from error
        whole, *rest = modules
        with whole:  # closed before its context, as in `_parsed`
            for module in rest:
                try:
                    whole.link_in(module)
                except RuntimeError as error:
                    raise InternalError(f"cannot link generated code: {error}") from error
            return str(whole)


def load_object(
    obj: bytes, symbols: Sequence[str], imports: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Link an object into this process and return the address of each of `symbols`.

    `imports` gives addresses of functions the object calls; the process itself (libc) provides the
    rest.  The code stays for the life of the process: its address is handed to other threads and
    to C, where nothing would keep it alive.  Raises InternalError for a malformed object or a
    symbol that nobody defines.
    """
    with _LOCK:
        library = _llvm().JITLibraryBuilder().add_object_img(obj).add_current_process()
        for name, address in (imports or {}).items():
            library.import_symbol(name, address)
        for name in symbols:
            library.export_symbol(name)
        try:
            tracker = library.link(_jit(), f"kernel{next(_LIBRARY_NUMBERS)}")
        except RuntimeError as error:
            raise InternalError(f"cannot load {', '.join(symbols)}: {error}") from error
        _LOADED.append(tracker)
        return {name: int(tracker[name]) for name in symbols}


@cache
def _llvm() -> Any:
    """llvmlite's binding, with every target registered (1 ms; other targets serve inspection)."""
    llvm = import_module("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()  # inline assembly
    return llvm


@cache
def _detected_machine() -> Machine:
    with _LOCK:
        llvm = _llvm()
        triple, cpu = str(llvm.get_process_triple()), str(llvm.get_host_cpu_name())
        # Empty where LLVM cannot tell: the CPU's name then implies what it can do.
        features = str(llvm.get_host_cpu_features().flatten())
        return Machine(_linkable(triple), cpu, features)


def _linkable(triple: str) -> str:
    """The triple whose objects can be linked into this process.

    On Windows that is Windows' code in ELF: LLVM's linkers within a process are made for that, and
    their COFF is young.  Objects for others' linkers keep the system's own format.
    """
    return f"{triple}-elf" if "windows" in triple and not triple.endswith("-elf") else triple


@cache
def _jit() -> Any:
    """The one linker of this process."""
    # RuntimeDyld is what numba uses on Windows.
    return _llvm().create_lljit_compiler(use_jit_link=sys.platform != "win32", suppress_errors=True)


@cache
def _target_machine(machine: Machine) -> Any:
    llvm = _llvm()
    if machine.triple.startswith("x86_64") and not (
        machine.cpu in _X86_64_CPUS or machine.cpu == _detected_machine().cpu
    ):
        raise UserError(
            f"unknown CPU {machine.cpu!r}\n"
            f"  expected: one of {', '.join(sorted(_X86_64_CPUS))}\n"
            "  remedy:   set DEUTERON_CPU to one of these, or unset it to use the host's"
        )
    # Levels 1 to 3 generate the same kernels in the same time; 2 is LLVM's default.
    return llvm.Target.from_triple(machine.triple).create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=2, reloc="pic", codemodel="small", jit=True
    )


@contextmanager
def _parsed(text: str, target: Any) -> Generator[Any]:
    """A verified module for `target`, in a context of its own so that it leaves nothing behind.

    Both are closed in order, not left to the garbage collector: it may take the context first (from
    the frames of a traceback, say), and freeing a module after its context crashes.
    """
    llvm = _llvm()
    with llvm.create_context() as context:
        try:
            module = llvm.parse_assembly(text, context)
        except RuntimeError as error:
            raise _rejected(text, str(error)) from error
        with module:
            try:
                module.verify()
            except RuntimeError as error:
                raise _rejected(text, str(error)) from error
            module.triple = target.triple
            module.data_layout = str(target.target_data)
            yield module


def _optimize(module: Any, target: Any) -> None:
    """Clean up what the emitters leave.

    Code generation takes nine tenths of the time and cleans up again (CSE, LICM within functions,
    strength reduction), so little pays here.  On vector add, softmax, matmul and attention the
    stock -O2 pipeline took 8 to 15 times as long and gave the same speed.  No vectorisers: vectors
    are already in the text.  No NewGVN: it found nothing, and LLVM itself leaves it off because of
    open miscompilations.
    """
    llvm = _llvm()
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=2))
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()  # the math library
    passes.add_global_dead_code_eliminate_pass()  # what was inlined
    passes.add_sroa_pass()  # allocas to registers
    passes.add_simplify_cfg_pass()  # merge blocks, so that instcombine sees across them
    passes.add_instruction_combine_pass()
    passes.run(module, builder)


def _rejected(text: str, report: str) -> InternalError:
    """The error for text that LLVM's parser or verifier refused."""
    lines = text.splitlines()
    if parse_error := _PARSE_ERROR.search(report):
        what, number = parse_error["what"], int(parse_error["line"])
    else:
        what, number = report.strip(), _find_instruction(lines, report)
    place = f"\n  line {number}: {lines[number - 1].strip()}" if 0 < number <= len(lines) else ""
    return InternalError(
        f"LLVM rejected generated code: {what}{place}\n"
        "  remedy:   this is a defect of deuteron; please report it with the kernel's source"
    )


def _find_instruction(lines: Sequence[str], report: str) -> int:
    """The line, from 1, of the first instruction that a verifier's report quotes; 0 if none."""
    for quoted in map(str.strip, report.splitlines()[1:]):
        result = _RESULT.match(quoted)
        wanted = result.group() if result else quoted
        for number, line in enumerate(lines, 1):
            if wanted and line.strip().startswith(wanted):
                return number
    return 0
