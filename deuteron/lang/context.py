"""What a builtin of the language needs while a kernel is compiled.

The AST walker owns one Context a kernel, sets `builder.loc` to the place it is at, and calls a
builtin as `function(*args, _ctx=context, **kwargs)`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

from deuteron.errors import CompilationError, LaunchError, Loc, UserError
from deuteron.ir.builder import Builder
from deuteron.ir.optable import OpTypeError
from deuteron.lang.remedies import parameter_named, suggest
from deuteron.lang.values import BoundMethod, Tensor, describe, unwrap, wrap

P = ParamSpec("P")
R = TypeVar("R")

CallJit = Callable[[Any, Sequence[object], Mapping[str, object]], object]


@dataclass(frozen=True, slots=True)
class Options:
    """Launch options that the front end or a backend looks at."""

    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    debug: bool = False  # keep device_assert
    enable_fp_fusion: bool = True
    strict: bool = False  # refuse what Triton does not know
    target: str = "cpu"  # "cpu" or "cuda": what the kernel asks of `tl.target_info`
    target_arch: int = 0  # compute capability: 90 for 9.0


# Arithmetic on floats that has an exactly rounded form beside a fast one.
_ROUNDED = frozenset({"add", "sub", "mul", "div", "sqrt"})


def _no_jit(function: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    raise UserError("this context cannot call jit functions")


@dataclass(slots=True)
class Context:
    """One kernel's compilation.

    `call_jit(function, args, kwargs)` inlines a jit function at the builder's place and returns
    its value; the AST walker sets it.
    """

    builder: Builder
    options: Options = field(default_factory=Options)
    call_jit: CallJit = _no_jit
    _ieee: bool = False

    @property
    def loc(self) -> Loc:
        return self.builder.loc

    def error(
        self, message: str, *, expected: str = "", got: str = "", remedy: str = "", cause: str = ""
    ) -> CompilationError:
        """A located error, to be raised by the caller; `cause` is what Triton says of it."""
        return CompilationError(
            message, self.loc, expected=expected, got=got, remedy=remedy, cause=cause
        )

    def beyond_triton(self, what: str, remedy: str) -> None:
        """Note that a kernel uses something of this language only.  Raises in strict kernels."""
        if self.options.strict:
            raise self.error(
                f"{what} goes beyond Triton, and this kernel is strict",
                expected="what Triton can compile too",
                got=what,
                remedy=f"{remedy}; or leave strict=True out",
            )

    def op(self, name: str, *operands: Tensor, **attrs: Any) -> Tensor:
        """Append a table op with one result."""
        if self._ieee and name in _ROUNDED and operands[0].number.is_floating():
            attrs["ieee"] = True
        return Tensor(self.builder.op(name, *(o.handle for o in operands), **attrs))

    @contextmanager
    def ieee_arithmetic(self, wanted: bool = True) -> Generator[None]:
        """Have + - * / and sqrt of floats rounded as IEEE 754 asks, each on its own, if wanted.

        Elsewhere a backend may fuse products with sums, and divide with a small error.
        """
        before, self._ieee = self._ieee, self._ieee or wanted
        try:
            yield
        finally:
            self._ieee = before

    def call(self, function: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Call what a kernel may call: a builtin, a bound method or a jit function."""
        if isinstance(function, BoundMethod):
            return self.call(function.function, (function.receiver, *args), kwargs)
        if is_builtin(function):
            return function(*args, _ctx=self, **kwargs)
        return self.call_jit(function, args, kwargs)


