"""All checks on the GPU as tasks, and how one is carried out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from tests.gpu.cuda_runner import CudaRunner
from tests.gpu.op_checks import DEBUGGING, check_recipe, recipes
from tests.gpu.workers import Task, Workers
from tests.oracle.runners import GUARD_BYTES
from tests.oracle.topics import TOPICS

DEFAULT_WARPS = 4
OTHER_WARPS = (1, 8)
# One in so many elementwise kernels is also run with other numbers of warps: they are many.
SPREAD = 6
DEBUG = "debug"
LANGUAGE = ("kernels", "references", "order", "ops", "examples")
# Topics of the language that do not choose their own numbers of warps.
SOME_WARPS = ("kernels", "references", "order")
ALL_TOPICS = (*TOPICS, DEBUG, *LANGUAGE)


def tasks_of(topic: str) -> Iterator[Task]:
    """The checks of one topic, for each number of warps."""
    names = list(_names(topic))
    yield from (Task(topic, name, DEFAULT_WARPS) for name in names)
    if topic in LANGUAGE and topic not in SOME_WARPS:
        return
    step = SPREAD if topic == "elementwise" else 1
    for offset, num_warps in enumerate(OTHER_WARPS):
        yield from (Task(topic, name, num_warps) for name in names[offset % step :: step])


def carry_out(task: Task, guard_bytes: int = GUARD_BYTES) -> None:
    """Raise when a check fails, in this process.

    The oracle's arrays lie between guards of that size.
    """
    if task.topic in LANGUAGE:
        from tests.gpu.language_checks import language_checks  # imports torch

        language_checks()[task.topic][task.name](task.num_warps)
    elif task.topic == DEBUG:
        DEBUGGING[task.name](_runner(task.num_warps, guard_bytes))
    else:
        check_recipe(recipes(task.topic)[task.name], _runner(task.num_warps, guard_bytes))


def workers(jobs: int) -> Workers:
    """Processes for checks."""
    return Workers(jobs, carry_out)


def _names(topic: str) -> Sequence[str]:
    if topic == DEBUG:
        return list(DEBUGGING)
    if topic in LANGUAGE:
        from tests.gpu.language_checks import language_checks

        return list(language_checks()[topic])
    return list(recipes(topic))


@cache
def _runner(num_warps: int, guard_bytes: int) -> CudaRunner:
    return CudaRunner(num_warps, guard_bytes)
