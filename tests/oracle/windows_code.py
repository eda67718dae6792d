"""Runs code of 64-bit Windows on an x86-64 of another system, by a bridge between conventions.

Windows passes arguments in other registers and has callees save more of them; all else about the
code is the processor's.  LLVM knows both conventions anywhere, so a function in this system's that
calls one in Windows' is a few lines of text.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from deuteron.backends.cpu.target import CpuTarget, machine_target
from deuteron.backends.llvm.compile import compile_object, host_machine, load_object

_BRIDGE = """
define void @bridge(ptr %args, i64 %begin, i64 %end, ptr %scratch, ptr %store) {
  call win64cc void inttoptr (i64 <address> to ptr)(
      ptr %args, i64 %begin, i64 %end, ptr %scratch, ptr %store)
  ret void
}
"""
# What Windows gives a program.  `__chkstk` is a leaf that the prologue of a function with a large
# frame calls: there it touches each page.
_SYSTEM = """
define void @__chkstk() naked nounwind {
  call void asm sideeffect "ret", ""()
  unreachable
}

declare ptr @memset(ptr, i32, i64)
declare ptr @memcpy(ptr, ptr, i64)

define win64cc ptr @windows_memset(ptr %to, i32 %byte, i64 %size) {
  %r = call ptr @memset(ptr %to, i32 %byte, i64 %size)
  ret ptr %r
}

define win64cc ptr @windows_memcpy(ptr %to, ptr %from, i64 %size) {
  %r = call ptr @memcpy(ptr %to, ptr %from, i64 %size)
  ret ptr %r
}
"""


def windows_target() -> CpuTarget:
    """Windows' code in ELF, as a process on Windows compiles it for itself."""
    target = machine_target("windows-x86-64")
    return replace(target, triple=f"{target.triple}-elf")


def callable_here(address: int) -> int:
    """The address of a function of this system that runs the Windows kernel at `address`."""
    text = _BRIDGE.replace("<address>", str(address))
    return load_object(compile_object(text, host_machine()).obj, ["bridge"])["bridge"]


@cache
def windows_imports() -> dict[str, int]:
    """Stand-ins for what kernels call of Windows, by name."""
    obj = compile_object(_SYSTEM, host_machine()).obj
    found = load_object(obj, ["__chkstk", "windows_memset", "windows_memcpy"])
    return {name.removeprefix("windows_"): address for name, address in found.items()}
