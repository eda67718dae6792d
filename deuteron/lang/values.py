"""What a name in a kernel may stand for while the kernel is compiled.

    Tensor      a value known when the kernel runs: a scalar (shape ()) or a tile
    constexpr   a value known now: a number, a string, None, a dtype, a function, …
    tuple       of any of these; named tuples keep their class
    Composite   another value made of these: a block pointer, a tensor descriptor, an aggregate

The AST walker hands these to the builtins of the language; everything below (`semantic`) sees
constexprs already unwrapped to plain Python values.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from deuteron.dtypes import DType
from deuteron.errors import UserError
from deuteron.ir.nodes import Value
from deuteron.ir.types import Element, Pointer, Type

F = TypeVar("F")

Scalar: TypeAlias = bool | int | float
Operand: TypeAlias = "Tensor | Scalar"


if TYPE_CHECKING:
    # A constexpr may stand wherever its value may: type checkers then let `N: tl.constexpr` be one.
    from typing import Any as _AnyValue
else:
    _AnyValue = object


class constexpr(_AnyValue):  # noqa: N801 - the language's own spelling
    """A value known at compile time.

    Operators fold in Python: `constexpr(3) // 2` is `constexpr(1)`.  A constexpr is true, hashes
    and indexes as its value does, so that it can stand where Python wants a bool or an int.
    """

    __slots__ = ("value",)

    value: Any

    def __init__(self, value: Any) -> None:
        self.value = unwrap(value)

    def __repr__(self) -> str:
        return f"constexpr[{self.value!r}]"

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __call__(self, *args: Any, **kwargs: Any) -> constexpr:
        return constexpr(
            self.value(*map(unwrap, args), **{k: unwrap(v) for k, v in kwargs.items()})
        )

    def __getitem__(self, index: Any) -> constexpr:
        return constexpr(self.value[unwrap(index)])

    # Comparisons fold too; dictionaries still work, since the answer's truth is the value's.
    def __eq__(self, other: object) -> constexpr:  # type: ignore[override]
        return constexpr(self.value == unwrap(other))

    def __ne__(self, other: object) -> constexpr:  # type: ignore[override]
        return constexpr(self.value != unwrap(other))

    def logical_and(self, other: object) -> constexpr:
        return constexpr(self.value and unwrap(other))

    def logical_or(self, other: object) -> constexpr:
        return constexpr(self.value or unwrap(other))


def _install_folding() -> None:
    """Give `constexpr` the operators that fold by calling Python's own."""

    def binary(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], constexpr]:
        return lambda self, other: constexpr(function(unwrap(self), unwrap(other)))

    def reflected(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], constexpr]:
        return lambda self, other: constexpr(function(unwrap(other), unwrap(self)))

    def unary(function: Callable[[Any], Any]) -> Callable[[Any], constexpr]:
        return lambda self: constexpr(function(unwrap(self)))

    reflectable = (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift",
        "and", "or", "xor",
    )  # fmt: skip
    for name in reflectable:
        function = getattr(operator, f"__{name}__")
        setattr(constexpr, f"__{name}__", binary(function))
        setattr(constexpr, f"__r{name}__", reflected(function))
    for name in ("lt", "le", "gt", "ge"):
        setattr(constexpr, f"__{name}__", binary(getattr(operator, name)))
    for name in ("neg", "pos", "invert", "abs"):
        setattr(constexpr, f"__{name}__", unary(getattr(operator, name)))


_install_folding()


@dataclass(frozen=True, slots=True)
class BoundMethod:
    """`x.sum` for a tensor x: calling it calls `function` with `receiver` in front."""

    function: Any
    receiver: object

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise UserError("a method of a tensor can be called in a kernel only")


# Functions that may also be called as methods of a tensor; `tensor_member` fills it at import.
TENSOR_MEMBERS: Final[dict[str, Any]] = {}


def tensor_member(function: F) -> F:
    """Decorator: a builtin or jit function may also be called as a method of its first argument."""
    TENSOR_MEMBERS[cast(Any, function).__name__] = function
    return function


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A value known when the kernel runs: `handle` is the IR value that computes it.

    A scalar is a Tensor of shape ().  Two Tensors are equal only when they are the same object:
    the language's `==` is `operators.compare`.
    """

    handle: Value

    @property
    def type(self) -> Type:
        return self.handle.type

    @property
    def dtype(self) -> Element:
        """The element: a DType, or a Pointer (whose `element_ty` is what it points to)."""
        return self.handle.type.element

    @property
    def shape(self) -> tuple[int, ...]:
        return self.handle.type.shape

    @property
    def numel(self) -> int:
        return self.handle.type.numel

    @property
    def ndim(self) -> int:
        return self.handle.type.rank

    @property
    def is_pointer(self) -> bool:
        return self.handle.type.is_pointer

    @property
    def number(self) -> DType:
        """The dtype of a tensor that is known not to hold pointers."""
        return self.handle.type.dtype

    def __getattr__(self, name: str) -> BoundMethod:
        function = TENSOR_MEMBERS.get(name)
        if function is None:
            raise AttributeError(name)
        return BoundMethod(function, self)

    if TYPE_CHECKING:
        # Kernels use these; the AST walker carries them out by `operators.py`, never Python.
        def _binary(self, other: Any, /) -> Tensor: ...
        def _unary(self) -> Tensor: ...
        def __getitem__(self, items: Any, /) -> Tensor: ...

        __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = _binary
        __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = _binary
        __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = _binary
        __rand__ = __ror__ = __rxor__ = __rlshift__ = __rrshift__ = _binary
        __lt__ = __le__ = __gt__ = __ge__ = _binary
        __neg__ = __pos__ = __invert__ = _unary

        @property
        def T(self) -> Tensor: ...  # noqa: N802

    def __bool__(self) -> bool:
        raise TypeError("the truth of a tensor is known only when the kernel runs")

    def __str__(self) -> str:
        """What `static_print` writes of it, as Triton does: int32[constexpr[128]]."""
        return f"{self.dtype}[{', '.join(f'constexpr[{size}]' for size in self.shape)}]"


class Composite(ABC):
    """A value of the language that is made of others, its parts.

    Control flow takes it apart and puts it together again: two composites may stand for each other
    where their `kind` is equal, and their parts then meet one by one.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def kind(self) -> object:
        """What of it is fixed while the kernel is compiled."""

    @property
    @abstractmethod
    def parts(self) -> tuple[object, ...]:
        """The values it is made of."""

    @abstractmethod
    def rebuilt(self, parts: tuple[object, ...]) -> Composite:
        """The same with other parts."""

    @abstractmethod
    def attribute(self, name: str) -> object:
        """`value.name` in a kernel.  Raises AttributeError."""


