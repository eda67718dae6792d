"""A process whose kernel touches foreign memory; prints what the launches raise as JSON.

    python -m tests.gpu.fault

A fault ends a process's use of the GPU, so it needs a process of its own.
"""

from __future__ import annotations

import json
import time

import torch

from deuteron.errors import DeviceError
from tests.gpu.runtime_kernels import wild

SETTLE_S = 1.0  # for a kernel of microseconds


def messages() -> list[str]:
    x = torch.zeros(4, device="cuda")
    told: list[str] = []
    for _ in range(3):
        try:
            wild[(1,)](x, 1 << 40)
            told.append("")
        except DeviceError as error:
            told.append(f"{error.code}\n{error}")
        time.sleep(SETTLE_S)
    return told


if __name__ == "__main__":
    print(json.dumps(messages()), flush=True)
