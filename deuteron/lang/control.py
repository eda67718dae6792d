"""Control flow: sequences of statements, `if`, `return`, `break`, the conditional expression.

A condition known now chooses what is compiled.  One known only when the kernel runs becomes an
`If` of the IR, whose results are the names that the branches leave different.  There is no early
exit in the IR: where a branch may return, or end the turn of a loop, the statements after the `if`
become part of the branches that do not.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Final

from deuteron.errors import CompilationError
from deuteron.ir.nodes import Block
from deuteron.lang import loops, operators
from deuteron.lang.merge import MismatchError, common_form, fill, pour
from deuteron.lang.scope import MISSING, Lost, Scope
from deuteron.lang.semantic.shape import reshape
from deuteron.lang.values import Tensor, constexpr, describe, unwrap
from deuteron.lang.walker import FALLS, Walker, expression, statement

MAX_COPIES: Final = 64
"""How often an `if` with a `return` inside may be compiled as the rest of others before it."""


@dataclass(frozen=True, slots=True)
class Escape:
    """How the turn of a loop ended before its last statement: whether by `break`."""

    breaks: constexpr | Tensor


GOES_ON: Final = Escape(constexpr(False))


def run_body(w: Walker, statements: Sequence[ast.stmt]) -> object:
    """Run statements in order; FALLS, what they return from the function, or an Escape.

    What stands after a `return` or `break` that is surely reached is not looked at.
    """
    for index, node in enumerate(statements):
        if type(node) is ast.If and w.source.returns(node):
            return _run_returning_if(w, node, statements[index + 1 :])
        if type(node) is ast.If and w.source.escapes(node):
            return _run_escaping_if(w, node, statements[index + 1 :])
        outcome = w.statement(node)
        if outcome is not FALLS:
            return outcome
    return FALLS


def condition(w: Walker, node: ast.expr) -> bool | Tensor:
    """The truth of a condition: a bool when it is known now, else a scalar i1."""
    value = w.expr(node)
    w.at(node)
    if isinstance(value, loops.condition):
        value = value.value
    if isinstance(value, Tensor):
        if value.numel != 1:
            raise w.error(
                node,
                "a condition must be one value, not a tile",
                expected="a scalar, or a tile of one element",
                got=describe(value),
                remedy="choose by element with tl.where, or reduce the tile first: tl.max(x)",
            )
        return operators.truth(w.ctx, reshape(w.ctx, value, ()) if value.shape else value)
    plain = unwrap(value)
    if callable(plain) or isinstance(plain, ModuleType):
        raise w.error(
            node,
            "a condition must be a value",
            expected="a number, a boolean or None",
            got=describe(value),
            remedy=(
                "call it: a pair of parentheses is missing"
                if callable(plain)
                else "name what is meant in the module"
            ),
        )
    return bool(plain)


# -- return ------------------------------------------------------------------------------------
@statement(ast.Return)
def visit_return(w: Walker, node: ast.Return) -> object:
    """`return value`; a kernel itself returns nothing."""
    value = constexpr(None) if node.value is None else w.expr(node.value)
    if w.caller is None and unwrap(value) is not None:
        raise w.error(
            node,
            "a kernel returns nothing",
            expected="`return` without a value",
            got=describe(value),
            remedy="store the result through a pointer: tl.store(out_ptr + offsets, value)",
        )
    return value


def _run_returning_if(w: Walker, node: ast.If, rest: Sequence[ast.stmt]) -> object:
    """An `if` with a `return` inside, and everything after it."""
    test = condition(w, node.test)
    bodies = ([*node.body, *rest], [*node.orelse, *rest])
    if isinstance(test, bool):
        return run_body(w, bodies[0] if test else bodies[1])
    _count_copies(w, node, "return", "set a result in the branches, and return once at the end")
    branches = (
        _branch(w, lambda: run_body(w, bodies[0])),
        _branch(w, lambda: run_body(w, bodies[1])),
    )
    values = [constexpr(None) if b.outcome is FALLS else b.outcome for b in branches]
    w.at(node)
    try:
        form = common_form(w.ctx, *values)
    except MismatchError as mismatch:
        raise _return_error(w, node, bodies[1], values, mismatch) from None
    return _join(w, node, test, branches, [form], ([values[0]], [values[1]]))[0]


def _return_error(
    w: Walker,
    node: ast.If,
    second_path: Sequence[ast.stmt],
    values: list[object],
    mismatch: MismatchError,
) -> CompilationError:
    for first, second in (values, reversed(values)):
        if unwrap(first) is None:
            return w.error(
                node,
                f"`{w.source.name}` returns a value on some paths only",
                expected=f"{describe(second)} on every path",
                got="nothing on another path",
                remedy="return a value at the end too",
            )
    inner = (n for statement in second_path for n in ast.walk(statement))
    return w.error(
        next((n for n in inner if isinstance(n, ast.Return)), node),
        f"`{w.source.name}` returns different types on different paths",
        expected=f"{mismatch.left}, as on the first path",
        got=mismatch.right,
        remedy="return values of one type on every path; cast with .to(...)",
    )


def _count_copies(w: Walker, node: ast.If, word: str, remedy: str) -> None:
    w.copies[node] += 1
    if w.copies[node] > MAX_COPIES:
        raise w.error(
            node,
            f"this `if` would be compiled too often: each `{word}` under two `if` copies the rest",
            expected=f"at most {MAX_COPIES} copies",
            got="one more",
            remedy=remedy,
        )


# -- break and continue ------------------------------------------------------------------------
@statement(ast.Break)
def visit_break(w: Walker, node: ast.Break) -> object:
    """`break`: the loop around ends with the names as they are."""
    w.at(node)
    w.ctx.beyond_triton("`break`", "use a `while` loop whose condition holds a flag")
    return Escape(constexpr(True))


@statement(ast.Continue)
def visit_continue(w: Walker, node: ast.Continue) -> object:
    """`continue`: the next turn of the loop around begins."""
    w.at(node)
    w.ctx.beyond_triton("`continue`", "put the rest of the loop's body under an `if`")
    return GOES_ON


def _run_escaping_if(w: Walker, node: ast.If, rest: Sequence[ast.stmt]) -> object:
    """An `if` with a `break` or `continue` inside, and everything after it in the loop's body."""
    test = condition(w, node.test)
    bodies = ([*node.body, *rest], [*node.orelse, *rest])
    if isinstance(test, bool):
        return run_body(w, bodies[0] if test else bodies[1])
    _count_copies(w, node, "continue", "put what both go on with into a jit function")
    then = _branch(w, lambda: _escape_of(run_body(w, bodies[0])).breaks)
    otherwise = _branch(w, lambda: _escape_of(run_body(w, bodies[1])).breaks)
    w.at(node)
    form = common_form(w.ctx, then.outcome, otherwise.outcome)
    breaks = _meet(w, node, test, (then, otherwise), form)
    assert isinstance(breaks, (constexpr, Tensor))
    return Escape(breaks)


