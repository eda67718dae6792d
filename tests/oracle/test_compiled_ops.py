"""Elementwise ops, compiled against the interpreter: each op × dtype, whole tiles and masked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deuteron.ir import OPS
from tests.oracle.elementwise import Recipe, elementwise_recipes
from tests.oracle.kernels import Case

RECIPES = elementwise_recipes()
ON_POINTERS = {"ptr_to_int", "int_to_ptr", "addptr"}  # in `memory_kernels.py`


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: r.id)
def test_elementwise(recipe: Recipe, check: Callable[[Case], None]) -> None:
    check(recipe.make())


def test_every_elementwise_op_is_here() -> None:
    names = {label.split("-")[0] for r in RECIPES for label in r.make().labels.values()}
    assert names == {n for n, row in OPS.items() if row.elementwise} - ON_POINTERS
