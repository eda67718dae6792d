"""Runs a function of the tile IR on NumPy, program after program: the oracle of every backend.

Slow and plain on purpose.  Control flow is here, ops are in `ops.py`, folds in `fold.py`; memory
is reached through a `Memory`, which is where sanitizers step in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never, cast

import numpy as np

from deuteron.backends.interp.fold import Combine, fold, prefix_fold
from deuteron.backends.interp.memory import CheckedMemory, Memory, RawMemory, Region
from deuteron.backends.interp.ops import RULES, Program
from deuteron.backends.interp.values import Array, constant
from deuteron.errors import LaunchError
from deuteron.ir import Block, For, Function, If, Node, Op, Reduce, Scan, Value, While


def run(
    function: Function,
    args: Sequence[object],
    grid: tuple[int, int, int],
    *,
    checked: bool = False,
    memory: Memory | None = None,
) -> None:
    """Execute every program of the grid in order, the first axis fastest.

    `args` has one entry a parameter: for a pointer a NumPy array (the address of its first element,
    whatever its strides) or an integer address, for a number a Python or NumPy number.  With
    `checked`, touching memory outside the given arrays raises OutOfBoundsError; `memory` puts
    another `Memory` in the place of the process's own.  Raises LaunchError for arguments that do
    not fit and DeviceAssertionError when a `device_assert` does not hold.
    """
    if len(args) != len(function.params):
        expected = len(function.params)
        raise LaunchError(f"{function.name} takes {expected} arguments, not {len(args)}")
    values = [_argument(p, a) for p, a in zip(function.params, args, strict=True)]
    if memory is None:
        memory = _checked_memory(function, args) if checked else RawMemory()
    with np.errstate(all="ignore"):
        for linear in range(grid[0] * grid[1] * grid[2]):
            rest, first = divmod(linear, grid[0])
            third, second = divmod(rest, grid[1])
            program = Program((first, second, third), grid, memory)
            _Execution(program).block(function.body, values)


def _checked_memory(function: Function, args: Sequence[object]) -> CheckedMemory:
    regions: list[Region] = []
    for parameter, arg in zip(function.params, args, strict=True):
        if isinstance(arg, np.ndarray):
            regions.append(Region.of(parameter.name, cast(Array, arg)))
    return CheckedMemory(regions)


def _argument(parameter: Value, arg: object) -> Array:
    """An argument as the held scalar that the parameter stands for."""
    if parameter.type.is_pointer:
        if isinstance(arg, np.ndarray):
            return np.array(arg.ctypes.data, np.int64)
        if isinstance(arg, int):
            return np.array(arg, np.int64)
    elif isinstance(arg, int | float):
        return constant(arg, parameter.type.dtype)
    elif isinstance(arg, np.generic):
        return constant(cast(float, arg.item()), parameter.type.dtype)
    raise LaunchError(
        f"argument `{parameter.name}`: expected {_wanted(parameter)}, got {type(arg).__name__}"
    )


def _wanted(parameter: Value) -> str:
    if parameter.type.is_pointer:
        return f"a NumPy array or an address for {parameter.type}"
    return f"a number for {parameter.type}"


class _Execution:
    """One program being run: `values` holds what has been computed so far."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.values: dict[Value, Array] = {}

    def get(self, values: Sequence[Value]) -> list[Array]:
        return [self.values[v] for v in values]

    def block(self, block: Block, args: Sequence[Array]) -> list[Array]:
        """Run a block on its arguments; returns what it yields."""
        self.values.update(zip(block.args, args, strict=True))
        for node in block.nodes:
            results = self.node(node)
            self.values.update(zip(node.results, results, strict=True))
        return self.get(block.yields)

    def node(self, node: Node) -> Sequence[Array]:
        match node:
            case Op():
                return RULES[node.name](self.program, node, self.get(node.operands))
            case For():
                return self.for_(node)
            case While():
                return self.while_(node)
            case If():
                taken = node.then if self.values[node.condition] else node.otherwise
                return self.block(taken, ())
            case Reduce():
                return fold(self.get(node.operands), node.axis, self.combiner(node))
            case Scan():
                operands = self.get(node.operands)
                return prefix_fold(operands, node.axis, self.combiner(node), reverse=node.reverse)
            case _:
                assert_never(node)

    def for_(self, node: For) -> Sequence[Array]:
        bounds = self.get((node.lower, node.upper, node.step))
        lower, upper, step = (int(bound) for bound in bounds)
        carried = self.get(node.inits)
        for place in range(lower, upper, step):
            induction = np.array(place, bounds[0].dtype)
            carried = self.block(node.body, [induction, *carried])
        return carried

    def while_(self, node: While) -> Sequence[Array]:
        carried = self.get(node.inits)
        while self.block(node.condition, carried)[0]:
            carried = self.block(node.body, carried)
        return carried

    def combiner(self, node: Reduce | Scan) -> Combine:
        def combine(left: Sequence[Array], right: Sequence[Array]) -> Sequence[Array]:
            return self.block(node.combine, [*left, *right])

        return combine
