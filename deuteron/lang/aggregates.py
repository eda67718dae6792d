"""Aggregates: classes whose instances kernels make, pass on, carry through loops and take apart.

    @dn.aggregate
    class Pair:
        first: tl.tensor
        second: tl.constexpr = 2

        @dn.jit
        def total(self):
            return self.first + self.second

An instance does not change once it is made; `tl.aggregate_replace` makes another one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, cast

from deuteron.errors import CompilationError, UserError
from deuteron.lang.constexpr_function import ConstexprFunction
from deuteron.lang.context import Context, is_builtin
from deuteron.lang.semantic.casts import is_scalar, to_tensor
from deuteron.lang.source import is_constexpr_annotation
from deuteron.lang.values import (
    BoundMethod,
    Composite,
    Tensor,
    constexpr,
    describe,
    parts_of,
    unwrap,
    wrap,
)
from deuteron.runtime.jit import JITFunction

_NO_DEFAULT: Final = object()
_TENSOR_NAMES: Final = ("tensor", "Tensor")


class Aggregate(Composite):
    """What `aggregate` makes of a class; its values are those of the fields, in order."""

    __slots__ = ("_values",)
    fields: ClassVar[dict[str, object]] = {}  # the annotations by name
    defaults: ClassVar[dict[str, object]] = {}
    members: ClassVar[dict[str, object]] = {}  # methods and constants of the class
    initializer: ClassVar[Callable[..., None] | None] = None

    _values: tuple[object, ...]

    def __init__(self, *args: object, **kwargs: object) -> None:
        self._values = _initial_values(type(self), None, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in type(self).fields:
            return self._values[list(self.fields).index(name)]
        raise AttributeError(name)

    def __str__(self) -> str:
        shown = ", ".join(
            f"{n}={describe(v)}" for n, v in zip(self.fields, self._values, strict=True)
        )
        return f"the aggregate {type(self).__name__}({shown})"

    __repr__ = __str__

    @property
    def kind(self) -> object:
        return type(self)

    @property
    def parts(self) -> tuple[object, ...]:
        return self._values

    def rebuilt(self, parts: tuple[object, ...]) -> Aggregate:
        return _with_values(type(self), parts)

    def attribute(self, name: str) -> object:
        if name in self.fields:
            return getattr(self, name)
        if name not in self.members:
            raise AttributeError(", ".join((*self.fields, *self.members)) or "no fields")
        member = self.members[name]
        callable_in_kernels = isinstance(member, (JITFunction, ConstexprFunction))
        if callable_in_kernels or is_builtin(member):
            return BoundMethod(member, self)
        return member

    def method(self, name: str) -> JITFunction | None:
        """A special method such as `__add__` that kernels may call."""
        member = self.members.get(name)
        return member if isinstance(member, JITFunction) else None


def _with_values(kind: type[Aggregate], values: tuple[object, ...]) -> Aggregate:
    made = object.__new__(kind)
    made._values = values  # pyright: ignore[reportPrivateUsage]
    return made


# -- the decorator -------------------------------------------------------------------------
def aggregate(cls: type) -> type[Aggregate]:
    """Decorator: a class whose annotated attributes are the parts of a value in kernels.

    A field is annotated `tl.tensor`, `tl.constexpr`, `tl.tuple`, with another aggregate, or with
    anything.  Methods are jit functions; `__getitem__` and those of operators are found by their
    symbols.  An `__init__` of plain Python may set the fields from constants and tensors.
    Aggregates inherit from aggregates.
    """
    fields: dict[str, object] = {}
    defaults: dict[str, object] = {}
    members: dict[str, object] = {}
    bases = [base for base in cls.__mro__[1:] if base is not object]
    for base in reversed([b for b in bases if not _is_machinery(b)]):
        if not issubclass(base, Aggregate):
            raise UserError(
                f"aggregate {cls.__name__} inherits from {base.__name__}, which is none\n"
                "  expected: aggregates as bases\n"
                f"  got:      {base.__name__}\n"
                f"  remedy:   decorate {base.__name__} with @aggregate too"
            )
        fields |= base.fields
        defaults |= base.defaults
        members |= base.members
    own = inspect.get_annotations(cls)
    fields |= own
    for name, value in vars(cls).items():
        if name in own:
            defaults[name] = wrap(unwrap(value))
        elif name == "__init__" or not name.startswith("__") or isinstance(value, JITFunction):
            members[name] = value
    init = members.pop("__init__", None) or _inherited_init(bases)
    namespace = {
        "__slots__": (),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "fields": fields,
        "defaults": defaults,
        "members": members,
        "initializer": init,
    }
    parents = tuple(b for b in cls.__bases__ if b is not object) or (Aggregate,)
    return cast(type[Aggregate], type(cls.__name__, parents, namespace))


def is_aggregate(value: object) -> bool:
    """Whether a value is a class decorated with `aggregate`."""
    return isinstance(value, type) and issubclass(value, Aggregate)


def _is_machinery(base: type) -> bool:
    return base is Aggregate or base is Composite or base.__module__ == "abc"


def _inherited_init(bases: Sequence[type]) -> object:
    inits = (getattr(base, "initializer", None) for base in bases)
    return next((init for init in inits if init is not None), None)


# -- construction --------------------------------------------------------------------------
class _Draft:
    """The instance as an `__init__` of Python sees it: its fields may be set."""


def construct(
    ctx: Context, kind: type[Aggregate], args: Sequence[object], kwargs: Mapping[str, object]
) -> Aggregate:
    """An instance made in a kernel.  Raises CompilationError."""
    try:
        return _with_values(kind, _initial_values(kind, ctx, args, kwargs))
    except CompilationError:
        raise
    except (TypeError, AttributeError, AssertionError) as error:
        raise ctx.error(
            f"`{kind.__name__}` cannot be made of these: {error}",
            expected=", ".join(kind.fields) or "no arguments",
            got=", ".join(map(describe, (*args, *kwargs.values()))) or "no arguments",
            remedy="give each field one value of its kind",
        ) from None


def _initial_values(
    kind: type[Aggregate],
    ctx: Context | None,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> tuple[object, ...]:
    init = kind.initializer
    given = _bound(kind, args, kwargs) if init is None else _drafted(init, ctx, args, kwargs)
    given = {name: wrap(value) for name, value in given.items()}
    missing = [name for name in kind.fields if name not in given]
    if missing:
        raise TypeError(f"no value for {', '.join(missing)}")
    pairs = kind.fields.items()
    return tuple(_admit(ctx, name, annotation, given[name]) for name, annotation in pairs)


def _bound(
    kind: type[Aggregate], args: Sequence[object], kwargs: Mapping[str, object]
) -> dict[str, object]:
    names = list(kind.fields)
    if len(args) > len(names):
        raise TypeError(f"{len(args)} values for {len(names)} fields")
    given = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name in given:
            raise TypeError(f"{name} is given twice")
        if name not in names:
            raise TypeError(f"there is no field {name}")
        given[name] = value
    return dict(kind.defaults) | given


def _drafted(
    init: Callable[..., None],
    ctx: Context | None,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> dict[str, object]:
    draft = _Draft()
    parameters = inspect.signature(init).parameters
    context = {name: ctx for name in ("_ctx", "_semantic") if name in parameters}
    init(draft, *map(wrap, args), **{k: wrap(v) for k, v in kwargs.items()}, **context)
    return dict(vars(draft))


def _admit(ctx: Context | None, name: str, annotation: object, value: object) -> object:
    """A field's value; a number for a tensor becomes one.  Raises TypeError."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    last = str(text).rpartition(".")[2]
    if last in _TENSOR_NAMES and not isinstance(value, Tensor):
        plain = unwrap(value)
        if ctx is None or not is_scalar(plain):
            raise TypeError(f"{name} is annotated tl.tensor")
        return to_tensor(ctx, plain)
    if is_constexpr_annotation(annotation):
        if isinstance(value, Tensor) or parts_of(value) is not None:
            raise TypeError(f"{name} is annotated tl.constexpr")
        return constexpr(value)
    composite = isinstance(annotation, type) and issubclass(annotation, (tuple, Composite))
    if composite and not isinstance(value, cast(type[object], annotation)):
        raise TypeError(f"{name} is annotated {last}")
    return value