def _escape_of(outcome: object) -> Escape:
    return outcome if isinstance(outcome, Escape) else GOES_ON


def breaks_of(outcome: object) -> constexpr | Tensor:
    """Whether a loop's body, run with this outcome, ended the loop."""
    return _escape_of(outcome).breaks


def run_unless(w: Walker, node: ast.For, flag: Tensor, run: Callable[[], object]) -> None:
    """Run what follows unless a flag holds; the names of both ways meet after it."""
    skipped = _branch(w, lambda: None)
    taken = _branch(w, run)
    skipped.outcome = taken.outcome = FALLS
    _meet(w, node, flag, (skipped, taken), FALLS)


# -- if ----------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Branch:
    """One way through: its IR, the names at its end, what it returned or is worth."""

    block: Block
    scope: Scope
    outcome: object


def _branch(w: Walker, compile_branch: Callable[[], object]) -> _Branch:
    """Compile a branch on its own; the walker's scope is left as it was."""
    before = w.scope
    w.scope = before.copy()
    w.builder.open()
    outcome = compile_branch()
    branch = _Branch(w.builder.close(), w.scope, outcome)
    w.scope = before
    return branch


@statement(ast.If)
def visit_if(w: Walker, node: ast.If) -> object:
    """An `if` without a `return` inside."""
    test = condition(w, node.test)
    if isinstance(test, bool):
        return run_body(w, node.body if test else node.orelse)
    then = _branch(w, lambda: run_body(w, node.body))
    otherwise = _branch(w, lambda: run_body(w, node.orelse))
    _meet(w, node, test, (then, otherwise), FALLS)
    return FALLS


