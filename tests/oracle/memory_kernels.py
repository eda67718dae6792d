"""Kernels of loads, stores, atomics and pointers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from deuteron import dtypes as T
from deuteron.backends.interp.values import Array, storage_dtype
from deuteron.dtypes import DType
from deuteron.ir import Pointer, Type, Value
from deuteron.ir.optable import ATOMIC_KINDS
from tests.oracle.compare import Tolerance
from tests.oracle.data import operand
from tests.oracle.elementwise import Recipe
from tests.oracle.kernels import Arg, Case, Kernel, View, output

I32 = Type(T.int32)
I64 = Type(T.int64)


# -- addressing -----------------------------------------------------------------------------------
def strided(dtype: DType, row: int, column: int, offset_dtype: DType) -> Case:
    """Copy a matrix between strides known only at run time, one of them possibly negative."""
    shape = (8, 16)
    stride = Type(offset_dtype)
    k = Kernel(x=dtype, out=dtype, row=stride, column=stride)

    def offsets(strides: Sequence[Value]) -> Value:
        total = None
        for axis, value in enumerate(strides):
            index = k.op("cast", k.axis(axis, shape), to=offset_dtype)
            step = k.op("mul", index, k.spread(value, shape))
            total = step if total is None else k.op("add", total, step)
        assert total is not None
        return total

    tile = k.load("x", offsets((k["row"], k["column"])))
    k.store("out", offsets((k["column"], k["row"])), tile)
    reach = [abs(s) * (n - 1) for s, n in ((row, 16), (column, 16))]
    count = 1 + sum(reach)
    start = sum(r for r, s in zip(reach, (row, column), strict=True) if s < 0)
    name = f"strided-{dtype.short}-{row}-{column}-{offset_dtype.short}"
    args: dict[str, Arg] = {
        "x": View(operand(dtype, "finite", count), start),
        "out": View(output(dtype, count), start),
    }
    return Case(name, k.finish(name), args | {"row": row, "column": column})


def gather(dtype: DType, index_dtype: DType) -> Case:
    """out[i] = x[index[i]], every third lane masked off with an index that is wild."""
    shape = (64,)
    k = Kernel(x=dtype, index=index_dtype, out=dtype)
    lanes = k.offsets(shape)
    third = k.op("ne", k.op("irem", lanes, k.const(3, shape=shape)), k.const(0, shape=shape))
    places = k.load("index", lanes)
    other = k.const(1, dtype, shape)
    k.store("out", lanes, k.op("load", k.at("x", places), third, other))
    index = np.random.default_rng(5).integers(0, 100, 64).astype(storage_dtype(index_dtype))
    index[::3] = T.int_range(index_dtype)[1]
    name = f"gather-{dtype.short}-{index_dtype.short}"
    args = {"x": operand(dtype, "finite", 100), "index": index, "out": output(dtype, 64)}
    return Case(name, k.finish(name), args)


def scatter(dtype: DType) -> Case:
    """out[permutation[i]] = x[i], a quarter of the lanes masked off."""
    shape = (8, 8)
    k = Kernel(x=dtype, index=T.int32, out=dtype)
    lanes = k.offsets(shape)
    mask = k.op("ge", lanes, k.const(16, shape=shape))
    k.store("out", k.load("index", lanes), k.load("x", lanes), mask)
    index = np.random.default_rng(6).permutation(64).astype(np.int32)
    index[:16] = 1 << 30
    name = f"scatter-{dtype.short}"
    args = {"x": operand(dtype, "finite", 64), "index": index, "out": output(dtype, 64)}
    return Case(name, k.finish(name), args)


def repeated_store() -> Case:
    """Several lanes store the same value to one address; a broadcast load reads it in all lanes."""
    shape = (32,)
    k = Kernel(x=T.int32, out=T.int32, all=T.int32)
    lanes = k.offsets(shape)
    quarter = k.op("idiv", lanes, k.const(4, shape=shape))
    k.store("out", quarter, k.load("x", quarter))
    k.store("all", lanes, k.load("x", k.const(3, shape=shape)))
    args = {"x": operand(T.int32, "any", 32), "out": output(T.int32, 8), "all": output(T.int32, 32)}
    return Case("repeated_store", k.finish("repeated_store"), args)


def wild_masked(dtype: DType) -> Case:
    """Loads and stores through null and wild pointers, with no lane active."""
    shape = (128,)
    k = Kernel(null=dtype, wild=dtype, out=dtype, n=I32)
    lanes = k.offsets(shape)
    never = k.op("lt", lanes, k.spread(k["n"], shape))
    other = k.const(1, dtype, shape)
    values = [k.load(name, lanes, never, other) for name in ("null", "wild")]
    k.store("null", lanes, values[0], never)
    k.store("wild", lanes, values[1], never)
    scalar = k.op("lt", k.const(0), k["n"])
    single = k.op("load", k["null"], scalar, k.const(1, dtype))
    k.b.ops("store", k["null"], single, scalar)
    k.store("out", lanes, k.op("max", values[0], k.op("max", values[1], k.spread(single, shape))))
    name = f"wild_masked-{dtype.short}"
    args: dict[str, Arg] = {"null": 0, "wild": 0x7FFF_FFFF_F000, "out": output(dtype, 128), "n": 0}
    return Case(name, k.finish(name), args)


def edges(n: int) -> Case:
    """Masks of both ends, of a hole, and of data, over one-dimensional tiles."""
    shape = (64,)
    k = Kernel(x=T.float32, out=T.float32, n=I32)
    lanes = k.program_offsets(shape)
    limit = k.spread(k["n"], shape)
    inside = k.op("and", k.op("ge", lanes, k.const(3, shape=shape)), k.op("lt", lanes, limit))
    shifted = k.op("sub", lanes, k.const(3, shape=shape))
    x = k.load("x", shifted, inside, k.const(9.0, T.float32, shape))
    positive = k.op("gt", x, k.const(0.0, T.float32, shape))
    k.store("out", lanes, x, k.op("and", inside, positive))
    name = f"edges-{n}"
    args = {"x": operand(T.float32, "finite", n), "out": output(T.float32, n), "n": n}
    return Case(name, k.finish(name), args, (3, 1, 1))


# -- order ----------------------------------------------------------------------------------------
def store_then_load() -> Case:
    """Loads see earlier stores of the same and of overlapping addresses, and not later ones."""
    shape = (16,)
    k = Kernel(x=T.int32, out=T.int32)
    lanes = k.offsets(shape)
    next_lanes = k.op("add", lanes, k.const(1, shape=shape))
    before = k.load("x", lanes)
    k.store("x", lanes, k.op("mul", before, k.const(10, shape=shape)))
    middle = k.load("x", next_lanes)
    k.store("x", next_lanes, k.op("add", middle, k.const(1, shape=shape)))
    after = k.load("x", lanes)
    k.store("out", lanes, before)
    k.store("out", k.op("add", lanes, k.const(16, shape=shape)), middle)
    k.store("out", k.op("add", lanes, k.const(32, shape=shape)), after)
    args = {"x": operand(T.int32, "small", 17), "out": output(T.int32, 48)}
    return Case("store_then_load", k.finish("store_then_load"), args)


def overlapping_move(distance: int) -> Case:
    """x[i + distance] = x[i] through one pointer: the whole tile is read before any is written.

    (Through two pointers whose arrays overlap, lanes may see each other's stores, as on a GPU.)
    """
    shape = (128,)
    k = Kernel(x=T.float32, distance=I32)
    lanes = k.offsets(shape)
    places = k.op("add", lanes, k.spread(k["distance"], shape))
    k.store("x", places, k.load("x", lanes))
    name = f"overlapping_move-{distance}"
    args: dict[str, Arg] = {"x": View(operand(T.float32, "finite", 192), 32)}
    return Case(name, k.finish(name), args | {"distance": distance})


def in_place() -> Case:
    """The array that is read is also, by another pointer, the one that is written."""
    shape = (8, 16)
    k = Kernel(source=T.float32, target=T.float32)
    lanes = k.program_offsets(shape)
    x = k.load("source", lanes)
    k.store("target", lanes, k.op("mul", x, x))
    array = operand(T.float32, "finite", 256)
    return Case("in_place", k.finish("in_place"), {"source": array, "target": array}, (2, 1, 1))


def swap() -> Case:
    """Two tiles change places: both are read before either is written."""
    shape = (8, 8)
    k = Kernel(x=T.float32, y=T.float32)
    lanes = k.offsets(shape)
    x, y = k.load("x", lanes), k.load("y", lanes)
    k.store("x", lanes, y)
    k.store("y", lanes, x)
    args = {"x": operand(T.float32, "finite", 64, 0), "y": operand(T.float32, "finite", 64, 1)}
    return Case("swap", k.finish("swap"), args)


def transpose_in_place() -> Case:
    """A tile is stored transposed over itself."""
    shape = (16, 16)
    k = Kernel(x=T.int16)
    lanes = k.offsets(shape)
    k.store("x", lanes, k.op("permute", k.load("x", lanes), order=(1, 0)))
    args = {"x": operand(T.int16, "any", 256)}
    return Case("transpose_in_place", k.finish("transpose_in_place"), args)


def store_in_loop() -> Case:
    """Each trip reads what the one before has written."""
    shape = (16,)
    k = Kernel(x=T.int32)
    lanes = k.offsets(shape)

    def body(i: Value) -> Sequence[Value]:
        places = k.op("add", lanes, k.spread(i, shape))
        k.store("x", k.op("add", places, k.const(1, shape=shape)), k.load("x", places))
        return ()

    k.b.for_((k.const(0), k.const(5), k.const(1)), (), k.block([I32], body), {})
    args = {"x": operand(T.int32, "any", 32)}
    return Case("store_in_loop", k.finish("store_in_loop"), args)


def load_before_branch() -> Case:
    """A value loaded before a branch that overwrites its place is the old one after it."""
    shape = (32,)
    k = Kernel(x=T.float32, out=T.float32, n=I32)
    lanes = k.offsets(shape)
    x = k.load("x", lanes)
    with k.when(k.op("gt", k["n"], k.const(0))):
        k.store("x", lanes, k.const(0.0, T.float32, shape))
    k.store("out", lanes, k.op("add", x, k.load("x", lanes)))
    args = {"x": operand(T.float32, "finite", 32), "out": output(T.float32, 32), "n": 1}
    return Case("load_before_branch", k.finish("load_before_branch"), args)


# -- pointers -------------------------------------------------------------------------------------
def carried_pointers() -> Case:
    """A tile of pointers and a scalar pointer carried through a loop by unlike steps."""
    shape = (4, 8)
    k = Kernel(x=T.float32, out=T.float32, totals=T.float32, n=I32)
    tile = k.at("x", k.offsets(shape))
    zero = k.const(0.0, T.float32, shape)

    def body(i: Value, pointers: Value, total: Value, acc: Value) -> Sequence[Value]:
        acc = k.op("add", acc, k.op("load", pointers))
        k.b.ops("store", total, k.op("cast", i, to=T.float32))
        moved = k.op("addptr", pointers, k.const(8, shape=shape))
        return moved, k.op("addptr", total, k.const(2, T.int64)), acc

    inits = (tile, k["totals"], zero)
    block = k.block([I32, *(i.type for i in inits)], body, "i", "pointers", "total", "acc")
    results = k.b.for_((k.const(0), k["n"], k.const(1)), inits, block, {})
    k.store("out", k.offsets(shape), results[2])
    args = {"x": operand(T.float32, "small", 96), "out": output(T.float32, 32)}
    return Case("carried_pointers", k.finish("carried_pointers"),
                args | {"totals": output(T.float32, 12), "n": 6})  # fmt: skip


def chosen_pointers() -> Case:
    """Pointers chosen by a select lane by lane, and by an if as a whole."""
    shape = (32,)
    k = Kernel(x=T.float32, y=T.float32, out=T.float32, n=I32)
    lanes = k.offsets(shape)
    odd = k.op("eq", k.op("and", lanes, k.const(1, shape=shape)), k.const(1, shape=shape))
    mixed = k.op("select", odd, k.at("x", lanes), k.at("y", lanes))
    branch = k.op("gt", k["n"], k.const(0))
    (base,) = k.b.if_(branch, k.block([], lambda: (k["x"],)), k.block([], lambda: (k["y"],)))
    k.store("out", lanes, k.op("load", mixed))
    k.store("out", k.op("add", lanes, k.const(32, shape=shape)), k.op("load", k.at(base, lanes)))
    args = {"x": operand(T.float32, "finite", 32, 0), "y": operand(T.float32, "finite", 32, 1)}
    return Case("chosen_pointers", k.finish("chosen_pointers"),
                args | {"out": output(T.float32, 64), "n": 3})  # fmt: skip


def pointer_arithmetic() -> Case:
    """Addresses as integers and back, compared, and read through another pointee."""
    shape = (16,)
    k = Kernel(x=T.int32, bytes=T.uint8, distance=T.int64, equal=T.int1, less=T.int1)
    lanes = k.offsets(shape)
    pointers = k.at("x", lanes)
    address = k.op("ptr_to_int", pointers)
    origin = k.op("ptr_to_int", k["x"])
    k.store("distance", lanes, k.op("sub", address, k.spread(origin, shape)))
    shifted = k.op("int_to_ptr", k.op("add", address, k.const(1, T.int64, shape)),
                   to=Pointer(T.uint8))  # fmt: skip
    k.store("bytes", lanes, k.op("load", shifted))
    as_bytes = k.op("bitcast", k["x"], to=Pointer(T.uint8))
    k.store("bytes", k.op("add", lanes, k.const(16, shape=shape)),
            k.op("load", k.at(as_bytes, lanes)))  # fmt: skip
    fifth = k.spread(k.op("addptr", k["x"], k.const(5)), shape)
    k.store("equal", lanes, k.op("eq", pointers, fifth))
    k.store("less", lanes, k.op("lt", pointers, fifth))
    args = {"x": operand(T.int32, "any", 16), "bytes": output(T.uint8, 32)}
    args |= {"distance": output(T.int64, 16)}
    args |= {"equal": output(T.int1, 16), "less": output(T.int1, 16)}
    return Case("pointer_arithmetic", k.finish("pointer_arithmetic"), args)


def offset_types() -> Case:
    """Offsets of every integer dtype: signed ones reach back, unsigned ones are zero-extended."""
    shape = (16,)
    k = Kernel(x=T.float32, **{f"out_{d.short}": T.float32 for d in T.ALL if d.is_int()})
    lanes = k.offsets(shape)
    args: dict[str, Arg] = {"x": View(operand(T.float32, "finite", 512), 200)}
    for dtype in (d for d in T.ALL if d.is_int()):
        step = k.const(-8 if dtype.is_int_signed() else 15, shape=shape)
        if dtype.is_int() and dtype.bits == 8 and not dtype.is_int_signed():
            step = k.const(200, shape=shape)
        places = k.op("cast", k.op("add", lanes, step), to=dtype)
        k.store(f"out_{dtype.short}", lanes, k.load("x", places))
        args[f"out_{dtype.short}"] = output(T.float32, 16)
    return Case("offset_types", k.finish("offset_types"), args)


# -- atomics --------------------------------------------------------------------------------------
def atomic(kind: str, dtype: DType, *, masked: bool, shared: bool) -> Case:
    """An atomic over a tile: on its own elements, or many lanes on few of them."""
    shape = (32,)
    k = Kernel(x=dtype, y=dtype, old=dtype)
    lanes = k.offsets(shape)
    places = k.op("irem", lanes, k.const(3, shape=shape)) if shared else lanes
    mask = [k.op("ne", places, k.const(1, shape=shape))] if masked else []
    attrs = {"kind": kind, "sem": "relaxed", "scope": "gpu"}
    old = k.op("atomic_rmw", k.at("x", places), k.load("y", lanes), *mask, **attrs)
    if not shared:  # the order of lanes on one address is nobody's promise
        k.store("old", lanes, old, *mask)
    name = f"atomic_{kind}-{dtype.short}{'-masked' * masked}{'-shared' * shared}"
    x, y = (operand(dtype, "small", 32, slot) for slot in (0, 1))
    if kind == "xchg" and shared:
        y = np.full_like(y, y[0])
    loose = Tolerance(zero_sign=False)
    tolerance = {"x": loose, "old": loose}
    return Case(
        name, k.finish(name), {"x": x, "y": y, "old": output(dtype, 32)}, tolerance=tolerance
    )


def scalar_atomics(dtype: DType) -> Case:
    """Counters that every program of the grid adds to, once plainly and once under a mask."""
    k = Kernel(x=dtype)
    one, program = k.const(1, dtype), k.op("program_id", axis=0)
    few = k.op("lt", program, k.const(5))
    k.b.ops("atomic_rmw", k["x"], one, kind="add", sem="acq_rel", scope="gpu")
    second = k.op("addptr", k["x"], k.const(1))
    k.b.ops("atomic_rmw", second, one, few, kind="add", sem="relaxed", scope="sys")
    name = f"scalar_atomics-{dtype.short}"
    return Case(name, k.finish(name), {"x": operand(dtype, "small", 2)}, (9, 1, 1))


def compare_and_swap(dtype: DType) -> Case:
    """A cas that meets what it expects in half of the lanes, and one on a scalar."""
    shape = (16,)
    k = Kernel(x=dtype, expected=dtype, y=dtype, old=dtype)
    lanes = k.offsets(shape)
    attrs = {"sem": "acq_rel", "scope": "gpu"}
    operands = (k.at("x", lanes), k.load("expected", lanes), k.load("y", lanes))
    k.store("old", lanes, k.op("atomic_cas", *operands, **attrs))
    last = k.op("addptr", k["x"], k.const(16))
    first = k.op("load", last)
    k.store("old", k.const(16), k.op("atomic_cas", last, first, k.const(7, dtype), **attrs))
    x = operand(dtype, "small", 17, 0)
    expected = x[:16].copy()
    expected[::2] = encode_one(dtype)
    name = f"cas-{dtype.short}"
    args = {"x": x, "expected": expected, "y": operand(dtype, "small", 16, 1)}
    return Case(name, k.finish(name), args | {"old": output(dtype, 17)})


def encode_one(dtype: DType) -> Array:
    """A value that small operands do not take."""
    return np.array([99]).astype(storage_dtype(dtype))


def atomic_recipes() -> list[Recipe]:
    """All kinds of atomics at the dtypes they take."""
    plain = [d for d in T.ALL if d.bits >= 32]
    wanted: list[Callable[[], Case]] = []
    for kind in ATOMIC_KINDS:
        for number, dtype in enumerate(plain):
            if dtype.is_int() or kind in ("add", "max", "min", "xchg"):
                masked, shared = bool(number % 2), bool(number // 2 % 2)
                wanted.append(partial(atomic, kind, dtype, masked=masked, shared=shared))
    for dtype in (T.float16, T.bfloat16):
        wanted += [partial(atomic, "add", dtype, masked=m, shared=m) for m in (False, True)]
    wanted += [partial(scalar_atomics, d) for d in (T.int32, T.uint64, T.float32, T.float64)]
    wanted += [partial(compare_and_swap, d) for d in (T.int32, T.int64, T.uint32, T.float32)]
    return [_named(make) for make in wanted]


def memory_recipes() -> list[Recipe]:
    """Addressing, ordering and pointers."""
    wanted: list[Callable[[], Case]] = []
    for row, column in ((16, 1), (1, 16), (40, 2), (-16, 1), (20, -1)):
        for dtype, offset in ((T.float32, T.int32), (T.int8, T.int64), (T.bfloat16, T.int64)):
            wanted.append(partial(strided, dtype, row, column, offset))
    for dtype in (T.float32, T.float16, T.int1, T.int64, T.float8e4nv):
        wanted.append(partial(gather, dtype, T.int64 if dtype.bits > 8 else T.int32))
        wanted.append(partial(scatter, dtype))
    wanted += [partial(wild_masked, d) for d in (T.float32, T.int8, T.bfloat16, T.float64)]
    wanted += [partial(edges, n) for n in (3, 64, 65, 100, 191, 192)]
    wanted += [partial(overlapping_move, d) for d in (-32, -1, 0, 1, 16, 17)]
    plain = (
        repeated_store, store_then_load, in_place, swap, transpose_in_place, store_in_loop,
        load_before_branch, carried_pointers, chosen_pointers, pointer_arithmetic, offset_types,
    )  # fmt: skip
    return [_named(make) for make in (*wanted, *plain)]


def _named(make: Callable[[], Case]) -> Recipe:
    if isinstance(make, partial):
        words = [*make.args, *(f"{k}={v}" for k, v in make.keywords.items())]
        return Recipe("-".join(map(str, (make.func.__name__, *words))), make)
    return Recipe(make.__name__, make)
