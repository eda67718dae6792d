"""The IR that the front end makes of the kernels of `kernels.py`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deuteron.dtypes import float32, int32
from deuteron.ir import Pointer, Type, format_function, verify
from deuteron.lang.codegen import Argument, lower_kernel
from deuteron.lang.context import Options
from deuteron.lang.values import constexpr
from tests.golden import kernels

X = Argument(Type(Pointer(float32)), {"divisibility": 16})
CONST_X = Argument(Type(Pointer(float32, const=True)), {"divisibility": 16})
PTR = Argument(Type(Pointer(int32)))
I32 = Argument(Type(int32))
F32 = Argument(Type(float32))

CASES: dict[str, dict[str, object]] = {
    "vector_add": {"x_ptr": CONST_X, "y_ptr": X, "out_ptr": X, "n": I32, "BLOCK": constexpr(256)},
    "transpose": {"x_ptr": X, "out_ptr": Argument(Type(Pointer(float32))), "stride": I32,
                  "M": constexpr(8), "N": constexpr(4)},
    "matmul": {"a_ptr": X, "b_ptr": X, "c_ptr": X, "k": I32, "M": constexpr(16),
               "K": constexpr(32), "ACTIVATION": constexpr("leaky_relu")},
    "early_exit": {"out_ptr": PTR, "n": I32},
    "branches": {"out_ptr": PTR, "n": I32, "flag": I32},
    "while_loop": {"out_ptr": PTR, "n": I32},
    "nested_loops": {"out_ptr": PTR, "n": I32},
    "call_with_returns": {"x_ptr": X, "out_ptr": X},
    "unrolled": {"pointers": (X, PTR), "values": (F32, constexpr(1)), "N": constexpr(4)},
    "argmax_by_hand": {"x_ptr": X, "out_ptr": X, "at_ptr": PTR, "N": constexpr(64)},
    "softmax_row": {"x_ptr": X, "out_ptr": X, "n": I32, "N": constexpr(128)},
    "debugging": {"x_ptr": X, "n": I32, "N": constexpr(4)},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_ir_text(name: str, golden: Callable[[str, str], None]) -> None:
    options = Options(debug=name == "debugging")
    function = lower_kernel(getattr(kernels, name), CASES[name], options, {"num_warps": 4})
    verify(function)
    golden(f"ir/{name}.txt", format_function(function))
