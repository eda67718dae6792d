"""Fixtures of the oracle tests: the two runners, and the comparison of a case on both."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.oracle.compare import EXACT, mismatch
from tests.oracle.kernels import Case
from tests.oracle.runners import CpuRunner, InterpRunner


@pytest.fixture(scope="session")
def compiled() -> CpuRunner:
    """Runs kernels compiled for this CPU."""
    return CpuRunner()


@pytest.fixture
def check(compiled: CpuRunner) -> Callable[[Case], None]:
    """Run a case on the interpreter and compiled, and compare all memory afterwards."""
    return lambda case: assert_same(case, compiled)


def assert_same(case: Case, compiled: CpuRunner) -> None:
    """Fail with the places where a compiled case leaves other memory than the interpreter."""
    oracle = InterpRunner()
    expected, got = case.fresh_args(), case.fresh_args()
    oracle.run(case.function, expected, case.grid)
    compiled.run(case.function, got, case.grid)
    pairs = zip(case.arrays(expected), case.arrays(got), strict=True)
    failures = [
        f"{case.labels.get(name, name)}: {text}"
        for (name, dtype, want), (_, _, have) in pairs
        if (text := mismatch(want, have, dtype, case.tolerance.get(name, EXACT)))
    ]
    assert not failures, case.id + "\n" + "\n".join(failures)
    assert compiled.printed == oracle.printed
