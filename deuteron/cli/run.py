"""`deuteron run`: a Python program in which `import triton` gives this package."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from deuteron import compat
from deuteron.cli import UsageError


def run(arguments: argparse.Namespace) -> int:
    """Run the program in this process, as `python` would; its own exit code is ours."""
    for name in compat.NAMES:
        compat.install(name)
    compat.open_for_children()
    target: str = arguments.program
    if arguments.module:
        sys.argv = [target, *arguments.arguments]
        sys.path.insert(0, "")
        runpy.run_module(target, run_name="__main__", alter_sys=True)
        return 0
    if not Path(target).exists():
        raise UsageError(f"there is no file {target}")
    sys.argv = [target, *arguments.arguments]
    sys.path.insert(0, str(Path(target).resolve().parent))
    runpy.run_path(target, run_name="__main__")
    return 0
