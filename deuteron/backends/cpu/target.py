"""What a CPU can do, as far as code generation asks.

`host_target()` is the machine this runs on, or the CPU named by DEUTERON_CPU; `machine_target`
names others, of this and of other operating systems.  Everything that depends on the CPU (vector
width, which dot instruction, compile flags, cache keys) asks a `CpuTarget`, so that code for
another CPU can be emitted and looked at anywhere.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass, field, replace
from functools import cache

from deuteron import config
from deuteron.backends.llvm.compile import Machine, host_machine
from deuteron.errors import UserError

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
_X86_TRIPLES = ("x86_64", "amd64")

_V2 = frozenset({"sse", "sse2", "cx16", "popcnt", "sahf", "sse3", "ssse3", "sse4.1", "sse4.2"})
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_CASCADE_LAKE = _V4 | {"avx512vnni"}
_ICE_LAKE = _CASCADE_LAKE | {"avx512vbmi", "avx512vbmi2", "avx512bitalg", "avx512vpopcntdq"}
_ZEN_4 = _ICE_LAKE | {"avx512bf16"}
_SAPPHIRE_RAPIDS = _ZEN_4 | {"avx512fp16", "avxvnni", "amx-tile", "amx-int8", "amx-bf16"}

# What LLVM implies by a CPU name, restricted to what code generation asks about.  The names are
# those that DEUTERON_CPU may take.
X86_CPUS: dict[str, frozenset[str]] = {
    "x86-64": frozenset({"sse", "sse2"}),
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": _V4,
    "haswell": _V3,
    "broadwell": _V3,
    "skylake": _V3,
    "alderlake": _V3 | {"avxvnni"},
    "znver1": _V3,
    "znver2": _V3,
    "znver3": _V3,
    "skylake-avx512": _V4,
    "cascadelake": _CASCADE_LAKE,
    "cooperlake": _CASCADE_LAKE | {"avx512bf16"},
    "icelake-server": _ICE_LAKE,
    "rocketlake": _ICE_LAKE,
    "znver4": _ZEN_4,
    "znver5": _ZEN_4 | {"avxvnni"},
    "sapphirerapids": _SAPPHIRE_RAPIDS,
    "emeraldrapids": _SAPPHIRE_RAPIDS,
    "graniterapids": _SAPPHIRE_RAPIDS,
}
AARCH64_CPUS: dict[str, frozenset[str]] = {
    name: frozenset({"neon"})
    for name in ("generic", "apple-m1", "apple-m2", "apple-m4", "neoverse-n1", "neoverse-v1")
}

_LINUX_X86, _LINUX_ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
_MACOS, _WINDOWS = "arm64-apple-macosx11.0.0", "x86_64-pc-windows-msvc"
# Names of `machine_target` that stand for a triple and a CPU; CPU names stand for themselves.
MACHINES = {
    "aarch64": (_LINUX_ARM, "generic"),
    "windows-x86-64": (_WINDOWS, "x86-64-v3"),
    "windows-x86-64-v4": (_WINDOWS, "x86-64-v4"),
}


@dataclass(frozen=True, slots=True)
class CpuTarget:
    """A CPU to compile for: LLVM's triple and CPU name, and the features that are on and off.

    `features` and `disabled` are LLVM feature names without sign.  `disabled` matters when a
    hypervisor hides what the CPU name implies.
    """

    triple: str
    cpu: str
    features: frozenset[str]
    disabled: frozenset[str] = field(default_factory=frozenset[str])

    @property
    def is_x86(self) -> bool:
        """x86-64, by its triple."""
        return self.triple.startswith(_X86_TRIPLES)

    @property
    def feature_string(self) -> str:
        """The features as LLVM's target machine takes them, sorted: `+avx,+avx2,…,-amx-fp8`."""
        on = [f"+{name}" for name in sorted(self.features)]
        return ",".join(on + [f"-{name}" for name in sorted(self.disabled)])

    @property
    def key(self) -> str:
        """A text that differs whenever generated code may differ; for object caches."""
        return f"{self.triple}/{self.cpu}/{self.feature_string}"

    @property
    def vector_bits(self) -> int:
        """Width of the vector registers code is written for: 512, 256 or 128."""
        if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= self.features:
            return 512
        return 256 if "avx2" in self.features else 128

    @property
    def vector_registers(self) -> int:
        """How many vector registers there are."""
        return 32 if self.vector_bits == 512 or not self.is_x86 else 16

    def lanes(self, bits: int) -> int:
        """Elements of that many bits in one vector register."""
        return self.vector_bits // bits

    @property
    def has_fma(self) -> bool:
        """`llvm.fma` on float and double is an instruction, not a library call."""
        return not self.is_x86 or "fma" in self.features or self.vector_bits == 512

    @property
    def has_f16c(self) -> bool:
        """Conversion between half and float is an instruction."""
        return not self.is_x86 or "f16c" in self.features or self.vector_bits == 512

    @property
    def has_avx512bf16(self) -> bool:
        """`vdpbf16ps` and `vcvtneps2bf16` on 512-bit vectors."""
        return self.vector_bits == 512 and "avx512bf16" in self.features

    @property
    def has_fast_bf16_dot(self) -> bool:
        """`vdpbf16ps` beats widening to float32.

        It doubles the rate of fma on Zen 4 and 5.  The Intel CPUs since Sapphire Rapids, told by
        half arithmetic, take two cycles for one (measured: 75 against 157 GFLOP/s).
        """
        zen = self.cpu.startswith("znver")
        return self.has_avx512bf16 and (zen or "avx512fp16" not in self.features)

    @property
    def has_amx_bf16(self) -> bool:
        """Tile registers, and products of bfloat16 pairs on them."""
        return self.vector_bits == 512 and {"amx-tile", "amx-bf16"} <= self.features

    @property
    def has_vnni(self) -> bool:
        """`vpdpbusd` (u8 × s8, four a lane) and `vpdpwssd` on vectors of `vector_bits`."""
        if self.vector_bits == 512:
            return "avx512vnni" in self.features
        return self.vector_bits == 256 and "avxvnni" in self.features

    @property
    def stores_past_caches(self) -> bool:
        """A whole vector can be stored past the caches: AArch64 does so with pairs of halves only.

        Its CPUs notice by themselves that a stream of stores is not worth keeping.
        """
        return self.is_x86

    @property
    def function_attrs(self) -> str:
        """LLVM function attributes without which wide vectors would be split in two."""
        bits = self.vector_bits
        return f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'


