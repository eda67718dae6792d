"""The oracle's kernels on a GPU: the memory that they leave must be the interpreter's.

Where a GPU computes otherwise by design, results may be further off than a CPU's:

    / and sqrt             by the special function unit: 2 units in the last place, 1 of 16 bits
    float32 dots           in TF32 unless the kernel asks for "ieee": 10 bits of each factor
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from deuteron.errors import DeviceAssertionError
from tests.gpu.cuda_runner import CudaRunner
from tests.oracle.compare import EXACT, Tolerance, mismatch
from tests.oracle.elementwise import Recipe
from tests.oracle.kernels import Case
from tests.oracle.runners import InterpRunner
from tests.oracle.tile_kernels import asserts, prints
from tests.oracle.topics import TOPICS

APPROXIMATE_ULPS = {
    "div-fp32": 2, "div-fp16": 1, "div-bf16": 1, "sqrt-fp32": 1, "sqrt-fp16": 1, "sqrt-bf16": 1,
}  # fmt: skip
TF32 = Tolerance(absolute=3e-2, relative=3e-2)
PRINTED = re.compile(r"pid \((.*)\) idx \((.*)\) (.*) (\S+)")
# The interpreter shows the shortest text that is the float16, and printf's %f six decimals.
SHORTEST_FP16, PRINTF_F = 2.0**-10, 1e-6


@cache
def recipes(topic: str) -> Mapping[str, Recipe]:
    """The cases of a topic, by name."""
    return {r.id: r for r in TOPICS[topic]()}


def check_recipe(recipe: Recipe, runner: CudaRunner) -> None:
    """Compare a case with the interpreter."""
    check_case(recipe.make(), runner)


def check_case(case: Case, runner: CudaRunner) -> None:
    """Fail with the places where a case leaves other memory than the interpreter."""
    oracle = InterpRunner()
    expected, got = case.fresh_args(), case.fresh_args()
    oracle.run(case.function, expected, case.grid)
    runner.run(case.function, got, case.grid)
    pairs = zip(case.arrays(expected), case.arrays(got), strict=True)
    failures = [
        f"{case.labels.get(name, name)}: {text}"
        for (name, dtype, want), (_, _, have) in pairs
        if (text := mismatch(want, have, dtype, tolerance_of(case, name)))
    ]
    assert not failures, case.id + "\n" + "\n".join(failures)
    assert same_lines(printed(runner.printed), printed(oracle.printed))


def tolerance_of(case: Case, parameter: str) -> Tolerance:
    """How far a GPU's result may be off."""
    own = case.tolerance.get(parameter, EXACT)
    if ulps := APPROXIMATE_ULPS.get(case.labels.get(parameter, "")):
        return Tolerance(ulps, own.absolute, own.relative, own.zero_sign)
    if case.id.startswith("attention"):
        return TF32
    return own


Place = tuple[str, ...]


def same_lines(got: Mapping[Place, str], expected: Mapping[Place, str]) -> bool:
    """Whether the same is shown at the same places, as far as both texts of a float go."""
    return got.keys() == expected.keys() and all(
        _same_value(shown, expected[place]) for place, shown in got.items()
    )


def _same_value(left: str, right: str) -> bool:
    if left.startswith("0x") or right.startswith("0x"):
        return left == right
    return math.isclose(float(left), float(right), rel_tol=SHORTEST_FP16, abs_tol=PRINTF_F)


def printed(lines: Sequence[str]) -> dict[Place, str]:
    """What is shown, by program, index and label; the order of lines is nobody's promise."""
    found = {line: PRINTED.fullmatch(line) for line in lines}
    strange = [line for line, match in found.items() if match is None]
    assert not strange, strange
    return {tuple(m.groups()[:-1]): m.groups()[-1] for m in found.values() if m}


# -- prints and asserts ---------------------------------------------------------------------------
def check_prints(runner: CudaRunner) -> None:
    """Every element is printed once."""
    case = prints((2, 4))
    check_case(case, runner)
    elements = 2 * 4
    assert len(runner.printed) == case.grid[0] * (2 + 2 * elements)


def check_asserts_that_hold(runner: CudaRunner) -> None:
    check_case(asserts(64, masked=False), runner)
    check_case(asserts(56, masked=True), runner)


def check_asserts_that_fail(runner: CudaRunner) -> None:
    for masked in (False, True):
        case = asserts(40, masked=masked)
        message = ""
        try:
            runner.run(case.function, case.fresh_args(), case.grid)
        except DeviceAssertionError as error:
            message = str(error)
        assert "offset below the limit" in message


DEBUGGING: Mapping[str, Callable[[CudaRunner], None]] = {
    "prints": check_prints,
    "asserts_that_hold": check_asserts_that_hold,
    "asserts_that_fail": check_asserts_that_fail,
}
