"""Random programs, compiled against the interpreter."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, note, settings

from deuteron.ir import format_function
from tests.oracle.conftest import assert_same
from tests.oracle.kernels import Case
from tests.oracle.random_programs import programs
from tests.oracle.runners import CpuRunner


@settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(programs())
def test_random_program(case: Case) -> None:
    note(format_function(case.function))
    assert_same(case, CpuRunner())
