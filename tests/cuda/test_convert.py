"""Layout conversions: every plan against the definition, and the code against the plan."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deuteron.backends.cuda import convert
from deuteron.backends.cuda.convert import Plan, Registers
from deuteron.backends.cuda.convert_shared import Shared, plan_shared
from deuteron.backends.cuda.convert_shuffles import Shuffles, plan_shuffles
from deuteron.backends.cuda.cta import Cta
from deuteron.backends.cuda.layout import (
    Layout,
    blocked,
    mma_accumulator,
    mma_operand,
    replicated,
    wgmma_accumulator,
    wgmma_operand_a,
)
from deuteron.backends.cuda.target import CudaTarget
from deuteron.backends.llvm.builder import PTR, LType, Val
from deuteron.backends.llvm.compile import assembly
from tests.cuda.ptxas import accept
from tests.cuda.random_layouts import MAX_BITS, pairs_of_layouts
from tests.cuda.simt import run_kernel
from tests.cuda.simt_memory import GlobalMemory
from tests.cuda.simt_types import width
from tests.cuda.simulator import elements, run, trips

Pair = tuple[Layout, Layout]

WIDTHS = st.sampled_from([8, 16, 32, 64])
# The tiles of real kernels, with the width of their elements.
TYPICAL: dict[str, tuple[Layout, Layout, int]] = {
    "transposed f32": (blocked((128, 64), 4, (1, 0), 4), blocked((128, 64), 4, (0, 1), 4), 32),
    "transposed f16": (blocked((128, 64), 4, (1, 0), 8), blocked((128, 64), 4, (0, 1), 8), 16),
    "transposed i8": (blocked((128, 64), 4, (1, 0), 16), blocked((128, 64), 4, (0, 1), 16), 8),
    "transposed f64": (blocked((64, 64), 4, (1, 0), 2), blocked((64, 64), 4, (0, 1), 2), 64),
    "mma result f16": (mma_accumulator((128, 128), 8, 2, 4), blocked((128, 128), 8, (1, 0), 8), 16),
    "mma result f32": (mma_accumulator((128, 128), 8, 2, 4), blocked((128, 128), 8, (1, 0), 4), 32),
    "wgmma result": (wgmma_accumulator((128, 128), 8, 128), blocked((128, 128), 8, (1, 0), 8), 16),
    "mma a": (blocked((128, 32), 4, (1, 0), 8), mma_operand((128, 32), 0, 16, 4, 2, 2), 16),
    "mma b": (blocked((32, 128), 4, (1, 0), 8), mma_operand((32, 128), 1, 16, 4, 2, 2), 16),
    "other vectors": (blocked((4096,), 4, (0,), 8), blocked((4096,), 4, (0,), 4), 16),
    "two slices": (
        mma_accumulator((128, 64), 4, 4, 1).slice(1),
        blocked((128, 64), 4, (1, 0), 4).slice(1),
        32,
    ),
}


def _assert_converts(plan: Plan, source: Layout, target: Layout) -> None:
    np.testing.assert_array_equal(run(plan, elements(source)), elements(target))


# -- plans ----------------------------------------------------------------------------------
@settings(max_examples=200, deadline=None)
@given(pairs_of_layouts(), WIDTHS)
def test_plan_converts_any_layout_to_any(pair: Pair, bits: int) -> None:
    _assert_converts(convert.plan(*pair, bits), *pair)


@settings(max_examples=100, deadline=None)
@given(pairs_of_layouts(), WIDTHS)
def test_shuffles_where_they_can_be(pair: Pair, bits: int) -> None:
    plan = plan_shuffles(*pair, bits)
    if plan is not None:
        _assert_converts(plan, *pair)


@settings(max_examples=100, deadline=None)
@given(pairs_of_layouts(), WIDTHS, st.sampled_from([64, 1024, 1 << 16]))
def test_shared_memory_always(pair: Pair, bits: int, limit: int) -> None:
    plan = plan_shared(*pair, bits, limit)
    _assert_converts(plan, *pair)
    assert plan.size <= pair[0].numel * bits // 8
    for side, storing in ((plan.stores, True), (plan.loads, False)):
        assert side.trips == trips(plan, side, storing=storing)


@pytest.mark.parametrize("name", TYPICAL)
def test_typical_conversions_have_no_conflicts(name: str) -> None:
    source, target, bits = TYPICAL[name]
    plan = plan_shared(source, target, bits)
    _assert_converts(plan, source, target)
    for side, storing in ((plan.stores, True), (plan.loads, False)):
        ideal = 0
        for move in (move for moves in side.rounds for move in moves):
            together = min(32, 128 // (len(move.registers) * bits // 8))
            idle = plan.redundant if storing else 0
            ideal += len({lane // together for lane in range(32) if not lane & idle})
        assert trips(plan, side, storing=storing) == side.trips == ideal
    assert max(len(move.registers) for move in plan.stores.rounds[0]) > 1 or (
        max(len(move.registers) for move in plan.loads.rounds[0]) > 1
    )


def test_transposition_loads_whole_vectors() -> None:
    source, target, bits = TYPICAL["transposed f16"]
    plan = plan_shared(source, target, bits)
    widths = [
        {len(move.registers) for move in side.rounds[0]} for side in (plan.stores, plan.loads)
    ]
    assert {8} in widths


def test_result_of_mma_is_moved_in_vectors_both_ways() -> None:
    source, target, bits = TYPICAL["mma result f16"]
    plan = plan_shared(source, target, bits)
    for side in (plan.stores, plan.loads):
        assert {len(move.registers) for move in side.rounds[0]} == {8}


def test_what_is_stored_at_once_is_what_lanes_load() -> None:
    """Neighbours in memory are those of the source's registers that loading lanes differ in."""

    def layout(*bits: int) -> Layout:
        vectors = tuple((bit,) for bit in bits)
        return Layout((1024,), vectors[:3], vectors[3:8], vectors[8:])

    source = layout(128, 1, 2, 4, 8, 16, 32, 64, 256, 512)
    target = layout(256, 512, 64, 1, 2, 4, 8, 16, 32, 128)
    plan = plan_shared(source, target, 32)
    _assert_converts(plan, source, target)
    assert {len(move.registers) for move in plan.stores.rounds[0]} == {4}
    assert (plan.stores.trips, plan.loads.trips) == (8, 8)


