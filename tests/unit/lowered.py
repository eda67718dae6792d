"""Kernels of the unit tests, lowered for given arguments."""

from __future__ import annotations

from typing import Any

from deuteron.dtypes import float32, int32, int64
from deuteron.ir import Function, Pointer, Type, verify
from deuteron.lang.codegen import Argument, lower_kernel

I32 = Argument(Type(int32))
F32 = Argument(Type(float32))
I32_PTR = Argument(Type(Pointer(int32)))
I64_PTR = Argument(Type(Pointer(int64)))
F32_PTR = Argument(Type(Pointer(float32)))


def build(kernel: Any, **arguments: object) -> Function:
    """The verified IR of a kernel."""
    function = lower_kernel(kernel, arguments)
    verify(function)
    return function