def named_target(cpu: str, triple: str | None = None) -> CpuTarget:
    """The target of that LLVM CPU name (a key of `X86_CPUS` or `AARCH64_CPUS`).

    Raises UserError when the name is unknown or belongs to another architecture.
    """
    triple = triple or host_machine().triple
    table = X86_CPUS if triple.startswith(_X86_TRIPLES) else AARCH64_CPUS
    if cpu not in table:
        raise UserError(
            f"unknown CPU {cpu!r} for {triple}\n"
            f"  expected: one of {', '.join(table)}\n"
            f"  remedy:   set DEUTERON_CPU to one of them, or unset it to use this machine's"
        )
    return CpuTarget(triple, cpu, table[cpu])


def machine_target(name: str) -> CpuTarget:
    """A machine by name: a key of `MACHINES`, or a CPU of macOS (`apple-…`) or Linux (any other).

    Raises UserError that lists the names.
    """
    if name in MACHINES:
        triple, cpu = MACHINES[name]
        return named_target(cpu, triple)
    if name in X86_CPUS:
        return named_target(name, _LINUX_X86)
    if name in AARCH64_CPUS:
        return named_target(name, _MACOS if name.startswith("apple") else _LINUX_ARM)
    raise UserError(
        f"unknown machine {name!r}\n"
        f"  expected: one of {', '.join([*MACHINES, *X86_CPUS, *AARCH64_CPUS])}\n"
        f"  got:      {name}\n"
        "  remedy:   name one of these"
    )


def host_target() -> CpuTarget:
    """The CPU to compile for: DEUTERON_CPU when set, else the one this process runs on."""
    machine = host_machine()
    named = config.target_cpu()
    target = named_target(named, machine.triple) if named else _detected_target(machine)
    if target.has_amx_bf16 and not _amx_is_permitted():
        hidden = frozenset(f for f in target.features if f.startswith("amx"))
        target = replace(
            target, features=target.features - hidden, disabled=target.disabled | hidden
        )
    return target


@cache
def _amx_is_permitted() -> bool:
    """Ask Linux for the tile registers, which a process must before it touches them.

    Holds for all threads and for children.  Source: Linux Documentation/arch/x86/xstate.rst.
    """
    if sys.platform != "linux":
        return False
    system_call = ctypes.CDLL(None).syscall
    return int(system_call(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)) == 0


def _detected_target(machine: Machine) -> CpuTarget:
    flags = [flag for flag in machine.features.split(",") if flag]
    return CpuTarget(
        triple=machine.triple,
        cpu=machine.cpu,
        features=frozenset(flag[1:] for flag in flags if flag.startswith("+")),
        disabled=frozenset(flag[1:] for flag in flags if flag.startswith("-")),
    )
