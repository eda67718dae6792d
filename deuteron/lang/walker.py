"""Walks the syntax tree of one function and builds tile IR as it goes.

The walker holds the state; what each kind of node means stands in `expressions.py`, `calls.py`,
`assignments.py`, `control.py` and `loop_statements.py`, whose functions register themselves here by
node class.  An expression gives a value (see `values.py`); a statement gives FALLS when control
goes on to the next one, or the value returned when it does not.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, TypeVar, cast

from deuteron.errors import CompilationError, Loc
from deuteron.lang.context import Context
from deuteron.lang.remedies import suggest
from deuteron.lang.scope import (
    MISSING,
    NOT_YET_SET,
    ForbiddenGlobalError,
    Scope,
    describe_global,
    find_outside,
)
from deuteron.lang.source import Source
from deuteron.lang.values import describe
from deuteron.runtime.jit import JITFunction

FALLS: Final = object()

BINARY: Final[dict[type[ast.operator], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}

Rule = TypeVar("Rule", bound=Callable[["Walker", Any], object])
Rules = dict[type[ast.AST], Callable[["Walker", Any], object]]

EXPRESSIONS: Final[Rules] = {}
STATEMENTS: Final[Rules] = {}


def expression(*classes: type[ast.expr]) -> Callable[[Rule], Rule]:
    """Decorator: the rule for these expression nodes."""

    def register(rule: Rule) -> Rule:
        EXPRESSIONS.update(dict.fromkeys(classes, rule))
        return rule

    return register


def statement(*classes: type[ast.stmt]) -> Callable[[Rule], Rule]:
    """Decorator: the rule for these statement nodes."""

    def register(rule: Rule) -> Rule:
        STATEMENTS.update(dict.fromkeys(classes, rule))
        return rule

    return register


class Walker:
    """Compiles one call of one function.

    `caller` is the place of the call, None for the kernel itself.
    """

    __slots__ = ("builder", "caller", "copies", "ctx", "function", "scope", "source")

    def __init__(
        self,
        ctx: Context,
        kernel: JITFunction,
        source: Source,
        scope: Scope,
        caller: Loc | None,
    ) -> None:
        self.ctx = ctx
        self.builder = ctx.builder
        self.function = cast(FunctionType, kernel.fn)
        self.source = source
        self.scope = scope
        self.caller = caller
        self.copies: Counter[ast.If] = Counter()  # how often an `if` was compiled

    def loc(self, node: ast.AST) -> Loc:
        return self.source.loc(node, self.caller)

    def line(self, node: ast.stmt | ast.expr) -> int:
        """A node's line in the file."""
        return node.lineno + self.source.offset

    def at(self, node: ast.AST) -> None:
        """What is built next, and what a builtin has to complain about, belongs to this place."""
        self.builder.loc = self.source.loc(node, self.caller)

    def error(
        self, node: ast.AST, message: str, *, expected: str = "", got: str = "", remedy: str = ""
    ) -> CompilationError:
        """A located error, to be raised by the caller."""
        loc = self.source.loc(node, self.caller)
        return CompilationError(message, loc, expected=expected, got=got, remedy=remedy)

    def expr(self, node: ast.expr) -> object:
        """The value of an expression."""
        return EXPRESSIONS[type(node)](self, node)

    def statement(self, node: ast.stmt) -> object:
        """Run a statement: FALLS, or the value it returns from the function."""
        return STATEMENTS[type(node)](self, node)

    def name(self, node: ast.Name) -> object:
        """What a name stands for: a local value, one from outside, or a builtin of Python."""
        value = self.scope.values.get(node.id, MISSING)
        if value is MISSING:
            value = self._outside(node)
        return value

    def _outside(self, node: ast.Name) -> object:
        name = node.id
        if name in self.source.local_names:
            lost = self.scope.lost.get(name, NOT_YET_SET)
            message = f"`{name}` is not defined here: {lost.reason}"
            raise self.error(
                node,
                message,
                expected="a value on every path that leads here",
                got="none on one of them",
                remedy=lost.remedy,
            )
        try:
            value = find_outside(self.function, name)
        except ForbiddenGlobalError as forbidden:
            raise self.forbidden(node, name, forbidden.value) from None
        if value is MISSING:
            known = [*self.scope.values, *self.function.__globals__]
            raise self.error(
                node,
                f"`{name}` is not defined",
                expected="a name of this kernel, or of what stands around it",
                got=f"`{name}`",
                remedy=suggest(name, known) or "set it before, or pass it as an argument",
            )
        return value

    def forbidden(self, node: ast.AST, name: str, value: object) -> CompilationError:
        """The error for a name from outside that a kernel must not read."""
        problem, remedy = describe_global(name, value)
        expected = "a tl.constexpr, a jit function, a dtype or a module"
        return self.error(node, problem, expected=expected, got=describe(value), remedy=remedy)
