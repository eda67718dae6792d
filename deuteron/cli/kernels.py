"""Find a kernel by what a person types: FILE.py:KERNEL or package.module:KERNEL."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from deuteron.cli import UsageError
from deuteron.runtime.autotune import Autotuner, Heuristics
from deuteron.runtime.jit import JITFunction


def find_kernel(spec: str) -> Any:
    """The jit function (or the autotuner or heuristics around one) that `spec` names.

    Raises UsageError that lists what could have been meant.
    """
    place, colon, name = spec.rpartition(":")
    if not colon or not place:
        raise UsageError(
            f"`{spec}` does not name a kernel\n"
            "  expected: FILE.py:KERNEL or package.module:KERNEL\n"
            f"  remedy:   {_suggest_kernels(spec)}"
        )
    module = _load(place)
    known = dict(kernels(module))
    if name in known:
        return known[name]
    if hasattr(module, name):
        raise UsageError(
            f"`{name}` in {place} is not a kernel\n"
            "  expected: a function decorated with @jit\n"
            f"  got:      {type(getattr(module, name)).__name__}"
        )
    close = get_close_matches(name, known, n=1)
    listed = ", ".join(known) or "none"
    meant = f"\n  remedy:   did you mean {place}:{close[0]}?" if close else ""
    raise UsageError(f"no kernel `{name}` in {place}\n  kernels:  {listed}{meant}")


def kernels(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The kernels of a module by name."""
    for name, value in vars(module).items():
        if is_kernel(value):
            yield name, value


def is_kernel(value: Any) -> bool:
    """True for a jit function and for the wrappers that launch one."""
    return isinstance(value, JITFunction | Autotuner | Heuristics)


def jit_function(kernel: Any) -> JITFunction:
    """The jit function inside any number of wrappers."""
    while not isinstance(kernel, JITFunction):
        kernel = kernel.fn
    return kernel


def _load(place: str) -> ModuleType:
    path = Path(place)
    try:
        if path.suffix == ".py" or path.is_file():
            return _load_file(path)
        return importlib.import_module(place)
    except UsageError:
        raise
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(f"{error.name}.")):
            raise UsageError(f"no module named `{error.name}`, and no such file") from error
        raise UsageError(f"cannot import {place}: {error}") from error
    except Exception as error:  # whatever the module's own code raises
        raise UsageError(f"cannot import {place}: {type(error).__name__}: {error}") from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"no file {path}")
    # As when it is run: what lies beside it can be imported.
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _suggest_kernels(place: str) -> str:
    try:
        names = [name for name, _ in kernels(_load(place))]
    except UsageError:
        names = []
    return f"{place}:{names[0]}" if names else "deuteron.ops.softmax:softmax_kernel, for one"
