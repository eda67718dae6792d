"""Errors as values: where they say they are, and that they survive a journey between processes."""

from __future__ import annotations

import pickle

import pytest

from deuteron.errors import (
    UNKNOWN,
    CompilationError,
    CompileTimeAssertionFailure,
    DeuteronError,
    DeviceAssertionError,
    LaunchError,
    Loc,
    OutOfBoundsError,
    OutOfResources,
    call_site,
)

PLACE = Loc("kernel.py", 3, 4, 9, "    x + y", "kernel")


def test_a_launch_error_begins_with_the_call() -> None:
    error = LaunchError("kernel k: wrong\n  got:      5")
    line = 'LaunchError("kernel k: wrong\\n  got:      5")'
    assert str(error) == (
        f"{__file__}:{error.loc.line}:13: kernel k: wrong\n"
        f"        error = {line}\n"
        f"                {'^' * len(line)}\n"
        "  got:      5"
    )
    assert error.error_message == "kernel k: wrong\n  got:      5"


def test_columns_count_characters() -> None:
    _, error = ("äöü", LaunchError("wrong"))
    assert str(error).split("\n")[2] == f"    {' ' * 23}{'^' * 20}"


def test_a_call_without_source() -> None:
    scope: dict[str, object] = {"LaunchError": LaunchError}
    exec(compile("error = LaunchError('wrong')", "<made up>", "exec"), scope)
    assert str(scope["error"]) == "<made up>:1:1: wrong"


def test_out_of_resources() -> None:
    error = OutOfResources("scratch bytes", 2000, 1000, "use less", got="; all", loc=PLACE)
    assert str(error) == (
        "kernel.py:3:5: out of resource: scratch bytes\n        x + y\n        ^^^^^\n"
        "  expected: at most 1,000\n  got:      2,000; all\n  remedy:   use less"
    )


@pytest.mark.parametrize(
    "error",
    [
        LaunchError("wrong\n  got:      5"),
        CompilationError("wrong", PLACE, expected="this", got="that", remedy="do"),
        CompileTimeAssertionFailure("no", PLACE),
        OutOfResources("scratch", 2, 1, "use less", loc=PLACE),
        OutOfBoundsError("outside", PLACE),
        DeviceAssertionError("file.py:3: no"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel_between_processes(error: DeuteronError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_the_place_of_a_call() -> None:
    place = call_site()
    assert (place.file, place.function) == (__file__, "test_the_place_of_a_call")
    assert place is not UNKNOWN
