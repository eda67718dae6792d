"""All recipes by topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.oracle.elementwise import Recipe, elementwise_recipes
from tests.oracle.memory_kernels import atomic_recipes, memory_recipes
from tests.oracle.structures import control_recipes, fold_recipes
from tests.oracle.tile_kernels import product_recipes, shape_recipes

TOPICS: Mapping[str, Callable[[], list[Recipe]]] = {
    "elementwise": elementwise_recipes,
    "control": control_recipes,
    "fold": fold_recipes,
    "shape": shape_recipes,
    "memory": memory_recipes,
    "atomic": atomic_recipes,
    "product": product_recipes,
}