# -- replacing fields ----------------------------------------------------------------------
def aggregate_replace(*instances: Any, _ctx: Context | None = None, **changes: object) -> Any:
    """The same instance with other values in some fields, named by keyword."""
    instance = instances[0] if len(instances) == 1 else instances
    if not isinstance(instance, Aggregate):
        message = f"aggregate_replace takes an aggregate, not {describe(instance)}"
        raise _wrong(_ctx, message, "an instance of a class decorated with @aggregate", instance)
    kind = type(instance)
    for name in changes:
        if name not in kind.fields:
            message = f"{kind.__name__} has no field `{name}`"
            raise _wrong(_ctx, message, ", ".join(kind.fields), constexpr(name))
    try:
        admitted = {n: _admit(_ctx, n, kind.fields[n], wrap(v)) for n, v in changes.items()}
    except TypeError as error:
        raise _wrong(_ctx, str(error), "a value of the field's kind", instance) from None
    values = dict(zip(kind.fields, instance.parts, strict=True)) | admitted
    return _with_values(kind, tuple(values.values()))


def _wrong(ctx: Context | None, message: str, expected: str, got: object) -> UserError:
    remedy = "name fields of the aggregate, with values of their kinds"
    if ctx is not None:
        return ctx.error(message, expected=expected, got=describe(got), remedy=remedy)
    text = f"  expected: {expected}\n  got:      {describe(got)}\n  remedy:   {remedy}"
    return UserError(f"{message}\n{text}")


cast(Any, aggregate_replace).is_builtin = True
cast(Any, aggregate_replace).__signature__ = inspect.Signature(
    [
        inspect.Parameter("instance", inspect.Parameter.POSITIONAL_OR_KEYWORD),
        inspect.Parameter("changes", inspect.Parameter.VAR_KEYWORD),
    ]
)
