"""Making a failing case small: statements go as long as it fails in the same way."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterator

from tests.fuzz.case import Case

Fails = Callable[[Case], bool]
MOST_TRIES = 250


def shrink(case: Case, fails: Fails) -> Case:
    """The smallest case found that still fails; `fails` must hold for `case`."""
    tries = 0
    best = case
    progress = True
    while progress and tries < MOST_TRIES:
        progress = False
        for candidate in _smaller(best):
            tries += 1
            if fails(candidate):
                best, progress = candidate, True
                break
            if tries >= MOST_TRIES:
                break
    return best


def _smaller(case: Case) -> Iterator[Case]:
    """Cases with less: one program, then without a run of statements, then without a nesting."""
    if case.grid != (1, 1, 1):
        yield Case(**{**_fields(case), "grid": (1, 1, 1)})
    tree = ast.parse(textwrap.dedent("\n".join(case.body)))
    count = sum(1 for _ in _statements(tree))
    size = max(1, count // 2)
    while size:
        for start in range(count - size, -1, -size):
            yield from _edited(case, _without(case, start, size))
        size //= 2
    for place in range(count):
        yield from _edited(case, _unwrapped(case, place))


def _fields(case: Case) -> dict:
    return {name: getattr(case, name) for name in case.__dataclass_fields__}


def _edited(case: Case, tree: ast.Module | None) -> Iterator[Case]:
    if tree is not None and tree.body:
        ast.fix_missing_locations(tree)
        body = ast.unparse(tree).splitlines()
        if body != list(case.body):
            yield case.with_body(body)


def _statements(tree: ast.AST) -> Iterator[tuple[list[ast.stmt], int]]:
    """Every statement, as its block and its place there."""
    for node in ast.walk(tree):
        for field in ("body", "orelse"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                for place in range(len(block)):
                    yield block, place


def _without(case: Case, start: int, size: int) -> ast.Module | None:
    tree = ast.parse("\n".join(case.body))
    chosen = list(_statements(tree))[start : start + size]
    # What counts the turns of a `while` stays, or it would never end.
    gone = {id(b[place]) for b, place in chosen if not isinstance(b[place], ast.AugAssign)}
    for node in ast.walk(tree):
        for field in ("body", "orelse"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                kept = [s for s in block if id(s) not in gone]
                if not kept and field == "body" and not isinstance(node, ast.Module):
                    kept = [ast.Pass()]
                setattr(node, field, kept)
    return tree


def _unwrapped(case: Case, place: int) -> ast.Module | None:
    """A branch or a loop replaced by its body."""
    tree = ast.parse("\n".join(case.body))
    block, index = list(_statements(tree))[place]
    statement = block[index]
    if not isinstance(statement, ast.If | ast.For | ast.While):
        return None
    block[index : index + 1] = statement.body
    return tree
