"""The functions of the language that take arrays by blocks.

Block pointers (`make_block_ptr`, `advance`) are the older way, tensor descriptors
(`make_tensor_descriptor`) the newer one.  A descriptor may also be made on the host and passed as
an argument: `deuteron.TensorDescriptor`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from deuteron.lang.context import Context, builtin
from deuteron.lang.must_use import must_use_result
from deuteron.lang.semantic import blocks
from deuteron.lang.semantic.blocks import BlockPointer, TensorDescriptor
from deuteron.lang.values import Tensor

F = TypeVar("F", bound=Callable[..., Any])


# -- block pointers ------------------------------------------------------------------------
@builtin
def make_block_ptr(
    ctx: Context,
    base: Tensor,
    shape: Sequence[Any],
    strides: Sequence[Any],
    offsets: Sequence[Any],
    block_shape: Sequence[int],
    order: Sequence[int],
) -> BlockPointer:
    """A pointer to the block at `offsets` of the array at `base`, for `load` and `store`.

    `shape`, `strides` and `offsets` are integers, one an axis, that count elements.  `order` names
    the axes from the one whose elements are neighbours on; it is a hint.
    """
    return blocks.make_block_pointer(ctx, base, shape, strides, offsets, block_shape, order)


@must_use_result("It moves nothing by itself: assign it to a name.")
@builtin
def advance(ctx: Context, base: object, offsets: Sequence[Any]) -> BlockPointer:
    """The block pointer `base`, moved by `offsets` elements along its axes."""
    return blocks.advance(ctx, base, offsets)


blocks.BLOCK_METHODS["advance"] = advance


# -- tensor descriptors --------------------------------------------------------------------
@builtin
def make_tensor_descriptor(
    ctx: Context,
    base: Tensor,
    shape: Sequence[Any],
    strides: Sequence[Any],
    block_shape: Sequence[int],
    padding_option: str = "zero",
) -> TensorDescriptor:
    """The array at `base`, to be read and written by blocks of `block_shape`.

    `shape` and `strides` are integers, one an axis (1 to 5 of them), that count elements; the last
    stride is 1.  Elements outside of the array are never touched; they read as zero, or as NaN
    with `padding_option="nan"`.  Its methods are `load`, `store`, `gather`, `scatter` and
    `atomic_add`, `_min`, `_max`, `_and`, `_or`, `_xor`.
    """
    return blocks.make_descriptor(ctx, base, shape, strides, block_shape, padding_option)


@builtin
def load_tensor_descriptor(
    ctx: Context,
    desc: object,
    offsets: Sequence[Any],
    cache_modifier: str = "",
    eviction_policy: str = "",
) -> Tensor:
    """The same as `desc.load(offsets)`."""
    return blocks.load_block(ctx, blocks.check_descriptor(ctx, "load", desc), offsets)


@builtin
def store_tensor_descriptor(
    ctx: Context, desc: object, offsets: Sequence[Any], value: Tensor
) -> None:
    """The same as `desc.store(offsets, value)`."""
    blocks.store_block(ctx, blocks.check_descriptor(ctx, "store", desc), offsets, value)


def descriptor_method(function: F) -> F:
    """Decorator: a builtin that is called as a method of tensor descriptors."""
    blocks.DESCRIPTOR_METHODS[function.__name__] = function
    return function


@descriptor_method
@builtin
def load(
    ctx: Context,
    desc: TensorDescriptor,
    offsets: Sequence[Any],
    cache_modifier: str = "",
    eviction_policy: str = "",
) -> Tensor:
    """The block of an array that begins at `offsets`."""
    return blocks.load_block(ctx, desc, offsets)


@descriptor_method
@builtin
def store(ctx: Context, desc: TensorDescriptor, offsets: Sequence[Any], value: Tensor) -> None:
    """Write `value`, cast to the array's dtype, to the block that begins at `offsets`."""
    blocks.store_block(ctx, desc, offsets, value)


@descriptor_method
@builtin
def gather(
    ctx: Context,
    desc: TensorDescriptor,
    x_offsets: Tensor,
    y_offset: Any,
    cache_modifier: str = "",
    eviction_policy: str = "",
) -> Tensor:
    """Rows `x_offsets` of a matrix, from column `y_offset` on; the block shape is (1, N)."""
    return blocks.gather_rows(ctx, desc, x_offsets, y_offset)


@descriptor_method
@builtin
def scatter(
    ctx: Context, desc: TensorDescriptor, value: Tensor, x_offsets: Tensor, y_offset: Any
) -> None:
    """Write the rows of `value` to rows `x_offsets` of a matrix, from column `y_offset` on."""
    blocks.scatter_rows(ctx, desc, value, x_offsets, y_offset)


@descriptor_method
@builtin
def atomic_add(ctx: Context, desc: TensorDescriptor, offsets: Sequence[Any], value: Tensor) -> None:
    """Add `value` to the block that begins at `offsets`, each element in one step."""
    blocks.atomic_block(ctx, "add", desc, offsets, value)


@descriptor_method
@builtin
def atomic_min(ctx: Context, desc: TensorDescriptor, offsets: Sequence[Any], value: Tensor) -> None:
    """Leave the lesser of memory and `value` in the block at `offsets`, each in one step."""
    blocks.atomic_block(ctx, "min", desc, offsets, value)


@descriptor_method
@builtin
def atomic_max(ctx: Context, desc: TensorDescriptor, offsets: Sequence[Any], value: Tensor) -> None:
    """Leave the greater of memory and `value` in the block at `offsets`, each in one step."""
    blocks.atomic_block(ctx, "max", desc, offsets, value)


@descriptor_method
@builtin
def atomic_and(ctx: Context, desc: TensorDescriptor, offsets: Sequence[Any], value: Tensor) -> None:
    """Combine the block at `offsets` with `value` by bitwise and, each element in one step."""
    blocks.atomic_block(ctx, "and", desc, offsets, value)


@descriptor_method
@builtin
def atomic_or(ctx: Context, desc: TensorDescriptor, offsets: Sequence[Any], value: Tensor) -> None:
    """Combine the block at `offsets` with `value` by bitwise or, each element in one step."""
    blocks.atomic_block(ctx, "or", desc, offsets, value)


@descriptor_method
@builtin
def atomic_xor(ctx: Context, desc: TensorDescriptor, offsets: Sequence[Any], value: Tensor) -> None:
    """Combine the block at `offsets` with `value` by exclusive or, each element in one step."""
    blocks.atomic_block(ctx, "xor", desc, offsets, value)
