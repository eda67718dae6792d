"""What differs between operating systems and processors, with each pretended in turn."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from deuteron import config
from deuteron.backends.cpu import native, target
from deuteron.backends.cpu.sleep_ir import has_futex, sleep_ir
from deuteron.backends.cpu.target import MACHINES, host_target, machine_target, named_target
from deuteron.backends.llvm import compile as llvm_compile
from deuteron.backends.llvm import object_cache
from deuteron.backends.llvm.compile import Machine, compile_object
from deuteron.errors import UserError

LINUX, ARM_LINUX = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
MACOS, WINDOWS = "arm64-apple-darwin23.1.0", "x86_64-pc-windows-msvc"


def pretend(monkeypatch: pytest.MonkeyPatch, triple: str, cpu: str, features: str = "") -> None:
    """Have LLVM describe another machine."""
    described = SimpleNamespace(
        get_process_triple=lambda: triple,
        get_host_cpu_name=lambda: cpu,
        get_host_cpu_features=lambda: SimpleNamespace(flatten=lambda: features),
    )
    detect = llvm_compile._detected_machine.__wrapped__
    monkeypatch.setattr(llvm_compile, "_llvm", lambda: described)
    machine = detect()
    monkeypatch.undo()
    monkeypatch.setattr(llvm_compile, "_detected_machine", lambda: machine)
    monkeypatch.delenv("DEUTERON_CPU", raising=False)


# -- the processor -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("triple", "cpu", "features", "expected"),
    [
        (LINUX, "znver4", "+avx2,+fma,-amx-tile", (LINUX, 256, True)),
        (ARM_LINUX, "neoverse-n1", "+neon,+fullfp16", (ARM_LINUX, 128, True)),
        (MACOS, "apple-m2", "", (MACOS, 128, True)),
        (WINDOWS, "haswell", "+avx2,+fma", (f"{WINDOWS}-elf", 256, True)),
    ],
    ids=["linux", "arm-linux", "macos", "windows"],
)
def test_this_machine_is_described(
    monkeypatch: pytest.MonkeyPatch,
    triple: str,
    cpu: str,
    features: str,
    expected: tuple[str, int, bool],
) -> None:
    pretend(monkeypatch, triple, cpu, features)
    found = host_target()
    assert (found.triple, found.vector_bits, found.has_fma) == expected
    assert not found.has_amx_bf16


@pytest.mark.parametrize(
    ("triple", "family"),
    [(LINUX, "x86_64"), (ARM_LINUX, "aarch64"), (MACOS, "aarch64"), (WINDOWS, "x86_64")],
)
def test_the_family_comes_from_the_process_not_the_computer(triple: str, family: str) -> None:
    """A process may run translated, on a processor of another family."""
    assert Machine(triple, "generic").architecture == family


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_only_linux_is_asked_for_tile_registers(
    monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(target.ctypes, "CDLL", lambda name: pytest.fail("a call to the system"))
    assert not target._amx_is_permitted.__wrapped__()


def test_machines_by_name() -> None:
    assert {name: machine_target(name).triple for name in MACHINES} == {
        "aarch64": ARM_LINUX,
        "windows-x86-64": WINDOWS,
        "windows-x86-64-v4": WINDOWS,
    }
    assert machine_target("x86-64-v3") == named_target("x86-64-v3", LINUX)
    assert machine_target("neoverse-n1").triple == ARM_LINUX
    assert machine_target("apple-m1").triple.startswith("arm64-apple-macosx")
    with pytest.raises(UserError, match=r"unknown machine 'vax'(.|\n)*aarch64, windows-x86-64"):
        machine_target("vax")


@pytest.mark.parametrize(
    ("machine", "start"),
    [
        ("aarch64", b"\x7fELF"),
        ("apple-m1", b"\xcf\xfa\xed\xfe"),
        ("windows-x86-64", b"\x64\x86"),
    ],
)
def test_objects_have_the_format_of_their_system(machine: str, start: bytes) -> None:
    chosen = machine_target(machine)
    made_for = Machine(chosen.triple, chosen.cpu, chosen.feature_string)
    assert compile_object("define void @f() {\n  ret void\n}\n", made_for).obj.startswith(start)


# -- threads -----------------------------------------------------------------------------------
def test_threads_sleep_in_a_futex_on_linux_only() -> None:
    assert has_futex("x86_64", "linux")
    assert has_futex("aarch64", "linux")
    assert not has_futex("riscv64", "linux")
    assert not has_futex("aarch64", "darwin")
    assert not has_futex("x86_64", "win32")
    for machine in ("x86_64", "aarch64", "riscv64"):
        assert "@syscall" not in sleep_ir(machine, futex=False)


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_other_systems_get_code_that_parks_in_python(
    monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    monkeypatch.setattr(native.sys, "platform", system)
    asked: list[bool] = []
    monkeypatch.setattr(native, "load_code", lambda machine, futex: asked.append(futex))
    monkeypatch.setattr(native, "_CODE", [])
    native.code()
    assert asked == [False]


def test_threads_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEUTERON_NUM_THREADS", raising=False)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert config.num_threads() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert config.num_threads() == 1


# -- files -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("system", "variables", "expected"),
    [
        ("linux", {}, ".cache/deuteron"),
        ("freebsd14", {}, ".cache/deuteron"),
        ("darwin", {}, "Library/Caches/deuteron"),
        ("win32", {}, "AppData/Local/deuteron"),
        ("win32", {"LOCALAPPDATA": "local"}, "local/deuteron"),
        ("darwin", {"XDG_CACHE_HOME": "xdg"}, "xdg/deuteron"),
        ("win32", {"DEUTERON_CACHE_DIR": "own"}, "own"),
    ],
)
def test_cache_directory(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    system: str,
    variables: dict[str, str],
    expected: str,
) -> None:
    for name in ("DEUTERON_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, folder in variables.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.setattr(os.path, "expanduser", lambda path: str(tmp_path))
    monkeypatch.setattr(sys, "platform", system)
    assert config.cache_dir() == tmp_path / expected


class FileInUse(PermissionError):
    """What Windows raises where a file is open in another process."""

    winerror = 5


@pytest.mark.parametrize("exists", [True, False])
def test_a_file_open_elsewhere_on_windows_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, exists: bool
) -> None:
    def refuse(source: object, to: object) -> None:
        raise FileInUse(13, "Access is denied")

    path = tmp_path / "entry.dobj"
    if exists:
        path.write_bytes(b"old")
    monkeypatch.setattr(os, "replace", refuse)
    if exists:
        assert object_cache.write_atomically(path, b"new")
        assert path.read_bytes() == b"old"
    else:
        with pytest.warns(object_cache.CacheWarning, match="cannot be written"):
            assert not object_cache.write_atomically(path, b"new")
    assert [file.name for file in tmp_path.iterdir()] == ["entry.dobj"] * exists
