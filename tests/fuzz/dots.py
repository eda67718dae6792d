"""Steps of the generator: matrix products."""

from __future__ import annotations

from dataclasses import replace

from deuteron import dtypes as T
from deuteron.dtypes import DType
from tests.fuzz.author import Author, Value, places
from tests.fuzz.case import Bound

OPERANDS = (T.float32, T.float16, T.bfloat16, T.int8, T.uint8, T.float64, T.float8e5, T.float8e4nv)
PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
SIZES = (16, 32, 64)
ODD_SIZES = (1, 2, 5, 8, 16, 17, 24, 32, 48)


def _result(dtype: DType) -> DType:
    if dtype.is_int():
        return T.int32
    return T.float64 if dtype == T.float64 else T.float32


def _sizes(a: Author) -> tuple[int, int, int]:
    sizes = ODD_SIZES if a.odd else SIZES
    m, n, k = (a.choice(sizes) for _ in range(3))
    return m, n, k


def _operand(a: Author, dtype: DType, shape: tuple[int, ...], domain: str) -> Value:
    """A tile of numbers, at times transposed or a result of other ops."""
    kind = a.int(0, 3)
    if domain == "small":
        found = a.find(
            lambda v: v.shape == shape and v.dtype == dtype and v.whole is not None
            and v.whole <= 64
        )  # fmt: skip
        if found is not None:
            return found
    source = dtype if domain != "small" or not dtype.is_fp8() else T.float32
    if kind == 0:
        turned = a.load_plain(source, (*shape[:-2], shape[-1], shape[-2]), domain)
        text = (
            f"tl.trans({turned.name}, {(*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)})"
        )
        tile = a.let(text, source, shape, whole=turned.whole, keep=False)
    else:
        tile = a.load_plain(source, shape, domain)
    if source != dtype:
        tile = a.let(f"{tile.name}.to(tl.{dtype})", dtype, shape, keep=False)
        tile = Value(tile.name, dtype, shape, whole=4)
    return tile


def _precision(a: Author, dtype: DType, domain: str) -> str:
    if dtype != T.float32:
        return ""
    if domain != "small":
        return ', input_precision="ieee"'
    return f', input_precision="{a.choice(PRECISIONS)}"' if a.flag() else ""


def dot(a: Author) -> None:
    """a @ b, with or without an accumulator, batched at times: small whole numbers, so exact."""
    m, n, k = _sizes(a)
    dtype = a.choice(OPERANDS)
    batch = (a.choice((1, 2, 4)),) if a.flag(0.2) and m * n <= 1024 else ()
    left = _operand(a, dtype, (*batch, m, k), "small")
    right = _operand(a, dtype, (*batch, k, n), "small")
    result = _result(dtype)
    shape = (*batch, m, n)
    bound = k * (left.whole or 4) * (right.whole or 4)
    acc = a.find(
        lambda v: v.shape == shape and v.dtype == result
        and (result == T.int32 or (v.whole is not None and v.whole < 2**20))
    )  # fmt: skip
    if acc is None and a.flag():
        acc = a.load_plain(result, shape, "small")
    whole = bound + (acc.whole or 0 if acc else 0)
    if (acc and acc.whole is None) or (result.is_floating() and whole > 2**23):
        whole = None
    if result.is_floating() and whole is None:
        return
    out = ""
    if dtype == T.float16 and acc is None and bound < 2048 and a.flag(0.3):
        result, out = T.float16, ", out_dtype=tl.float16"
    first = f"{left.name}, {right.name}" + (f", {acc.name}" if acc else "")
    text = f"tl.dot({first}{_precision(a, dtype, 'small')}{out})"
    value = a.let(text, result, shape, whole=whole, zero=result.is_floating(), keep=False)
    a.values.append(replace(value, dot=result.is_floating() and acc is None))


