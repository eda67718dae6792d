"""What a kernel reads from outside of its own source: for the cache key, and to notice changes.

The key of a kernel covers its source and, by names met in it, that of every jit function it may
call and the constants they read.  What belongs to this package is covered by the package's version.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, cast

from deuteron.dtypes import DType
from deuteron.ir.types import Pointer
from deuteron.lang.aggregates import Aggregate, is_aggregate
from deuteron.lang.constexpr_function import ConstexprFunction
from deuteron.lang.context import is_builtin
from deuteron.lang.scope import (
    MISSING,
    ForbiddenGlobalError,
    admit_attribute,
    find_outside,
)
from deuteron.lang.source import Source, has_replaced_source, source_of
from deuteron.lang.values import constexpr, unwrap
from deuteron.runtime.jit import JITFunction
from deuteron.runtime.protocols import Change

Home = dict[str, Any] | CellType
_CONSTANTS = (bool, int, float, str, DType, Pointer, type(None))


@dataclass(frozen=True, slots=True)
class Capture:
    """A name outside of a function and what it meant when the kernel was first compiled.

    `home` is where it is looked up: a module's names, or a closure's cell.
    """

    home: Home
    name: str
    value: object

    def has_changed(self) -> bool:
        now = _read(self.home, self.name)
        return now is not self.value and not _same_constant(now, self.value)


@dataclass(frozen=True, slots=True)
class Dependencies:
    """A kernel's key, and what must stay as it was."""

    key: str
    captures: tuple[Capture, ...]

    def change(self) -> Change | None:
        """The first captured name that means something else by now."""
        for capture in self.captures:
            if capture.has_changed():
                return Change(capture.name, capture.value, _read(capture.home, capture.name))
        return None


def find_dependencies(kernel: JITFunction) -> Dependencies:
    """Follow what a kernel's source names.  Raises CompilationError when there is no source."""
    finder = _Finder()
    finder.visit(kernel)
    return Dependencies(finder.digest.hexdigest(), tuple(finder.captures))


class _Finder:
    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.captures: list[Capture] = []
        self.visited: set[JITFunction] = set()
        self.read: set[FunctionType] = set()

    def visit(self, kernel: JITFunction) -> None:
        if kernel in self.visited:
            return
        self.visited.add(kernel)
        function, source = cast(FunctionType, kernel.fn), source_of(kernel)
        # The place belongs to the key, for it stands in the messages of asserts.
        self.note("source", source.file, source.first_line, source.text())
        for parameter in source.parameters:
            if parameter.has_default:
                self.value(parameter.name, parameter.default)
        for path in sorted(_outside_paths(kernel, source)):
            self.path(function, path)

    def note(self, *parts: object) -> None:
        self.digest.update("\0".join(map(str, parts)).encode() + b"\1")

    def path(self, function: FunctionType, path: tuple[str, ...]) -> None:
        """Follow `a.b.c` as far as it leads through modules."""
        name, *attributes = path
        home = _home(function, name)
        try:
            value = find_outside(function, name)
            while isinstance(value, ModuleType) and attributes:
                if _is_ours(value.__name__):
                    return
                name = attributes.pop(0)
                home, value = value.__dict__, admit_attribute(value, name)
        except ForbiddenGlobalError:
            return  # an error when it is compiled, and not compiled at all in a dead branch
        raw = _read(home, name)
        if raw is MISSING or isinstance(value, ModuleType):
            return  # a builtin of Python, or a misspelt name; a module says nothing by itself
        # A constexpr's value may be set later: what it is now is kept.
        kept = constexpr(raw.value) if isinstance(raw, constexpr) else raw
        self.captures.append(Capture(home, name, kept))
        self.value(".".join(path), value)

    def value(self, name: str, value: object) -> None:
        plain = unwrap(value)
        if isinstance(plain, JITFunction):
            self.note("jit", name, plain.fn.__module__, plain.fn.__qualname__)
            if not _is_ours(plain.fn.__module__):
                self.visit(plain)
        elif isinstance(plain, ConstexprFunction):
            function = cast(ConstexprFunction[Any, Any], plain)
            self.note("function", name, _text(function))
            self.python(function.fn)
        elif is_aggregate(plain):
            self.aggregate(name, plain)
        elif isinstance(plain, type) or is_builtin(plain):
            named = cast(Any, plain)
            fields = getattr(named, "_fields", ())
            self.note("name", name, named.__module__, named.__qualname__, fields)
        else:
            self.note("constant", name, type(plain).__name__, repr(plain))

    def python(self, function: FunctionType) -> None:
        """What a function that runs while a kernel is compiled reads: constants, functions."""
        code = getattr(function, "__code__", None)
        if code is None or function in self.read or _is_ours(function.__module__):
            return
        self.read.add(function)
        for name in sorted(set(_code_names(code))):
            value: Any = unwrap(_read(_home(function, name), name))
            if isinstance(value, FunctionType):
                self.note("python", name, _source_text(value))
                self.python(value)
            elif isinstance(value, (ConstexprFunction, *_CONSTANTS)):
                self.value(name, cast(object, value))

    def aggregate(self, name: str, kind: type[Aggregate]) -> None:
        """A class of aggregates: its fields, and whatever its methods depend on."""
        fields = {n: str(annotation) for n, annotation in kind.fields.items()}
        self.note("aggregate", name, kind.__module__, kind.__qualname__, fields, kind.defaults)
        if kind.initializer is not None:
            self.note("initializer", _source_text(kind.initializer))
        for member, value in kind.members.items():
            self.value(member, value)


