"""Kernels that move elements between shapes, multiply matrices, print and assert."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations

from deuteron import dtypes as T
from deuteron.dtypes import DType
from deuteron.ir import Type, Value
from tests.oracle.compare import EXACT, Tolerance
from tests.oracle.data import operand
from tests.oracle.elementwise import Recipe, Shape
from tests.oracle.kernels import Arg, Case, Kernel, output

I32 = Type(T.int32)
MOVED_DTYPES = (T.float32, T.float16, T.bfloat16, T.int8, T.int64, T.int1)

Moves = Callable[[Kernel, Value, Value], Value]


# -- shapes ---------------------------------------------------------------------------------------
def moved(name: str, dtype: DType, shape: Shape, moves: Moves) -> Case:
    """Load two tiles of a shape, move their elements, and store the result row-major."""
    numel = math.prod(shape)
    k = Kernel(x=dtype, y=dtype, out=dtype)
    offsets = k.offsets(shape)
    result = moves(k, k.load("x", offsets), k.load("y", offsets))
    k.store("out", k.offsets(result.type.shape), result)
    args = {"x": operand(dtype, "finite", numel, 0), "y": operand(dtype, "finite", numel, 1)}
    args["out"] = output(dtype, result.type.numel)
    return Case(name, k.finish(name), args)


def permute(order: Sequence[int], k: Kernel, x: Value, y: Value) -> Value:
    """A permutation with arithmetic before and after it."""
    before = k.op("xor" if x.type.dtype.is_int() else "add", x, y)
    after = k.op("permute", before, order=tuple(order))
    return k.op("select", k.op("lt", after, after), after, after)


def permute_twice(k: Kernel, x: Value, y: Value) -> Value:
    """A transpose that is undone, and one that is used beside its source."""
    back = k.op("permute", k.op("permute", x, order=(1, 0)), order=(1, 0))
    sum_of = k.op("max", back, x)
    return k.op("permute", sum_of, order=(1, 0))


def reshape(shape: Shape, k: Kernel, x: Value, y: Value) -> Value:
    """To another shape and, summed with a reshape from a third one, back to a row."""
    third = k.op("reshape", k.op("reshape", y, shape=(y.type.numel,)), shape=shape)
    return k.op("min", k.op("reshape", x, shape=shape), third)


def join(k: Kernel, x: Value, y: Value) -> Value:
    return k.op("join", x, y)


def interleave(k: Kernel, x: Value, y: Value) -> Value:
    """join, then the new axis is merged into the last one."""
    joined = k.op("join", x, y)
    *outer, last, _ = joined.type.shape
    return k.op("reshape", joined, shape=(*outer, 2 * last))


def split(k: Kernel, x: Value, y: Value) -> Value:
    """The even elements of x beside the odd ones of y."""
    shape = x.type.shape
    halves = (*shape[:-1], shape[-1] // 2, 2)
    even = k.b.ops("split", k.op("reshape", x, shape=halves))[0]
    odd = k.b.ops("split", k.op("reshape", y, shape=halves))[1]
    return k.op("cat", odd, even, axis=len(shape) - 1)


def join_and_split(k: Kernel, x: Value, y: Value) -> Value:
    """A join taken apart at once, both halves used beside what they came from."""
    left, right = k.b.ops("split", k.op("join", x, y))
    return k.op("select", k.op("lt", left, right), k.op("max", right, x), k.op("min", left, y))


def split_in_loop(k: Kernel, x: Value, y: Value) -> Value:
    """Half of a join, taken before a loop and used in each of its trips."""
    half = k.op("max", k.b.ops("split", k.op("join", x, y))[0], y)

    def body(i: Value, carried: Value) -> Sequence[Value]:
        return (k.op("sub", half, carried),)

    block = k.block([I32, x.type], body)
    return k.b.for_((k.const(0), k.const(3), k.const(1)), (x,), block, {})[0]


def join_scalars(k: Kernel, x: Value, y: Value) -> Value:
    """Two scalars become a tile of two and scalars again."""
    smallest = k.combine([x.type.dtype], lambda a, b: (k.op("min", a, b),))
    (least,), (other,) = (k.b.reduce((v,), 0, smallest) for v in (x, y))
    pair = k.op("join", least, other)
    left, right = k.b.ops("split", pair)
    return k.op("join", k.op("max", left, right), left)


def cat(axis: int, k: Kernel, x: Value, y: Value) -> Value:
    return k.op("cat", x, y, axis=axis)


def outer_product(k: Kernel, x: Value, y: Value) -> Value:
    """A row against a column: expand_dims and broadcast both ways."""
    (n,) = x.type.shape
    column = k.op("broadcast", k.op("expand_dims", x, axis=1), shape=(n, n))
    row = k.op("broadcast", k.op("expand_dims", y, axis=0), shape=(n, n))
    return k.op("sub", column, row)


def broadcast_middle(k: Kernel, x: Value, y: Value) -> Value:
    """One axis put between two and repeated."""
    rows, columns = x.type.shape
    return k.op("broadcast", k.op("expand_dims", x, axis=1), shape=(rows, 3, columns))


def splats(k: Kernel, x: Value, y: Value) -> Value:
    """A one-element tile grown in all directions, and a splat of a reduction."""
    smallest = k.combine([x.type.dtype], lambda a, b: (k.op("min", a, b),))
    (least,) = k.b.reduce((x,), 0, smallest)
    one = k.op("reshape", k.op("splat", least, shape=(1,)), shape=(1, 1))
    return k.op("broadcast", one, shape=(4, 8))


def shape_recipes() -> list[Recipe]:
    """Every shape op, at several dtypes and shapes."""
    square, flat, cube = (16, 16), (64,), (4, 8, 16)
    moves: list[tuple[str, Shape, Moves]] = [
        *((f"permute{o}", s, partial(permute, o)) for s in ((8, 32), (32, 4), (5, 7), (1, 16))
          for o in ((1, 0), (0, 1))),
        *((f"permute{o}", cube, partial(permute, o)) for o in permutations(range(3))),
        ("permute_twice", square, permute_twice),
        *((f"reshape{s}", (8, 8), partial(reshape, s)) for s in ((64,), (4, 16), (2, 2, 16))),
        ("join", flat, join), ("join", (8, 4), join), ("interleave", flat, interleave),
        ("interleave", (4, 8), interleave), ("split", flat, split), ("split", (4, 32), split),
        ("join_and_split", flat, join_and_split), ("join_and_split", (8, 4), join_and_split),
        ("split_in_loop", flat, split_in_loop), ("join_scalars", flat, join_scalars),
        ("cat0", flat, partial(cat, 0)),
        ("cat0", square, partial(cat, 0)),
        ("cat1", (8, 16), partial(cat, 1)), ("outer", (16,), outer_product),
        ("broadcast_middle", (4, 16), broadcast_middle), ("splats", (32,), splats),
    ]  # fmt: skip
    recipes: list[Recipe] = []
    for number, (topic, shape, move) in enumerate(moves):
        for dtype in (MOVED_DTYPES[number % len(MOVED_DTYPES)], T.float32):
            name = f"{topic}-{dtype.short}-{'x'.join(map(str, shape))}"
            recipes.append(Recipe(name, partial(moved, name, dtype, shape, move)))
    return list({r.id: r for r in recipes}.values())


# -- matrix products ------------------------------------------------------------------------------
ACCUMULATOR = {
    T.float16: T.float32, T.bfloat16: T.float32, T.float32: T.float32, T.float64: T.float64,
    T.int8: T.int32, T.uint8: T.int32, T.float8e5: T.float32, T.float8e4nv: T.float32,
}  # fmt: skip


def product_tolerance(dtype: DType, domain: str, depth: int) -> Tolerance:
    """Exact for small whole numbers; else rounding may differ in every one of `depth` steps."""
    if domain == "small" or dtype.is_int():
        return EXACT
    epsilon = 2.0 ** -ACCUMULATOR[dtype].mantissa_bits
    return Tolerance(absolute=8 * epsilon * depth, relative=4 * epsilon)


def dot(
    dtype: DType,
    m: int,
    n: int,
    depth: int,
    *,
    batch: int = 0,
    domain: str = "small",
    transposed: str = "",
    acc: DType | None = None,
) -> Case:
    """acc + a @ b of one tile each; `transposed` names operands that memory holds the other way."""
    lead = (batch,) if batch else ()
    acc = acc or ACCUMULATOR[dtype]
    k = Kernel(a=dtype, b=dtype, acc=acc, out=acc)

    def matrix(name: str, rows: int, columns: int) -> Value:
        if name not in transposed:
            return k.load(name, k.offsets((*lead, rows, columns)))
        tile = k.load(name, k.offsets((*lead, columns, rows)))
        return k.op("permute", tile, order=(0, 2, 1) if batch else (1, 0))

    a, b = matrix("a", m, depth), matrix("b", depth, n)
    places = k.offsets((*lead, m, n))
    k.store("out", places, k.op("dot", a, b, k.load("acc", places), input_precision="ieee"))
    sizes = f"{batch}x" * bool(batch) + f"{m}x{n}x{depth}"
    name = f"dot-{dtype.short}-{acc.short}-{sizes}-{domain}{transposed}"
    count = batch or 1
    args: dict[str, Arg] = {
        "a": operand(dtype, domain, count * m * depth, 0),
        "b": operand(dtype, domain, count * depth * n, 1),
        "acc": operand(acc, "small", count * m * n, 2),
        "out": output(acc, count * m * n),
    }
    return Case(
        name, k.finish(name), args, tolerance={"out": product_tolerance(dtype, domain, depth)}
    )


def gram(dtype: DType, rows: int, depth: int) -> Case:
    """A computed tile by its own transpose, which is used once more."""
    acc = ACCUMULATOR[dtype]
    k = Kernel(x=dtype, out=acc, total=acc)
    places = k.offsets((rows, depth))
    x = k.op("neg", k.load("x", places))
    turned = k.op("permute", x, order=(1, 0))
    square = k.offsets((rows, rows))
    k.store("out", square, k.op("dot", x, turned, k.const(1, acc, (rows, rows))))
    wide = k.op("cast", turned, to=acc)
    (total,) = k.b.reduce((wide,), 0, k.combine([acc], lambda a, b: (k.op("add", a, b),)))
    k.store("total", k.offsets((rows,)), total)
    args = {"x": operand(dtype, "small", rows * depth), "out": output(acc, rows * rows)}
    name = f"gram-{dtype.short}-{rows}x{depth}"
    return Case(name, k.finish(name), args | {"total": output(acc, rows)})


def matmul(dtype: DType, m: int, n: int, depth: int, block: tuple[int, int, int]) -> Case:
    """The tutorial's kernel: a loop over K that carries pointer tiles, masked at all edges."""
    bm, bn, bk = block
    acc_dtype = ACCUMULATOR[dtype]
    k = Kernel(a=dtype, b=dtype, out=acc_dtype, m=I32, n=I32, depth=I32)

    def indices(program_axis: int, size: int) -> Value:
        start = k.op("mul", k.op("program_id", axis=program_axis), k.const(size))
        return k.op("add", k.spread(start, (size,)), k.op("arange", start=0, end=size))

    def grown(row: Value, axis: int, shape: Shape) -> Value:
        return k.op("broadcast", k.op("expand_dims", row, axis=axis), shape=shape)

    def offsets(rows: Value, stride: Value, columns: Value) -> Value:
        shape = (rows.type.numel, columns.type.numel)
        scaled = k.op("mul", rows, k.spread(stride, rows.type.shape))
        return k.op("add", grown(scaled, 1, shape), grown(columns, 0, shape))

    rows, columns, inner = indices(0, bm), indices(1, bn), k.op("arange", start=0, end=bk)
    row_fits = k.op("lt", rows, k.spread(k["m"], (bm,)))
    column_fits = k.op("lt", columns, k.spread(k["n"], (bn,)))
    pointers = (
        k.at("a", offsets(rows, k["depth"], inner)),
        k.at("b", offsets(inner, k["n"], columns)),
    )
    zero = k.const(0, acc_dtype, (bm, bn))

    def body(start: Value, acc: Value, pa: Value, pb: Value) -> Sequence[Value]:
        left = k.spread(k.op("sub", k["depth"], start), (bk,))
        inner_fits = k.op("lt", inner, left)
        mask_a = k.op("and", grown(row_fits, 1, (bm, bk)), grown(inner_fits, 0, (bm, bk)))
        mask_b = k.op("and", grown(inner_fits, 1, (bk, bn)), grown(column_fits, 0, (bk, bn)))
        a = k.op("load", pa, mask_a, k.const(0, dtype, (bm, bk)))
        b = k.op("load", pb, mask_b, k.const(0, dtype, (bk, bn)))
        step = k.op("mul", k["n"], k.const(bk))
        next_a = k.op("addptr", pa, k.const(bk, T.int32, (bm, bk)))
        return k.op("dot", a, b, acc), next_a, k.op("addptr", pb, k.spread(step, (bk, bn)))

    loop = k.block([I32, zero.type, *(p.type for p in pointers)], body, "k", "acc", "pa", "pb")
    bounds = (k.const(0), k["depth"], k.const(bk))
    acc = k.b.for_(bounds, (zero, *pointers), loop, {"num_stages": 2})[0]
    mask = k.op("and", grown(row_fits, 1, (bm, bn)), grown(column_fits, 0, (bm, bn)))
    k.store("out", offsets(rows, k["n"], columns), acc, mask)
    name = f"matmul-{dtype.short}-{m}x{n}x{depth}-{bm}x{bn}x{bk}"
    args: dict[str, Arg] = {
        "a": operand(dtype, "small", m * depth, 0),
        "b": operand(dtype, "small", depth * n, 1),
        "out": output(acc_dtype, m * n),
    }
    sizes = {"m": m, "n": n, "depth": depth}
    return Case(name, k.finish(name), args | sizes, (-(-m // bm), -(-n // bn), 1))


def attention(length: int, block: int, head: int) -> Case:
    """Flash attention forward: two dots in a loop, with a running maximum and sum of rows."""
    k = Kernel(q=T.float32, k=T.float32, v=T.float32, out=T.float32)
    tile, scores_shape = (block, head), (block, block)
    q = k.load("q", k.program_offsets(tile))
    rows = (block,)

    def wide(row: Value, shape: Shape) -> Value:
        return k.op("broadcast", k.op("expand_dims", row, axis=1), shape=shape)

    def fold(name: str, x: Value) -> Value:
        combine = k.combine([T.float32], lambda a, b: (k.op(name, a, b),))
        return k.b.reduce((x,), 1, combine)[0]

    def body(start: Value, acc: Value, top: Value, total: Value) -> Sequence[Value]:
        offset = k.spread(k.op("mul", start, k.const(head)), tile)
        places = k.op("add", k.offsets(tile), offset)
        keys = k.op("permute", k.load("k", places), order=(1, 0))
        scores = k.op("dot", q, keys, k.const(0.0, T.float32, scores_shape))
        higher = k.op("max", top, fold("max", scores))
        weights = k.op("exp", k.op("sub", scores, wide(higher, scores_shape)))
        decay = k.op("exp", k.op("sub", top, higher))
        total = k.op("add", k.op("mul", total, decay), fold("add", weights))
        acc = k.op("mul", acc, wide(decay, tile))
        return k.op("dot", weights, k.load("v", places), acc), higher, total

    zero = k.const(0.0, T.float32, tile)
    inits = (zero, k.const(-math.inf, T.float32, rows), k.const(0.0, T.float32, rows))
    loop = k.block([I32, *(i.type for i in inits)], body, "start", "acc", "top", "total")
    acc, _, total = k.b.for_((k.const(0), k.const(length), k.const(block)), inits, loop, {})
    k.store("out", k.program_offsets(tile), k.op("div", acc, wide(total, tile)))
    name = f"attention-{length}-{block}-{head}"
    args: dict[str, Arg] = {
        n: operand(T.float32, "finite", length * head, i) for i, n in enumerate("qkv")
    }
    args["out"] = output(T.float32, length * head)
    near = Tolerance(absolute=2e-5, relative=2e-5)
    return Case(name, k.finish(name), args, (length // block, 1, 1), {"out": near})


def product_recipes() -> list[Recipe]:
    """Dots of every dtype, shape and orientation, and kernels built around them."""
    makes: list[Callable[[], Case]] = []
    for dtype in ACCUMULATOR:
        for m, n, depth in ((16, 16, 16), (32, 64, 32), (5, 7, 3), (64, 16, 48)):
            makes.append(partial(dot, dtype, m, n, depth))
        makes.append(partial(dot, dtype, 16, 32, 64, domain="finite"))
        makes += [partial(dot, dtype, 16, 24, 32, transposed=t) for t in ("a", "b", "ab")]
        makes.append(partial(dot, dtype, 8, 16, 8, batch=3, transposed="b"))
    makes.append(partial(dot, T.float16, 16, 16, 16, acc=T.float16))
    makes += [partial(dot, T.float32, *s) for s in ((1, 64, 64), (64, 1, 64), (64, 64, 1))]
    makes += [
        partial(dot, d, *s)
        for d in (T.float32, T.bfloat16, T.int8)
        for s in ((1, 1, 33), (1, 16, 33), (16, 1, 33), (2, 2, 2))
    ]
    makes += [
        partial(gram, d, rows, depth)
        for d in (T.float32, T.bfloat16, T.int8)
        for rows, depth in ((1, 33), (16, 32), (5, 7))
    ]
    makes += [
        partial(matmul, d, 33, 50, 70, (16, 32, 32))
        for d in (T.float32, T.float16, T.bfloat16, T.int8, T.float64)
    ]
    makes += [partial(matmul, T.float32, 64, 64, 64, (64, 64, 64))]
    makes += [partial(attention, 64, 32, 16), partial(attention, 32, 16, 64)]
    return [Recipe(_shown(make), make) for make in makes]


def _shown(make: Callable[[], Case]) -> str:
    assert isinstance(make, partial)
    words = [*make.args, *(f"{k}={v}" for k, v in make.keywords.items())]
    return "-".join(map(str, (make.func.__name__, *words)))


# -- prints and asserts ---------------------------------------------------------------------------
def prints(shape: Shape = (2, 3)) -> Case:
    """Scalars and tiles of several dtypes, in decimal and hexadecimal, from two programs."""
    k = Kernel(x=T.float32, h=T.float16, i=T.int8)
    offsets = k.offsets(shape)
    k.b.ops("print", k.op("program_id", axis=0), prefix="pid: ", hex=False)
    k.b.ops("print", k.load("x", offsets), prefix="x: ", hex=False)
    k.b.ops("print", k.load("h", k.const(1)), prefix="h: ", hex=False)
    k.b.ops("print", k.load("i", offsets), prefix="i: ", hex=True)
    count = math.prod(shape)
    args = {"x": operand(T.float32, "finite", count), "h": operand(T.float16, "finite", 6)}
    args["i"] = operand(T.int8, "any", count)
    return Case("prints", k.finish("prints"), args, (2, 1, 1))


def asserts(limit: int, *, masked: bool) -> Case:
    """Assert that each program's offsets are below a limit, then count the program."""
    shape = (16,)
    k = Kernel(done=T.int32, limit=I32)
    offsets = k.program_offsets(shape)
    below = k.op("lt", offsets, k.spread(k["limit"], shape))
    mask = [k.op("lt", k.offsets(shape), k.const(8, T.int32, shape))] if masked else []
    k.b.ops("assert", below, *mask, message="offset below the limit")
    k.store("done", k.op("program_id", axis=0), k.const(1))
    name = f"asserts-{limit}"
    return Case(name, k.finish(name), {"done": output(T.int32, 4), "limit": limit}, (4, 1, 1))
