"""The Python that a kernel cannot hold, each with what to write instead."""

from __future__ import annotations

import ast
from typing import Final, NoReturn

from deuteron.lang.walker import EXPRESSIONS, STATEMENTS, Walker, expression, statement

SUPPORTED_EXPRESSIONS: Final = "operators, calls, attributes, subscripts, tuples, constants"
SUPPORTED_STATEMENTS: Final = (
    "assignments, calls, if, for, while, break, continue, return, assert, pass"
)

# Node class -> (what it is, what to write instead).
UNSUPPORTED_EXPRESSIONS: Final[dict[type[ast.expr], tuple[str, str]]] = {
    ast.Lambda: ("a lambda", "write a function of its own, decorated with @jit"),
    ast.Dict: ("a dict", "use separate names, or a tuple"),
    ast.DictComp: ("a dict", "use separate names, or a tuple"),
    ast.Set: ("a set", "use a tuple"),
    ast.SetComp: ("a set", "use a tuple"),
    ast.Await: ("`await`", "kernels are not coroutines; leave it out"),
    ast.Yield: ("`yield`", "return a tuple"),
    ast.YieldFrom: ("`yield from`", "return a tuple"),
    ast.Starred: ("`*` here", "it may stand in the arguments of a call only"),
    ast.Slice: ("a slice here", "it may stand in a subscript only"),
}
UNSUPPORTED_STATEMENTS: Final[dict[type[ast.stmt], tuple[str, str]]] = {
    ast.FunctionDef: ("a nested function", "move it out of the kernel and decorate it with @jit"),
    ast.AsyncFunctionDef: ("a nested function", "move it out and decorate it with @jit"),
    ast.ClassDef: ("a class", "define it outside of the kernel"),
    ast.Delete: ("`del`", "leave it out; the compiler knows when a value is no longer used"),
    ast.Global: ("`global`", "return the value, or store it through a pointer"),
    ast.Nonlocal: ("`nonlocal`", "return the value, or store it through a pointer"),
    ast.Import: ("`import`", "import at the top of the file"),
    ast.ImportFrom: ("`import`", "import at the top of the file"),
    ast.With: ("`with`", "leave it out, and indent its body back"),
    ast.AsyncWith: ("`async with`", "leave it out, and indent its body back"),
    ast.AsyncFor: ("`async for`", "use `for` over range or tl.range"),
    ast.Try: ("`try`", "nothing can be caught in a kernel; check before, with `if` or a mask"),
    ast.TryStar: ("`try`", "nothing can be caught in a kernel; check before, with `if` or a mask"),
    ast.Raise: ("`raise`", "use tl.static_assert for what is known now, else tl.device_assert"),
    ast.Match: ("`match`", "use if / elif / else"),
}


@expression(*UNSUPPORTED_EXPRESSIONS)
def reject_expression(w: Walker, node: ast.expr) -> NoReturn:
    """An expression that no kernel can hold."""
    what, instead = UNSUPPORTED_EXPRESSIONS[type(node)]
    raise w.error(
        node,
        f"{what} is not supported in a kernel",
        expected=SUPPORTED_EXPRESSIONS,
        got=what,
        remedy=instead,
    )


@statement(*UNSUPPORTED_STATEMENTS)
def reject_statement(w: Walker, node: ast.stmt) -> NoReturn:
    """A statement that no kernel can hold."""
    what, instead = UNSUPPORTED_STATEMENTS[type(node)]
    raise w.error(
        node,
        f"{what} is not supported in a kernel",
        expected=SUPPORTED_STATEMENTS,
        got=what,
        remedy=instead,
    )


def reject_unknown(w: Walker, node: ast.expr | ast.stmt) -> NoReturn:
    """For syntax that is newer than this compiler."""
    supported = SUPPORTED_STATEMENTS if isinstance(node, ast.stmt) else SUPPORTED_EXPRESSIONS
    raise w.error(
        node,
        "this syntax is not supported in a kernel",
        expected=supported,
        got=type(node).__name__,
        remedy="write it as an older Python would",
    )


def _reject_the_rest() -> None:
    for cls in ast.expr.__subclasses__():
        EXPRESSIONS.setdefault(cls, reject_unknown)
    for cls in ast.stmt.__subclasses__():
        STATEMENTS.setdefault(cls, reject_unknown)


_reject_the_rest()