def _outside_paths(kernel: JITFunction, source: Source) -> set[tuple[str, ...]]:
    """The names that a function reads from outside, with attributes where they are of modules.

    Python's own code object knows the names; only attributes need a walk through the tree.
    """
    function = cast(FunctionType, kernel.fn)
    if has_replaced_source(kernel):
        return {path for path in _paths(source.tree) if path[0] not in source.local_names}
    names = set(_code_names(function.__code__)) - source.local_names
    values = {name: _read(_home(function, name), name) for name in names}
    modules = {name: v for name, v in values.items() if isinstance(v, ModuleType)}
    foreign = {name for name, module in modules.items() if not _is_ours(module.__name__)}
    paths: set[tuple[str, ...]] = {(name,) for name in names - modules.keys()}
    if foreign:
        paths |= {path for path in _paths(source.tree) if path[0] in foreign}
    return paths


def _code_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _code_names(const)


def _paths(tree: ast.FunctionDef) -> Iterator[tuple[str, ...]]:
    """Every dotted name in a function's body, longest form only."""
    pending: list[ast.AST] = [*tree.body]
    while pending:
        node = pending.pop()
        path = _path(node)
        if path:
            yield path
        else:
            pending.extend(ast.iter_child_nodes(node))


def _path(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        base = _path(node.value)
        return (*base, node.attr) if base else ()
    return ()


def _home(function: FunctionType, name: str) -> Home:
    """Where a function looks up a name that is not local."""
    free = function.__code__.co_freevars
    if name in free and function.__closure__ is not None:
        return function.__closure__[free.index(name)]
    return function.__globals__


def _read(home: Home, name: str) -> object:
    if isinstance(home, dict):
        return home.get(name, MISSING)
    try:
        return home.cell_contents
    except ValueError:
        return MISSING


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == "deuteron"


def _text(function: ConstexprFunction[Any, Any]) -> str:
    try:
        return function.src
    except (OSError, TypeError):
        return repr(function.fn)


def _source_text(function: Any) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return repr(function)


def _same_constant(left: object, right: object) -> bool:
    """Equal numbers, strings or dtypes, even when they are not the same object."""
    if isinstance(left, constexpr) and isinstance(right, constexpr):
        left, right = left.value, right.value
    return type(left) is type(right) and isinstance(left, _CONSTANTS) and left == right
