"""Code for this machine and others calls nothing that is not there, and is right.

Every op, dtype and plan of a dot is compiled for each machine; the undefined symbols of the object
are what a linker would have to find.  A call for an element would also cost more than all else.
Code for other CPUs and systems is run where this machine can stand in for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from deuteron import dtypes as T
from deuteron.backends.cpu import native
from deuteron.backends.cpu.compiler import compile_function
from deuteron.backends.cpu.sleep_ir import has_futex
from deuteron.backends.cpu.target import CpuTarget, host_target, machine_target
from deuteron.backends.llvm.compile import Machine, compile_object
from deuteron.dtypes import DType
from deuteron.ir import OPS, Builder, Function, Op, Pointer, Type, Value, walk
from tests.oracle.conftest import assert_same
from tests.oracle.elementwise import Recipe, elementwise_recipes
from tests.oracle.memory_kernels import atomic_recipes, memory_recipes
from tests.oracle.object_symbols import undefined_symbols
from tests.oracle.runners import CpuRunner
from tests.oracle.structures import control_recipes, fold_recipes
from tests.oracle.tile_kernels import asserts, matmul, prints, product_recipes, shape_recipes
from tests.oracle.windows_code import windows_target

MACHINES = ("host", "x86-64-v3", "x86-64-v4", "aarch64", "apple-m1", "windows-x86-64")
BLOCK = 256


def target_of(machine: str) -> CpuTarget:
    return host_target() if machine == "host" else machine_target(machine)


def outside(names: set[str], target: CpuTarget) -> set[str]:
    """Those of an object's undefined symbols, as C spells them, that no system provides.

    Provided are C's functions for blocks of memory, and on Windows the probe of large stack frames
    and the mark of a program that uses floats.
    """
    if "apple" in target.triple:
        return {name.removeprefix("_") for name in names} - {"memcpy", "memset", "bzero"}
    if "windows" in target.triple:
        names = names - {"__chkstk", "_fltused"}
    return names - {"memcpy", "memset"}


def undefined(function: Function, target: CpuTarget) -> set[str]:
    """What a kernel's object needs and no system provides."""
    return outside(undefined_symbols(compile_function(function, target).obj), target)


def sample(recipes: Sequence[Recipe], step: int) -> list[Recipe]:
    """One in `step` of the recipes."""
    return list(recipes[::step])


def every_elementwise_op() -> list[Recipe]:
    """Elementwise ops by dtype, on a masked tile of two axes: the code that varies most."""
    return [recipe for recipe in elementwise_recipes() if recipe.id.endswith("8x32-masked")]


FAMILIES: dict[str, Callable[[], list[Recipe]]] = {
    "elementwise": every_elementwise_op,
    "control": lambda: sample(control_recipes(), 3),
    "folds": lambda: sample(fold_recipes(), 2),
    "memory": lambda: sample(memory_recipes(), 2),
    "atomics": lambda: sample(atomic_recipes(), 2),
    "shapes": lambda: sample(shape_recipes(), 2),
    "products": lambda: sample(product_recipes(), 2),
}


def by_places(dtype: DType) -> Function:
    """A kernel that gathers by any indices and by neighbouring ones, and counts the indices."""
    b = Builder()
    types = [Type(Pointer(dtype)), Type(Pointer(T.int32)), Type(Pointer(T.int32))]
    x, index, out = b.open(types, ["x", "index", "out"])
    lanes = b.op("arange", start=0, end=BLOCK)

    def place(pointer: Value) -> Value:
        return b.op("addptr", b.op("splat", pointer, shape=(BLOCK,)), lanes)

    source, places = b.op("load", place(x)), b.op("load", place(index))
    first = b.op("load", index)
    b.ops("assume", b.op("lt", first, b.const(BLOCK)))
    run = b.op("add", lanes, b.op("splat", first, shape=(BLOCK,)))
    for chosen in (places, run):
        b.ops("store", place(x), b.op("gather", source, chosen, axis=0))
    b.ops("store", place(out), b.op("histogram", places, bins=BLOCK))
    return b.function("kernel", b.close())


# -- what the code calls -----------------------------------------------------------------------
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_call_is_unresolved(family: str, machine: str) -> None:
    target = target_of(machine)
    found = {r.id: undefined(r.make().function, target) for r in FAMILIES[family]()}
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize("machine", MACHINES)
def test_gathers_and_histograms_call_nothing(machine: str) -> None:
    target = target_of(machine)
    for dtype in (T.float16, T.bfloat16, T.float32, T.float64, T.int1, T.int8, T.float8e5):
        assert undefined(by_places(dtype), target) == set(), dtype


@pytest.mark.parametrize("machine", MACHINES)
def test_prints_and_asserts_call_what_is_provided(machine: str) -> None:
    target = target_of(machine)
    assert undefined(prints().function, target) == {"deuteron_print"}
    assert undefined(asserts(64, masked=True).function, target) == set()


def test_every_op_is_among_the_kernels() -> None:
    kernels = [recipe.make().function for family in FAMILIES.values() for recipe in family()]
    kernels += [by_places(T.float32), prints().function, asserts(64, masked=True).function]
    names = {node.name for k in kernels for node in walk(k.body) if isinstance(node, Op)}
    # A CPU's kernel never has the one, and does nothing for the other.
    assert names == set(OPS) - {"inline_asm", "barrier"}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_launch_path_calls_python_and_the_system_only(machine: str) -> None:
    target = target_of(machine)
    made_for = Machine(target.triple, target.cpu, target.feature_string)
    futex = has_futex(made_for.architecture, "linux" if "linux" in target.triple else "other")
    obj = compile_object(native.launch_path_ir(made_for.architecture, futex), made_for).obj
    system = {"malloc", "free", *(("syscall", "clock_gettime") if futex else ())}
    assert outside(undefined_symbols(obj), target) - native.python_names() <= system


# -- what it computes --------------------------------------------------------------------------
STAND_INS: dict[str, Callable[[], CpuTarget]] = {
    "x86-64-v3": lambda: machine_target("x86-64-v3"),
    "windows-x86-64": windows_target,
}


@pytest.fixture(scope="module", params=STAND_INS)
def elsewhere(request: pytest.FixtureRequest) -> CpuRunner:
    """Runs kernels compiled for another machine that this one can stand in for."""
    target, host = STAND_INS[request.param](), host_target()
    if "linux" not in host.triple or not target.features <= host.features:
        pytest.skip(f"this machine cannot run code for {request.param}")
    return CpuRunner(target=target)


@pytest.mark.parametrize("family", FAMILIES)
def test_code_for_another_machine_is_right(family: str, elsewhere: CpuRunner) -> None:
    for recipe in sample(FAMILIES[family](), 3):
        assert_same(recipe.make(), elsewhere)


def test_products_with_edges_are_right_elsewhere(elsewhere: CpuRunner) -> None:
    assert_same(matmul(T.float32, 70, 90, 40, (64, 64, 32)), elsewhere)