def builtin(function: Callable[Concatenate[Context, P], R]) -> Callable[P, R]:
    """Make a function of the language out of one that takes the Context first.

    In a kernel it is called with `_ctx=` (in code written for Triton, `_semantic=`); its arguments
    arrive with constexprs unwrapped, and plain values it returns become constexprs.  Wrong
    arguments become located errors.  Outside of a kernel it raises UserError.
    """
    name = function.__name__
    public, checks = _public_signature(function)

    @wraps(function)
    def call(
        *args: Any, _ctx: Context | None = None, _semantic: Context | None = None, **kwargs: Any
    ) -> Any:
        _ctx = _ctx or _semantic
        if _ctx is None:
            raise LaunchError(
                f"{name} is a function of the kernel language\n"
                "  expected: a call inside a function decorated with @jit\n"
                "  got:      a call from plain Python\n"
                "  remedy:   write a kernel and launch it, or use what NumPy has"
            )
        plain = [unwrap(a) for a in args]
        named = {k: unwrap(v) for k, v in kwargs.items()}
        try:
            bound = public.bind(*plain, **named)
        except TypeError as error:
            raise _ctx.error(
                f"{name}: {error}",
                expected=f"{name}{public}",
                got=", ".join([*map(describe, plain), *(f"{k}=" for k in named)]) or "no arguments",
                remedy=_binding_remedy(name, public, len(plain), named),
            ) from None
        for parameter, value in bound.arguments.items():
            check = checks.get(parameter)
            if check is not None and not isinstance(value, check.classes):
                raise _argument_error(_ctx, name, parameter, value, check)
        try:
            return wrap(cast(Any, function)(_ctx, *plain, **named))
        except OpTypeError as error:
            got = ", ".join(map(describe, plain))
            remedy = f"see help(tl.{name})"
            raise _ctx.error(
                f"{name}: {error}", expected=f"{name}{public}", got=got, remedy=remedy
            ) from error

    marked = cast(Any, call)
    marked.__signature__ = public
    marked.is_builtin = True
    return marked


@dataclass(frozen=True, slots=True)
class _Check:
    """What an argument must be: of one of these classes, which are `wanted` in words."""

    classes: tuple[type, ...]
    wanted: str


_OPERAND: Final = _Check((Tensor, bool, int, float), "a tensor or a number")
# By annotation.  What is not here says itself what is wrong with an argument.
_CHECKS: Final[dict[str, _Check]] = {
    "Tensor": _Check((Tensor,), "a tensor"),
    "Operand": _OPERAND,
    "Tensor | Scalar": _OPERAND,
    "bool": _Check((bool, int), "True or False"),
    "str": _Check((str,), "a string"),
    "Sequence[int]": _Check((tuple, list), "a tuple or list of integers"),
    "Sequence[Any]": _Check((tuple, list), "a tuple or list of numbers or tensors"),
}


def _public_signature(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, _Check]]:
    """What callers may pass, without annotations, and what these ask of the arguments."""
    _, *parameters = inspect.signature(function).parameters.values()
    checks: dict[str, _Check] = {}
    for parameter in parameters:
        kind, _, optional = str(parameter.annotation).partition(" | None")
        check = _CHECKS.get(kind + optional)
        if check is None or parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            continue
        if " | None" in str(parameter.annotation):
            check = _Check((*check.classes, type(None)), f"{check.wanted}, or None")
        checks[parameter.name] = check
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return inspect.Signature(bare), checks


def _binding_remedy(
    name: str, public: inspect.Signature, positional: int, named: Mapping[str, object]
) -> str:
    unknown = [keyword for keyword in named if keyword not in public.parameters]
    if unknown:
        wanted = parameter_named(unknown[0])
        return suggest(wanted, public.parameters) or f"leave {unknown[0]}=… out"
    lacking = [
        parameter.name
        for parameter in list(public.parameters.values())[positional:]
        if parameter.default is inspect.Parameter.empty and parameter.name not in named
    ]
    if lacking:
        return f"add {', '.join(f'{parameter}=…' for parameter in lacking)} to the call"
    return f"see help(tl.{name})"


def _argument_error(
    ctx: Context, name: str, parameter: str, value: object, check: _Check
) -> CompilationError:
    of = "" if name.startswith("_") else f" of {name}"
    remedy = f"pass {check.wanted}"
    if isinstance(value, Tensor):
        remedy = "annotate the name it comes from with tl.constexpr"
    elif callable(value):
        remedy = "call it: a pair of parentheses is missing"
    return ctx.error(
        f"the argument `{parameter}`{of} does not fit",
        expected=check.wanted,
        got=describe(value),
        remedy=remedy,
    )


def is_builtin(function: object) -> bool:
    """True for a function made by `@builtin`."""
    return getattr(function, "is_builtin", False) is True
