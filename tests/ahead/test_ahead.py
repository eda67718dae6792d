"""Kernels compiled ahead of time: used from C, by the JSON from anywhere, and by raw symbols."""

from __future__ import annotations

import ctypes
import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deuteron.backends.llvm.compile import load_object
from deuteron.cli.main import main

HERE = Path(__file__).parent
KERNELS = HERE / "kernels.py"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
MATMUL = "*fp32,*fp32,*fp32,i32,i32,i32,i32,1,i32,1,i32,1"

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler on the PATH")


def compile_kernel(out: Path, kernel: str, *arguments: str) -> dict[str, Any]:
    """Run `deuteron compile`; the description that it wrote."""
    spec = kernel if ":" in kernel else f"{KERNELS}:{kernel}"
    assert main(["compile", spec, "--out", str(out), *arguments]) == 0
    return json.loads((out / f"{kernel.rpartition(':')[2]}.json").read_text())


def run_c_program(directory: Path, kernel: str) -> str:
    """Build tests/ahead/use_<kernel>.c with a kernel's object file, run it; what it printed."""
    assert COMPILER is not None
    program = directory / "program"
    source = HERE / f"use_{kernel}.c"
    files = [str(source), str(directory / f"{kernel}.o"), "-o", str(program), "-lpthread"]
    flags = ["-std=c99", "-D_POSIX_C_SOURCE=200112L", *WARNINGS, f"-I{directory}"]
    subprocess.run([COMPILER, *flags, *files], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Library:
    """A compiled kernel in this process, called as the JSON says."""

    def __init__(self, directory: Path, description: dict[str, Any]) -> None:
        self.about = description
        name = description["name"]
        variants = [variant["symbol"] for variant in description["variants"]]
        symbols = [name, f"{name}_range", f"{name}_store_bytes", f"{name}_scratch_bytes", *variants]
        obj = (directory / description["files"]["object"]).read_bytes()
        self.address = load_object(obj, symbols)

    def pack(self, **values: Any) -> ctypes.Array[ctypes.c_char]:
        """The struct of the arguments: arrays by address, numbers in their own format."""
        fields = self.about["arguments"]
        assert [field["name"] for field in fields] == list(values)
        size = fields[-1]["offset"] + fields[-1]["bytes"]
        memory = ctypes.create_string_buffer(size)
        for field, value in zip(fields, values.values(), strict=True):
            pointer = isinstance(value, np.ndarray)
            code = {"float32": "f", "float64": "d"}.get(
                field["dtype"], "?bhiq"[field["bytes"].bit_length()]
            )
            if pointer:
                code, value = "q", value.ctypes.data
            elif field["dtype"].startswith("u"):
                code = code.upper()
            struct.pack_into(f"={code}", memory, field["offset"], value)
        return memory

    def call(self, grid: tuple[int, int, int], **values: Any) -> int:
        """Run a grid on this thread; the status."""
        function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        sizes = (ctypes.c_int64 * 3)(*grid)
        return function(self.address[self.about["name"]])(self.pack(**values), sizes, None)


# -- C programs ------------------------------------------------------------------------------
@needs_compiler
def test_a_c_program_runs_a_kernel_whole_in_ranges_and_on_threads(tmp_path: Path) -> None:
    signatures = ["*fp32,*fp32,i32,1,fp32,BLOCK=256", "*fp32:1,*fp32:1,i32,i32,fp32,BLOCK=256"]
    options = [part for text in signatures for part in ("--signature", text)]
    compile_kernel(tmp_path, "scale", *options)
    assert run_c_program(tmp_path, "scale") == ""


@needs_compiler
def test_a_c_program_hears_prints_and_failed_asserts(tmp_path: Path) -> None:
    signature = "*i32,i1,i32,BLOCK=4"
    compile_kernel(tmp_path, "checked", "--debug", "--signature", signature)
    line = (
        KERNELS.read_text().splitlines().index('    tl.device_assert(x > 0, "x must be positive")')
    )
    assert run_c_program(tmp_path, "checked").splitlines() == [
        "pid (0, 0, 0) idx (0) x: 3",
        "pid (0, 0, 0) idx (1) x: 1",
        "pid (0, 0, 0) idx (2) x: 4",
        "pid (0, 0, 0) idx (3) x: 1",
        "pid (0, 0, 0) idx () n, half: (operand 0) 8",
        "pid (0, 0, 0) idx () n, half: (operand 1) 4.5",
        "pid (0, 0, 0) done",
        f"{KERNELS}:{line + 1}: device_assert: x must be positive in program 2",
    ]


@needs_compiler
def test_a_header_is_c_plus_plus_too(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler on the PATH")
    compile_kernel(tmp_path, "checked", "--signature", "*i32,i1,i32,BLOCK=4")
    flags = ["-std=c++11", "-fsyntax-only", *WARNINGS, "-x", "c++"]
    program = tmp_path / "program.cc"
    program.write_text('#include "checked.h"\nint main() { return checked_store_bytes() != 0; }\n')
    subprocess.run([compiler, *flags, str(program)], check=True)


@needs_compiler
@pytest.mark.skipif(sys.platform == "win32", reason="links for other systems than Windows")
def test_a_shared_library_is_loaded_by_its_own_path(tmp_path: Path) -> None:
    signature = "*i32,1"
    about = compile_kernel(tmp_path, "where_am_i", "--shared", "--signature", signature)
    library = ctypes.CDLL(str(tmp_path / about["files"]["library"]))
    out = np.full(24, -1, np.int32)
    address = ctypes.c_void_p(out.ctypes.data)
    assert library.where_am_i(ctypes.byref(address), (ctypes.c_int64 * 3)(2, 3, 4), None) == 0
    x, y, z = (index.ravel() for index in np.indices((2, 3, 4)).transpose(0, 3, 2, 1))
    np.testing.assert_array_equal(out, 100 * x + 10 * y + z + 1)


# -- by the JSON -----------------------------------------------------------------------------
def test_scalars_of_every_width_arrive(tmp_path: Path) -> None:
    signature = "*fp64,i8,u16,fp64,fp16,i1,i64,bf16"
    about = compile_kernel(tmp_path, "many_types", "--signature", signature)
    library, out = Library(tmp_path, about), np.zeros(7)
    half = int(np.float16(-1.5).view(np.int16))
    status = library.call(
        (1, 1, 1), out_ptr=out, a=-7, b=60_000, c=1e-300, d=half, e=1, f=-(2**40) - 1, g=0x4049
    )
    assert status == 0
    np.testing.assert_array_equal(out, [-7, 60_000, 1e-300, -1.5, 1, -(2**40) - 1, 3.140625])


def test_a_product_uses_its_store(tmp_path: Path) -> None:
    blocks = "BLOCK_M=64,BLOCK_N=64,BLOCK_K=64,GROUP_M=8"
    kernel = "deuteron.ops.matmul:matmul_kernel"
    about = compile_kernel(tmp_path, kernel, "--signature", f"{MATMUL},{blocks}")
    library = Library(tmp_path, about)
    assert about["variants"][0]["store_bytes"] > 1 << 20
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((200, 150), (150, 300)))
    c = np.zeros((200, 300), np.float32)
    sizes = {"M": 200, "N": 300, "K": 150}
    steps = {"stride_am": 150, "stride_bk": 300, "stride_cm": 300}
    assert library.call((4 * 5, 1, 1), a_ptr=a, b_ptr=b, c_ptr=c, **sizes, **steps) == 0
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_a_kernel_is_called_by_its_own_symbol(tmp_path: Path) -> None:
    """As docs/aot.md describes it, for launchers of one's own."""
    signature = "*fp32,*fp32,i32,i32,fp32,BLOCK=64"
    about = compile_kernel(tmp_path, "scale", "--signature", signature)
    (variant,) = about["variants"]
    assert variant["slots"] == ["x_ptr", "out_ptr", "n", "stride", "factor"]
    x, out = np.arange(400, dtype=np.float32), np.zeros(200, np.float32)
    control = ctypes.create_string_buffer(64)
    head = struct.pack("=4q", 4, 1, 1, ctypes.addressof(control))
    slots = struct.pack("=4qf4x", x.ctypes.data, out.ctypes.data, 200, 2, 0.5)
    scratch = np.zeros(variant["scratch_bytes"] + about["alignment"], np.uint8)
    start = -(-scratch.ctypes.data // about["alignment"]) * about["alignment"]
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    kernel = ctypes.CFUNCTYPE(None, pointer, number, number, pointer, pointer)
    address = Library(tmp_path, about).address[variant["symbol"]]
    kernel(address)(ctypes.create_string_buffer(head + slots), 1, 4, start, None)
    np.testing.assert_array_equal(out[64:], x[::2][64:] * 0.5)
    assert not out[:64].any()


def test_constants_of_some_signatures_are_compared(tmp_path: Path) -> None:
    texts = ("*fp32,*fp32,i32,i32,0.1,BLOCK=64", "*fp32,*fp32,i32,1,fp32,BLOCK=64")
    options = [part for text in texts for part in ("--signature", text)]
    about = compile_kernel(tmp_path, "scale", *options)
    library = Library(tmp_path, about)
    x, out = np.arange(100, dtype=np.float32), np.zeros(50, np.float32)
    run = {"x_ptr": x, "out_ptr": out, "n": 50}
    for stride, factor, status in ((2, 0.1, 0), (1, 3.0, 0), (1, 0.1, 0), (2, 3.0, 2)):
        out[:] = -1
        assert library.call((1, 1, 1), **run, stride=stride, factor=factor) == status
        expected = x[::stride][:50] * np.float32(factor) if status == 0 else np.full(50, -1)
        np.testing.assert_array_equal(out, expected)


# -- other machines --------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("target", "magic", "machine"),
    [
        ("x86-64-v3", b"\x7fELF", "x86_64"),
        ("neoverse-v1", b"\x7fELF", "aarch64"),
        ("apple-m1", b"\xcf\xfa\xed\xfe", "arm64"),
    ],
)
def test_objects_for_other_machines(
    tmp_path: Path, target: str, magic: bytes, machine: str
) -> None:
    signature = "*i32,i1,i32,BLOCK=4"
    options = ("--target", target, "--debug", "--signature", signature)
    about = compile_kernel(tmp_path, "checked", *options)
    assert (tmp_path / "checked.o").read_bytes().startswith(magic)
    assert about["target"]["triple"].startswith(machine)
    assert about["variants"][0]["asserts"][0]["message"] == "x must be positive"


def test_ptx_for_a_gpu(tmp_path: Path) -> None:
    signature = "*fp32,*fp32,i32,i32,0.5,BLOCK=256"
    options = ("--target", "sm_90a", "--num-warps", "2", "--signature", signature)
    about = compile_kernel(tmp_path, "scale", *options)
    (variant,) = about["variants"]
    ptx = (tmp_path / about["files"]["ptx"]["scale_v0"]).read_text()
    assert ".target sm_90a" in ptx
    assert f".visible .entry {variant['symbol']}(" in ptx
    assert (variant["num_warps"], variant["threads"], variant["shared_bytes"]) == (2, 64, 0)
    assert variant["parameters"] == [
        {"name": "x_ptr", "bytes": 8, "offset": 0},
        {"name": "out_ptr", "bytes": 8, "offset": 8},
        {"name": "n", "bytes": 4, "offset": 16},
        {"name": "stride", "bytes": 4, "offset": 20},
    ]
    assert about["constants"] == {"factor": 0.5, "BLOCK": 256}


# -- what is refused -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--signature", "*fp32,*fp33"], 2, "    *fp32,*fp33\n          ^^^^^\n"),
        (["--signature", "*fp32,n=i32"], 2, "does not say what out_ptr, stride, factor, BLOCK are"),
        ([], 2, "remedy:   correct what is guessed in --signature 'x_ptr=*fp32, out_ptr=*fp32,"),
        (["--target", "z80"], 1, "unknown machine 'z80'"),
        (["--target", "sm_90a", "--shared"], 2, "--shared is for CPUs"),
        (["--target", "sm_20"], 1, "unknown GPU architecture 'sm_20'"),
        (["--name", "2scale"], 2, "`2scale` cannot name a function in C"),
        (["--num-warps", "3"], 1, "launch option num_warps cannot be 3"),
    ],
)
def test_a_wrong_command_is_explained(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    expected: str,
) -> None:
    if arguments and "--signature" not in arguments:
        arguments = [*arguments, "--signature", "*fp32,*fp32,i32,i32,fp32,BLOCK=4"]
    command = ["compile", f"{KERNELS}:scale", "--out", str(tmp_path / "out"), *arguments]
    assert main(command) == code
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ("*fp16,*fp32,i32,i32,fp32,BLOCK=4", "`x_ptr` two types"),
        ("*fp32,*fp32,i64,i32,fp32,BLOCK=4", "got:      i32 and i64"),
        ("*fp32,*fp32,i32,i32,fp32,BLOCK=8", "the constant `BLOCK` two values"),
    ],
)
def test_signatures_that_cannot_be_one_function(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], second: str, expected: str
) -> None:
    first = ["--signature", "*fp32,*fp32,i32,i32,fp32,BLOCK=4"]
    command = ["compile", f"{KERNELS}:scale", "--out", str(tmp_path), *first]
    assert main([*command, "--signature", second]) == 1
    assert expected in capsys.readouterr().err


def test_an_annotation_fixes_a_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compile", f"{KERNELS}:many_types", "--out", str(tmp_path)]
    assert main([*command, "--signature", "*fp64,i32"]) == 2
    assert "annotation of argument `a` fixes its type" in capsys.readouterr().err
