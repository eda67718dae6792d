"""`make fuzz`: checks random kernels, and writes a small reproducer of each failure.

python -m tests.fuzz.run --cases 2000 --seed 1 --out build/fuzz
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.cuda import ptxas
from tests.fuzz.case import Case
from tests.fuzz.check import GPU, Verdict
from tests.fuzz.generate import cases
from tests.fuzz.reproducer import reproducer
from tests.fuzz.shrink import shrink
from tests.fuzz.worker import Worker

BATCH = 100  # examples of one hypothesis run
PTXAS_EVERY = 25


def examples(count: int, number: int, check) -> None:
    """Call `check` with so many cases, the same for the same number."""

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def one(case: Case) -> None:
        check(case)

    one()


class Campaign:
    """Counts what was run, and keeps what failed."""

    def __init__(self, out: Path, *, gpu: bool, shrinking: bool = True) -> None:
        self.out, self.shrinking = out, shrinking
        self.worker = Worker(gpu=gpu)
        self.kinds: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.failures: list[Path] = []

    def check(self, case: Case) -> None:
        verdict = self.worker.check(case)
        if verdict.ptx and sum(self.kinds.values()) % PTXAS_EVERY == 0:
            verdict = assembled(verdict)
        self.kinds[verdict.kind] += 1
        if verdict.refused:
            self.refused[verdict.refused] += 1
        if verdict.kind != "ok":
            self._keep(case, verdict)

    def _keep(self, case: Case, verdict: Verdict) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        path = self.out / f"{verdict.kind}_{len(self.failures):03d}_{int(time.time())}.py"
        path.write_text(reproducer(case, verdict), encoding="utf-8")
        self.failures.append(path)
        print(f"{path}: {verdict.text.strip().splitlines()[-1:]}", flush=True)
        if self.shrinking and verdict.kind != "ptxas":
            small, told = self._shrunk(case, verdict)
            path.write_text(reproducer(small, told), encoding="utf-8")

    def _shrunk(self, case: Case, verdict: Verdict) -> tuple[Case, Verdict]:
        last = [verdict]

        def fails(smaller: Case) -> bool:
            again = self.worker.check(smaller)
            same = again.kind == verdict.kind and signature(again) == signature(verdict)
            if same:
                last[0] = again
            return same

        return shrink(case, fails), last[0]


def signature(verdict: Verdict) -> str:
    """What tells failures of one kind apart: the exception and its message, but for names."""
    if verdict.kind in ("result", "abort", "hang"):
        return ""
    lines = [line for line in verdict.text.splitlines() if re.match(r"[\w.]+(Error|Bound)", line)]
    return re.sub(r"`[^`]*`|\d+|/\S+|<.*?>", "", lines[-1] if lines else "")


def assembled(verdict: Verdict) -> Verdict:
    """The same, or what ptxas has against it."""
    program = ptxas.find()
    if program is None:
        return verdict
    command = [program, f"-arch={GPU.arch}", "-o", "/dev/null", "-"]
    done = subprocess.run(command, input=verdict.ptx, capture_output=True, text=True, check=False)
    return Verdict("ptxas", done.stderr) if done.returncode else verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--no-gpu", action="store_true", help="do not compile for a GPU too")
    parser.add_argument("--no-shrink", action="store_true", help="keep failing cases as they are")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    options = parser.parse_args()
    campaign = Campaign(options.out, gpu=not options.no_gpu, shrinking=not options.no_shrink)
    began, done, batch = time.monotonic(), 0, options.seed * 1_000_000
    while done < options.cases and time.monotonic() - began < options.seconds:
        count = min(BATCH, options.cases - done)
        examples(count, batch, campaign.check)
        done, batch = done + count, batch + 1
        print(f"{done} cases, {time.monotonic() - began:.0f} s: {dict(campaign.kinds)}", flush=True)
    campaign.worker.close()
    for line, count in campaign.refused.most_common():
        print(f"  the GPU backend refused {count}: {line}")
    for path in campaign.failures:
        print(f"  {path}")
    return bool(campaign.failures)


if __name__ == "__main__":
    sys.exit(main())
