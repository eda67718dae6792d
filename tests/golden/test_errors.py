"""What is said about each mistake of `bad_*.py` when it is launched, word for word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import deuteron as dn
from tests.golden import bad_habits, bad_kernels, bad_library, bad_strict, bad_values

ARGUMENT_NAMES = ["x_ptr", "n", "B"]
KERNELS = {
    name: kernel
    for module in (bad_habits, bad_kernels, bad_library, bad_strict, bad_values)
    for name, kernel in vars(module).items()
    if isinstance(kernel, dn.JITFunction) and kernel.arg_names == ARGUMENT_NAMES
}


@pytest.mark.parametrize("name", KERNELS)
def test_error_text(name: str, golden: Callable[[str, str], None]) -> None:
    x = np.zeros(64, np.float32)
    with pytest.raises(dn.CompilationError) as caught:
        KERNELS[name][(1,)](x, 5, B=16)
    folder = str(Path(bad_kernels.__file__).parent)
    assert all((caught.value.expected, caught.value.got, caught.value.remedy))
    golden(f"errors/{name}.txt", str(caught.value).replace(folder, "…") + "\n")
    with pytest.raises(dn.CompilationError) as again:
        KERNELS[name][(1,)](x, 5, B=16)
    assert str(again.value) == str(caught.value)


def test_every_golden_file_has_its_kernel() -> None:
    known = {f"{name}.txt" for name in KERNELS}
    assert {path.name for path in (Path(__file__).parent / "errors").iterdir()} == known
