"""Steps of the generator: loads, stores and atomics."""

from __future__ import annotations

import math

from deuteron import dtypes as T
from deuteron.dtypes import DType
from tests.fuzz.author import FP8, MEMORY, NUMBERS, Author, Shape, along, places
from tests.fuzz.case import Bound

LOADABLE = (*NUMBERS, T.int1, *FP8)


def _order(a: Author, rank: int) -> list[int]:
    order = list(range(rank))
    for i in range(rank - 1):
        j = a.int(i, rank - 1)
        order[i], order[j] = order[j], order[i]
    return order


def layout(a: Author, shape: Shape, *, apart: bool) -> tuple[str, int]:
    """Offsets of a tile's elements in some order, and how many elements they span.

    With `apart` no two elements share a place.
    """
    strides: list[int] = [0] * len(shape)
    stride = a.choice((1, 1, 1, 1, 2, 3))
    for axis in reversed(_order(a, len(shape)) if a.flag(0.4) else range(len(shape))):
        strides[axis] = stride
        stride *= shape[axis]
        stride += a.choice((0, 0, 0, 0, 1, 16 - stride % 16))
    start = 0
    for axis, length in enumerate(shape):
        if not apart and a.flag(0.1):
            strides[axis] = a.choice((0, 1))
        elif a.flag(0.12):
            start += strides[axis] * (length - 1)
            strides[axis] = -strides[axis]
    reach = sum(abs(s) * (d - 1) for s, d in zip(strides, shape, strict=True))
    texts = [a.scalar(s) if abs(s) > 1 and a.flag(0.3) else s for s in strides]
    text = places(shape, texts)
    return (f"{start} + {text}" if start else text), reach + 1


