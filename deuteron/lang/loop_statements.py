"""`for` and `while`.

A name that exists before a loop and is assigned in it is carried: it enters the body as a block
argument and keeps its type.  A name first set inside a loop is unknown after it, for the loop may
not run at all.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from deuteron.dtypes import DType, int1, int32, promote
from deuteron.errors import CompilationError
from deuteron.ir.nodes import Value
from deuteron.ir.types import BOOL, Type
from deuteron.lang import loops
from deuteron.lang.assignments import assign_target
from deuteron.lang.control import breaks_of, condition, last_store, name_value, run_body, run_unless
from deuteron.lang.merge import (
    MismatchError,
    Slot,
    carried_form,
    describe_form,
    fill,
    is_number,
    is_tuple,
    pour,
    slot_types,
)
from deuteron.lang.scope import Lost, Scope
from deuteron.lang.semantic.casts import cast, to_tensor
from deuteron.lang.values import Tensor, constexpr, describe, unwrap
from deuteron.lang.walker import FALLS, Walker, statement

MAX_UNROLLED: Final = 1 << 14
"""How many iterations of `tl.static_range` are compiled; each takes about a millisecond."""


@statement(ast.For)
def visit_for(w: Walker, node: ast.For) -> object:
    """`for i in range(...)`: unrolled for tl.static_range and tuples, else a loop of the IR."""
    _check_loop(w, node)
    steps = w.expr(node.iter)
    if is_tuple(steps):
        w.at(node.iter)
        w.ctx.beyond_triton(
            "`for` over a tuple", "write `for i in tl.static_range(len(t)):` and take `t[i]`"
        )
        _unroll(w, node, steps)
        _lose_targets(w, node)
        return FALLS
    if not isinstance(node.target, ast.Name):
        raise w.error(
            node.target,
            "a loop counts with one name",
            expected="a name",
            got=f"`{ast.unparse(node.target)}`",
            remedy="write `for i in ...`",
        )
    if isinstance(steps, loops.static_range):
        _unroll(w, node, [constexpr(index) for index in _static_steps(w, node, steps)])
    elif not isinstance(steps, loops.range):
        raise w.error(
            node.iter,
            "a loop cannot go over this",
            expected="range(...), tl.range(...), tl.static_range(...) or a tuple",
            got=describe(steps),
            remedy="loop over range, tl.range or tl.static_range",
        )
    elif w.source.breaks(node):
        _count_until_break(w, node, node.target.id, steps)
    else:
        _count(w, node, node.target.id, steps)
    return FALLS


def _check_loop(w: Walker, node: ast.For | ast.While) -> None:
    if node.orelse:
        kind = "for" if isinstance(node, ast.For) else "while"
        raise w.error(
            node.orelse[0],
            f"`else` after `{kind}` is not supported in a kernel",
            expected="a loop without `else`",
            got="a loop with one",
            remedy="put the statements after the loop, without `else`",
        )
    if w.source.returns(node):
        place = next(n for n in ast.walk(node) if isinstance(n, ast.Return))
        raise w.error(
            place,
            "`return` inside a loop is not supported in a kernel",
            expected="`return` outside of loops",
            got=f"one in the loop at line {w.line(node)}",
            remedy="assign the result to a name set before the loop, and return it after the loop",
        )


# -- for ---------------------------------------------------------------------------------------
def _static_steps(w: Walker, node: ast.For, steps: loops.static_range) -> range:
    """The counts of an unrolled loop."""
    bounds = [unwrap(b) for b in (steps.start, steps.stop, steps.step)]
    if not all(isinstance(b, int) for b in bounds):
        raise w.error(
            node.iter,
            "tl.static_range needs bounds known at compile time",
            expected="constexpr integers",
            got=", ".join(describe(b) for b in (steps.start, steps.stop, steps.step)),
            remedy="use tl.range, or make the bounds tl.constexpr",
        )
    if bounds[2] == 0:
        raise _zero_step(w, node)
    steps_taken = range(*bounds)
    if steps_taken[MAX_UNROLLED:]:
        raise w.error(
            node.iter,
            "tl.static_range would write its body out too often",
            expected=f"at most {MAX_UNROLLED:,} iterations",
            got=str(steps_taken),
            remedy="use tl.range, which makes a loop",
        )
    return steps_taken


def _unroll(w: Walker, node: ast.For, items: Sequence[object]) -> None:
    """The body once for each item; after a `break` that may happen, only if it did not."""
    for index, item in enumerate(items):
        assign_target(w, node.target, item, keeps_constants=True)
        before, w.copies = w.copies, Counter()
        breaks = breaks_of(run_body(w, node.body))
        w.copies = before
        if isinstance(breaks, Tensor):
            rest = items[index + 1 :]
            if rest:
                run_unless(w, node, breaks, lambda: _unroll(w, node, rest))  # noqa: B023 - now
            return
        if breaks.value:
            return


def _lose_targets(w: Walker, node: ast.For) -> None:
    """A loop around does not carry what names the items of a tuple."""
    reason = f"it names the items of the loop at line {w.line(node)}"
    for inner in ast.walk(node.target):
        if isinstance(inner, ast.Name):
            w.scope.lose(inner.id, Lost(reason, "copy it to a name set before the loop"))


def _count(w: Walker, node: ast.For, counter: str, steps: loops.range) -> None:
    lower, upper, step = _bounds(w, node, steps)
    carried = _Carried.at_entry(w, node, (counter,))
    before = w.scope
    args = w.builder.open([lower.type, *carried.types], [counter, *carried.arg_names])
    w.scope = carried.scope_inside(before, args[1:])
    w.scope.assign(counter, Tensor(args[0]))
    run_body(w, node.body)
    yields = carried.at_exit(w, node)
    _lose_counter(w, node, counter)
    body, inside = w.builder.close(yields), w.scope
    w.at(node)
    bounds = (lower.handle, upper.handle, step.handle)
    results = w.builder.for_(bounds, carried.inits, body, steps.attrs)
    w.scope = carried.scope_after(w, node, before, inside, results)


def _count_until_break(w: Walker, node: ast.For, counter: str, steps: loops.range) -> None:
    """A `for` with a `break` is a `while` that carries its count and whether it goes on."""
    lower, upper, step = _bounds(w, node, steps)
    carried = _Carried.at_entry(w, node, (counter,))
    before, b = w.scope, w.builder
    types = [BOOL, lower.type, *carried.types]
    args = b.open(types)
    check = b.close([b.op("and", args[0], _is_inside(w, args[1], upper, step))])
    args = b.open(types, ["goes_on", counter, *carried.arg_names])
    w.scope = carried.scope_inside(before, args[2:])
    w.scope.assign(counter, Tensor(args[1]))
    breaks = breaks_of(run_body(w, node.body))
    yields = carried.at_exit(w, node)
    w.at(node)
    following = b.op("add", args[1], step.handle)
    _lose_counter(w, node, counter)
    body, inside = b.close([_negated(w, breaks), following, *yields]), w.scope
    results = b.while_([b.const(True, int1), lower.handle, *carried.inits], check, body)
    w.scope = carried.scope_after(w, node, before, inside, results[2:])


def _is_inside(w: Walker, count: Value, upper: Tensor, step: Tensor) -> Value:
    """Whether a count has not come to the end yet, in the direction of the step."""
    b = w.builder
    below, above = (b.op(name, count, upper.handle) for name in ("lt", "gt"))
    up = b.op("gt", step.handle, b.const(0, step.number))
    return b.op("select", up, below, above)


def _negated(w: Walker, breaks: constexpr | Tensor) -> Value:
    """Whether a loop goes on."""
    if isinstance(breaks, Tensor):
        return w.builder.op("not", breaks.handle)
    return w.builder.const(not breaks.value, int1)


def _lose_counter(w: Walker, node: ast.For, counter: str) -> None:
    reason = f"it counts the loop at line {w.line(node)}, and its last count is not kept"
    w.scope.lose(counter, Lost(reason, "copy it to a name set before the loop"))


def _bounds(w: Walker, node: ast.For, steps: loops.range) -> tuple[Tensor, Tensor, Tensor]:
    """The bounds as scalars of one integer dtype, the one that arithmetic on them has."""
    w.at(node.iter)
    bounds = [to_tensor(w.ctx, unwrap(b)) for b in (steps.start, steps.stop, steps.step)]
    for bound in bounds:
        if bound.shape or bound.is_pointer or not bound.number.is_int():
            raise w.error(
                node.iter,
                "a loop's bounds must be integers",
                expected="scalars of an integer dtype",
                got=describe(bound),
                remedy="cast a float with .to(tl.int32); reduce a tile first",
            )
    if unwrap(steps.step) == 0:
        raise _zero_step(w, node)
    dtype: DType = promote(promote(bounds[0].number, bounds[1].number), bounds[2].number)
    if dtype.is_bool():
        dtype = int32
    lower, upper, step = (cast(w.ctx, bound, dtype) for bound in bounds)
    return lower, upper, step


def _zero_step(w: Walker, node: ast.For) -> CompilationError:
    return w.error(
        node.iter,
        "a loop's step must not be 0",
        expected="a step above or below 0",
        got="0",
        remedy="leave the step out to count by 1",
    )


# -- while -------------------------------------------------------------------------------------
@statement(ast.While)
def visit_while(w: Walker, node: ast.While) -> object:
    """`while test:`, whose test is computed anew before each iteration."""
    _check_loop(w, node)
    carried = _Carried.at_entry(w, node, _condition_names(w, node))
    before, b = w.scope, w.builder
    flags = [BOOL] if w.source.breaks(node) else []
    types = [*flags, *carried.types]
    args = b.open(types, [*["goes_on"] * len(flags), *carried.arg_names])
    w.scope = carried.scope_inside(before, args[len(flags) :])
    test = _while_test(w, node, args[0] if flags else None)
    if test is None:
        b.close()
        w.scope = before
        return FALLS
    check = b.close([test])

    args = b.open(types, [*["goes_on"] * len(flags), *carried.arg_names])
    w.scope = carried.scope_inside(before, args[len(flags) :])
    _lose_condition_names(w, node, w.scope)
    breaks = breaks_of(run_body(w, node.body))
    yields = carried.at_exit(w, node)
    w.at(node)
    if flags:
        yields = [_negated(w, breaks), *yields]
    body, inside = b.close(yields), w.scope
    inits = [*(b.const(True, int1) for _ in flags), *carried.inits]
    results = b.while_(inits, check, body)
    w.scope = carried.scope_after(w, node, before, inside, results[len(flags) :])
    _lose_condition_names(w, node, w.scope)
    return FALLS


def _while_test(w: Walker, node: ast.While, goes_on: Value | None) -> Value | None:
    """Whether to take another turn; None for never.

    `goes_on` is false after a `break`: the loop's own condition is then not computed.
    """
    w.builder.open()
    test = condition(w, node.test)
    block = w.builder.close()
    if isinstance(test, bool):
        if test and goes_on is None:
            raise w.error(
                node.test,
                "this loop would never end",
                expected="a condition that may become false",
                got="a condition that is always true",
                remedy="loop while a value computed in the body says so, or leave it with `break`",
            )
        return goes_on if test else None
    if goes_on is None:
        w.builder.block.nodes.extend(block.nodes)
        return test.handle
    block.yields = (test.handle,)
    w.at(node)
    w.builder.open()
    never = w.builder.const(False, int1)
    otherwise = w.builder.close([never])
    return w.builder.if_(goes_on, block, otherwise)[0]


def _condition_names(w: Walker, node: ast.While) -> set[str]:
    """The names that `:=` sets in a loop's condition."""
    if not w.source.has_walrus:
        return set()
    return {n.target.id for n in ast.walk(node.test) if isinstance(n, ast.NamedExpr)}


