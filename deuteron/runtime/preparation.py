"""Loading what the first kernel on a GPU will need, while the program does something else.

Between a program's first kernel and its first launch mostly lies what keeps the GIL free: making
the GPU's context and filling its memory.  A thread loads LLVM and the GPU's compiler meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import threading
from functools import cache
from importlib import import_module

from deuteron import config
from deuteron.backends.llvm import compile as llvm_compile

_GPU_FILES = ("/dev/nvidiactl", "/dev/dxg")  # of NVIDIA's driver on Linux, and of Windows's
_BUSY = threading.RLock()

if hasattr(os, "register_at_fork"):  # a child never inherits half of an import
    os.register_at_fork(
        before=_BUSY.acquire, after_in_parent=_BUSY.release, after_in_child=_BUSY.release
    )


@cache
def prepare_for_gpu() -> None:
    """Begin to load, the first time that this is called if there seems to be a GPU."""
    if any(map(os.path.exists, _GPU_FILES)) and not config.interpret():
        threading.Thread(target=_load, name="deuteron-preparation").start()


def _load() -> None:
    with _BUSY, contextlib.suppress(Exception):  # whoever needs them is told
        llvm_compile.load()
        import_module("deuteron.runtime.cuda_backend")
        import_module("deuteron.backends.cuda.compiler")