def mask(a: Author, shape: Shape) -> str:
    """A condition for each element: within bounds along axes, or any."""
    if not shape or a.flag(0.2):
        found = a.find(lambda v: v.dtype == T.int1 and v.shape in (shape, ()))
        if found is not None:
            return found.name
    if not shape:
        return f"pid < {a.scalar(1)}"
    parts: list[str] = []
    for axis, length in enumerate(shape):
        if a.flag(0.6) or (axis == len(shape) - 1 and not parts):
            limit = a.scalar(a.choice((length, length - 1, length // 2, 0, 1)))
            place = along(axis, len(shape), f"tl.arange(0, {length})")
            test = a.choice(("{} < {}", "{} < {}", "{} < {}", "{} >= {}", "{} != {}"))
            parts.append("(" + test.format(place, limit) + ")")
    return " & ".join(parts)


def load(a: Author) -> None:
    """A load by any strides, masked or not."""
    dtype, shape = a.choice(LOADABLE), a.shape()
    text, span = layout(a, shape, apart=False)
    name = a.array("x", dtype, span * a.programs, a.choice(("any", "any", "small")))
    whole = 4 if a.arrays[name].domain == "small" and not dtype.is_fp8() else None
    pointer = f"{name} + pid * {span} + {text}"
    options = a.choice(("",) * 6 + (', cache_modifier=".cg"', ", volatile=True"))
    if a.flag(0.6):
        a.let(f"tl.load({pointer}{options})", dtype, shape, whole=whole)
        return
    other = "0" if dtype.is_int() else a.choice(("0.0", "1.0", "-2.0", "float('inf')"))
    if dtype.is_fp8():
        other = "0.0"
    if dtype in (T.int32, T.float32) and a.flag(0.3):
        found = a.find(lambda v: v.dtype == dtype and v.shape in (shape, ()))
        other, whole = (found.name, None) if found else (other, whole)
        zero = bool(found and found.zero)
    else:
        zero = False
    whole = whole if other in ("0", "0.0", "1.0", "-2.0") else None
    text = f"tl.load({pointer}, mask={mask(a, shape)}, other={other}{options})"
    a.let(text, dtype, shape, whole=whole, zero=zero)


def load_unsure(a: Author) -> None:
    """A masked load without `other`, of which only the lanes read are looked at."""
    dtype, shape = a.choice(NUMBERS), a.shape()
    text, span = layout(a, shape, apart=False)
    name = a.array("x", dtype, span * a.programs, "any")
    test = a.name()
    a.emit(f"{test} = {mask(a, shape)}")
    raw = a.let(f"tl.load({name} + pid * {span} + {text}, mask={test})", dtype, shape, keep=False)
    a.let(f"tl.where({test}, {raw.name}, 1)", dtype, shape)


def load_indirect(a: Author) -> None:
    """A load whose places are themselves computed."""
    index = a.tile((T.int32, T.int64, T.uint8, T.int8, T.uint32), lambda v: v.rank > 0)
    dtype = a.choice(NUMBERS)
    size = a.choice((16, 64, 128))
    name = a.array("x", dtype, size, "any")
    masked = f", mask={mask(a, index.shape)}, other=0" if a.flag(0.4) else ""
    place = f"({index.name} & {size - 1})" if size < 128 or index.dtype.bits > 8 else index.name
    if place == index.name:
        place = f"({place} & 63)"
    a.let(f"tl.load({name} + {place}{masked})", dtype, index.shape)


def _memory(a: Author, dtype: DType) -> str:
    """A memory of this dtype that programs store to and load from; each has its own part."""
    for name, spec in a.arrays.items():
        if name.startswith("m") and spec.dtype == dtype.name:
            known = [n for n, (array, _) in a.alias_of.items() if array == name]
            return a.choice((name, *known))
    name = a.array("m", dtype, MEMORY * a.programs, "any")
    if a.flag(0.4):
        a.alias_of[a.name("alias")] = (name, 0)
    return name


def store(a: Author) -> None:
    """A store by any strides into memory that other steps load from."""
    x = a.tile((*NUMBERS, T.int1))
    text, span = layout(a, x.shape, apart=True)
    if span > MEMORY or x.zero:
        return
    start = a.int(0, min(MEMORY - span, 40))
    masked = f", mask={mask(a, x.shape)}" if a.flag(0.4) else ""
    name = _memory(a, x.dtype)
    a.emit(f"tl.store({name} + pid * {MEMORY} + {start} + {text}, {x.name}{masked})")


def load_memory(a: Author) -> None:
    """A load of what may have been stored."""
    dtypes = [T.BY_NAME[s.dtype] for n, s in a.arrays.items() if n.startswith("m")]
    shape = a.shape()
    text, span = layout(a, shape, apart=False)
    if not dtypes or span > MEMORY:
        return
    dtype = a.choice(dtypes)
    start = a.int(0, min(MEMORY - span, 40))
    a.let(f"tl.load({_memory(a, dtype)} + pid * {MEMORY} + {start} + {text})", dtype, shape)


def shift_memory(a: Author) -> None:
    """A tile moved onto a place that it overlaps: all is read before anything is written."""
    dtype, shape = a.choice(NUMBERS), a.shape()
    count = math.prod(shape)
    if count > MEMORY - 40:
        return
    source, target = a.int(0, 20), a.int(0, 20)
    first, second = _memory(a, dtype), _memory(a, dtype)
    moved = a.let(f"tl.load({first} + pid * {MEMORY} + {source} + {places(shape)})", dtype, shape)
    a.emit(f"tl.store({second} + pid * {MEMORY} + {target} + {places(shape)}, {moved.name})")


def convert_store(a: Author) -> None:
    """A store that casts to what the pointer points to."""
    x = a.tile((T.float32,), lambda v: not v.zero)
    dtype = a.choice((T.float16, T.bfloat16, *FP8))
    name = a.array("out", dtype, x.numel * a.programs)
    a.emit(f"tl.store({name} + pid * {x.numel} + {places(x.shape)}, {x.name})")


def block_load(a: Author) -> None:
    """A block pointer or a tensor descriptor, over the edge of its array at times."""
    dtype = a.choice((T.float32, T.float16, T.int32, T.int8, T.bfloat16))
    rows, columns = (a.choice((8, 16, 24, 20)) for _ in range(2))
    columns = max(columns, 16 // dtype.storage_bytes)
    columns += -columns % (16 // dtype.storage_bytes)
    block = (a.choice((4, 8, 16)), a.choice((16, 32)))
    name = a.array("x", dtype, rows * columns, "any")
    offsets = (a.int(-3, rows), a.int(-3, columns))
    if a.flag():
        a.let(
            f"tl.load(tl.make_block_ptr({name}, ({rows}, {columns}), ({columns}, 1), "
            f"{offsets}, {block}, (1, 0)), boundary_check=(0, 1))",
            dtype,
            block,
        )
        return
    desc = a.name("d")
    a.emit(
        f"{desc} = tl.make_tensor_descriptor({name}, ({rows}, {columns}), ({columns}, 1), {block})"
    )
    a.let(f"{desc}.load([{offsets[0]}, {offsets[1]}])", dtype, block)


def block_store(a: Author) -> None:
    """A tile stored by a descriptor or a block pointer, over the edge of its array at times."""
    x = a.tile((T.float32, T.float16, T.int32, T.int16), lambda v: v.rank == 2 and not v.zero)
    least = 16 // x.dtype.storage_bytes
    if x.rank != 2 or x.shape[1] % least:
        return
    rows, columns = x.shape
    height, width = a.int(max(1, rows - 3), rows + 4), columns + a.choice((-least, 0, least))
    width = max(width, least)
    count = height * width
    name = a.array("out", x.dtype, count * a.programs)
    start = f"{name} + pid * {count}"
    offsets = (a.int(-2, 3), a.int(-3, 4))
    if a.flag():
        a.emit(
            f"tl.store(tl.make_block_ptr({start}, ({height}, {width}), ({width}, 1), "
            f"{offsets}, {x.shape}, (1, 0)), {x.name}, boundary_check=(0, 1))"
        )
        return
    desc = a.name("d")
    a.emit(
        f"{desc} = tl.make_tensor_descriptor({start}, ({height}, {width}), ({width}, 1), {x.shape})"
    )
    a.emit(f"{desc}.store([{offsets[0]}, {offsets[1]}], {x.name})")


def atomic(a: Author) -> None:
    """Atomics whose results do not depend on the order: all programs on the same few places."""
    dtype = a.choice((T.int32, T.uint32, T.int64, T.float32))
    kinds = ("add", "max", "min") if dtype.is_floating() else ("add", "max", "min", "and", "or",
                                                              "xor")  # fmt: skip
    kind = a.choice(kinds)
    if dtype.is_floating():
        small = [v for v in a.values if v.dtype == dtype and v.whole is not None and v.whole < 999]
        x = a.choice(small) if small else a.load_plain(dtype, a.shape(), "small")
    else:
        x = a.tile((dtype,))
    name = a.array("c", dtype, 8)
    index = a.partner(x, T.int32) if x.shape and a.flag(0.7) else None
    place = f"({index.name} & 7) + tl.zeros({x.shape}, tl.int32)" if index else None
    if place is None:
        place = f"tl.full({x.shape}, 3, tl.int32)" if x.shape else "3"
    masked = f", mask={mask(a, x.shape)}" if a.flag(0.4) else ""
    a.emit(f"tl.atomic_{kind}({name} + {place}, {x.name}{masked})")
    if dtype.is_floating():
        a.bounds[name] = Bound()


def atomic_own(a: Author) -> None:
    """Atomics on places of this lane alone, whose results are what was there."""
    x = a.tile((T.int32, T.uint32, T.int64, T.float32), lambda v: not v.zero)
    if x.numel > MEMORY:
        return
    name = _memory(a, x.dtype)
    place = f"{name} + pid * {MEMORY} + {places(x.shape)}"
    kind = a.choice(("add", "max", "min", "xchg", "cas"))
    if kind == "cas":
        if x.is_float:
            return
        old = a.let(f"tl.load({place})", x.dtype, x.shape)
        guess = f"tl.where({x.name} > 0, {old.name}, {x.name})"
        a.let(f"tl.atomic_cas({place}, {guess}, {x.name})", x.dtype, x.shape)
        return
    if x.is_float and kind in ("max", "min"):
        return  # of a NaN or of zeros of both signs, either may stay
    masked = ""
    if a.flag(0.3):
        test = a.name()
        a.emit(f"{test} = {mask(a, x.shape)}")
        masked = f", mask={test}"
    text = f"tl.atomic_{kind}({place}, {x.name}{masked})"
    if masked:  # of lanes that are masked off, any value
        raw = a.let(text, x.dtype, x.shape, keep=False)
        a.let(f"tl.where({test}, {raw.name}, 1)", x.dtype, x.shape)
    else:
        a.let(text, x.dtype, x.shape)


STEPS = (
    (load, 6), (load_unsure, 1), (load_indirect, 2), (store, 3), (load_memory, 3),
    (shift_memory, 1), (convert_store, 1), (block_load, 1), (block_store, 1), (atomic, 1),
    (atomic_own, 1),
)  # fmt: skip
