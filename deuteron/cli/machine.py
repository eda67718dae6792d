"""Which computer and which versions a measurement or a report comes from."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from deuteron import __version__, get_num_threads


@cache
def cpu_model() -> str:
    """The processor's own name, as the operating system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model", "cpu model") and value.strip():
                return value.strip()
    except OSError:
        pass
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        told = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        if told:
            return told
    return platform.processor() or platform.machine()


def package_version(name: str) -> str | None:
    """The installed version of a package, None when it is not there; imports nothing."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def provenance() -> dict[str, object]:
    """Date, machine and versions, for the head of a results file."""
    packages = ("numpy", "llvmlite", "torch")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": cpu_model(),
            "cores": os.cpu_count(),
            "threads": get_num_threads(),
            "system": platform.platform(),
        },
        "versions": {"deuteron": __version__, "python": platform.python_version()}
        | {name: package_version(name) for name in packages},
    }
