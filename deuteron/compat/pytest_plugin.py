"""The option `--deuteron` of pytest: tests written for Triton run on this package."""

from __future__ import annotations

from typing import Any


def pytest_addoption(parser: Any) -> None:
    """The option itself."""
    parser.addoption(
        "--deuteron",
        action="store_true",
        help="have `import triton` give Deuteron in this run",
    )


def pytest_load_initial_conftests(early_config: Any, parser: Any, args: list[str]) -> None:
    """Open the doors before any file of tests is imported."""
    if early_config.known_args_namespace.deuteron:
        _open_doors()


def pytest_configure(config: Any) -> None:
    """Workers of xdist come here first."""
    if config.getoption("--deuteron"):
        _open_doors()


def _open_doors() -> None:
    from deuteron import compat

    for name in compat.NAMES:
        compat.install(name)
    compat.open_for_children()
