"""What the compiler says about each mistake of `bad_kernels.py`, word for word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deuteron.dtypes import float32, int32
from deuteron.errors import CompilationError
from deuteron.ir import Pointer, Type
from deuteron.lang.codegen import Argument, lower_kernel
from deuteron.lang.values import constexpr
from deuteron.runtime.jit import JITFunction
from tests.golden import bad_kernels

ARGUMENTS = {
    "x_ptr": Argument(Type(Pointer(float32))),
    "n": Argument(Type(int32)),
    "B": constexpr(16),
}
KERNELS = {
    name: kernel
    for name, kernel in vars(bad_kernels).items()
    if isinstance(kernel, JITFunction) and kernel.arg_names == list(ARGUMENTS)
}


@pytest.mark.parametrize("name", KERNELS)
def test_error_text(name: str, golden: Callable[[str, str], None]) -> None:
    with pytest.raises(CompilationError) as caught:
        lower_kernel(KERNELS[name], ARGUMENTS)
    folder = str(Path(bad_kernels.__file__).parent)
    golden(f"errors/{name}.txt", str(caught.value).replace(folder, "…") + "\n")


def test_every_golden_file_has_its_kernel() -> None:
    known = {f"{name}.txt" for name in KERNELS}
    assert {path.name for path in (Path(__file__).parent / "errors").iterdir()} == known
