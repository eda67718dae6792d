"""Remedies for names: what a misspelt one was meant to be, what one of NumPy or torch is here.

Nothing of it is accepted in a kernel: it is only said in errors.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

# Attributes of arrays and torch tensors.
_ATTRIBUTES: Final = MappingProxyType({
    "astype": "write x.to(tl.float32)",
    "type_as": "write x.to(y.dtype)",
    "float": "write x.to(tl.float32)",
    "double": "write x.to(tl.float64)",
    "half": "write x.to(tl.float16)",
    "bfloat16": "write x.to(tl.bfloat16)",
    "int": "write x.to(tl.int32)",
    "long": "write x.to(tl.int64)",
    "bool": "write x != 0",
    "view_as": "write x.reshape(y.shape)",
    "flatten": "write x.reshape(x.numel) or tl.ravel(x)",
    "squeeze": "write x.reshape(shape) without the axes of length 1",
    "unsqueeze": "write x[:, None] or tl.expand_dims(x, axis)",
    "expand": "write tl.broadcast_to(x, shape)",
    "transpose": "write x.T or tl.permute(x, order)",
    "mean": "write tl.sum(x, axis) and divide by the number of elements",
    "prod": "write tl.reduce(x, axis, multiply), multiply being a jit function of two numbers",
    "any": "write tl.max(x != 0, axis)",
    "all": "write tl.min(x != 0, axis)",
    "clamp": "write tl.clamp(x, low, high)",
    "clip": "write tl.clamp(x, low, high)",
    "dot": "write tl.dot(x, y)",
    "mm": "write tl.dot(x, y)",
    "matmul": "write tl.dot(x, y)",
    "pow": "write x * x, or tl.exp2(y * tl.log2(x))",
    "relu": "write tl.maximum(x, 0)",
    "masked_fill": "write tl.where(mask, value, x)",
    "item": "reduce the tile, or load one element: a scalar needs no conversion",
    "size": "write x.shape[axis]; of an array, pass the size as an argument of the kernel",
    "dim": "write len(x.shape)",
    "stride": "pass the strides as arguments of the kernel",
    "data_ptr": "a parameter for an array is its pointer already",
    "device": "a kernel runs where its arrays lie: choose outside of it",
    "clone": "nothing changes a tile: use it as it is",
    "copy": "nothing changes a tile: use it as it is",
    "contiguous": "nothing changes a tile: use it as it is",
})  # fmt: skip
_PARAMETERS: Final = MappingProxyType(
    {"dim": "axis", "keepdim": "keep_dims", "keepdims": "keep_dims", "axes": "axis"}
)


def suggest(name: str, known: Collection[str]) -> str:
    """The remedy for a misspelt name, or nothing."""
    close = get_close_matches(name, known, n=1)
    return f"did you mean `{close[0]}`?" if close else ""


def instead_of_attribute(name: str) -> str:
    """The remedy for an attribute that only arrays elsewhere have, or nothing."""
    return _ATTRIBUTES.get(name, "")


def parameter_named(name: str) -> str:
    """What the language calls a parameter of NumPy or torch; another name stays."""
    return _PARAMETERS.get(name, name)


def in_the_language(name: str) -> str:
    """`tl.name` where the language has what NumPy, torch or a user call `….name`, or nothing."""
    last = name.rpartition(".")[2]
    # The language is the face of this package and imports it; a kernel that runs has it loaded.
    face = sys.modules.get("deuteron.language")
    return f"tl.{last}" if face is not None and hasattr(face, last) else ""
