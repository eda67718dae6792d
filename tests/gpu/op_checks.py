"""The oracle's kernels on a GPU: the memory that they leave must be the interpreter's.

Where a GPU computes otherwise by design, results may be further off than a CPU's:

    exp, exp2 of float32   by the special function unit: 4 units in the last place
    float32 dots           in TF32 unless the kernel asks for "ieee": 10 bits of each factor
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from deuteron.errors import DeviceAssertionError
from tests.gpu.cuda_runner import CudaRunner
from tests.oracle.compare import EXACT, Tolerance, mismatch
from tests.oracle.elementwise import Recipe
from tests.oracle.kernels import Case
from tests.oracle.runners import InterpRunner
from tests.oracle.tile_kernels import asserts, prints
from tests.oracle.topics import TOPICS, fits_gpus

APPROXIMATE = ("exp-fp32", "exp2-fp32")
APPROXIMATE_ULPS = 4
TF32 = Tolerance(absolute=3e-2, relative=3e-2)
PRINTED = re.compile(r"pid \((.*)\) idx \((.*)\) (.*) (\S+)")
PRINTED_DIGITS = 6  # as printf's %f has them


@cache
def recipes(topic: str) -> Mapping[str, Recipe]:
    """The cases of a topic that a GPU can hold, by name."""
    return {r.id: r for r in TOPICS[topic]() if fits_gpus(r.make().function)}


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
    assert dict(printed(runner.printed)) == dict(printed(oracle.printed))


def tolerance_of(case: Case, parameter: str) -> Tolerance:
    """How far a GPU's result may be off."""
    own = case.tolerance.get(parameter, EXACT)
    if case.labels.get(parameter) in APPROXIMATE:
        return Tolerance(APPROXIMATE_ULPS, own.absolute, own.relative, own.zero_sign)
    if case.id.startswith("attention"):
        return TF32
    return own


def _rounded(value: float) -> float:
    """To what printf's %f and the shortest text of a float have in common."""
    return float(f"{round(value, PRINTED_DIGITS):.{PRINTED_DIGITS}g}")


def printed(lines: list[str]) -> Iterator[tuple[tuple[str, ...], str | float]]:
    """Program, index and label of each line with what it shows, whose order is nobody's promise."""
    for line in lines:
        found = PRINTED.fullmatch(line)
        assert found, f"an unexpected line: {line!r}"
        *place, value = found.groups()
        shown = value if value.startswith("0x") else _rounded(float(value))
        yield tuple(place), shown


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
