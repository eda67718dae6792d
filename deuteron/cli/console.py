"""Consoles that look right in a terminal, a pipe, a CI log and a narrow window alike."""

from __future__ import annotations

import sys

from rich.console import Console

# A pipe has no width of its own; tables are laid out for this many columns there.
PIPE_WIDTH = 100


def output_console() -> Console:
    """Standard output.  Without a terminal behind it no control codes are written."""
    return _console(to_errors=False)


def error_console() -> Console:
    """Standard error, where progress and complaints go."""
    return _console(to_errors=True)


def _console(to_errors: bool) -> Console:
    stream = sys.stderr if to_errors else sys.stdout
    return Console(
        stderr=to_errors,
        width=None if stream.isatty() else PIPE_WIDTH,
        soft_wrap=False,
        highlight=False,
    )


def speaks_unicode(console: Console) -> bool:
    """True when signs outside ASCII can be written."""
    return console.encoding.lower().startswith("utf")
