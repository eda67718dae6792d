"""Kernels for tests of launching on a GPU: jit functions whose compiler is a stand-in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from deuteron.backends.cpu.kernel_info import AssertSite, ParamInfo
from deuteron.backends.cuda.kernel_info import KernelInfo
from deuteron.dtypes import BY_SHORT
from deuteron.runtime.jit import JITFunction
from deuteron.runtime.options import LaunchOptions
from deuteron.runtime.specialize import ParamSpec
from tests.unit.launch_fakes import Frontend, Image

_PTX_TYPES = {
    "float64": "f64", "float16": "b16", "bfloat16": "b16", "int64": "u64", "uint64": "u64",
    "int1": "u8", "int8": "u8",
}  # fmt: skip


@dataclass
class FakeCompiler:
    """What takes the place of the compiler: every kernel gets the same properties."""

    shared_bytes: int = 0
    asserts: tuple[AssertSite, ...] = ()
    written: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.compiled: list[LaunchOptions] = []

    def compile_function(self, function: Any, target: Any, **options: Any) -> Image:
        """As deuteron.backends.cuda.compiler has it."""
        self.compiled.append(LaunchOptions(**options))
        leaves = function.attrs["spec"].leaves()
        params = tuple(self._param(leaf) for leaf in leaves)
        control = bool(self.asserts)
        ptx = ptx_of(function.name, [_ptx_type(p) for p in params] + ["u64"] * control)
        info = KernelInfo(
            function.name, self.shared_bytes, options["num_warps"], params, self.asserts, control,
            target=target.key, ir="the IR", layouts="the layouts", llvm="the LLVM IR", ptx=ptx,
        )  # fmt: skip
        return Image(info.to_json(), ptx.encode())

    def install(self, monkeypatch: pytest.MonkeyPatch) -> FakeCompiler:
        monkeypatch.setattr(
            "deuteron.backends.cuda.compiler.compile_function", self.compile_function
        )
        return self

    def _param(self, leaf: ParamSpec) -> ParamInfo:
        if leaf.type.startswith("*"):
            short = leaf.type.removeprefix("*").removeprefix("k")
            return ParamInfo(leaf.name, "pointer", BY_SHORT[short].name, leaf.name in self.written)
        dtype = BY_SHORT[leaf.type]
        return ParamInfo(leaf.name, "float" if dtype.is_floating() else "int", dtype.name)


def make(fn: Callable[..., Any], **options: Any) -> JITFunction:
    """A jit function whose compiler is the installed stand-in."""
    return JITFunction(fn, options.pop("frontend", None) or Frontend(), **options)


def ptx_of(name: str, types: list[str]) -> str:
    """PTX of an entry with parameters of these types, as far as the fake driver reads it."""
    params = ", ".join(f".param .{kind} p{i}" for i, kind in enumerate(types))
    head = f".version 8.0\n.target sm_90a\n.visible .entry {name}({params})"
    return f"{head}\n.maxntid 256\n{{ ret; }}\n"


def _ptx_type(param: ParamInfo) -> str:
    if param.kind == "pointer":
        return "u64"
    return _PTX_TYPES.get(param.dtype, "f32" if param.kind == "float" else "u32")
