"""Compiling for a GPU that is not here: kernels of the tile IR, and jit functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from deuteron.backends.cuda.compiler import KernelImage, compile_function
from deuteron.backends.cuda.target import CudaTarget
from deuteron.ir import Function
from deuteron.runtime.arrays import MockTensor, as_dtype
from deuteron.runtime.jit import JITFunction
from deuteron.runtime.options import parse_options
from deuteron.runtime.parameters import bind
from deuteron.runtime.protocols import Hardware
from deuteron.runtime.specialize import specialize


def lower(kernel: JITFunction, *args: Any, **options: Any) -> Function:
    """The IR of a jit function on a GPU for these arguments; dtypes stand for aligned arrays."""
    bound = bind(kernel.__name__, kernel.params, args, options)
    values = tuple(
        value if param.is_constexpr or as_dtype(value) is None else MockTensor(value)
        for param, value in zip(kernel.params, bound.values, strict=True)
    )
    launch_options = parse_options(bound.options, debug=True, where=kernel.__name__)
    request = specialize(kernel.__name__, kernel.params, values, launch_options)
    return kernel.frontend.lower(kernel, request.spec, Hardware("cuda", 80))


def ptx_of(function: Function, arch: str, name: str = "", **options: Any) -> str:
    """The PTX of a function, whose kernel is called `name` if given."""
    return image_of(function, arch, name, **options).obj.decode()


def image_of(function: Function, arch: str, name: str = "", **options: Any) -> KernelImage:
    """A compiled function, whose kernel is called `name` if given."""
    named = replace(function, name=name) if name else function
    return compile_function(named, CudaTarget(arch), **options)
