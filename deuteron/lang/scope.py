"""Names in a kernel: the local ones and their rules, and what may be taken from outside.

A local name stands for one value at a time.  Control flow can take a name away: what was set in a
loop, or in one branch of an `if` only, is unknown afterwards.  Such a name is kept in `lost`, so
that a later use can be explained.
"""

from __future__ import annotations

import ast
import builtins
import sys
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple, cast

from deuteron import config
from deuteron.dtypes import DType
from deuteron.ir.types import Pointer
from deuteron.lang.aggregates import is_aggregate
from deuteron.lang.constexpr_function import ConstexprFunction
from deuteron.lang.context import is_builtin
from deuteron.lang.remedies import in_the_language
from deuteron.lang.source import is_constexpr_annotation
from deuteron.lang.values import BoundMethod, constexpr, void, wrap
from deuteron.runtime.jit import JITFunction, KernelInterface

MISSING: Final = object()


class Lost(NamedTuple):
    """Why a name has no value any more, and what to do about it."""

    reason: str
    remedy: str


NOT_YET_SET: Final = Lost(
    "it is set later, or in a branch that is not compiled",
    "set it before it is used, on every path",
)


@dataclass(slots=True)
class Scope:
    """The local names of one function being compiled.

    `declared` are the names annotated `tl.constexpr`, with the statement that did it (None for a
    parameter).
    """

    values: dict[str, object] = field(default_factory=dict[str, object])
    lost: dict[str, Lost] = field(default_factory=dict[str, Lost])
    declared: dict[str, ast.stmt | None] = field(default_factory=dict[str, "ast.stmt | None"])

    def copy(self) -> Scope:
        return Scope(dict(self.values), dict(self.lost), dict(self.declared))

    def assign(self, name: str, value: object) -> None:
        self.values[name] = value
        self.lost.pop(name, None)
        self.declared.pop(name, None)

    def declare(self, name: str, value: object, statement: ast.stmt | None) -> None:
        self.assign(name, value)
        self.declared[name] = statement

    def announce(self, name: str, statement: ast.stmt) -> None:
        """The next assignment to a name without a value declares it."""
        self.declared[name] = statement

    def is_announced(self, name: str) -> bool:
        return name in self.declared and name not in self.values

    def lose(self, name: str, why: Lost) -> None:
        """Take a name away; a reason known already is nearer to the cause and stays."""
        self.values.pop(name, None)
        self.declared.pop(name, None)
        self.lost.setdefault(name, why)


class ForbiddenGlobalError(Exception):
    """A name from outside that a kernel must not read; `value` is what it stands for."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(repr(value))


def find_outside(function: FunctionType, name: str) -> object:
    """The value of a name that is not local: from a closure, the module, or Python's builtins.

    Returns MISSING when there is none.  Raises ForbiddenGlobalError when a kernel must not read it.
    """
    value = _read_outside(function, name)
    if value is MISSING:
        return getattr(builtins, name, MISSING)
    return admit(value, _annotation(function, name))


def _read_outside(function: FunctionType, name: str) -> object:
    """What a name means around a function: in its closure, else in its module, else MISSING."""
    free = function.__code__.co_freevars
    if name in free and function.__closure__ is not None:
        try:
            return function.__closure__[free.index(name)].cell_contents
        except ValueError:  # the enclosing function has not set it yet
            return MISSING
    return function.__globals__.get(name, MISSING)


def admit(value: object, annotation: object) -> object:
    """A value from outside as a kernel sees it; ForbiddenGlobalError for what it must not see.

    Plain numbers may change between launches without the compiler knowing, so only those marked as
    constant are let in.
    """
    if isinstance(value, constexpr):
        return wrap(value.value)
    if annotation is not None and is_constexpr_annotation(annotation):
        return wrap(value)
    if _is_fixed(value):
        return value
    if isinstance(value, (bool, int, float, str)) and config.free_globals():
        return constexpr(value)
    raise ForbiddenGlobalError(value)


def admit_attribute(module: ModuleType, name: str) -> object:
    """`module.name` as a kernel sees it; MISSING when the module has no such name.

    Numbers, strings and tuples of them are let in, as `math.pi` is: they belong to the cache key.
    """
    value = getattr(module, name, MISSING)
    if value is MISSING or _is_fixed(value) or isinstance(value, constexpr):
        return value
    if value is None or isinstance(value, (bool, int, float, str)):
        return constexpr(value)
    raise ForbiddenGlobalError(value)


def _is_fixed(value: object) -> bool:
    """Functions, types and modules: what is taken not to change once the program runs."""
    kinds = (JITFunction, ConstexprFunction, ModuleType, DType, Pointer, BoundMethod)
    if isinstance(value, kinds) or value is void or is_builtin(value):
        return True
    if isinstance(value, BuiltinFunctionType):
        return value.__module__ in ("math", "builtins")
    if is_aggregate(value):
        return True
    if isinstance(value, type):
        is_named_tuple = issubclass(value, tuple) and hasattr(cast(Any, value), "_fields")
        ours = value.__module__.split(".")[0] == "deuteron"
        return is_named_tuple or ours or value.__module__ == "builtins"
    return False


def _annotation(function: FunctionType, name: str) -> object:
    """How a global is annotated in its module, or None."""
    if name in function.__code__.co_freevars:
        return None
    known = function.__globals__.get("__annotations__")
    if known is None:  # Python 3.14 computes them when the module is asked
        known = getattr(sys.modules.get(function.__module__), "__annotations__", {})
    return known.get(name)


def describe_global(name: str, value: object) -> tuple[str, str]:
    """(what is wrong, what to do) about a global that a kernel must not read."""
    kind = type(value).__name__
    article = "an" if kind[:1] in "aeiou" else "a"
    if isinstance(value, (bool, int, float, str)) or value is None:
        problem = f"`{name}` is {article} {kind} outside of the kernel, not a constexpr"
        return problem, f"write `{name} = tl.constexpr({value!r})` there, or pass it as an argument"
    if isinstance(value, FunctionType):
        problem = f"`{name}` is a plain Python function"
        ours = in_the_language(name)
        decorate = f"decorate `{name}` with @jit so that kernels can call it"
        return problem, f"use {ours}, or {decorate}" if ours else decorate
    if isinstance(value, KernelInterface):
        problem = f"`{name}` is a kernel wrapped by {kind}"
        return problem, "call the jit function that it wraps: decorate another name with @jit only"
    is_class, is_function = isinstance(value, type), callable(value) and hasattr(value, "__name__")
    what = "a function of another library" if is_function else f"{article} {kind}"
    problem = (
        f"`{name}` is {'a class' if is_class else what}, which a kernel cannot read from outside"
    )
    if ours := in_the_language(name):
        return problem, f"use {ours}"
    if isinstance(value, tuple):
        return problem, f"write `{name} = tl.constexpr({value!r})` there, or pass it as an argument"
    if is_class:
        return problem, "take what the kernel needs out of it, as in `X = tl.constexpr(...)`"
    if is_function:
        return problem, "use what tl has, or write it as a function of its own with @jit"
    return problem, "pass it as an argument of the kernel"
