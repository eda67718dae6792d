"""Blocks of arrays in memory: block pointers and tensor descriptors.

Both name an array by its base, shape and strides, and a block of it by a block shape and offsets.
Nothing of that reaches the IR: a block is a tile of pointers, and a mask where its elements may lie
outside of the array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from typing import cast as typing_cast

from deuteron.dtypes import DType, float32, float64, int64
from deuteron.lang.context import Context
from deuteron.lang.semantic import arith
from deuteron.lang.semantic.casts import cast, to_tensor
from deuteron.lang.semantic.memory import atomic_rmw, check_pointer
from deuteron.lang.semantic.memory import load as load_tile
from deuteron.lang.semantic.memory import store as store_tile
from deuteron.lang.semantic.shape import (
    arange,
    broadcast_to,
    check_axis,
    check_shape,
    expand_dims,
    splat,
)
from deuteron.lang.values import BoundMethod, Composite, Operand, Tensor, constexpr, describe

# What may be called as a method; `access.py` fills it.
BLOCK_METHODS: Final[dict[str, Any]] = {}
DESCRIPTOR_METHODS: Final[dict[str, Any]] = {}
MAX_RANK = 5
MIN_BLOCK_BYTES = 16
"""Of a descriptor's block along the last axis: what a GPU's copies of blocks ask for."""
_PADDINGS = ("", "zero", "nan")

# A size, stride or offset: a scalar, or a number known while the kernel is compiled.
Number = Tensor | constexpr


@dataclass(frozen=True, slots=True, eq=False)
class Blocks(Composite):
    """An array, and the shape of the blocks it is taken by.

    `base` points to its first element; `shape` and `strides` count elements.
    """

    base: Tensor
    shape: tuple[Number, ...]
    strides: tuple[Number, ...]
    block_shape: tuple[int, ...]

    @property
    def pointee(self) -> DType:
        return self.base.handle.type.pointee


@dataclass(frozen=True, slots=True, eq=False)
class BlockPointer(Blocks):
    """What `tl.make_block_ptr` gives: one block of an array, at `offsets`, scalars."""

    offsets: tuple[Tensor, ...] = ()

    def __str__(self) -> str:
        return f"a block pointer to {self.pointee}, block shape {self.block_shape}"

    @property
    def kind(self) -> object:
        return (self.base.type, self.block_shape)

    @property
    def parts(self) -> tuple[object, ...]:
        return (self.base, self.shape, self.strides, self.offsets)

    def rebuilt(self, parts: tuple[object, ...]) -> BlockPointer:
        base, shape, strides, offsets = typing_cast(Any, parts)
        return replace(self, base=base, shape=shape, strides=strides, offsets=offsets)

    def attribute(self, name: str) -> object:
        if name == "dtype":
            return self.base.dtype
        if name in BLOCK_METHODS:
            return BoundMethod(BLOCK_METHODS[name], self)
        return _field(self, name, ("base", "shape", "strides", "offsets", "block_shape"))


@dataclass(frozen=True, slots=True, eq=False)
class TensorDescriptor(Blocks):
    """What `tl.make_tensor_descriptor` gives: an array read and written by blocks.

    `padding`, "zero" or "nan", is what elements outside of the array read as.
    """

    padding: str = "zero"

    def __str__(self) -> str:
        return f"a tensor descriptor of {self.pointee}, block shape {self.block_shape}"

    @property
    def kind(self) -> object:
        return (self.base.type, self.block_shape, self.padding)

    @property
    def parts(self) -> tuple[object, ...]:
        return (self.base, self.shape, self.strides)

    def rebuilt(self, parts: tuple[object, ...]) -> TensorDescriptor:
        base, shape, strides = typing_cast(Any, parts)
        return replace(self, base=base, shape=shape, strides=strides)

    def attribute(self, name: str) -> object:
        if name == "dtype":
            return self.pointee
        if name in DESCRIPTOR_METHODS:
            return BoundMethod(DESCRIPTOR_METHODS[name], self)
        return _field(self, name, ("base", "shape", "strides", "block_shape"))


def _field(blocks: Blocks, name: str, names: tuple[str, ...]) -> object:
    if name in names:
        return getattr(blocks, name)
    methods = BLOCK_METHODS if isinstance(blocks, BlockPointer) else DESCRIPTOR_METHODS
    raise AttributeError(", ".join((*names, *methods)))


# -- making them ---------------------------------------------------------------------------
def make_block_pointer(
    ctx: Context,
    base: object,
    shape: Sequence[object],
    strides: Sequence[object],
    offsets: Sequence[object],
    block_shape: Sequence[object],
    order: Sequence[object],
) -> BlockPointer:
    """A pointer to one block of an array."""
    pointer = _base(ctx, "make_block_ptr", base)
    block = check_shape(ctx, block_shape)
    rank = _rank(ctx, block, shape=shape, strides=strides, offsets=offsets, order=order)
    checked = [check_axis(ctx, axis, rank, "order") for axis in order]
    if sorted(checked) != list(range(rank)):
        raise ctx.error(
            "the order of make_block_ptr is no permutation of the axes",
            expected=f"each of {list(range(rank))} once",
            got=str(list(order)),
            remedy="name every axis, the one whose elements are neighbours first",
        )
    sizes, steps = _numbers(ctx, "shape", shape), _numbers(ctx, "strides", strides)
    return BlockPointer(pointer, sizes, steps, block, scalars(ctx, "offsets", offsets))


def make_descriptor(
    ctx: Context,
    base: object,
    shape: Sequence[object],
    strides: Sequence[object],
    block_shape: Sequence[object],
    padding: str,
) -> TensorDescriptor:
    """An array to be read and written by blocks."""
    pointer = _base(ctx, "make_tensor_descriptor", base)
    block = check_shape(ctx, block_shape)
    rank = _rank(ctx, block, shape=shape, strides=strides)
    if not 1 <= rank <= MAX_RANK:
        raise ctx.error(
            "a tensor descriptor has too few or too many axes",
            expected=f"1 to {MAX_RANK}",
            got=str(rank),
            remedy="merge axes, or use pointers",
        )
    _check_block_bytes(ctx, block, pointer.handle.type.pointee)
    steps = _numbers(ctx, "strides", strides)
    last = steps[-1]
    if not isinstance(last, constexpr) or last.value != 1:
        raise ctx.error(
            "the last stride of a tensor descriptor is not 1",
            expected="1, known at compile time",
            got=describe(last),
            remedy="put the axis whose elements are neighbours last, or use pointers",
        )
    check_padding(ctx, padding, pointer.handle.type.pointee)
    return TensorDescriptor(pointer, _numbers(ctx, "shape", shape), steps, block, padding)


def _check_block_bytes(ctx: Context, block: tuple[int, ...], dtype: DType) -> None:
    found = block[-1] * dtype.storage_bytes
    if found < MIN_BLOCK_BYTES:
        raise ctx.error(
            "the blocks of a tensor descriptor are too narrow",
            expected=f"at least {MIN_BLOCK_BYTES} bytes along the last axis",
            got=f"{block[-1]} elements of {dtype}: {found} bytes",
            remedy="make the last of block_shape longer, or use pointers",
            cause=f"Descriptor block shape must have at least {MIN_BLOCK_BYTES} bytes in the last "
            f"dimension, but got {block[-1]} * {dtype.storage_bytes} = {found} bytes",
        )


def _base(ctx: Context, name: str, base: object) -> Tensor:
    pointer, _ = check_pointer(ctx, name, base)
    if pointer.shape:
        raise ctx.error(
            f"{name} needs one pointer",
            expected="a pointer to the first element of an array",
            got=describe(pointer),
            remedy="pass the array's pointer, and give the block by its offsets",
        )
    return pointer


def _rank(ctx: Context, block: tuple[int, ...], **others: Sequence[object]) -> int:
    for name, values in others.items():
        if len(values) != len(block):
            raise ctx.error(
                f"`{name}` and `block_shape` differ in length",
                expected=f"{len(block)}, as in block_shape {block}",
                got=str(len(values)),
                remedy="give every argument one value an axis",
            )
    return len(block)


def _numbers(ctx: Context, what: str, values: Sequence[object]) -> tuple[Number, ...]:
    """Integers, those known while the kernel is compiled as constants."""
    return tuple(
        constexpr(value) if isinstance(value, int) else _scalar(ctx, what, value)
        for value in values
    )


def scalars(ctx: Context, what: str, values: Sequence[object]) -> tuple[Tensor, ...]:
    """Integer scalars."""
    return tuple(_scalar(ctx, what, value) for value in values)


def _scalar(ctx: Context, what: str, value: object) -> Tensor:
    tensor = to_tensor(ctx, value)
    if tensor.shape or tensor.is_pointer or not tensor.number.is_int():
        raise ctx.error(
            f"`{what}` of a block must be integers",
            expected="integer scalars",
            got=describe(tensor),
            remedy="cast a float with .to(tl.int32); give one number an axis",
        )
    # Unsigned ones and int1 would turn comparisons with them unsigned.
    return tensor if tensor.number.is_int_signed() else cast(ctx, tensor, int64)


def check_padding(ctx: Context, padding: object, dtype: DType) -> None:
    """An error unless elements of this dtype can be padded so."""
    if padding not in _PADDINGS:
        raise ctx.error(
            "unknown padding_option",
            expected='"zero" or "nan"',
            got=repr(padding),
            remedy="leave it out",
        )
    if padding == "nan" and not dtype.is_floating():
        raise ctx.error(
            f"{dtype} has no NaN to pad with",
            expected='padding_option="zero"',
            got='padding_option="nan"',
            remedy="leave it out, or pad with zeros",
        )


# -- addresses -----------------------------------------------------------------------------
def lines(ctx: Context, block_shape: Sequence[int], offsets: Sequence[Tensor]) -> list[Tensor]:
    """For each axis of a block, the places along that axis of the array; tiles of one axis."""
    pairs = zip(offsets, block_shape, strict=True)
    return [arith.add(ctx, offset, arange(ctx, 0, size)) for offset, size in pairs]


def addresses(
    ctx: Context, blocks: Blocks, places: Sequence[Tensor], checked: Sequence[int]
) -> tuple[Tensor, Tensor | None]:
    """The elements at some places along each axis: pointers, and a mask of what is in the array.

    Only the axes `checked` are looked at; there is no mask without one.
    """
    rank = len(places)
    dims = tuple(place.shape[0] for place in places)
    offset: Operand = 0
    mask: Tensor | None = None
    for axis, place in enumerate(places):
        stride, size = (_plain(n[axis]) for n in (blocks.strides, blocks.shape))
        step = cast(ctx, place, int64)
        if stride != 1:
            step = arith.mul(ctx, step, stride)
        step = _along(ctx, step, axis, rank)
        offset = arith.add(ctx, offset, step) if axis else step
        if axis in checked:
            inside = arith.bit_and(
                ctx, arith.compare(ctx, ">=", place, 0), arith.compare(ctx, "<", place, size)
            )
            term = broadcast_to(ctx, _along(ctx, inside, axis, rank), dims)
            mask = term if mask is None else arith.bit_and(ctx, mask, term)
    pointers = splat(ctx, blocks.base, dims)
    return arith.add(ctx, pointers, offset), mask


def _plain(number: Number) -> Operand:
    return number.value if isinstance(number, constexpr) else number


def _along(ctx: Context, line: Tensor, axis: int, rank: int) -> Tensor:
    """A tile of one axis as one whose other axes have length 1."""
    return expand_dims(ctx, line, [a for a in range(rank) if a != axis])


# -- block pointers ------------------------------------------------------------------------
def advance(ctx: Context, pointer: object, offsets: Sequence[object]) -> BlockPointer:
    """The block pointer moved by some elements along each axis."""
    if not isinstance(pointer, BlockPointer):
        raise ctx.error(
            "advance moves block pointers",
            expected="what tl.make_block_ptr gives",
            got=describe(pointer),
            remedy="add the offsets to a pointer: pointer + offset",
        )
    _rank(ctx, pointer.block_shape, offsets=offsets)
    pairs = zip(pointer.offsets, offsets, strict=True)
    return replace(pointer, offsets=tuple(_moved(ctx, old, by) for old, by in pairs))


def _moved(ctx: Context, offset: Tensor, by: object) -> Tensor:
    """An offset plus a number; it keeps its dtype, so that a loop can carry the pointer."""
    if isinstance(by, int) and by == 0:
        return offset
    return cast(ctx, arith.add(ctx, offset, _scalar(ctx, "offsets", by)), offset.dtype)


def block_addresses(
    ctx: Context, pointer: BlockPointer, boundary_check: Sequence[object]
) -> tuple[Tensor, Tensor | None]:
    """The pointers of a block, and the mask that the checked axes ask for."""
    rank = len(pointer.block_shape)
    checked = [check_axis(ctx, axis, rank, "boundary_check") for axis in boundary_check]
    places = lines(ctx, pointer.block_shape, pointer.offsets)
    return addresses(ctx, pointer, places, checked)


def padding_value(padding: str) -> float | int:
    """What is read outside of an array."""
    return float("nan") if padding == "nan" else 0


# -- descriptors ---------------------------------------------------------------------------
def check_descriptor(ctx: Context, name: str, value: object) -> TensorDescriptor:
    """The value as a tensor descriptor, or an error."""
    if isinstance(value, TensorDescriptor):
        return value
    raise ctx.error(
        f"{name} needs a tensor descriptor",
        expected="what tl.make_tensor_descriptor gives, or a TensorDescriptor argument",
        got=describe(value),
        remedy="make one: tl.make_tensor_descriptor(pointer, shape, strides, block_shape)",
    )


def load_block(ctx: Context, descriptor: TensorDescriptor, offsets: Sequence[object]) -> Tensor:
    """The block at some offsets; what lies outside of the array is padding."""
    return _load_places(ctx, descriptor, _block_places(ctx, descriptor, offsets))


def _block_places(
    ctx: Context, descriptor: TensorDescriptor, offsets: Sequence[object]
) -> list[Tensor]:
    _rank(ctx, descriptor.block_shape, offsets=offsets)
    return lines(ctx, descriptor.block_shape, scalars(ctx, "offsets", offsets))


def _load_places(ctx: Context, descriptor: TensorDescriptor, places: Sequence[Tensor]) -> Tensor:
    pointers, mask = addresses(ctx, descriptor, places, range(len(places)))
    return load_tile(ctx, pointers, mask, padding_value(descriptor.padding))


def store_block(
    ctx: Context, descriptor: TensorDescriptor, offsets: Sequence[object], value: object
) -> None:
    """Write a block at some offsets; what lies outside of the array is left out."""
    places = _block_places(ctx, descriptor, offsets)
    _check_block(ctx, descriptor.block_shape, value)
    pointers, mask = addresses(ctx, descriptor, places, range(len(places)))
    store_tile(ctx, pointers, to_tensor(ctx, value), mask)


def atomic_block(
    ctx: Context, kind: str, descriptor: TensorDescriptor, offsets: Sequence[object], value: object
) -> None:
    """Combine a block into memory, each element in one step."""
    _check_reducible(ctx, kind, descriptor)
    places = _block_places(ctx, descriptor, offsets)
    _check_block(ctx, descriptor.block_shape, value)
    pointers, mask = addresses(ctx, descriptor, places, range(len(places)))
    atomic_rmw(ctx, kind, pointers, to_tensor(ctx, value), mask, None, None)


def _check_reducible(ctx: Context, kind: str, descriptor: TensorDescriptor) -> None:
    dtype = descriptor.pointee
    if kind in ("min", "max") and dtype in (float32, float64):
        raise ctx.error(
            f"atomic_{kind} of a descriptor is not defined on {dtype}",
            expected="integers of 32 or 64 bits, as where a GPU copies the blocks",
            got=describe(descriptor),
            remedy=f"use pointers: tl.atomic_{kind} takes {dtype}",
        )


def _check_block(ctx: Context, wanted: tuple[int, ...], value: object) -> None:
    if isinstance(value, Tensor) and value.shape == wanted:
        return
    raise ctx.error(
        "the value does not fit the block",
        expected=f"a tile of shape {wanted}",
        got=describe(value),
        remedy="reshape it, or make the descriptor with another block_shape",
    )


def _row_places(
    ctx: Context, descriptor: TensorDescriptor, rows: object, column: object
) -> list[Tensor]:
    block = descriptor.block_shape
    if len(block) != 2 or block[0] != 1:
        raise ctx.error(
            "gather and scatter take descriptors of rows",
            expected="block_shape (1, N)",
            got=str(block),
            remedy="make another descriptor of the same array, with one row a block",
        )
    is_line = isinstance(rows, Tensor) and len(rows.shape) == 1 and not rows.is_pointer
    if not isinstance(rows, Tensor) or not is_line or not rows.number.is_int():
        raise ctx.error(
            "the rows of gather and scatter are a tile of one axis",
            expected="a tile of integers, such as tl.arange(0, 16)",
            got=describe(rows),
            remedy="flatten it with tl.ravel, or cast it with .to(tl.int32)",
        )
    start = _scalar(ctx, "y_offset", column)
    signed = rows if rows.number.is_int_signed() else cast(ctx, rows, int64)
    return [signed, *lines(ctx, block[1:], [start])]


def gather_rows(ctx: Context, descriptor: TensorDescriptor, rows: object, column: object) -> Tensor:
    """Rows of a matrix by their numbers, from some column on."""
    return _load_places(ctx, descriptor, _row_places(ctx, descriptor, rows, column))


def scatter_rows(
    ctx: Context, descriptor: TensorDescriptor, value: object, rows: object, column: object
) -> None:
    """Write rows of a matrix by their numbers, from some column on."""
    places = _row_places(ctx, descriptor, rows, column)
    _check_block(ctx, (places[0].shape[0], descriptor.block_shape[1]), value)
    pointers, mask = addresses(ctx, descriptor, places, range(2))
    store_tile(ctx, pointers, to_tensor(ctx, value), mask)
