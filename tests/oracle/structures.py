"""Kernels of control flow and of folds along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from deuteron import dtypes as T
from deuteron.dtypes import DType
from deuteron.ir import Type, Value
from tests.oracle.compare import Tolerance
from tests.oracle.data import operand
from tests.oracle.elementwise import Recipe, Shape
from tests.oracle.kernels import Arg, Case, Kernel, output

I32 = Type(T.int32)
F32 = Type(T.float32)


# -- control flow ---------------------------------------------------------------------------------
def for_loop(bounds: tuple[int, int, int], dtype: DType) -> Case:
    """Carry a tile, a scalar and the induction variable of any step and integer type."""
    shape = (16,)
    integer = Type(dtype)
    k = Kernel(x=T.float32, out=T.float32, last=dtype, lower=integer, upper=integer, step=integer)
    offsets = k.offsets(shape)
    inits = (k.load("x", offsets), k.const(-1, dtype), k.const(0))

    def body(iv: Value, tile: Value, last: Value, count: Value) -> Sequence[Value]:
        scale = k.op("cast", iv, to=T.float32)
        grown = k.op("add", k.op("mul", tile, k.const(0.5, T.float32, shape)),
                     k.spread(scale, shape))  # fmt: skip
        return grown, k.op("add", last, iv), k.op("add", count, k.const(1))

    block = k.block([integer, *(i.type for i in inits)], body, "i", "tile", "last", "count")
    tile, last, _ = k.b.for_((k["lower"], k["upper"], k["step"]), inits, block, {})
    k.store("out", offsets, tile)
    k.store("last", k.const(0), last)
    lower, upper, step = bounds
    args = {"x": operand(T.float32, "finite", 16), "out": output(T.float32, 16)}
    args |= {"last": output(dtype, 1)}
    name = f"for-{dtype.short}-{lower}-{upper}-{step}"
    return Case(name, k.finish(name), args | {"lower": lower, "upper": upper, "step": step})


def constant_loop(trips: int) -> Case:
    """A loop whose bounds are constants, summing rows that an induction offset selects."""
    shape = (32,)
    k = Kernel(x=T.float32, out=T.float32)
    offsets = k.offsets(shape)

    def body(i: Value, acc: Value) -> Sequence[Value]:
        start = k.spread(k.op("mul", i, k.const(32)), shape)
        return (k.op("add", acc, k.load("x", k.op("add", offsets, start))),)

    acc = k.const(0.0, T.float32, shape)
    block = k.block([I32, acc.type], body, "i", "acc")
    (total,) = k.b.for_((k.const(0), k.const(trips), k.const(1)), (acc,), block, {"num_stages": 3})
    k.store("out", offsets, total)
    name = f"constant_loop-{trips}"
    args = {"x": operand(T.float32, "finite", max(1, 32 * trips)), "out": output(T.float32, 32)}
    return Case(name, k.finish(name), args)


def nested_loops() -> Case:
    """A triangular nest that carries a tile through both loops and swaps two carried scalars."""
    shape = (8, 4)
    k = Kernel(out=T.int32, scalars=T.int32, n=I32)
    acc = k.const(0, T.int32, shape)
    one = k.const(1)

    def inner(j: Value, tile: Value) -> Sequence[Value]:
        return (k.op("add", tile, k.op("mul", k.axis(1, shape), k.spread(j, shape))),)

    def outer(i: Value, tile: Value, a: Value, b: Value) -> Sequence[Value]:
        block = k.block([I32, tile.type], inner, "j")
        (tile,) = k.b.for_((k.const(0), i, one), (tile,), block, {})
        tile = k.op("xor", tile, k.op("add", k.axis(0, shape), k.spread(a, shape)))
        return tile, b, k.op("add", a, b)

    block = k.block([I32, acc.type, I32, I32], outer, "i", "tile", "a", "b")
    tile, a, b = k.b.for_((one, k["n"], one), (acc, k.const(0), one), block, {})
    k.store("out", k.offsets(shape), tile)
    k.store("scalars", k.const(0), a)
    k.store("scalars", k.const(1), b)
    args = {"out": output(T.int32, 32), "scalars": output(T.int32, 2), "n": 7}
    return Case("nested_loops", k.finish("nested_loops"), args)


def while_loop(start: int) -> Case:
    """Collatz steps of a scalar, and a tile that is halved while its sum is large."""
    shape = (16,)
    k = Kernel(out=T.int32, tile=T.int32, n=I32)

    def condition(n: Value, count: Value, tile: Value) -> Sequence[Value]:
        return (k.op("gt", n, k.const(1)),)

    def body(n: Value, count: Value, tile: Value) -> Sequence[Value]:
        odd = k.op("eq", k.op("and", n, k.const(1)), k.const(1))
        tripled = k.op("add", k.op("mul", n, k.const(3)), k.const(1))
        halved = k.op("idiv", n, k.const(2))
        tile = k.op("add", tile, k.spread(n, shape))
        return k.op("select", odd, tripled, halved), k.op("add", count, k.const(1)), tile

    inits = (k["n"], k.const(0), k.offsets(shape))
    types = [i.type for i in inits]
    results = k.b.while_(inits, k.block(types, condition), k.block(types, body))
    k.store("out", k.const(0), results[0])
    k.store("out", k.const(1), results[1])
    k.store("tile", k.offsets(shape), results[2])
    name = f"while-{start}"
    args = {"out": output(T.int32, 2), "tile": output(T.int32, 16), "n": start}
    return Case(name, k.finish(name), args)


def branches(value: int) -> Case:
    """Nested ifs that give tiles and scalars, and one that only stores."""
    shape = (64,)
    k = Kernel(x=T.float32, out=T.float32, flag=T.int32, n=I32)
    offsets = k.offsets(shape)
    x = k.load("x", offsets)
    positive = k.op("gt", k["n"], k.const(0))

    def inner() -> tuple[Value, Value]:
        even = k.op("eq", k.op("and", k["n"], k.const(1)), k.const(0))
        then = k.block([], lambda: (k.op("add", x, x), k.const(2)))
        otherwise = k.block([], lambda: (k.op("mul", x, x), k.const(3)))
        tile, kind = k.b.if_(even, then, otherwise)
        return k.op("neg", tile), kind

    then = k.block([], inner)
    otherwise = k.block([], lambda: (k.const(1.0, T.float32, shape), k["n"]))
    tile, kind = k.b.if_(positive, then, otherwise)
    k.store("out", offsets, tile)
    with k.when(k.op("ne", kind, k.const(3))):
        k.store("flag", k.const(0), kind)
    name = f"if-{value}"
    args = {"x": operand(T.float32, "finite", 64), "out": output(T.float32, 64)}
    return Case(name, k.finish(name), args | {"flag": output(T.int32, 1), "n": value})


def program_grid() -> Case:
    """Every program of a three-dimensional grid writes its ids and the grid's sizes."""
    k = Kernel(out=T.int32)
    ids = [k.op("program_id", axis=a) for a in range(3)]
    sizes = [k.op("num_programs", axis=a) for a in range(3)]
    row = k.op("add", ids[0], k.op("mul", sizes[0], k.op("add", ids[1],
               k.op("mul", sizes[1], ids[2]))))  # fmt: skip
    for place, value in enumerate((*ids, *sizes)):
        at = k.op("add", k.op("mul", row, k.const(6)), k.const(place))
        k.store("out", at, value)
    return Case("grid", k.finish("grid"), {"out": output(T.int32, 6 * 30)}, (3, 5, 2))


