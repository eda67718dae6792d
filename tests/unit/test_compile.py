"""LLVM text to callable machine code, and every way text or object may be wrong."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from deuteron.backends.llvm import compile as llvm_compile
from deuteron.backends.llvm.compile import (
    Machine,
    assembly,
    compile_object,
    host_machine,
    load_object,
)
from deuteron.errors import InternalError, UserError

ADD = """
define void @add(ptr %x, ptr %y, ptr %out, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %px = getelementptr float, ptr %x, i64 %i
  %py = getelementptr float, ptr %y, i64 %i
  %po = getelementptr float, ptr %out, i64 %i
  %a = load float, ptr %px, align 4
  %b = load float, ptr %py, align 4
  %s = fadd float %a, %b
  store float %s, ptr %po, align 4
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""

ANSWER = "define i64 @answer() {\n  ret i64 42\n}\n"


def callable_at(address: int, *arguments: type, result: type | None = None):
    return ctypes.CFUNCTYPE(result, *arguments)(address)


def test_compiled_code_runs():
    address = load_object(compile_object(ADD, host_machine()).obj, ["add"])["add"]
    x, y = np.arange(7, dtype=np.float32), np.full(7, 0.5, np.float32)
    out = np.zeros(9, np.float32)
    add = callable_at(address, *[ctypes.c_void_p] * 3, ctypes.c_int64)
    add(x.ctypes.data, y.ctypes.data, out.ctypes.data, 7)
    np.testing.assert_array_equal(out, [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 0, 0])


def test_one_object_may_be_loaded_twice():
    obj = compile_object(ANSWER, host_machine()).obj
    first, second = (load_object(obj, ["answer"])["answer"] for _ in range(2))
    assert first != second
    assert callable_at(first, result=ctypes.c_int64)() == 42
    assert callable_at(second, result=ctypes.c_int64)() == 42


def test_compilation_is_deterministic():
    assert compile_object(ADD, host_machine()).obj == compile_object(ADD, host_machine()).obj


def test_imports_are_called():
    text = """
declare i64 @twice(i64)
define i64 @f(i64 %x) {
  %y = call i64 @twice(i64 %x)
  ret i64 %y
}
"""
    twice = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: 2 * x)
    imported = ctypes.cast(twice, ctypes.c_void_p).value
    assert imported is not None
    obj = compile_object(text, host_machine()).obj
    address = load_object(obj, ["f"], {"twice": imported})["f"]
    assert callable_at(address, ctypes.c_int64, result=ctypes.c_int64)(21) == 42


