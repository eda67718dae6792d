"""A process that checks cases, so that an abort of LLVM or a fault takes no test run with it.

`python -m tests.fuzz.worker` reads a case as a line of JSON and answers with its verdict.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.fuzz.case import Case
from tests.fuzz.check import Verdict, check

ROOT = Path(__file__).parents[2]
CASES_PER_PROCESS = 400  # machine code stays loaded


class Worker:
    """Checks cases in a child process, which is made anew when it dies or takes too long."""

    def __init__(self, *, gpu: bool = True, timeout_s: float = 60.0) -> None:
        self.gpu, self.timeout_s = gpu, timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._left = 0

    def check(self, case: Case) -> Verdict:
        """The verdict; of kind "abort" or "hang" when the process did not live to tell it."""
        process = self._alive()
        assert process.stdin is not None
        assert process.stdout is not None
        request = json.dumps({"case": case.to_json(), "gpu": self.gpu})
        try:
            process.stdin.write(request + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._died()
        ready, _, _ = select.select([process.stdout], [], [], self.timeout_s)
        if not ready:
            self.close()
            return Verdict("hang", f"no answer within {self.timeout_s:.0f} s")
        answer = process.stdout.readline()
        self._left -= 1
        return Verdict(**json.loads(answer)) if answer.endswith("\n") else self._died()

    def close(self) -> None:
        """End the child process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _alive(self) -> subprocess.Popen[str]:
        if self._left <= 0:
            self.close()
        if self._process is None:
            self._left = CASES_PER_PROCESS
            environment = os.environ | {"PYTHONPATH": str(ROOT), "DEUTERON_DISABLE_CACHE": "1"}
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.worker"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, cwd=ROOT, env=environment,
            )  # fmt: skip
        return self._process

    def _died(self) -> Verdict:
        process = self._process
        assert process is not None
        _, said = process.communicate()
        self._process = None
        return Verdict("abort", f"exit status {process.returncode}\n{said[-2000:]}")


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a kernel prints is no answer
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        verdict = check(Case.from_json(request["case"]), gpu=request["gpu"])
        answers.write(json.dumps(asdict(verdict)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