def scalar_arguments() -> Case:
    """Scalars of every type that a kernel takes, stored as they come."""
    dtypes = [d for d in T.ALL if d.is_int() or d in (T.float32, T.float64)]
    params: dict[str, DType | Type] = {f"out_{d.short}": d for d in dtypes}
    k = Kernel(**params, **{d.short: Type(d) for d in dtypes})
    args: dict[str, Arg] = {}
    for d in dtypes:
        k.store(f"out_{d.short}", k.const(0), k[d.short])
        args[f"out_{d.short}"] = output(d, 1)
        args[d.short] = 0.1 if d.is_floating() else T.int_range(d)[d.is_int_unsigned()]
    return Case("scalar_arguments", k.finish("scalar_arguments"), args)


# -- folds ----------------------------------------------------------------------------------------
def _argmax(k: Kernel, a: Value, i: Value, b: Value, j: Value) -> Sequence[Value]:
    """The greater value, and of equal ones that with the lower index."""
    tie = k.op("and", k.op("eq", a, b), k.op("lt", i, j))
    left = k.op("or", k.op("gt", a, b), tie)
    return k.op("select", left, a, b), k.op("select", left, i, j)


def _affine(k: Kernel, a: Value, b: Value, c: Value, d: Value) -> Sequence[Value]:
    """The composition of x → a x + b with x → c x + d: associative, not commutative."""
    return k.op("mul", a, c), k.op("add", k.op("mul", b, c), d)


