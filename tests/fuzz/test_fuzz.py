"""A bounded run of the generator, the same each time, and tests of its own machinery."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.case import ArraySpec, Bound, Case
from tests.fuzz.check import Verdict, check, difference, initial
from tests.fuzz.generate import cases
from tests.fuzz.reproducer import reproducer
from tests.fuzz.shrink import shrink
from tests.fuzz.worker import ROOT, Worker

CASES = 30  # `make fuzz` runs thousands


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    child = Worker()
    yield child
    child.close()


@settings(
    max_examples=CASES,
    deadline=None,
    derandomize=True,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
@given(cases())
def test_random_kernels(worker: Worker, case: Case) -> None:
    verdict = worker.check(case)
    assert verdict.kind == "ok", f"{verdict.kind}: {verdict.text}\n{case.source}"


# -- the machinery ------------------------------------------------------------------------------
DOUBLED = Case(
    functions=(),
    body=(
        "pid = tl.program_id(0)",
        "if pid == 0:",
        "    v1 = tl.load(x1 + tl.arange(0, 16))",
        "    v2 = v1 + 1",
        "    tl.store(out1 + tl.arange(0, 16), v1 * 2)",
        "v3 = pid * 3",
    ),
    arrays=(ArraySpec("x1", "int32", 16, "any"), ArraySpec("out1", "int32", 16)),
    grid=(2, 1, 1),
)


def test_a_right_kernel_is_ok():
    assert check(DOUBLED).kind == "ok"


def test_a_process_that_dies_is_reported(worker: Worker):
    deadly = Case(("def f():\n    pass\n\n\nimport os\nos.abort()",), DOUBLED.body, DOUBLED.arrays)
    verdict = worker.check(deadly)
    assert verdict.kind == "abort"
    assert "-6" in verdict.text
    assert worker.check(DOUBLED).kind == "ok"  # by another process


def test_wrong_results_are_told_apart_from_rounding():
    case = Case((), (), (ArraySpec("out1", "float32", 4),), bounds={"out1": Bound(ulps=1)})
    want = {"out1": initial(case.arrays[0]) + 1}
    near, far = ({"out1": want["out1"] + n * 1.2e-7} for n in (1, 3))
    assert difference(case, want, {k: v.astype("float32") for k, v in near.items()}) == ""
    assert "4 of 4 differ" in difference(
        case, want, {k: v.astype("float32") for k, v in far.items()}
    )


def test_shrinking_leaves_what_fails():
    def fails(case: Case) -> bool:
        return "v1 * 2" in case.source and check(case, gpu=False).kind == "ok"

    small = shrink(DOUBLED, fails)
    assert small.grid == (1, 1, 1)
    assert small.body == (
        "v1 = tl.load(x1 + tl.arange(0, 16))",
        "tl.store(out1 + tl.arange(0, 16), v1 * 2)",
    )


def test_a_reproducer_runs_on_its_own(tmp_path: Path):
    path = tmp_path / "kernel.py"
    path.write_text(reproducer(DOUBLED, Verdict("result", "it differs")), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(ROOT), "DEUTERON_DISABLE_CACHE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
