"""A specialisation as text that another process can compile from: `JITFunction.preload`.

The text is JSON: the kernel's name, its target, options and parameters.  Constants may be numbers,
strings, None, dtypes, jit functions (by their names), and tuples of these.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from deuteron.dtypes import DType
from deuteron.errors import UserError
from deuteron.ir.types import Pointer
from deuteron.runtime.arrays import as_dtype
from deuteron.runtime.descriptors import DescriptorKind
from deuteron.runtime.options import LaunchOptions
from deuteron.runtime.specialize import (
    ParamSpec,
    Specialization,
    constant_identity,
    unwrap_constexpr,
)

if TYPE_CHECKING:
    from deuteron.runtime.jit import JITFunction


class PreloadError(UserError, RuntimeError):
    """A text is not of the kernel that shall be loaded from it, or not for this machine."""


def write_specialization(fn: JITFunction, spec: Specialization) -> str:
    """The text of a specialisation of a kernel.

    What has no text is written as its `repr`, and refused when the text is read.
    """
    return json.dumps(
        {
            "name": _name(fn),
            "target": {"backend": spec.device.partition(":")[0], "device": spec.device},
            "options": asdict(spec.options),
            "aliased": spec.aliased,
            "params": [_param_json(param) for param in spec.params],
        }
    )


def read_specialization(
    fn: JITFunction, text: str, living: Iterable[JITFunction]
) -> Specialization:
    """The specialisation of a text.

    Jit functions in it are looked for among those that are `living`.  Raises PreloadError for a
    text of another kernel or device.
    """
    known = json.loads(text)
    if known["name"] != _name(fn):
        raise PreloadError(
            f"Specialization data is for {known['name']}, not for {_name(fn)}\n"
            "  remedy:   preload it into the kernel it was made of"
        )
    target = known["target"]
    if target["backend"] not in ("cpu", "cuda"):
        raise PreloadError(
            f"Specialization data is for {target}\n"
            "  expected: a backend of cpu or cuda\n"
            "  remedy:   make it again on this machine"
        )
    named = {_name(other): other for other in living}
    params = tuple(_param_of(param, named) for param in known["params"])
    options = LaunchOptions(**{name: _hashable(v) for name, v in known["options"].items()})
    return Specialization(params, options, known["aliased"], target["device"])


def _hashable(value: Any) -> Any:
    """Lists of JSON as the tuples that they were."""
    return tuple(map(_hashable, cast("list[Any]", value))) if isinstance(value, list) else value


def _name(fn: JITFunction) -> str:
    return f"{fn.fn.__module__}.{fn.fn.__qualname__}"


def _param_json(param: ParamSpec) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": param.name, "type": param.type, "divisibility": param.divisibility
    }  # fmt: skip
    if param.elements:
        told["elements"] = [_param_json(element) for element in param.elements]
    if isinstance(param.value, DescriptorKind):
        told["descriptor"] = [list(param.value.block_shape), param.value.padding]
    elif isinstance(param.value, type):
        told["class"] = _class_json(cast("type[object]", param.value))
    else:
        told["value"] = _value_json(param.value)
    return told


def _param_of(told: dict[str, Any], named: dict[str, JITFunction]) -> ParamSpec:
    elements = tuple(_param_of(element, named) for element in told.get("elements", ()))
    name, kind, divisibility = told["name"], told["type"], told["divisibility"]
    if "descriptor" in told:
        shape, padding = told["descriptor"]
        descriptor = DescriptorKind(tuple(shape), padding)
        return ParamSpec(name, kind, divisibility, elements, descriptor, descriptor)
    if "class" in told:
        cls = _class_of(told["class"])
        return ParamSpec(name, kind, divisibility, elements, cls, cls)
    value = _value_of(told["value"], named)
    identity = constant_identity(value) if kind == "constexpr" else None
    return ParamSpec(name, kind, divisibility, elements, identity, value)


def _class_json(cls: type[object]) -> list[str]:
    return [cls.__module__, cls.__qualname__]


def _class_of(told: list[str]) -> Any:
    found: Any = import_module(told[0])
    for part in told[1].split("."):
        found = getattr(found, part)
    return found


def _value_json(value: Any) -> Any:
    value = unwrap_constexpr(value)
    if isinstance(value, tuple):
        parts = cast("tuple[object, ...]", value)
        kind = _class_json(type(parts)) if hasattr(parts, "_fields") else None
        return {"tuple": [_value_json(part) for part in parts], "class": kind}
    if isinstance(value, Pointer):
        return {"pointer": [value.pointee.short, value.const]}
    if isinstance(value, DType):
        return {"dtype": value.short}
    if (dtype := as_dtype(value)) is not None:
        return {"dtype": dtype.short}
    if hasattr(cast("type[object]", type(value)), "cache_key"):
        return {"jit_function": _name(value)}
    plain = value is None or isinstance(value, (bool, int, float, str))
    return value if plain else {"unknown": repr(value)}


def _value_of(told: Any, named: dict[str, JITFunction]) -> Any:
    match told:
        case {"tuple": parts, "class": kind}:
            values = [_value_of(part, named) for part in cast("list[Any]", parts)]
            return tuple(values) if kind is None else _class_of(kind)(*values)
        case {"pointer": [short, const]}:
            return Pointer(DType(short), const)
        case {"dtype": short}:
            return DType(short)
        case {"jit_function": name} if name in named:
            return named[name]
        case dict():
            shown = cast("dict[str, Any]", told)
            raise PreloadError(
                f"Specialization data holds {next(iter(shown.values()))}, which cannot be found\n"
                "  expected: numbers, strings, dtypes, and jit functions of imported modules\n"
                "  remedy:   import the module that defines it, or compile it by a call"
            )
        case _:
            return told
