"""Run other people's tests on this package and write down what became of each.

    TRITON_SRC=/path/to/triton python tools/conformance.py [--out docs/conformance.md] [NAME ...]

TRITON_SRC is a checkout of Triton, whose tests are run unmodified under `pytest --deuteron`: one
process a file, bounded in time.  What is not there is skipped, and the table says so.  NAMEs choose
files (`test_core`); without any all are run.  Exits with 1 when a process died.

A failed test is either a gap, or it asks for what has no meaning on a CPU: the text of MLIR, PTX,
a CUDA stream.  `tools/conformance_reasons.toml` tells them apart by test and message.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
REASONS = ROOT / "tools" / "conformance_reasons.toml"
LIBRARIES = ROOT / "tools" / "conformance_libraries.md"
"""The document's section on libraries of kernels, which `tests/kernels` checks."""
MESSAGE_WIDTH = 110


@dataclass(frozen=True, slots=True)
class Suite:
    """One file of tests below TRITON_SRC, further arguments for pytest, and a time limit.

    `long` chooses, as pytest's -k does, tests whose cases take a minute each; `--long` runs them
    too.
    """

    path: str
    arguments: tuple[str, ...] = ()
    limit_s: int = 600
    long: str = ""

    @property
    def name(self) -> str:
        return Path(self.path).stem


