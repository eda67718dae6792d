"""All recipes by topic, and which of them a GPU can hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deuteron.ir import Function, walk
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


def fits_gpus(function: Function) -> bool:
    """Whether a GPU can hold all tiles: their sizes are powers of two."""
    sizes = [n for node in walk(function.body) for v in node.results for n in v.type.shape]
    return all(size & (size - 1) == 0 for size in sizes)
