"""How the pool's threads pause, sleep, wake each other and tell the time, as LLVM IR text.

    pause()                            a spinning thread's rest
    sleep_on(word, expected) -> slept  sleep while the word is `expected`; false where it cannot
    wake_on(word, count)               wake so many that sleep on the word
    wake_parked(pool)                  wake workers that wait in Python; the GIL is held
    now() -> nanoseconds               0 where there is no clock

Where there is no futex, a worker that has spun long enough returns to Python and waits there on a
condition, a caller spins, and there is no clock, so that every launch is shared.
"""

from __future__ import annotations

_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}
_FUTEX_SYSCALL = {"x86_64": 202, "aarch64": 98}


def has_futex(machine: str, system: str) -> bool:
    """True where threads sleep in a Linux futex."""
    return system == "linux" and machine in _FUTEX_SYSCALL


def sleep_ir(machine: str, futex: bool) -> str:
    """The functions for `machine`; one that is not known gets no pause instruction."""
    declare, pause = _PAUSE.get(machine, ("", ""))
    text = _FUTEX.replace("<number>", str(_FUTEX_SYSCALL[machine])) if futex else _NO_FUTEX
    return f"""{declare}
define internal void @pause() alwaysinline {{
  {pause}
  ret void
}}
{text}"""


# 128 is FUTEX_WAIT and 129 FUTEX_WAKE, both private to the process; 1 is CLOCK_MONOTONIC.
_FUTEX = """
declare i64 @syscall(i64, ...)

define internal i1 @sleep_on(ptr %word, i32 %expected) {
  %r = call i64 (i64, ...) @syscall(i64 <number>, ptr %word, i32 128, i32 %expected, ptr null)
  ret i1 true
}

define internal void @wake_on(ptr %word, i32 %count) {
  %r = call i64 (i64, ...) @syscall(i64 <number>, ptr %word, i32 129, i32 %count)
  ret void
}

define internal void @wake_parked(ptr %pool) {
  ret void
}

declare i32 @clock_gettime(i32, ptr)

define internal i64 @now() {
  %time = alloca [2 x i64]
  %r = call i32 @clock_gettime(i32 1, ptr %time)
  %nanosp = getelementptr i64, ptr %time, i64 1
  %seconds = load i64, ptr %time
  %nanos = load i64, ptr %nanosp
  %scaled = mul i64 %seconds, 1000000000
  %total = add i64 %scaled, %nanos
  ret i64 %total
}
"""

_NO_FUTEX = """
define internal i1 @sleep_on(ptr %word, i32 %expected) {
  ret i1 false
}

define internal void @wake_on(ptr %word, i32 %count) {
  ret void
}

define internal void @wake_parked(ptr %pool) {
  %wake = get Pool.notify %pool
  %r = call ptr @PyObject_CallNoArgs(ptr %wake)
  call void @forget(ptr %r)
  ret void
}

define internal i64 @now() {
  ret i64 0
}
"""