_UNIT = "python/test/unit"
_EVERY_FLOAT = "test_typeconvert_downcast and not clamping"
SUITES = (
    Suite(f"{_UNIT}/language/test_core.py", ("-m", "interpreter"), limit_s=1800),
    *(
        Suite(f"{_UNIT}/language/test_{name}.py")
        for name in (
            "standard", "random", "tuple", "annotations", "block_pointer", "decorator",
             "libdevice", "compile_errors", "mxfp",
        )
    ),
    # 8192³ with subnormal operands: torch's own product takes a quarter of an hour, ours 25 s.
    Suite(f"{_UNIT}/language/test_tensor_descriptor.py", limit_s=1800, long="mxfp8 and 8192-8192"),
    Suite(f"{_UNIT}/language/test_subprocess.py", limit_s=1200),
    # Each case converts 2³² numbers two ways, 64 MB at a time: two minutes with two CPUs.
    Suite(f"{_UNIT}/language/test_conversions.py", limit_s=3600, long=_EVERY_FLOAT),
    *(
        Suite(f"{_UNIT}/runtime/test_{name}.py")
        for name in ("autotuner", "specialize", "cache", "launch")
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """Failures whose test and message match are explained by `reason`.

    `meaningless` ones ask for what no CPU has.
    """

    reason: str
    test: re.Pattern[str]
    message: re.Pattern[str]
    meaningless: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed test: its name, the first line of its error, and why."""

    test: str
    message: str
    reason: str
    meaningless: bool


@dataclass(slots=True)
class Outcome:
    """What became of one suite; `note` says why there is nothing, or not all."""

    suite: Suite
    passed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    note: str = ""
    died: bool = False
    failures: list[Failure] = field(default_factory=list[Failure])

    @property
    def meaningless(self) -> int:
        return sum(failure.meaningless for failure in self.failures)

    @property
    def failed(self) -> int:
        return len(self.failures) - self.meaningless

    @property
    def share(self) -> str:
        """Passed of what has a meaning on a CPU."""
        total = self.passed + self.failed
        return f"{100 * self.passed / total:.1f} %" if total else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the suites and write the table; the exit code."""
    parser = argparse.ArgumentParser(description="Run Triton's own tests on Deuteron.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="run these files only (test_core)")
    parser.add_argument("--long", action="store_true", help="also the cases that take minutes")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "conformance.md")
    arguments = parser.parse_args(argv)
    source = os.environ.get("TRITON_SRC")
    if not source:
        print("conformance: skipped, for TRITON_SRC names no checkout of Triton")
        return 0
    chosen = [s for s in SUITES if not arguments.names or s.name in arguments.names]
    rules = read_rules(REASONS)
    outcomes: list[Outcome] = []
    for suite in chosen:
        outcome = run_suite(Path(source), suite, rules, long=arguments.long)
        outcomes.append(outcome)
        print(
            f"{suite.name}: {outcome.passed} passed, {outcome.failed} failed, "
            f"{outcome.meaningless} without meaning, {outcome.skipped} skipped, "
            f"{outcome.seconds:.0f} s{outcome.note and f'; {outcome.note}'}",
            flush=True,
        )
    arguments.out.write_text(render(outcomes), encoding="utf-8")
    return int(any(outcome.died for outcome in outcomes))


def read_rules(path: Path) -> list[Rule]:
    """The reasons of known failures, in the order in which they are tried."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["rule"]
    return [
        Rule(
            entry["reason"],
            re.compile(entry.get("test", "")),
            re.compile(entry.get("message", "")),
            bool(entry.get("meaningless", False)),
        )
        for entry in entries
    ]


def run_suite(source: Path, suite: Suite, rules: Iterable[Rule], *, long: bool = False) -> Outcome:
    """Run one file in a process of its own."""
    outcome = Outcome(suite)
    path = source / suite.path
    if not path.exists():
        outcome.note = "not in this checkout"
        return outcome
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        start = time.monotonic()
        try:
            process = subprocess.run(
                [*_command(source, path, suite, report), *(() if long else _leave_out(suite))],
                cwd=path.parent,
                env=_environment(source, folder),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=suite.limit_s,
                check=False,
            )
            if suite.long and not long:
                outcome.note = f"without those of `{suite.long}`"
            if process.returncode not in (0, 1):
                outcome.note = f"pytest ended with {process.returncode}"
        except subprocess.TimeoutExpired:
            outcome.note = f"stopped after {suite.limit_s} s"
        outcome.seconds = time.monotonic() - start
        if report.exists():
            read_report(report, outcome, rules)
        else:
            outcome.died = True
            outcome.note = outcome.note or "no report"
    return outcome


def _command(source: Path, path: Path, suite: Suite, report: Path) -> list[str]:
    conftest = source / "python" / "test" / "conftest.py"
    asks = conftest.exists() and '"--device"' in conftest.read_text(encoding="utf-8")
    return [
        *(sys.executable, "-m", "pytest", "--deuteron"),
        *(("--device", "cpu") if asks else ()),
        *("-q", "--tb=short", "-p", "no:cacheprovider", "-W", "ignore", "-o", "addopts="),
        *("--rootdir", str(source), "--junitxml", str(report), str(path), *suite.arguments),
    ]


def _leave_out(suite: Suite) -> tuple[str, ...]:
    return ("-k", f"not ({suite.long})") if suite.long else ()


def _environment(source: Path, folder: str) -> dict[str, str]:
    """Ours, with this package and their tests in the path, and a cache that nobody has filled."""
    paths = [str(ROOT), str(source / "python" / "test"), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "XDG_CACHE_HOME": folder}
    return {**os.environ, **own}


def read_report(report: Path, outcome: Outcome, rules: Iterable[Rule]) -> None:
    """Count what a JUnit report tells."""
    known = list(rules)
    for case in ElementTree.parse(report).iter("testcase"):
        problem = case.find("failure")
        if problem is None:
            problem = case.find("error")
        if problem is not None:
            text = problem.get("message", "") + "\n" + (problem.text or "")
            outcome.failures.append(explain(case.get("name", ""), text, known))
        elif case.find("skipped") is not None:
            outcome.skipped += 1
        else:
            outcome.passed += 1


def explain(test: str, text: str, rules: Iterable[Rule]) -> Failure:
    """A failure with the reason of the first rule that fits it, or its message for want of one."""
    message = shorten(text)
    for rule in rules:
        if rule.test.search(test) and rule.message.search(text):
            return Failure(test, message, rule.reason, rule.meaningless)
    return Failure(test, message, f"not explained: {message}", meaningless=False)


def shorten(text: str) -> str:
    """The first line of a message without what differs from run to run."""
    line = text.strip().split("\n", 1)[0]
    line = re.sub(r"0x[0-9a-f]+", "0x…", re.sub(r"(/[\w.\-]+)+/", "…/", line))
    return line if len(line) <= MESSAGE_WIDTH else line[: MESSAGE_WIDTH - 1] + "…"


def render(outcomes: Sequence[Outcome]) -> str:
    """The document."""
    lines = [
        "# Conformance",
        "",
        "Triton's own tests, unmodified, run on a CPU by `make conformance` with `TRITON_SRC`",
        "naming a checkout of Triton. *No meaning* are failed tests that ask for what a CPU does",
        "not have, such as the text of MLIR or PTX; the share is of what has a meaning here.",
        "",
        f"Run on {date.today().isoformat()}, {platform.machine()} with {os.cpu_count()} CPUs, "
        f"Python {platform.python_version()}; one process a file.",
        "",
        "| file | passed | failed | no meaning | skipped | share | seconds |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for one in outcomes:
        note = f" ({one.note})" if one.note else ""
        lines.append(
            f"| {one.suite.name}{note} | {one.passed:,} | {one.failed:,} | {one.meaningless:,} | "
            f"{one.skipped:,} | {one.share} | {one.seconds:.0f} |"
        )
    lines += _section("What is missing", outcomes, meaningless=False)
    lines += _section("What has no meaning on a CPU", outcomes, meaningless=True)
    return "\n".join(lines) + "\n\n" + LIBRARIES.read_text(encoding="utf-8")


def _section(title: str, outcomes: Sequence[Outcome], meaningless: bool) -> list[str]:
    """Failures by reason, and by reason the tests with how many of their cases fail."""
    by_reason: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        for failure in outcome.failures:
            if failure.meaningless is meaningless:
                test = f"{outcome.suite.name}::{failure.test.split('[')[0]}"
                by_reason.setdefault(failure.reason, Counter())[test] += 1
    lines = ["", f"## {title}", ""]
    for reason, tests in sorted(by_reason.items(), key=lambda item: -item[1].total()):
        shown = ", ".join(f"`{test}` ({count})" for test, count in tests.most_common())
        lines.append(f"- **{reason}** ({tests.total()}): {shown}")
    return lines if by_reason else [*lines, "Nothing."]


if __name__ == "__main__":
    sys.exit(main())
