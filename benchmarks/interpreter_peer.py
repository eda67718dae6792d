"""The peer of `interpreter.py`: answers each line "name|size" by the seconds that a launch takes.

Started with TRITON_INTERPRET=1 in a Python that has the original `triton`.
"""

from __future__ import annotations

import sys
import time

import torch
from tutorial_kernels import PROBLEMS


def main() -> None:
    """Serve until the input ends."""
    for line in sys.stdin:
        name, size = line.strip().split("|")
        torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
        launch, out = PROBLEMS[name](int(size))
        begin = time.perf_counter()
        launch()
        print(time.perf_counter() - begin, float(out.double().sum()), flush=True)


if __name__ == "__main__":
    main()
