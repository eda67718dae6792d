"""All checks on this machine's GPU, without pytest.

    python -m tests.gpu.run_all --jobs 16 --log FILE [--topics fold,product] [--only TEXT]

Prints a line for each topic and, last, a short table of what failed; the details go to FILE.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from deuteron.backends.cuda.driver import driver_problem
from tests.gpu.checks import ALL_TOPICS, carry_out, tasks_of, workers
from tests.gpu.workers import Outcome, Task, outcome_of

SHOWN_FAILURES = 60
SHOWN_COLUMNS = 150


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; 0 when none failed."""
    options = _options(arguments)
    if problem := driver_problem():
        print(f"no GPU: {problem}")
        return 2
    tasks = [
        task
        for topic in options.topics.split(",")
        for task in tasks_of(topic)
        if options.only in str(task)
    ][options.first :: options.every]
    started = time.monotonic()
    outcomes = list(_here(tasks) if options.here else _in_workers(tasks, options.jobs))
    failures = [o for o in outcomes if o.text]
    _write_log(options.log, outcomes)
    for line in summary(outcomes):
        print(line)
    print(f"{len(outcomes)} checks in {time.monotonic() - started:.0f} s, {len(failures)} failed")
    for failure in failures[:SHOWN_FAILURES]:
        print(f"FAILED {failure.task}: {last_line(failure.text)}"[:SHOWN_COLUMNS])
    if len(failures) > SHOWN_FAILURES:
        print(f"… and {len(failures) - SHOWN_FAILURES} more")
    return int(bool(failures))


def summary(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A line for each topic and number of warps."""
    total, failed, seconds = Counter[str](), Counter[str](), Counter[str]()
    for outcome in outcomes:
        key = f"{outcome.task.topic:12} {outcome.task.num_warps:2} warps"
        total[key] += 1
        failed[key] += bool(outcome.text)
        seconds[key] += outcome.seconds
    for key, count in total.items():
        verdict = f"{failed[key]} failed" if failed[key] else "all right"
        yield f"{key}  {count:4} checks  {seconds[key]:7.1f} s  {verdict}"


def last_line(text: str) -> str:
    """The line of a traceback that says what is wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith(("AssertionError", "deuteron.", "E "))]
    differ = [line for line in lines if " differ: " in line]
    return (differ or own or lines)[-1] if lines else ""


def _in_workers(tasks: Sequence[Task], jobs: int) -> Iterator[Outcome]:
    pool = workers(max(1, min(jobs, len(tasks))))
    try:
        for number, outcome in enumerate(pool.run(tasks), 1):
            if number % 100 == 0:
                print(f"{number} of {len(tasks)}", flush=True)
            yield outcome
    finally:
        pool.close()


def _here(tasks: Sequence[Task]) -> Iterator[Outcome]:
    """In this process, and without guards: for tools that watch a process's accesses."""
    for task in tasks:
        started = time.monotonic()
        print(task, flush=True)
        text = outcome_of(partial(carry_out, guard_bytes=0), task)
        yield Outcome(task, text, time.monotonic() - started)


def _write_log(path: Path | None, outcomes: Sequence[Outcome]) -> None:
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    failures = [f"== {o.task}\n{o.text}" for o in outcomes if o.text]
    slowest = sorted(outcomes, key=lambda o: -o.seconds)[:20]
    times = [f"{o.seconds:7.2f} s  {o.task}" for o in slowest]
    lines = [*summary(outcomes), "", "slowest:", *times, "", *failures]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.run_all", description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--log", type=Path, metavar="FILE", help="write the details to FILE")
    parser.add_argument("--topics", default=",".join(ALL_TOPICS), help="of %(default)s")
    parser.add_argument("--only", default="", metavar="TEXT", help="checks with TEXT in their name")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth check only")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with the Nth")
    parser.add_argument("--here", action="store_true", help="no other processes, no guards")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