def fold_case(
    scan: str, combine: str, dtype: DType, shape: Shape, axis: int, *, masked: bool = False
) -> Case:
    """Reduce or scan one tile along an axis by a combine function; the operands are exact."""
    two = combine in ("argmax", "affine")
    k = Kernel(x=dtype, out=dtype, second=T.int32 if combine == "argmax" else dtype)
    offsets = k.offsets(shape)
    numel = math.prod(shape)
    rest: list[Value] = []
    if masked:
        last = k.op(
            "lt", k.axis(axis, shape), k.const(shape[axis] - shape[axis] // 3, T.int32, shape)
        )
        rest = [last, k.const(1, dtype, shape)]
    operands = [k.load("x", offsets, *rest)]
    if combine == "argmax":
        operands.append(k.axis(axis, shape))
    elif combine == "affine":
        operands.append(k.op("sub", operands[0], k.const(1, dtype, shape)))
    functions: dict[str, Callable[..., Sequence[Value]]] = {
        "argmax": partial(_argmax, k),
        "affine": partial(_affine, k),
    }
    body = functions.get(combine, lambda a, b: (k.op(combine, a, b),))
    block = k.combine([o.type.dtype for o in operands], body)
    if scan:
        results = k.b.scan(operands, axis, block, reverse=scan == "reverse")
    else:
        results = k.b.reduce(operands, axis, block)
    places = k.offsets(results[0].type.shape) if results[0].type.shape else k.const(0)
    for name, value in zip(("out", "second"), results, strict=False):
        k.store(name, places, value)
    sizes = "x".join(map(str, shape))
    name = f"{scan or 'reduce'}-{combine}-{dtype.short}-{sizes}-{axis}{'-masked' * masked}"
    domain = "small" if combine in ("add", "mul", "affine", "argmax") else "any"
    args = {"x": operand(dtype, domain, numel), "out": output(dtype, numel)}
    args["second"] = output(k["second"].type.pointee, numel if two else 1)
    loose = Tolerance(zero_sign=False) if dtype.is_floating() else Tolerance()
    return Case(name, k.finish(name), args, tolerance={"out": loose, "second": loose})


def softmax(columns: int, dtype: DType) -> Case:
    """A row of softmax, masked at the end: two reductions with their results broadcast back."""
    padded = 1 << (columns - 1).bit_length()
    shape = (padded,)
    k = Kernel(x=dtype, out=dtype, n=I32)
    row = k.op("mul", k.op("program_id", axis=0), k["n"])
    columns_of = k.offsets(shape)
    mask = k.op("lt", columns_of, k.spread(k["n"], shape))
    offsets = k.op("add", k.spread(row, shape), columns_of)
    lowest = k.const(-math.inf, dtype, shape)
    x = k.op("cast", k.load("x", offsets, mask, lowest), to=T.float32)
    greatest = k.combine([T.float32], lambda a, b: (k.op("max", a, b),))
    (top,) = k.b.reduce((x,), 0, greatest)
    e = k.op("exp", k.op("sub", x, k.spread(top, shape)))
    (total,) = k.b.reduce((e,), 0, k.combine([T.float32], lambda a, b: (k.op("add", a, b),)))
    result = k.op("cast", k.op("div", e, k.spread(total, shape)), to=dtype)
    k.store("out", offsets, result, mask)
    name = f"softmax-{dtype.short}-{columns}"
    args = {"x": operand(dtype, "finite", 3 * columns), "out": output(dtype, 3 * columns)}
    near = Tolerance(ulps=1, relative=1e-5)
    return Case(name, k.finish(name), args | {"n": columns}, (3, 1, 1), {"out": near})


def normalize(shape: Shape) -> Case:
    """Layer norm over rows of a 2-D tile: mean and variance by expand_dims and broadcast."""
    rows, columns = shape
    k = Kernel(x=T.float32, weight=T.float32, out=T.float32)
    offsets = k.program_offsets(shape)
    x = k.load("x", offsets)

    def row_mean(tile: Value) -> Value:
        add = k.combine([T.float32], lambda a, b: (k.op("add", a, b),))
        (total,) = k.b.reduce((tile,), 1, add)
        mean = k.op("div", total, k.const(columns, T.float32, (rows,)))
        return k.op("broadcast", k.op("expand_dims", mean, axis=1), shape=shape)

    centred = k.op("sub", x, row_mean(x))
    variance = row_mean(k.op("mul", centred, centred))
    scale = k.op("rsqrt", k.op("add", variance, k.const(1e-5, T.float32, shape)))
    weight = k.load("weight", k.offsets((columns,)))
    weight = k.op("broadcast", k.op("expand_dims", weight, axis=0), shape=shape)
    k.store("out", offsets, k.op("mul", k.op("mul", centred, scale), weight))
    name = f"normalize-{rows}x{columns}"
    count = 2 * rows * columns
    args = {"x": operand(T.float32, "finite", count), "out": output(T.float32, count)}
    args["weight"] = operand(T.float32, "finite", columns, 1)
    near = Tolerance(absolute=1e-5, relative=1e-5)
    return Case(name, k.finish(name), args, (2, 1, 1), {"out": near})


def control_recipes() -> list[Recipe]:
    """Loops, branches, grids and scalar arguments."""
    bounds = ((0, 5, 1), (2, 11, 4), (10, -1, -3), (3, 3, 1), (5, 0, 1))
    recipes = [
        Recipe(f"for-{d.short}-{b}", partial(for_loop, b, d))
        for d in (T.int32, T.int64, T.int8, T.uint32)
        for b in bounds
        if d.is_int_signed() or min(b) >= 0
    ]
    recipes += [Recipe(f"constant_loop-{n}", partial(constant_loop, n)) for n in (0, 1, 2, 9)]
    recipes += [Recipe(f"while-{n}", partial(while_loop, n)) for n in (1, 7, 27)]
    recipes += [Recipe(f"if-{n}", partial(branches, n)) for n in (-3, 2, 5)]
    plain = (nested_loops, program_grid, scalar_arguments)
    return recipes + [Recipe(make.__name__, make) for make in plain]


def fold_recipes() -> list[Recipe]:
    """Reductions and scans over every axis, by several combines and dtypes."""
    shapes: tuple[Shape, ...] = ((1024,), (8, 32), (64, 16), (4, 8, 16), (1, 16), (16, 1))
    wanted: list[tuple[str, str, DType, Shape, int, bool]] = []
    for shape in shapes:
        for axis in range(len(shape)):
            for combine, dtype in (("add", T.float32), ("argmax", T.float32), ("max", T.int8)):
                wanted.append(("", combine, dtype, shape, axis, shape == (8, 32)))
    for dtype in T.ALL:
        if not dtype.is_fp8():
            for combine in ("add", "max", "min"):
                wanted.append(("", combine, dtype, (16, 16), len(wanted) % 2, False))
        if dtype.is_int():
            for combine in ("xor", "and", "or"):
                wanted.append(("", combine, dtype, (512,), 0, False))
    for scan in ("scan", "reverse"):
        for shape in ((256,), (8, 16), (2, 4, 8)):
            for axis in range(len(shape)):
                for combine, dtype in (("add", T.int32), ("affine", T.int64), ("max", T.float32)):
                    wanted.append((scan, combine, dtype, shape, axis, len(shape) == 2))
        for dtype in (T.float16, T.bfloat16, T.float64, T.uint8):
            wanted.append((scan, "add", dtype, (64,), 0, False))
    recipes: list[Recipe] = []
    for scan, combine, dtype, shape, axis, masked in wanted:
        name = f"{scan or 'reduce'}-{combine}-{dtype.short}-{'x'.join(map(str, shape))}-{axis}"
        make = partial(fold_case, scan, combine, dtype, shape, axis, masked=masked)
        recipes.append(Recipe(name, make))
    recipes += [
        Recipe(f"softmax-{d.short}-{n}", partial(softmax, n, d))
        for d, n in ((T.float32, 781), (T.float32, 1024), (T.float16, 100), (T.bfloat16, 33))
    ]
    return recipes + [Recipe(f"normalize-{s}", partial(normalize, s)) for s in ((4, 64), (16, 8))]
