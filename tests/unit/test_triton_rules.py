"""What Triton refuses and reports beside values, under its names and words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deuteron as dn
import deuteron.language as tl
from deuteron.lang.must_use import must_use_result
from deuteron.runtime import knobs
from deuteron.runtime.ast_source import ASTSource, compile


def refused(kernel: Any, **signature: str) -> dn.CompilationError:
    with pytest.raises(dn.CompilationError) as caught:
        compile(ASTSource(kernel, signature))
    return caught.value


# -- words that Triton gives as the cause ------------------------------------------------------
@dn.jit
def axis_too_low():
    tl.expand_dims(tl.arange(0, 4), -3)


@dn.jit
def axis_of_a_scalar():
    tl.expand_dims(tl.sum(tl.arange(0, 4)), 1)


@dn.jit
def axis_twice():
    tl.expand_dims(tl.arange(0, 4), (0, -3))


@dn.jit
def fourth_axis_of_the_grid():
    tl.program_id(20)


@pytest.mark.parametrize(
    ("kernel", "cause"),
    [
        (axis_too_low, "invalid axis -3"),
        (axis_of_a_scalar, "invalid axis 1"),
        (axis_twice, "duplicate axes, normalized axes = [0, 0]"),
        (fourth_axis_of_the_grid, "program_id axis must be 0, 1, or 2 but got 20"),
    ],
)
def test_causes(kernel: Any, cause: str):
    assert cause in str(refused(kernel).__cause__)


@dn.jit
def narrow_blocks(x, N: tl.constexpr):
    tl.make_tensor_descriptor(x, [128, 128], [128, 1], [1, N]).load([0, 0])


@pytest.mark.parametrize(("dtype", "least"), [("i8", 16), ("fp16", 8), ("i32", 4), ("fp64", 2)])
def test_blocks_of_descriptors_have_sixteen_bytes(dtype: str, least: int):
    def source(length: int) -> ASTSource:
        return ASTSource(narrow_blocks, {"x": f"*{dtype}"}, {"N": length})

    compile(source(least))
    with pytest.raises(dn.CompilationError) as caught:
        compile(source(least // 2))
    assert "must have at least 16 bytes" in str(caught.value.__cause__)


@dn.jit
def greatest_by_blocks(x):
    blocks = tl.make_tensor_descriptor(x, [128], [1], [16])
    blocks.atomic_max([0], blocks.load([0]))


def test_descriptors_combine_what_a_gpu_combines():
    compile(ASTSource(greatest_by_blocks, {"x": "*u32"}))
    message = refused(greatest_by_blocks, x="*fp32").error_message
    assert message == "atomic_max of a descriptor is not defined on float32"


@dn.jit
def scales_of_two_lengths():
    lhs, rhs = tl.full((32, 64), 0, tl.uint8), tl.full((64, 32), 0, tl.uint8)
    scale, other = tl.full((32, 4), 0, tl.uint8), tl.full((32, 2), 0, tl.uint8)
    tl.dot_scaled(lhs, scale, "e5m2", rhs, other, "e5m2")


def test_both_sides_of_dot_scaled_have_groups_of_one_length():
    cause = "Operands must have the same scale factor; (lhs: 16 vs rhs: 32)"
    assert str(refused(scales_of_two_lengths).__cause__) == cause


# -- seeds, specialisation ---------------------------------------------------------------------
@dn.jit
def random_number(out, seed):
    tl.store(out + tl.arange(0, 1), tl.rand(seed, tl.arange(0, 1)))


@pytest.mark.parametrize("seed", ["fp32", "*i32"])
def test_seeds_are_integers(seed: str):
    assert "seed" in refused(random_number, out="*fp32", seed=seed).error_message


@dn.jit(do_not_specialize=["N"])
def constant_that_must_not_be_one(N: tl.constexpr):
    pass


def test_a_constexpr_is_always_specialised():
    message = "N marked as constexpr and listed in do_not_specialize"
    with pytest.raises(dn.CompilationError, match=message):
        constant_that_must_not_be_one[(1,)](5)


# -- results that nobody uses ------------------------------------------------------------------
@must_use_result("It has no effect.")
@dn.jit
def cube(x):
    return x * x * x


@dn.aggregate
class Square:
    x: tl.tensor

    @must_use_result
    @dn.jit
    def area(self):
        return self.x * self.x

    @must_use_result
    @dn.constexpr_function
    def power(self):
        return 2


@dn.jit
def drops_a_cube(x):
    cube(x)


@dn.jit
def drops_an_area(x):
    square = Square(x)
    square.area()


@dn.jit
def drops_a_power(x):
    square = Square(x)
    square.power()


@dn.jit
def uses_all(x):
    square = Square(cube(x))
    y = square.area()
    tl.static_assert(square.power() == 2)
    print(y)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (drops_a_cube, "The result of cube is not being used. It has no effect."),
        (drops_an_area, "The result of square.area is not being used"),
        (drops_a_power, "The result of square.power is not being used"),
    ],
)
def test_results_that_must_be_used(kernel: Any, message: str):
    assert refused(kernel, x="i32").error_message == message


def test_results_that_are_used():
    compile(ASTSource(uses_all, {"x": "i32"}))


# -- warnings, hooks, options ------------------------------------------------------------------
@dn.jit
def chooses_by_numbers():
    tl.where(tl.full((4,), 0, tl.uint32), 1.0, 2.0)


def test_where_warns_of_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DEUTERON_CACHE_DIR", str(tmp_path))
    with pytest.warns(UserWarning, match="condition of uint32"):
        compile(ASTSource(chooses_by_numbers, {}))


@dn.jit
def nothing(x):
    pass


def test_hooks_around_loading():
    nothing.device_caches[0][0].clear()
    seen: list[tuple[str, tuple[Any, ...]]] = []
    with knobs.runtime.scope():
        knobs.runtime.kernel_load_start_hook.add(lambda *told: seen.append(("start", told)))
        knobs.runtime.kernel_load_end_hook.add(lambda *told: seen.append(("end", told)))
        nothing[(1,)](6)
        nothing[(1,)](6)
    (start, first), (end, second) = seen
    assert (start, end) == ("start", "end")
    assert first == second
    assert first[2] == "nothing"


def test_hooks_are_told_of_libraries():
    nothing.device_caches[0][0].clear()
    told: list[Any] = []
    with knobs.runtime.scope():
        knobs.runtime.jit_post_compile_hook = lambda **seen: told.append(seen["compile"])
        for libraries in ({}, {}, {"libdevice": "a.bc"}):
            nothing[(1,)](6, extern_libs=libraries)
    assert [each["extern_libs"] for each in told] == [(), (("libdevice", "a.bc"),)]


# -- names -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("dtype", "numpy"), [(tl.float16, np.float16), (tl.float32, np.float32), (tl.float64, float)]
)
def test_the_bias_of_exponents(dtype: Any, numpy: Any):
    assert dtype.exponent_bias == 1 - np.finfo(numpy).minexp
