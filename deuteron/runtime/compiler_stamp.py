"""A text that changes with the compiler: LLVM's version and this package's own files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from importlib import import_module

_LAYERS = ("ir", "passes", "backends", "lang")


@cache
def compiler_stamp() -> str:
    """For cache keys; made of the files' sizes and times of change, without reading them."""
    llvmlite = import_module("llvmlite").__version__  # importlib.metadata takes 40 ms
    digest = hashlib.sha256()
    for path in sorted(_sources()):
        status = os.stat(path)
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return f"llvmlite {llvmlite} {digest.hexdigest()}"


def _sources() -> Iterator[str]:
    root = os.path.dirname(os.path.dirname(__file__))
    for layer in _LAYERS:
        for folder, _, names in os.walk(os.path.join(root, layer)):
            yield from (os.path.join(folder, name) for name in names if name.endswith(".py"))