def test_libc_is_found_in_the_process():
    text = """
declare ptr @memcpy(ptr, ptr, i64)
define void @f(ptr %to, ptr %from, i64 %bytes) {
  %r = call ptr @memcpy(ptr %to, ptr %from, i64 %bytes)
  ret void
}
"""
    address = load_object(compile_object(text, host_machine()).obj, ["f"])["f"]
    source, target = np.arange(300), np.zeros(300, np.int64)
    copy = callable_at(address, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    copy(target.ctypes.data, source.ctypes.data, source.nbytes)
    np.testing.assert_array_equal(source, target)


def test_alwaysinline_functions_vanish():
    text = """
define internal i64 @inner(i64 %x) alwaysinline {
  %y = mul i64 %x, 3
  ret i64 %y
}
define i64 @outer(i64 %x) {
  %y = call i64 @inner(i64 %x)
  ret i64 %y
}
"""
    asm = assembly(text, host_machine())
    assert "outer:" in asm
    assert "inner" not in asm


def test_assembly_follows_the_machine():
    text = """
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
define void @f(ptr %p) "prefer-vector-width"="512" "min-legal-vector-width"="512" {
  %x = load <16 x float>, ptr %p, align 64
  %y = call <16 x float> @llvm.fma.v16f32(<16 x float> %x, <16 x float> %x, <16 x float> %x)
  store <16 x float> %y, ptr %p, align 64
  ret void
}
"""
    linux = "x86_64-unknown-linux-gnu"
    wide = assembly(text, Machine(linux, "x86-64-v4"))
    narrow = assembly(text, Machine(linux, "x86-64-v4", "-avx512f"))
    arm = assembly(text, Machine("aarch64-unknown-linux-gnu", "neoverse-n1"))
    assert "%zmm" in wide
    assert "%zmm" not in narrow
    assert "%ymm" in narrow
    assert "fmla\tv" in arm


def test_a_compiled_object_shows_its_assembly():
    compiled = compile_object(ADD, host_machine())
    assert compiled.asm() == assembly(ADD, host_machine())
    assert compiled.timings.total_s > compiled.timings.codegen_s > 0


def test_target_cpu_setting_is_honoured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DEUTERON_CPU", "x86-64-v3")
    machine = host_machine()
    assert (machine.cpu, machine.features) == ("x86-64-v3", "")
    monkeypatch.delenv("DEUTERON_CPU")
    assert host_machine().features


@pytest.mark.parametrize("topic", ["llvm", "asm"])
def test_debug_prints(topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.setenv("DEUTERON_DEBUG", topic)
    compile_object(ANSWER, host_machine())
    printed = capsys.readouterr().err
    assert ("define i64 @answer" in printed) == (topic == "llvm")
    assert ("answer:" in printed) == (topic == "asm")


# -- wrong text -----------------------------------------------------------------------------
def rejected(text: str) -> str:
    with pytest.raises(InternalError) as caught:
        compile_object(text, host_machine())
    return str(caught.value)


def test_syntax_errors_name_the_line():
    message = rejected("define void @f() {\n  %x = ad i32 1, 2\n  ret void\n}\n")
    assert "expected instruction opcode" in message
    assert "line 2: %x = ad i32 1, 2" in message
    assert "remedy" in message


def test_verifier_errors_name_the_line():
    message = rejected("""define i32 @f(i1 %c) {
entry:
  br i1 %c, label %a, label %b
a:
  %x = add i32 1, 2
  br label %b
b:
  ret i32 %x
}
""")
    assert "does not dominate all uses" in message
    assert "line 5: %x = add i32 1, 2" in message


def test_errors_without_a_line_are_still_reported():
    message = rejected("define void @f() {\n  ret void\n}\n@g = global i32 0, section 5\n")
    assert "LLVM rejected generated code" in message


def test_unknown_cpu_is_refused_before_llvm_ends_the_process():
    machine = Machine("x86_64-unknown-linux-gnu", "pentium")
    with pytest.raises(UserError, match=r"unknown CPU 'pentium'(.|\n)*znver4(.|\n)*DEUTERON_CPU"):
        compile_object(ANSWER, machine)


@pytest.mark.parametrize("cpu", sorted(llvm_compile._X86_64_CPUS))
def test_every_listed_cpu_is_known_to_llvm(cpu: str, capfd: pytest.CaptureFixture):
    assembly(ANSWER, Machine("x86_64-unknown-linux-gnu", cpu))
    assert capfd.readouterr().err == ""


# -- wrong objects --------------------------------------------------------------------------
def test_missing_symbol():
    obj = compile_object(ANSWER, host_machine()).obj
    with pytest.raises(InternalError, match=r"cannot load nope: .*nope"):
        load_object(obj, ["nope"])


def test_unresolved_call():
    text = """
declare void @nobody_defines_this()
define void @f() {
  call void @nobody_defines_this()
  ret void
}
"""
    obj = compile_object(text, host_machine()).obj
    with pytest.raises(InternalError, match="cannot load f"):
        load_object(obj, ["f"])
    assert load_object(compile_object(ANSWER, host_machine()).obj, ["answer"])


@pytest.mark.parametrize("cut", [0, 10, 300])
def test_truncated_object(cut: int):
    obj = compile_object(ANSWER, host_machine()).obj
    with pytest.raises(InternalError, match="cannot load answer"):
        load_object(obj[:cut], ["answer"])


# -- threads, processes, start-up -----------------------------------------------------------
def test_many_threads_compile_and_load():
    results: dict[int, int] = {}

    def work(number: int) -> None:
        text = f"define i64 @f() {{\n  ret i64 {number}\n}}\n"
        address = load_object(compile_object(text, host_machine()).obj, ["f"])["f"]
        results[number] = callable_at(address, result=ctypes.c_int64)()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: number for number in range(12)}


def compile_in_child(inherited: int, answers) -> None:
    old = callable_at(inherited, result=ctypes.c_int64)()
    text = ANSWER.replace("42", "43")
    address = load_object(compile_object(text, host_machine()).obj, ["answer"])["answer"]
    answers.put((old, callable_at(address, result=ctypes.c_int64)()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_keeps_and_makes_kernels():
    """Even when a thread of the parent is compiling at the moment of the fork."""
    address = load_object(compile_object(ANSWER, host_machine()).obj, ["answer"])["answer"]
    stop = threading.Event()

    def compile_on() -> None:
        while not stop.is_set():
            compile_object(ADD, host_machine())

    busy = threading.Thread(target=compile_on)
    busy.start()
    try:
        fork = multiprocessing.get_context("fork")
        answers = fork.Queue()
        children = [
            fork.Process(target=compile_in_child, args=(address, answers)) for _ in range(4)
        ]
        for child in children:
            child.start()
        assert [answers.get(timeout=60) for _ in children] == [(42, 43)] * 4
        for child in children:
            child.join()
    finally:
        stop.set()
        busy.join()


def test_llvm_is_imported_on_first_use_and_the_process_ends_cleanly():
    program = """
import sys
from deuteron.backends.llvm.compile import compile_object, host_machine, load_object
assert "llvmlite" not in sys.modules
text = "define i64 @answer() {\\n  ret i64 42\\n}\\n"
load_object(compile_object(text, host_machine()).obj, ["answer"])
assert "llvmlite" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
