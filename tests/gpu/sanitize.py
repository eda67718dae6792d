"""The checks on the GPU under NVIDIA's compute-sanitizer.

    python -m tests.gpu.sanitize --log FOLDER [--jobs 8] [--tools memcheck,racecheck] [--every 4]

memcheck finds accesses outside of arrays, racecheck threads that meet in shared memory without a
barrier.  The checks are dealt out among `jobs` processes; each one's report is left in FOLDER, and
a table of all is printed.  Exits with 1 when anything was found.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOUND = 99  # the exit code when the tool has found something
_SHARING = ("fold", "shape", "memory", "atomic", "product", "control", "kernels", "order", "ops")
# Elementwise kernels use no shared memory.
TOPICS = {"memcheck": ("elementwise", *_SHARING), "racecheck": _SHARING}
_FINDING = re.compile(r"^========= (?:ERROR|WARN|Error|Warning|Invalid|Race|Program)[^\n]*", re.M)


@dataclass(frozen=True, slots=True)
class Report:
    """What one process came to."""

    tool: str
    number: int
    exit_code: int
    findings: Counter[str]
    failed: str

    def __str__(self) -> str:
        verdict = "clean" if not self.exit_code else f"exit code {self.exit_code}"
        return f"{self.tool:10} {self.number:2}  {verdict}  {self.failed}"


def run_share(program: str, tool: str, number: int, options: argparse.Namespace) -> Report:
    """Every `jobs`-th check under one tool."""
    report = options.log / f"{tool}-{number}.txt"
    command = [
        program, "--tool", tool, "--error-exitcode", str(FOUND), "--log-file", str(report),
        sys.executable, "-m", "tests.gpu.run_all", "--here",
        "--topics", ",".join(TOPICS[tool]), "--only", options.only,
        "--first", str(number * options.every), "--every", str(options.jobs * options.every),
    ]  # fmt: skip
    # Without torch's cache of memory every array is an allocation of its own.
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
        "DEUTERON_DISABLE_CACHE": "1",
    }
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    (options.log / f"{tool}-{number}-output.txt").write_text(run.stdout + run.stderr)
    text = report.read_text(errors="replace") if report.exists() else run.stderr
    failed = [line for line in run.stdout.splitlines() if line.endswith(" failed")]
    return Report(tool, number, run.returncode, Counter(_FINDING.findall(text)), "".join(failed))


def reports(program: str, options: argparse.Namespace) -> Iterator[Report]:
    """One report for each tool and process."""
    with ThreadPoolExecutor(options.jobs) as threads:
        for tool in options.tools.split(","):
            numbers = range(options.jobs)
            yield from threads.map(lambda n, t=tool: run_share(program, t, n, options), numbers)


def main() -> int:
    """Run the tools; 0 when nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.sanitize", description=__doc__)
    parser.add_argument("--log", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--tools", default=",".join(TOPICS), help="of %(default)s")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth check only")
    parser.add_argument("--only", default="", metavar="TEXT", help="checks with TEXT in their name")
    options = parser.parse_args()
    program = shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path="/usr/local/cuda/bin"
    )
    if program is None:
        print("no compute-sanitizer: it comes with the CUDA toolkit")
        return 2
    options.log.mkdir(parents=True, exist_ok=True)
    found = list(reports(program, options))
    for report in found:
        print(report)
        for line, count in report.findings.most_common(5):
            print(f"    {count} × {line.removeprefix('========= ')}")
    return int(any(report.exit_code for report in found))


if __name__ == "__main__":
    sys.exit(main())