def test_same_layout_renames_registers() -> None:
    layout = blocked((64, 64), 4, (1, 0), 4)
    assert convert.plan(layout, layout, 32) == Registers(tuple(range(32)))


def test_accumulator_to_operand_of_the_next_dot_renames_registers() -> None:
    pairs = [
        (mma_accumulator((128, 64), 4, 4, 1), mma_operand((128, 64), 0, 16, 4, 4, 1)),
        (wgmma_accumulator((128, 64), 8, 64), wgmma_operand_a((128, 64), 8, 16)),
    ]
    for source, target in pairs:
        plan = convert.plan(source, target, 16)
        assert isinstance(plan, Registers)
        _assert_converts(plan, source, target)


def test_exchange_of_one_lane_bit_shuffles_half_of_the_words() -> None:
    source = blocked((128,), 1, (0,), 4)
    target = Layout((128,), ((4,), (2,)), ((1,), *source.lane[1:]), ())
    plan = convert.plan(source, target, 32)
    assert isinstance(plan, Shuffles)
    assert (plan.by_own_lane, plan.shuffle_count) == (True, 2)
    _assert_converts(plan, source, target)


def test_narrow_elements_are_shuffled_together() -> None:
    source = blocked((256,), 1, (0,), 8)
    target = Layout((256,), ((1,), (8,), (4,)), ((2,), *source.lane[1:]), ())
    counts = {bits: plan_shuffles(source, target, bits) for bits in (16, 32, 64)}
    assert [plan.shuffle_count for plan in counts.values() if plan] == [2, 4, 8]


def test_replicated_tile_needs_selects_only() -> None:
    source, target = replicated((8,), 4), blocked((8,), 4, (0,), 1)
    plan = convert.plan(source, target, 32)
    assert isinstance(plan, Shuffles)
    assert plan.shuffle_count == 0
    _assert_converts(plan, source, target)


def test_only_representatives_store() -> None:
    source = blocked((128, 64), 4, (1, 0), 4).slice(1)
    target = blocked((128,), 4, (0,), 1)
    plan = plan_shared(source, target, 32)
    assert plan.redundant == source.replicated_lanes | source.replicated_warps << 5
    assert plan.redundant != 0
    _assert_converts(plan, source, target)


@pytest.mark.parametrize("limit", [1 << 16, 1 << 15, 1 << 14])
def test_large_tiles_go_in_rounds(limit: int) -> None:
    source, target = blocked((256, 128), 4, (1, 0), 4), blocked((256, 128), 4, (0, 1), 4)
    plan = plan_shared(source, target, 32, limit)
    _assert_converts(plan, source, target)
    # Seven bits of threads on either side: 2^14 elements at least are there at once.
    assert plan.size == 1 << 16
    assert len(plan.stores.rounds) == 2


# -- code -----------------------------------------------------------------------------------
ELEMS = ("i1", "i8", "i16", "half", "i32", "float", "i64", "double", "ptr")


ROW = 1 << MAX_BITS


