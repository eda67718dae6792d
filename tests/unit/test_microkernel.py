"""The dot microkernels against NumPy, on every instruction this machine has and at odd sizes."""

from __future__ import annotations

import ctypes
import dataclasses
import re

import numpy as np
import pytest
from dot_programs import DotProgram, runs_here
from hypothesis import given, settings
from hypothesis import strategies as st

from deuteron.backends.cpu import prefetch
from deuteron.backends.cpu.dot_plan import Compute, DotPlan, choose_block, plan_dot
from deuteron.backends.cpu.target import CpuTarget, host_target, named_target
from deuteron.backends.llvm.builder import I1, I64, PTR, Builder, LType, Val
from deuteron.backends.llvm.compile import compile_object, host_machine, load_object
from deuteron.dtypes import (
    DType,
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from deuteron.errors import InternalError, UserError

X86 = "x86_64-unknown-linux-gnu"
ARM = "aarch64-unknown-linux-gnu"
# Named CPUs imply instructions that others lack (Zen has SSE4A), so what runs here is made of the
# architecture levels and what a level lacks.
EXTRAS = {
    "v3 vnni": ("x86-64-v3", {"avxvnni"}),
    "v4 dot": ("x86-64-v4", {"avx512bf16", "avx512vnni"}),
}
CPUS = ("host", "x86-64-v2", "x86-64-v3", "v3 vnni", "x86-64-v4", "v4 dot")
SIZES = (
    (1, 1, 1),
    (1, 16, 16),
    (2, 3, 5),
    (3, 40, 7),
    (5, 17, 33),
    (7, 130, 9),
    (8, 32, 8),
    (9, 31, 64),
    (16, 16, 16),
    (33, 48, 13),
    (70, 96, 66),
)
FLOATS = (float32, float64, float16, bfloat16, float8e4nv, float8e5)
INTS = ((int8, int8), (uint8, int8), (int8, uint8), (uint8, uint8), (int16, int8), (int32, int32))


def target_of(cpu: str) -> CpuTarget:
    """The named target, or a skip when this machine cannot run it."""
    if cpu == "host":
        return host_target()
    if not host_target().is_x86:
        pytest.skip("this machine is not x86-64")
    level, extra = EXTRAS.get(cpu, (cpu, set[str]()))
    target = named_target(level)
    target = dataclasses.replace(target, features=target.features | extra)
    if not runs_here(target):
        pytest.skip(f"this machine cannot run code for {cpu}")
    return target


def random_floats(rng: np.random.Generator, dtype: DType, shape: tuple[int, int]) -> np.ndarray:
    """Values that are exact in `dtype`, as float64."""
    x = rng.standard_normal(shape)
    if dtype is float64:
        return x
    if dtype is float16:
        return x.astype(np.float16).astype(np.float64)
    mantissa = dtype.mantissa_bits
    scale = np.exp2(np.floor(np.log2(np.abs(x))) - mantissa)
    return np.round(x / scale) * scale


def in_memory(x: np.ndarray, dtype: DType) -> np.ndarray:
    """float64 values as the programs read `dtype` from memory."""
    if dtype is bfloat16:
        return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return x.astype(np.float32 if dtype.is_fp8() else dtype.name)


def check_floats(program: DotProgram, seed: int = 0) -> None:
    plan, rng = program.plan, np.random.default_rng(seed)
    a = random_floats(rng, plan.a_dtype, (plan.m, plan.k))
    b = random_floats(rng, plan.b_dtype, (plan.k, plan.n))
    c = rng.standard_normal((plan.m, plan.n)).astype(plan.acc.name)
    got = program.run(in_memory(a, plan.a_dtype), in_memory(b, plan.b_dtype), c)
    start = np.zeros_like(c) if program.zero_init else c
    expected = start + a @ b
    # Each of K additions rounds once, relative to a sum of at most |c| + |a| @ |b|.
    bound = (plan.k + 1) * np.finfo(plan.acc.name).eps * (np.abs(c) + np.abs(a) @ np.abs(b))
    assert np.all(np.abs(got - expected) <= bound)


def check_ints(program: DotProgram, seed: int = 0) -> None:
    plan, rng = program.plan, np.random.default_rng(seed)

    def draw(dtype: DType, shape: tuple[int, int]) -> np.ndarray:
        info = np.iinfo(dtype.name)
        x = rng.integers(info.min, info.max, shape, dtype.name, endpoint=True)
        x.flat[0] = info.min  # the extreme products, where saturating instructions go wrong
        return x

    a, b = draw(plan.a_dtype, (plan.m, plan.k)), draw(plan.b_dtype, (plan.k, plan.n))
    a[0], b[:, 0] = np.iinfo(a.dtype).min, np.iinfo(b.dtype).min
    c = draw(plan.acc, (plan.m, plan.n))
    got = program.run(a, b, c)
    with np.errstate(over="ignore"):
        product = a.astype(np.int64) @ b.astype(np.int64)
        expected = (product + (0 if program.zero_init else c)).astype(plan.acc.name)
    np.testing.assert_array_equal(got, expected)


def plan_for(cpu: str, dtypes: tuple[DType, DType], size: tuple[int, int, int]) -> DotPlan:
    a, b = dtypes
    acc = int32 if a.is_int() else float64 if float64 in dtypes else float32
    target = target_of(cpu)
    if float16 in dtypes and not target.has_f16c:
        pytest.skip(f"{cpu} has no conversion from half")
    return plan_dot(target, a, b, acc, *size)


@pytest.mark.parametrize("cpu", ["host", "x86-64-v3"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_float32_of_every_size(cpu: str, size: tuple[int, int, int]) -> None:
    check_floats(DotProgram(plan_for(cpu, (float32, float32), size)))


@pytest.mark.parametrize("size", [(16, 16, 32), (48, 80, 96), (64, 64, 64)], ids=str)
@pytest.mark.parametrize("zero_init", [False, True])
@pytest.mark.parametrize("by_columns", [False, True])
def test_bfloat16_on_tile_registers(
    size: tuple[int, int, int], zero_init: bool, by_columns: bool
) -> None:
    if not host_target().has_amx_bf16:
        pytest.skip("this machine has no AMX")
    plan = plan_for("host", (bfloat16, bfloat16), size)
    assert plan.compute is Compute.BF16_TILES
    check_floats(DotProgram(plan, zero_init=zero_init, by_columns=by_columns, prefetch=True))


def test_bfloat16_that_does_not_fill_tiles_is_multiplied_otherwise() -> None:
    target = named_target("sapphirerapids", X86)
    for size in ((15, 16, 32), (16, 15, 32), (16, 16, 31)):
        assert plan_dot(target, bfloat16, bfloat16, float32, *size).compute is Compute.FMA


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_float_dtype(cpu: str, dtype: DType) -> None:
    check_floats(DotProgram(plan_for(cpu, (dtype, dtype), (9, 17, 35))))


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtypes", INTS, ids=str)
def test_every_integer_dtype(cpu: str, dtypes: tuple[DType, DType]) -> None:
    check_ints(DotProgram(plan_for(cpu, dtypes, (9, 17, 35))))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [bfloat16, int8], ids=str)
def test_packed_dtypes_of_every_size(dtype: DType, size: tuple[int, int, int]) -> None:
    plan = plan_for("v4 dot", (dtype, dtype), size)
    assert plan.pack == {bfloat16: 2, int8: 4}[dtype]
    (check_ints if dtype is int8 else check_floats)(DotProgram(plan))


@pytest.mark.parametrize("cpu", ["host", "x86-64-v3", "v4 dot"])
@pytest.mark.parametrize("dtype", [float32, float64, bfloat16, int8], ids=str)
def test_b_given_by_columns(cpu: str, dtype: DType) -> None:
    plan = plan_for(cpu, (dtype, dtype), (4, 25, 19))
    (check_ints if dtype.is_int() else check_floats)(DotProgram(plan, by_columns=True))


@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
def test_b_given_by_columns_at_run_time_positions(dtype: DType) -> None:
    plan = plan_for("v4 dot", (dtype, dtype), (4, 32, 64))
    check_floats(DotProgram(plan, by_columns=True, run_time_positions=True))


@pytest.mark.parametrize("cpu", ["host", "v4 dot", "x86-64-v3"])
@pytest.mark.parametrize("by_columns", [False, True])
def test_bfloat16_as_registers_hold_it(cpu: str, by_columns: bool) -> None:
    plan = plan_for(cpu, (bfloat16, bfloat16), (6, 40, 35))
    check_floats(DotProgram(plan, widened=True, by_columns=by_columns))


@pytest.mark.parametrize("dtype", [float32, bfloat16, int8], ids=str)
def test_zero_init_does_not_read_c(dtype: DType) -> None:
    # Scratch is NaN before: reading it would show.
    program = DotProgram(plan_for("v4 dot", (dtype, dtype), (9, 33, 20)), zero_init=True)
    (check_ints if dtype is int8 else check_floats)(program)


def test_mixed_dtypes_and_accumulators() -> None:
    check_floats(DotProgram(plan_for("host", (bfloat16, float8e5), (8, 32, 16))))
    check_floats(DotProgram(plan_for("host", (float16, float32), (8, 32, 16))))
    check_ints(DotProgram(plan_dot(host_target(), int64, int32, int64, 4, 20, 9)))
    assert plan_dot(host_target(), float16, float16, float16, 8, 8, 8).acc is float32
    with pytest.raises(InternalError, match="no dot of float32"):
        plan_dot(host_target(), float32, int8, float32, 8, 8, 8)
    with pytest.raises(InternalError, match="no dot of float32"):
        plan_dot(host_target(), float32, float32, float32, 8, 8, 0)


def test_prefetch_changes_no_result() -> None:
    for size in ((64, 64, 64), (3, 20, 5)):
        plan = plan_for("host", (float32, float32), size)
        check_floats(DotProgram(plan, prefetch=True))


def test_multiplication_without_fma_rounds_twice() -> None:
    plan = plan_dot(named_target("x86-64-v2", X86), float32, float32, float32, 8, 8, 8)
    text = DotProgram(plan).text()
    assert "llvm.fma" not in text
    assert "fmul" in text


# -- which instruction, and what the code looks like -----------------------------------------
@pytest.mark.parametrize(
    ("cpu", "dtypes", "compute"),
    [
        ("znver4", (bfloat16, bfloat16), Compute.BF16_PAIRS),
        ("znver4", (float8e4nv, bfloat16), Compute.BF16_PAIRS),
        ("znver4", (bfloat16, float16), Compute.FMA),
        ("sapphirerapids", (bfloat16, bfloat16), Compute.BF16_TILES),
        ("sapphirerapids", (bfloat16, float16), Compute.FMA),
        ("x86-64-v3", (bfloat16, bfloat16), Compute.FMA),
        ("znver4", (int8, int8), Compute.I8_QUADS),
        ("znver4", (int8, uint8), Compute.I16_PAIRS),
        ("alderlake", (uint8, int8), Compute.I8_QUADS),
        ("x86-64-v3", (int8, int8), Compute.I16_PAIRS),
        ("x86-64-v3", (int16, int16), Compute.I16_PAIRS),
        ("x86-64-v3", (int32, int8), Compute.INTEGER),
    ],
    ids=str,
)
def test_instruction_chosen(cpu: str, dtypes: tuple[DType, DType], compute: Compute) -> None:
    a, b = dtypes
    acc = int32 if a.is_int() else float32
    assert plan_dot(named_target(cpu, X86), a, b, acc, 64, 64, 64).compute is compute


@pytest.mark.parametrize(
    ("cpu", "dtype", "instruction"),
    [
        ("znver4", bfloat16, r"vdpbf16ps\s.*zmm"),
        ("znver4", int8, r"vpdpbusd\s.*zmm"),
        ("znver4", uint8, r"vpdpwssd\s.*zmm"),
        ("alderlake", int8, r"vpdpbusd\s.*ymm"),
        ("x86-64-v3", int8, r"vpmaddwd\s.*ymm"),
        ("x86-64-v4", int8, r"vpmaddwd\s.*zmm"),
        ("x86-64-v4", int32, r"vpmulld\s.*zmm"),
        ("x86-64-v3", float32, r"vfmadd231ps\s.*ymm"),
        ("x86-64-v4", float32, r"vfmadd231ps\s.*zmm"),
        ("x86-64-v4", float64, r"vfmadd231pd\s.*zmm"),
        ("x86-64-v2", float32, r"mulps\s.*xmm"),
    ],
    ids=str,
)
def test_assembly_has_the_instruction_no_calls_and_no_spills(
    cpu: str, dtype: DType, instruction: str
) -> None:
    target = named_target(cpu, X86)
    acc = int32 if dtype.is_int() else float64 if dtype is float64 else float32
    program = DotProgram(plan_dot(target, dtype, dtype, acc, 64, 64, 64))
    text = program.assembly()
    assert re.search(instruction, text)
    assert not re.search(r"\bcall", text)
    assert not re.search(r"(mov[au]p|movdq[au]).*\(%rsp\)", _loop_with(text, instruction))


def _loop_with(assembly: str, instruction: str) -> str:
    """The loop body, from its label to the first jump, that has most of the instruction."""
    blocks = [re.split(r"\n\tj", block)[0] for block in re.split(r"\n\.LBB", assembly)]
    return max(blocks, key=lambda block: len(re.findall(instruction, block)))


@pytest.mark.parametrize("dtype", [float32, float64, bfloat16, float16, int8, int32], ids=str)
def test_arm_code_has_no_calls(dtype: DType) -> None:
    target = named_target("neoverse-n1", ARM)
    acc = int32 if dtype.is_int() else float64 if dtype is float64 else float32
    text = DotProgram(plan_dot(target, dtype, dtype, acc, 20, 20, 20)).assembly()
    assert re.search(r"\bfmla\b|\bmla\b", text)
    assert not re.search(r"\bbl\b", text)


# -- plans ------------------------------------------------------------------------------------
TARGETS = [named_target(cpu, X86) for cpu in ("x86-64-v2", "x86-64-v3", "x86-64-v4")]


@given(
    target=st.sampled_from([*TARGETS, named_target("generic", ARM)]),
    bits=st.sampled_from([32, 64]),
    m=st.integers(1, 300),
    n=st.integers(1, 300),
    steps=st.integers(1, 5000),
)
@settings(max_examples=200, deadline=None)
def test_register_block_fits(target: CpuTarget, bits: int, m: int, n: int, steps: int) -> None:
    rows, columns = choose_block(target, bits, (m, n), steps)
    lanes = target.lanes(bits)
    vectors, rest = divmod(columns, lanes)
    assert rest == 0
    assert 1 <= rows <= m
    assert 1 <= vectors <= -(-n // lanes)
    # Accumulators, one row of B and one broadcast element of A.
    assert rows * vectors + vectors + 1 <= target.vector_registers


def test_register_blocks_that_were_measured_to_be_best() -> None:
    assert choose_block(TARGETS[2], 32, (256, 256), 128) == (4, 64)
    assert choose_block(TARGETS[2], 32, (64, 64), 64) == (4, 64)
    assert choose_block(TARGETS[2], 32, (256, 256), 256) == (8, 32)  # a panel fills the cache
    assert choose_block(TARGETS[1], 32, (256, 256), 128) == (6, 16)


def test_rows_of_a_do_not_alias() -> None:
    for k in (64, 128, 256, 512, 1024, 4096):
        plan = plan_dot(TARGETS[2], float32, float32, float32, 64, 64, k)
        assert k <= plan.lda <= k + 16
        assert plan.lda * 4 % 64 == 0
        assert plan.lda * 4 % 2048 != 0


def test_accumulator_rows_are_contiguous_when_n_fills_panels() -> None:
    for n in (16, 32, 64, 128, 256):
        assert plan_dot(TARGETS[2], float32, float32, float32, 64, n, 64).ldc == n


@pytest.mark.parametrize(
    ("rows", "row_bytes", "units"),
    [(64, 256, 64), (64, 256, 37), (256, 512, 2048), (3, 100, 7), (128, 1024, 11), (5, 64, 1)],
)
def test_shares_of_prefetch_cover_the_tile(
    monkeypatch: pytest.MonkeyPatch, rows: int, row_bytes: int, units: int
) -> None:
    """Runs the addresses with a store in place of each prefetch."""
    byte = LType("i8")
    monkeypatch.setattr(prefetch, "_prefetch", lambda b, p, _: b.store(b.const(1, byte), p, 1))
    b, pitch = Builder(), row_bytes + 192
    tile = prefetch.PrefetchRows(Val("%tile", PTR), Val("%pitch", I64), rows, row_bytes)
    prefetch.emit_prefetch_share(b, tile, Val("%unit", I64), units)
    unwanted = dataclasses.replace(tile, pointer=Val("null", PTR), wanted=Val("false", I1))
    prefetch.emit_prefetch_share(b, unwanted, Val("%unit", I64), units)
    body = "\n".join([*b.code.lines, "  ret void"])
    text = f"define void @share(ptr %tile, i64 %pitch, i64 %unit) {{\nentry:\n{body}\n}}\n"
    address = load_object(compile_object(text, host_machine()).obj, ["share"])["share"]

    share = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
    touched = np.zeros((2 * rows + 8, pitch), np.uint8)
    for unit in range(units):
        share(touched.ctypes.data, pitch, unit)
    assert np.all(touched[:rows, 0:row_bytes:64] == 1)


# -- targets ----------------------------------------------------------------------------------
def test_target_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    v3 = named_target("x86-64-v3", X86)
    assert (v3.vector_bits, v3.vector_registers, v3.lanes(32)) == (256, 16, 8)
    assert v3.has_fma
    assert not v3.has_vnni
    arm = named_target("apple-m1", ARM)
    assert (arm.vector_bits, arm.vector_registers, arm.has_fma) == (128, 32, True)
    with pytest.raises(UserError, match=r"unknown CPU 'pentium'.*\n.*one of x86-64,"):
        named_target("pentium", X86)
    if host_target().is_x86:
        monkeypatch.setenv("DEUTERON_CPU", "x86-64-v2")
        assert host_target() == named_target("x86-64-v2")


def test_slow_bfloat16_dot_is_not_chosen_when_tiles_are_forbidden() -> None:
    intel = named_target("sapphirerapids", X86)
    forbidden = {f for f in intel.features if f.startswith("amx")}
    target = dataclasses.replace(intel, features=intel.features - forbidden)
    assert plan_dot(target, bfloat16, bfloat16, float32, 64, 64, 64).compute is Compute.FMA


def test_detected_target_names_every_feature() -> None:
    target = host_target()
    assert target.features.isdisjoint(target.disabled)
    signed = target.feature_string.split(",") if target.feature_string else []
    assert len(signed) == len(target.features) + len(target.disabled)
    assert target.key.startswith(f"{target.triple}/{target.cpu}/")
