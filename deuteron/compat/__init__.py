"""Doors for code that was written for other packages: their names, resolved to ours.

    import deuteron.compat
    deuteron.compat.install("triton")   # from here on `import triton` gives Deuteron

`deuteron run script.py` and pytest's `--deuteron` do the same from outside.  The modules below this
package hold names only: what stands behind them lives where it belongs.  The original is never
imported, even where it is installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from deuteron import config
from deuteron.errors import UserError

NAMES = ("triton",)
"""The packages there are doors for."""

# Inductor's pool of processes, into which kernels compiled here do not travel: starting it takes
# longer than compiling them.
_INDUCTOR_THREADS = "TORCHINDUCTOR_COMPILE_THREADS"


def install(name: str = "triton") -> None:
    """Have `import <name>`, and all below it, give the modules of `deuteron.compat.<name>`.

    Call it before the original is imported: raises UserError when that has happened.
    """
    if name not in NAMES:
        raise UserError(
            f"there is no door for {name!r}\n"
            f"  expected: one of {', '.join(NAMES)}\n  got:      {name!r}\n"
            "  remedy:   check the spelling"
        )
    if installed(name):
        return
    if name in sys.modules:
        raise UserError(
            f"{name} has been imported already, from {sys.modules[name].__file__}\n"
            f"  expected: install({name!r}) before any `import {name}`\n"
            "  remedy:   put it first in the program, or start it by `deuteron run`"
        )
    sys.meta_path.insert(0, _Door(name))
    if config.text(_INDUCTOR_THREADS) is None:
        config.set_environment({_INDUCTOR_THREADS: "1"})


def open_for_children() -> None:
    """Have Python processes that this one starts find the doors open too.

    Some are given the PYTHONPATH of this one, and some its `sys.path`.
    """
    folder = str(Path(__file__).parent / "children")
    paths = (config.text("PYTHONPATH") or "").split(os.pathsep)
    if folder not in paths:
        known = [folder, *filter(None, paths)]
        config.set_environment({"PYTHONPATH": os.pathsep.join(known)})
    if folder not in sys.path:
        sys.path.insert(1, folder)


def installed(name: str) -> bool:
    """Whether `import <name>` gives ours."""
    return any(isinstance(finder, _Door) and finder.name == name for finder in sys.meta_path)


def absent(module: str, name: str) -> NoReturn:
    """The AttributeError of a name that a module of a door does not have."""
    shown = module.removeprefix(f"{__name__}.")
    if name.startswith("__"):
        raise AttributeError(f"module {shown!r} has no attribute {name!r}")
    raise AttributeError(
        f"{shown}.{name} is not there: Deuteron stands for {shown.partition('.')[0]} here, and "
        "does not have it"
    )


class _Door(MetaPathFinder, Loader):
    """Finds `<name>` and all modules below it in `deuteron.compat`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != self.name:
            return None
        own = find_spec(f"{__name__}.{fullname}")
        if own is None:
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: Deuteron stands for {self.name} here, and does not "
                "have it",
                name=fullname,
            )
        is_package = own.submodule_search_locations is not None
        return ModuleSpec(fullname, self, origin=own.origin, is_package=is_package)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return import_module(f"{__name__}.{spec.name}")

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do: the module has been imported under its own name."""
