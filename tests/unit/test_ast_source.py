"""Compiling for types: what `ASTSource` says, and what `compile` makes of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import deuteron as dn
import deuteron.language as tl
from deuteron.errors import CompilationError, LaunchError
from deuteron.lang.target_info import GPUTarget
from deuteron.runtime.ast_source import ASTSource, compile, make_backend


@dn.jit
def scale_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr, ADD: tl.constexpr = 1):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) * factor + ADD, i < n)


SIGNATURE = {
    "x_ptr": "*fp32",
    "out_ptr": "*fp32",
    "n": "i32",
    "factor": "fp32",
    "BLOCK": "constexpr",
}


def test_a_kernel_compiled_for_types_runs_on_arrays():
    kernel = compile(ASTSource(scale_kernel, SIGNATURE, {"BLOCK": 64}))
    x = np.arange(100, dtype=np.float32)
    out = np.zeros_like(x)
    kernel[(2,)](x, out, 100, 0.5)
    np.testing.assert_array_equal(out, x / 2 + 1)


def test_constants_by_path_and_defaults_are_those_of_a_call():
    by_path = ASTSource(scale_kernel, SIGNATURE, {(4,): 64}, {(0,): [["tt.divisibility", 16]]})
    spec = compile(by_path).spec
    assert [param.value for param in spec.params if param.is_constexpr] == [64, 1]
    assert [param.divisibility for param in spec.params[:3]] == [16, 1, 1]


def test_the_kernel_is_the_one_that_a_call_finds():
    attrs = {(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]]}
    kernel = compile(ASTSource(scale_kernel, SIGNATURE, {"BLOCK": 32}, attrs))
    x = np.zeros(4096, np.float32)
    aligned = x[-x.ctypes.data % 16 // 4 :]
    assert scale_kernel[(1,)](aligned, aligned.copy(), 33, 2.5, BLOCK=32).spec == kernel.spec


def test_for_a_gpu_that_is_not_here():
    target = GPUTarget("cuda", 90, 32)
    kernel = compile(ASTSource(scale_kernel, SIGNATURE, {"BLOCK": 64}), target, {"num_warps": 2})
    assert ".target sm_90a" in str(kernel.asm["ptx"])
    assert kernel.metadata.num_warps == 2
    with pytest.raises(LaunchError):
        kernel[(1,)](np.zeros(4, np.float32), np.zeros(4, np.float32), 4, 1.0)


class Pair(NamedTuple):
    left: Any
    right: Any


@dn.jit
def pair_kernel(pair, out_ptr):
    tl.store(out_ptr, tl.load(pair.left) + pair.right)


def test_tuples():
    signature = {"pair": Pair("*i32", "constexpr"), "out_ptr": "*i32"}
    kernel = compile(ASTSource(pair_kernel, signature, {(0, 1): 5}))
    out = np.zeros(1, np.int32)
    kernel[(1,)](Pair(np.array([2], np.int32), tl.constexpr(5)), out)
    assert out[0] == 7


@pytest.mark.parametrize("text", ["fp31", "kfp32", "", "**fp32"])
def test_what_is_no_type(text):
    with pytest.raises(LaunchError, match="is no type"):
        compile(ASTSource(scale_kernel, {**SIGNATURE, "n": text}, {"BLOCK": 64}))


def test_no_code_for_other_gpus():
    with pytest.raises(LaunchError, match="no code for hip"):
        compile(ASTSource(scale_kernel, SIGNATURE, {"BLOCK": 64}), GPUTarget("hip", 0, 64))


@dn.jit
def wrong_kernel():
    missing + 1  # noqa: F821


def test_errors_are_those_of_the_front_end():
    with pytest.raises(CompilationError, match="missing"):
        compile(ASTSource(wrong_kernel, {}))


def test_overlapping_arrays_are_not_a_matter_of_types():
    """A program reads the whole tile before it writes."""
    kernel = compile(ASTSource(scale_kernel, SIGNATURE, {"BLOCK": 128}))
    x = np.arange(100, dtype=np.float32)
    kernel[(1,)](x, x[1:], 99, 2.0)
    np.testing.assert_array_equal(x, [0, *(np.arange(99) * 2 + 1)])
    same = np.arange(100, dtype=np.float32)
    kernel[(1,)](same, same, 100, 2.0)
    np.testing.assert_array_equal(same, np.arange(100) * 2 + 1)


def test_launchers_that_others_generate():
    """The call that torch's Inductor writes, with and without the constants, and hooks."""
    kernel = compile(ASTSource(scale_kernel, SIGNATURE, {"BLOCK": 64}))
    x = np.arange(100, dtype=np.float32)
    seen: list[object] = []
    for extra in ((), (64, 1)):
        out = np.zeros_like(x)
        arguments = (x, out, 100, 0.5, *extra)
        told = kernel.launch_metadata((2, 1, 1), 0, *arguments)
        fixed = (0, kernel.function, kernel.packed_metadata, told, seen.append, seen.append)
        kernel.run(2, 1, 1, *fixed, *arguments)
        np.testing.assert_array_equal(out, x / 2 + 1)
        assert seen[-2:] == [told, told]
    assert told.get()["name"] == "scale_kernel"
    assert kernel.src.fn is scale_kernel
    assert kernel.src.name == "scale_kernel"


def test_compilers_by_target():
    cpu, gpu = make_backend(GPUTarget("cpu", 0, 1)), make_backend(GPUTarget("cuda", 90, 32))
    assert cpu.hash() != gpu.hash()
    assert cpu.parse_options({"num_warps": 8, "extern_libs": {}}).num_warps == 8
    with pytest.raises(LaunchError, match="no code for hip"):
        make_backend(GPUTarget("hip", 0, 64))