@expression(ast.IfExp)
def visit_conditional(w: Walker, node: ast.IfExp) -> object:
    """`a if test else b`; only the taken side is compiled when the test is known."""
    test = condition(w, node.test)
    if isinstance(test, bool):
        return w.expr(node.body if test else node.orelse)
    then = _branch(w, lambda: w.expr(node.body))
    otherwise = _branch(w, lambda: w.expr(node.orelse))
    w.at(node)
    try:
        form = common_form(w.ctx, then.outcome, otherwise.outcome)
    except MismatchError as mismatch:
        raise w.error(
            node,
            "the two sides of a conditional expression differ in type",
            expected=f"{mismatch.left}, as on the left",
            got=f"{mismatch.right} on the right",
            remedy="give both sides one type; cast with .to(...)",
        ) from None
    return _meet(w, node, test, (then, otherwise), form)


def _meet(
    w: Walker,
    node: ast.If | ast.IfExp | ast.For,
    test: Tensor,
    branches: tuple[_Branch, _Branch],
    form: object,
) -> object:
    """Append the `If`, merge the names of both branches, and fill `form` from their outcomes."""
    scopes = [branch.scope for branch in branches]
    merged, names = _common_names(w, node, scopes[0], scopes[1])
    pairs = [(scopes[0].values[name], scopes[1].values[name]) for name in names]
    forms = [
        _common_form(w, node, name, left, right)
        for name, (left, right) in zip(names, pairs, strict=True)
    ]
    outcomes = [branch.outcome for branch in branches]
    lefts = [outcomes[0], *(left for left, _ in pairs)]
    rights = [outcomes[1], *(right for _, right in pairs)]
    result, *values = _join(w, node, test, branches, [form, *forms], (lefts, rights))
    for name, value in zip(names, values, strict=True):
        name_value(name, value)
        merged.assign(name, value)
    w.scope = merged
    return result


def _common_names(
    w: Walker, node: ast.If | ast.IfExp | ast.For, then: Scope, otherwise: Scope
) -> tuple[Scope, list[str]]:
    """The scope after an `if`, and the names set on both paths to what may differ."""
    merged = Scope(then.values, then.lost | otherwise.lost, then.declared)
    changed: list[str] = []
    what = "`for`" if isinstance(node, ast.For) else "`if`"
    why = Lost(
        f"it is set in only one branch of the {what} at line {w.line(node)}",
        f"give it a value before the {what}, or in both branches",
    )
    for name in {**then.values, **otherwise.values}:
        left, right = then.values.get(name, MISSING), otherwise.values.get(name, MISSING)
        if left is MISSING or right is MISSING:
            merged.lose(name, why)
        elif left is not right:
            changed.append(name)
    return merged, changed


def _common_form(
    w: Walker, node: ast.If | ast.IfExp | ast.For, name: str, left: object, right: object
) -> object:
    try:
        return common_form(w.ctx, left, right)
    except MismatchError as mismatch:
        raise w.error(
            last_store(node, name),
            f"`{name}` has different types after the `if` at line {w.line(node)}",
            expected=f"{mismatch.left}, as at the end of the first branch",
            got=f"{mismatch.right} at the end of the other",
            remedy=f"give `{name}` one type on both paths; cast with .to(...)",
        ) from None


def _join(
    w: Walker,
    node: ast.AST,
    test: Tensor,
    branches: tuple[_Branch, _Branch],
    forms: Sequence[object],
    values: tuple[Sequence[object], Sequence[object]],
) -> list[object]:
    """Append the `If`.  `values` hold, for each branch, what fills the forms."""
    w.at(node)
    for branch, sources in zip(branches, values, strict=True):
        w.builder.open()  # constants that a form needs go to the end of the branch
        pairs = zip(sources, forms, strict=True)
        yields = [v for value, form in pairs for v in pour(w.ctx, value, form)]
        branch.block.nodes.extend(w.builder.close().nodes)
        branch.block.yields = tuple(yields)
    results = iter(w.builder.if_(test.handle, branches[0].block, branches[1].block))
    return [fill(form, results) for form in forms]


# -- names -------------------------------------------------------------------------------------
def name_value(name: str, value: object) -> None:
    """Let the IR show a value under the name it is first assigned to."""
    if isinstance(value, Tensor) and not value.handle.name:
        value.handle.name = name


def last_store(node: ast.stmt | ast.expr, name: str) -> ast.AST:
    """The last statement inside `node` that assigns a name; `node` itself when there is none."""
    found: ast.AST = node
    for inner in ast.walk(node):
        if isinstance(inner, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
            targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target]
            names = {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
            is_later = getattr(found, "lineno", 0) <= inner.lineno or found is node
            if name in names and is_later:
                found = inner
    return found
