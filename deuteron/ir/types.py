"""Types of the tile IR: a scalar or a tile of numbers or pointers."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from deuteron.dtypes import DType, int1


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer to elements of a dtype.  `const` forbids storing through it."""

    pointee: DType
    const: bool = False

    def __str__(self) -> str:
        return f"*{'k' if self.const else ''}{self.pointee.short}"

    @property
    def element_ty(self) -> DType:
        """What it points to, under Triton's name."""
        return self.pointee

    @property
    def scalar(self) -> Pointer:
        """Itself, as for a DType."""
        return self

    def is_ptr(self) -> bool:
        """True, where a DType says False."""
        return True


Element = DType | Pointer


@dataclass(frozen=True, slots=True)
class Type:
    """The type of every IR value: an element and a shape; shape () is a scalar."""

    element: Element
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        name = str(self.element) if isinstance(self.element, Pointer) else self.element.short
        return f"<{'x'.join(map(str, self.shape))}x{name}>" if self.shape else name

    @property
    def is_tile(self) -> bool:
        return bool(self.shape)

    @property
    def is_pointer(self) -> bool:
        return isinstance(self.element, Pointer)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def dtype(self) -> DType:
        """The element dtype; asking it of a pointer is an error of ours."""
        assert isinstance(self.element, DType), f"{self} has no dtype"
        return self.element

    @property
    def pointee(self) -> DType:
        assert isinstance(self.element, Pointer), f"{self} is no pointer"
        return self.element.pointee

    @property
    def scalar(self) -> Type:
        return Type(self.element)

    def with_shape(self, shape: tuple[int, ...]) -> Type:
        return Type(self.element, shape)

    def with_element(self, element: Element) -> Type:
        return Type(element, self.shape)


BOOL = Type(int1)