def _module(plan: Plan, arch: str, elem: str, source: Layout, target: Layout) -> tuple[str, int]:
    """A kernel that converts a tile, and the shared memory it needs.

    Register i of thread t is element ROW * t + i of the array that is read or written.
    """
    memory = "i8" if elem == "i1" else elem
    cta = Cta(CudaTarget(arch), source.num_warps)
    b = cta.b
    row = b.convert("zext", b.mul(cta.thread, cta.i32(ROW)), "i64")
    start = b.gep(memory, Val("%x", PTR), row)
    size = width(memory)[0] // 8
    values: list[Val] = []
    for number in range(source.registers):
        value = b.load(LType(memory), b.gep(memory, start, number), size)
        values.append(b.convert("trunc", value, "i1") if elem == "i1" else value)
    start = b.gep(memory, Val("%y", PTR), row)
    for number, value in enumerate(convert.emit(cta, plan, values)):
        assert value.type == LType(elem)
        stored = b.convert("zext", value, "i8") if elem == "i1" else value
        b.store(stored, b.gep(memory, start, number), size)
    body = "\n".join(b.code.lines)
    declares = "\n".join(b.declares.values())
    text = (
        "@shared_memory = external addrspace(3) global [0 x i8], align 1024\n"
        f"define ptx_kernel void @kernel(ptr %x, ptr %y) {{\nentry:\n{body}\n  ret void\n}}\n"
        f"{declares}\n"
    )
    return text, cta.shared_bytes


def _assert_code_converts(plan: Plan, source: Layout, target: Layout, elem: str) -> None:
    """Run the code on bytes that tell elements apart."""
    size = max(1, width(elem)[0] // 8)
    contents = np.random.default_rng(0).integers(0, 256, (source.numel, size), np.uint8)
    contents &= 1 if elem == "i1" else 255
    threads = 32 * source.num_warps
    before, after = (np.zeros((threads, ROW, size), np.uint8) for _ in range(2))
    before[:, : source.registers] = contents[elements(source).reshape(threads, -1)]
    text, shared_bytes = _module(plan, "sm_80", elem, source, target)
    memory = GlobalMemory()
    run_kernel(
        text, (1, 1, 1), threads, shared_bytes, memory, [memory.add(before), memory.add(after)]
    )
    wanted = contents[elements(target).reshape(threads, -1)]
    np.testing.assert_array_equal(after[:, : target.registers], wanted)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pairs_of_layouts(), st.sampled_from(ELEMS), st.sampled_from(["any", "shuffles", "shared"]))
def test_code_does_what_the_plan_says(pair: Pair, elem: str, kind: str) -> None:
    bits = max(8, width(elem)[0])
    plan: Plan | None = convert.plan(*pair, bits)
    if kind == "shuffles":
        plan = plan_shuffles(*pair, bits)
    elif kind == "shared":
        plan = plan_shared(*pair, bits, 256)
    if plan is not None:
        _assert_code_converts(plan, *pair, elem)


@pytest.mark.parametrize("odd", [(3, 5, 8), (3, 5, 9)], ids=["two bits", "three bits"])
def test_code_picks_registers_by_the_parity_of_lane_bits(odd: tuple[int, int, int]) -> None:
    source = Layout((16,), ((1,),), ((2,), (4,), (8,), (0,), (0,)), ())
    target = Layout((16,), ((1,),), (*((v,) for v in odd), (0,), (0,)), ())
    plan = plan_shuffles(source, target, 32)
    assert plan is not None
    assert plan.shuffle_count == 0
    _assert_code_converts(plan, source, target, "float")


@pytest.mark.parametrize("name", TYPICAL)
def test_code_of_typical_conversions(name: str) -> None:
    source, target, bits = TYPICAL[name]
    elem = {8: "i8", 16: "half", 32: "float", 64: "double"}[bits]
    _assert_code_converts(convert.plan(source, target, bits), source, target, elem)


def _ptx(plan: Plan, arch: str, elem: str, source: Layout, target: Layout) -> str:
    text, _ = _module(plan, arch, elem, source, target)
    return assembly(text, CudaTarget(arch).machine)


@pytest.mark.parametrize("elem", ELEMS)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_ptxas_accepts_every_element_type(arch: str, elem: str) -> None:
    bits = max(8, width(elem)[0])
    source, target = blocked((32, 32), 4, (1, 0), 4), blocked((32, 32), 4, (0, 1), 2)
    accept(_ptx(plan_shared(source, target, bits), arch, elem, source, target), arch)
    source = blocked((128,), 1, (0,), 4)
    target = Layout((128,), ((4,), (2,)), ((1,), *source.lane[1:]), ())
    shuffles = plan_shuffles(source, target, bits)
    assert shuffles is not None
    accept(_ptx(shuffles, arch, elem, source, target), arch)


@pytest.mark.parametrize(
    ("name", "store", "load"),
    [
        ("mma result f16", "st.shared.v4.b32", "ld.shared.v4.b32"),
        ("transposed f32", "st.shared.b32", "ld.shared.v4.b32"),
    ],
)
def test_accesses_are_single_instructions(name: str, store: str, load: str) -> None:
    source, target, bits = TYPICAL[name]
    plan = convert.plan(source, target, bits)
    assert isinstance(plan, Shared)
    elem = "half" if bits == 16 else "float"
    ptx = _ptx(plan, "sm_90a", elem, source, target)
    assert ptx.count(store) == ptx.count("st.shared") == len(plan.stores.rounds[0])
    assert ptx.count(load) == ptx.count("ld.shared") == len(plan.loads.rounds[0])