def _lose_condition_names(w: Walker, node: ast.While, scope: Scope) -> None:
    """What is set in a condition stays there: the IR's condition gives nothing but its truth."""
    for name in _condition_names(w, node):
        reason = f"`:=` sets it in the condition of the loop at line {w.line(node)}"
        scope.lose(name, Lost(reason, "compute it in the loop's body instead"))


# -- carried names -----------------------------------------------------------------------------
@dataclass(slots=True)
class _Carried:
    """The names that a loop assigns and that exist before it.

    Names whose form has no slots (None, a dtype, what is annotated tl.constexpr) must not change.
    """

    names: list[str]
    forms: list[object]
    inits: tuple[Value, ...]
    inside: list[object] = field(default_factory=list[object])

    @staticmethod
    def at_entry(w: Walker, node: ast.For | ast.While, skip: Collection[str]) -> _Carried:
        """Find them and build their first values."""
        w.at(node)
        stores = w.source.stores(node)
        names, forms, inits = list[str](), list[object](), list[Value]()
        for name, value in w.scope.values.items():
            if name in stores and name not in skip:
                fixed = name in w.scope.declared
                form = value if fixed and is_number(value) else carried_form(w.ctx, value)
                names.append(name)
                forms.append(form)
                inits += pour(w.ctx, value, form)
        return _Carried(names, forms, tuple(inits))

    @property
    def types(self) -> list[Type]:
        return [t for form in self.forms for t in slot_types(form)]

    @property
    def arg_names(self) -> list[str]:
        pairs = zip(self.names, self.forms, strict=True)
        return [name for name, form in pairs for _ in slot_types(form)]

    def scope_inside(self, before: Scope, args: Sequence[Value]) -> Scope:
        """The scope at the start of the body, whose block arguments are `args`."""
        values = iter(args)
        self.inside = [fill(form, values) for form in self.forms]
        scope = before.copy()
        for name, form, value in zip(self.names, self.forms, self.inside, strict=True):
            if slot_types(form):
                scope.assign(name, value)
        return scope

    def at_exit(self, w: Walker, node: ast.For | ast.While) -> list[Value]:
        """The carried values at the end of the body.  Raises when one changed its type."""
        yields: list[Value] = []
        for name, form, entry in zip(self.names, self.forms, self.inside, strict=True):
            value = w.scope.values.get(name, entry)
            try:
                yields += pour(w.ctx, value, form)
            except MismatchError:
                raise w.error(
                    last_store(node, name),
                    f"`{name}` changes its type in the loop at line {w.line(node)}",
                    expected=f"{describe_form(form)}, as before the loop",
                    got=f"{describe(value)} at the end of an iteration",
                    remedy=_remedy(name, form, value),
                ) from None
        return yields

    def scope_after(
        self,
        w: Walker,
        node: ast.For | ast.While,
        before: Scope,
        inside: Scope,
        results: Sequence[Value],
    ) -> Scope:
        """The scope after the loop, whose results are `results`."""
        after, values = before.copy(), iter(results)
        for name, form in zip(self.names, self.forms, strict=True):
            value = fill(form, values)
            if slot_types(form):
                name_value(name, value)
                after.assign(name, value)
        why = Lost(
            f"it is first set inside the loop at line {w.line(node)}, which may not run at all",
            "give it a value before the loop",
        )
        for name in inside.values:
            if name not in before.values:
                after.lose(name, why)
        for name, reason in inside.lost.items():
            after.lose(name, reason)
        return after


def _remedy(name: str, form: object, value: object) -> str:
    if is_number(form):
        return f"`{name}` is a constexpr; copy it to another name before the loop, and change that"
    if not (isinstance(form, Slot) and isinstance(value, Tensor)):
        return f"give `{name}` a first value of its final type before the loop"
    before, after = form.type, value.type
    if before.shape != after.shape:
        dtype = f"tl.{after.element}" if isinstance(after.element, DType) else "..."
        return f"start with a tile: `{name} = tl.zeros({after.shape}, {dtype})` before the loop"
    if before.is_pointer or after.is_pointer:
        return f"keep `{name}` a pointer of one type"
    if not before.shape and before.dtype.is_int() and after.dtype.is_floating():
        return f"start with a float, as in `{name} = 0.0`, or keep it an integer with .to(...)"
    cast_back = f".to(tl.{before.dtype})"
    return f"give `{name}` the dtype {after.dtype} before the loop, or cast in it: {cast_back}"
