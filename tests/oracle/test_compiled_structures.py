"""Control flow, folds, shapes, products, memory and atomics, compiled against the interpreter."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deuteron.errors import DeviceAssertionError
from tests.oracle.elementwise import Recipe
from tests.oracle.kernels import Case
from tests.oracle.memory_kernels import atomic_recipes, memory_recipes
from tests.oracle.runners import CpuRunner, InterpRunner
from tests.oracle.structures import control_recipes, fold_recipes
from tests.oracle.tile_kernels import asserts, prints, product_recipes, shape_recipes

Check = Callable[[Case], None]


def name_of(recipe: Recipe) -> str:
    return recipe.id


@pytest.mark.parametrize("recipe", control_recipes(), ids=name_of)
def test_control_flow(recipe: Recipe, check: Check) -> None:
    check(recipe.make())


@pytest.mark.parametrize("recipe", fold_recipes(), ids=name_of)
def test_fold(recipe: Recipe, check: Check) -> None:
    check(recipe.make())


@pytest.mark.parametrize("recipe", shape_recipes(), ids=name_of)
def test_shape(recipe: Recipe, check: Check) -> None:
    check(recipe.make())


@pytest.mark.parametrize("recipe", product_recipes(), ids=name_of)
def test_product(recipe: Recipe, check: Check) -> None:
    check(recipe.make())


@pytest.mark.parametrize("recipe", memory_recipes(), ids=name_of)
def test_memory(recipe: Recipe, check: Check) -> None:
    check(recipe.make())


@pytest.mark.parametrize("recipe", atomic_recipes(), ids=name_of)
def test_atomic(recipe: Recipe, check: Check) -> None:
    check(recipe.make())


def test_print(check: Check) -> None:
    check(prints())


@pytest.mark.parametrize("masked", [False, True])
def test_assert_that_holds(masked: bool, check: Check) -> None:
    check(asserts(64, masked=masked))


def test_assert_that_holds_only_under_its_mask(check: Check) -> None:
    check(asserts(56, masked=True))


@pytest.mark.parametrize("masked", [False, True])
def test_assert_that_fails(masked: bool, compiled: CpuRunner) -> None:
    case = asserts(40, masked=masked)
    for runner in (InterpRunner(), compiled):
        args = case.fresh_args()
        with pytest.raises(DeviceAssertionError, match="offset below the limit"):
            runner.run(case.function, args, case.grid)