def parts_of(value: object) -> tuple[object, ...] | None:
    """What a tuple or a composite is made of; None for any other value."""
    if isinstance(value, tuple):
        return cast(tuple[object, ...], value)
    return value.parts if isinstance(value, Composite) else None


def rebuild(like: object, parts: Iterable[object]) -> object:
    """A tuple (which may be a named one) or composite of the same kind, of other parts."""
    if isinstance(like, Composite):
        return like.rebuilt(tuple(parts))
    return cast(Any, type(like))(*parts) if hasattr(like, "_fields") else tuple(parts)


def same_kind(left: object, right: object) -> bool:
    """Whether two tuples or composites differ in their parts at most."""
    if isinstance(left, Composite) and isinstance(right, Composite):
        return type(left) is type(right) and left.kind == right.kind
    a, b = parts_of(left), parts_of(right)
    return type(left) is type(right) and a is not None and b is not None and len(a) == len(b)


@dataclass(frozen=True, slots=True)
class BlockType:
    """The type of a tile as the language shows it: `x.type` of a tile x."""

    element_ty: Element
    shape: tuple[int, ...]

    @property
    def scalar(self) -> Element:
        return self.element_ty

    @property
    def numel(self) -> int:
        return prod(self.shape)

    def is_block(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class ConstexprType:
    """The type of a constant as the language shows it: `x.type` of a constexpr x."""

    value: Any


class const:  # noqa: N801 - the language's own spelling
    """Annotation of a pointer parameter that the kernel may not store through."""


class _Void:
    """The type of a function that returns nothing."""

    def __repr__(self) -> str:
        return "void"


void: Final = _Void()
pointer_type = Pointer


def _map_tuple(value: tuple[object, ...], function: Callable[[object], object]) -> object:
    mapped = [function(v) for v in value]
    fields = getattr(value, "_fields", None)
    return tuple(mapped) if fields is None else cast(Any, type(value))(*mapped)


def unwrap(value: object) -> Any:
    """Plain Python values out of constexprs, inside tuples and lists too; the rest as it is."""
    if isinstance(value, constexpr):
        return value.value
    if isinstance(value, tuple):
        return _map_tuple(cast(tuple[object, ...], value), unwrap)
    if isinstance(value, list):
        return [unwrap(v) for v in cast(list[object], value)]
    return value


def wrap(value: object) -> object:
    """Constexprs around numbers, strings, None, dtypes and pointer types, inside tuples too.

    The inverse of `unwrap` for what a builtin or an attribute of a tensor gives back.
    """
    if isinstance(value, tuple):
        return _map_tuple(cast(tuple[object, ...], value), wrap)
    if value is None or isinstance(value, (bool, int, float, str, DType, Pointer)):
        return constexpr(value)
    return value


def is_static(value: object) -> bool:
    """True when the value is known at compile time through and through."""
    parts = parts_of(value)
    if parts is not None:
        return all(is_static(v) for v in parts)
    return not isinstance(value, Tensor)


def describe(value: object) -> str:
    """How an error message names a value: a tensor's type, or a constant and its class."""
    if isinstance(value, Tensor):
        kind = "tile" if value.shape else "scalar"
        return f"a {kind} {value.type}"
    if isinstance(value, tuple):
        return f"a tuple ({', '.join(describe(v) for v in cast(tuple[object, ...], value))})"
    if isinstance(value, Composite):
        return str(value)
    plain = unwrap(value)
    if plain is None:
        return "None"
    if isinstance(plain, (DType, Pointer)):
        return f"the dtype {plain}"
    if isinstance(plain, ModuleType):
        return f"the module {plain.__name__}"
    if isinstance(plain, type) and plain.__module__ != "builtins":
        return f"the class {plain.__name__}"
    if callable(plain):
        return f"the function {getattr(plain, '__name__', plain)!s}"
    return f"{plain!r} ({type(plain).__name__})"
