"""The front end as the runtime sees it: keys, checks and IR for kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deuteron.dtypes import BY_SHORT
from deuteron.ir.nodes import Function
from deuteron.ir.types import Element, Pointer, Type
from deuteron.lang.codegen import Argument, lower_kernel
from deuteron.lang.context import Options
from deuteron.lang.dependencies import Dependencies, find_dependencies
from deuteron.lang.inline_asm import with_bodies
from deuteron.lang.semantic.blocks import TensorDescriptor
from deuteron.lang.source import replace_source
from deuteron.lang.values import constexpr
from deuteron.runtime.descriptors import DescriptorKind
from deuteron.runtime.jit import JITFunction
from deuteron.runtime.protocols import Change, Hardware
from deuteron.runtime.specialize import TUPLE, ParamSpec, Specialization

_CPU = Hardware()


class PythonFrontend:
    """Compiles the Python function behind one jit function (the runtime's `Frontend`)."""

    def __init__(self) -> None:
        self._dependencies: Dependencies | None = None

    def cache_key(self, fn: JITFunction) -> str:
        """A hash of the source, of that of the jit functions it calls and of constants they read.

        The version of this package is not in it.  Raises CompilationError when there is no source.
        """
        if self._dependencies is None:
            self._dependencies = find_dependencies(fn)
        # Bodies of assembly are found by its text, which no name leads to.
        return with_bodies(self._dependencies.key)

    def globals_changed(self, fn: JITFunction) -> Change | None:
        """A name outside of the kernel that no longer means what it did when the key was made."""
        known = self._dependencies
        return None if known is None else known.change()

    def forget(self) -> None:
        """Make the key anew when it is asked for."""
        self._dependencies = None

    def replace_source(self, fn: JITFunction, text: str) -> None:
        """Compile `fn` from another text from now on."""
        replace_source(fn, text)
        self._dependencies = None

    def lower(self, fn: JITFunction, spec: Specialization, hardware: Hardware = _CPU) -> Function:
        """The kernel's IR for one specialisation.  Raises CompilationError."""
        places = {leaf.name: place for place, leaf in enumerate(spec.leaves())}
        arguments = {param.name: _argument(param, places) for param in spec.params}
        options = Options(
            num_warps=spec.options.num_warps,
            num_stages=spec.options.num_stages,
            debug=spec.options.debug,
            strict=fn.strict,
            enable_fp_fusion=spec.options.enable_fp_fusion,
            target=hardware.kind,
            target_arch=hardware.arch,
        )
        return lower_kernel(fn, arguments, options, _attrs(spec))


def parse_element(text: str) -> Element:
    """An element type from the runtime's spelling: `i32`, `*fp32`, `*kfp32` (const)."""
    if not text.startswith("*"):
        return BY_SHORT[text]
    pointee = text[1:]
    is_const = pointee not in BY_SHORT
    return Pointer(BY_SHORT[pointee.removeprefix("k")], is_const)


def _argument(param: ParamSpec, places: Mapping[str, int]) -> object:
    if param.is_constexpr:
        return constexpr(param.value)
    if param.type == TUPLE:
        elements = [_argument(element, places) for element in param.elements]
        if isinstance(param.value, DescriptorKind):
            return _descriptor(param.value, elements)
        return param.value(*elements) if hasattr(param.value, "_fields") else tuple(elements)
    attrs = {"divisibility": param.divisibility} if param.divisibility > 1 else {}
    return Argument(Type(parse_element(param.type)), attrs, places.get(param.same_as))


def _descriptor(kind: DescriptorKind, elements: list[Any]) -> TensorDescriptor:
    """Of a descriptor made on the host: its pointer, its sizes and its strides, in this order."""
    base, rest, rank = elements[0], elements[1:], len(kind.block_shape)
    shape, strides = tuple(rest[:rank]), tuple(rest[rank:])
    return TensorDescriptor(base, shape, strides, kind.block_shape, kind.padding)


def _attrs(spec: Specialization) -> dict[str, Any]:
    """The hints that passes and backends may look at."""
    options = spec.options
    attrs: dict[str, Any] = {"num_warps": options.num_warps, "num_stages": options.num_stages}
    if options.debug:
        attrs["debug"] = True
    if not options.enable_fp_fusion:
        attrs["enable_fp_fusion"] = False
    if spec.aliased:
        attrs["aliased"] = True
    return attrs
