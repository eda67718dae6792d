"""From a Python function to tile IR: where the compilation of a kernel starts.

lower_kernel -> walker.Walker on the kernel's body   (statements and expressions by node class)
             -> calls.Inliner for each jit function  (a Walker of its own)
             -> ir.Function
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from deuteron import config
from deuteron.errors import CompilationError, DeuteronError, InternalError
from deuteron.ir.builder import Builder
from deuteron.ir.nodes import Attrs, Function, Value
from deuteron.ir.types import Type
from deuteron.lang import assignments, expressions, loop_statements, unsupported
from deuteron.lang.calls import Inliner
from deuteron.lang.context import Context, Options
from deuteron.lang.control import run_body
from deuteron.lang.scope import Scope
from deuteron.lang.source import Source, source_of
from deuteron.lang.values import Tensor, parts_of, rebuild, unwrap, wrap
from deuteron.lang.walker import Walker
from deuteron.runtime.jit import JITFunction

# Importing these modules registers their rules with the walker.
RULES = (assignments, expressions, loop_statements, unsupported)


@dataclass(frozen=True, slots=True)
class Argument:
    """A kernel argument known at run time; `attrs` are its parameter attributes in the IR.

    `same_as` is the number of the earlier one that has the same value, and stands for it.
    """

    type: Type
    attrs: Attrs = field(default_factory=dict[str, Any])
    same_as: int | None = None


def lower_kernel(
    kernel: JITFunction,
    arguments: Mapping[str, object],
    options: Options | None = None,
    attrs: Attrs | None = None,
) -> Function:
    """Compile a kernel for given arguments.

    Each parameter's entry is an Argument, a constexpr, or a tuple or composite of these.  `attrs`
    become the attributes of the IR function.  Raises CompilationError, located in the kernel's
    source.
    """
    source = source_of(kernel)
    builder = Builder()
    ctx = Context(builder, options or Options())
    inliner = Inliner(ctx)
    ctx.call_jit = inliner.call
    flat = [leaf for value in arguments.values() for leaf in _leaves(value)]
    names = [name for key, value in arguments.items() for name in _leaf_names(key, value)]
    params = builder.open([leaf.type for leaf in flat], names)
    firsts = [leaf.same_as for leaf in flat]
    used = [p if first is None else params[first] for p, first in zip(params, firsts, strict=True)]
    scope = _bind(source, arguments, iter(used))
    walker = Walker(ctx, kernel, source, scope, caller=None)
    walker.at(source.tree)
    _check_specialization(ctx, kernel)
    inliner.enter(source, scope)
    _run(walker)
    walker.at(source.tree)
    param_attrs = [leaf.attrs for leaf in flat]
    return builder.function(source.name, builder.close(), param_attrs, attrs)


def _check_specialization(ctx: Context, kernel: JITFunction) -> None:
    for param in kernel.params:
        if param.is_constexpr and param.do_not_specialize:
            raise ctx.error(
                f"{param.name} marked as constexpr and listed in do_not_specialize",
                expected="one of both",
                got=f"`{param.name}: tl.constexpr` and do_not_specialize of it",
                remedy="take it out of do_not_specialize, or its annotation away",
            )


def _run(walker: Walker) -> None:
    """Walk the kernel's body.  What is no error of ours on purpose is a broken compiler."""
    try:
        run_body(walker, walker.source.tree.body)
    except DeuteronError as error:
        if config.debug_topics():
            raise
        # The way through the compiler says nothing to whoever wrote the kernel.
        raise error.with_traceback(None)  # noqa: B904 - the cause is set where there is one
    except RecursionError as error:
        raise CompilationError(
            "the kernel is nested too deeply",
            walker.builder.loc,
            expected="some hundred operators or statements inside each other at most",
            got="more",
            remedy="split long expressions and deep nests of `if` into smaller functions",
        ) from error
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        message = f"{walker.builder.loc}: the compiler failed here, please report it: {text}"
        raise InternalError(message) from error


def _bind(source: Source, arguments: Mapping[str, object], params: Iterator[Value]) -> Scope:
    scope = Scope()
    for parameter in source.parameters:
        value = _fill(arguments[parameter.name], params)
        if parameter.is_constexpr:
            scope.declare(parameter.name, value, None)
        else:
            scope.assign(parameter.name, value)
    return scope


def _leaves(value: object) -> Iterator[Argument]:
    if isinstance(value, Argument):
        yield value
    else:
        for item in parts_of(value) or ():
            yield from _leaves(item)


def _leaf_names(name: str, value: object) -> Iterator[str]:
    if isinstance(value, Argument):
        yield name
    else:
        for index, item in enumerate(parts_of(value) or ()):
            yield from _leaf_names(f"{name}.{index}", item)


def _fill(value: object, params: Iterator[Value]) -> object:
    if isinstance(value, Argument):
        return Tensor(next(params))
    parts = parts_of(value)
    if parts is not None:
        return rebuild(value, [_fill(item, params) for item in parts])
    return wrap(unwrap(value))