def dot_of_any(a: Author) -> None:
    """A product of numbers in (-2, 2), within the bound of sums."""
    m, n, k = _sizes(a)
    dtype = a.choice((T.float32, T.float16, T.bfloat16, T.float64))
    left = _operand(a, dtype, (m, k), "finite")
    right = _operand(a, dtype, (k, n), "finite")
    result = _result(dtype)
    total = a.let(
        f"tl.dot({left.name}, {right.name}{_precision(a, dtype, 'finite')})", result, (m, n),
        keep=False,
    )  # fmt: skip
    parts = ", ".join(f"tl.abs({v.name}).to(tl.float64)" for v in (left, right))
    size = a.let(f"tl.dot({parts})", T.float64, (m, n), keep=False)
    scale = a.output(size, Bound(scale="self"))
    unit = 2.0**-53 if result == T.float64 else 2.0**-24
    a.output(total, Bound(scale=scale, factor=1.01 * (2 * k + 1) * unit))


def chain(a: Author) -> None:
    """A product of a product."""
    first = a.find(lambda v: v.rank == 2 and v.whole is not None and v.whole <= 2048
                   and v.dtype in (T.float32, T.int32) and min(v.shape) > 1)  # fmt: skip
    if first is None or (not a.odd and min(first.shape) < 16):
        return
    n = a.choice(ODD_SIZES if a.odd else SIZES)
    k = first.shape[1]
    dtype = a.choice((T.float16, T.float32))
    mode = "" if dtype == T.float16 else ', input_precision="ieee"'
    right = _operand(a, dtype, (k, n), "small")
    whole = (first.whole or 0) * (right.whole or 4) * k
    if whole > 2**23:
        return
    text = f"tl.dot({first.name}.to(tl.{dtype}), {right.name}{mode})"
    value = a.let(text, T.float32, (first.shape[0], n), whole=whole, zero=True, keep=False)
    a.values.append(replace(value, dot=True))


def matmul(a: Author) -> None:
    """The loop of a matrix product over K, which need not be a multiple of the block."""
    m, n, k = _sizes(a)
    dtype = a.choice((T.float32, T.float16, T.bfloat16, T.int8, T.float64))
    result = _result(dtype)
    trips = a.int(1, 4)
    total = trips * k - a.choice((0, 0, 1, k // 2))
    columns = total + a.choice((0, 0, 3))
    x = a.array("x", dtype, m * columns, "small")
    y = a.array("x", dtype, max(1, total) * n, "small")
    acc, i, p, q = a.name(), a.name("i"), a.name("p"), a.name("p")
    size = a.scalar(total)
    masked = total != trips * k or a.flag()
    advances = a.flag()
    a.emit(f"{acc} = tl.zeros(({m}, {n}), tl.{result})")
    a.emit(f"{p} = {x} + {places((m, k), (columns, 1))}")
    a.emit(f"{q} = {y} + {places((k, n))}")
    stages = a.choice(("", ", num_stages=2", ", num_stages=4"))
    with a.block(f"for {i} in tl.range(0, tl.cdiv({size}, {k}){stages}):"):
        left, right = a.name(), a.name()
        at = ("", "") if advances else (f" + {i} * {k}", f" + {i} * {k * n}")
        tests = ("", "")
        if masked:
            inner = f"tl.arange(0, {k})"
            tests = (f", mask={inner}[None, :] < {size} - {i} * {k}, other=0",
                     f", mask={inner}[:, None] < {size} - {i} * {k}, other=0")  # fmt: skip
        a.emit(f"{left} = tl.load({p}{at[0]}{tests[0]})")
        a.emit(f"{right} = tl.load({q}{at[1]}{tests[1]})")
        a.emit(f"{acc} = tl.dot({left}, {right}, {acc})")
        if advances:
            a.emit(f"{p} += {k}")
            a.emit(f"{q} += {k * n}")
    zero = result.is_floating()
    a.values.append(Value(acc, result, (m, n), whole=16 * trips * k, zero=zero))


STEPS = ((dot, 4), (dot_of_any, 1), (chain, 2), (matmul, 2))
