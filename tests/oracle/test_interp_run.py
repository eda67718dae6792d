"""The interpreter's control flow, folds, shapes and memory against plain NumPy and Python."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import numpy as np
import pytest

from deuteron import dtypes as T
from deuteron.backends.interp import run
from deuteron.backends.interp.values import Array, decode
from deuteron.dtypes import DType
from deuteron.errors import DeviceAssertionError, LaunchError, Loc, OutOfBoundsError
from deuteron.ir import Function, Type
from tests.oracle import memory_kernels as memory
from tests.oracle import structures, tile_kernels
from tests.oracle.data import operand
from tests.oracle.kernels import Case, Kernel, View
from tests.oracle.runners import InterpRunner

I32 = Type(T.int32)


def memory_after(case: Case) -> dict[str, Array]:
    """The arrays of a case, by parameter, after the interpreter has run it."""
    args = case.fresh_args()
    InterpRunner().run(case.function, args, case.grid)
    return {name: bits for name, _, bits in case.arrays(args)}


def memory_before(case: Case) -> Mapping[str, Array]:
    return {name: bits for name, _, bits in case.arrays(case.fresh_args())}


# -- control flow ---------------------------------------------------------------------------------
@pytest.mark.parametrize("bounds", [(0, 5, 1), (2, 11, 4), (10, -1, -3), (3, 3, 1), (5, 0, 1)])
def test_for(bounds: tuple[int, int, int]) -> None:
    case = structures.for_loop(bounds, T.int64)
    after = memory_after(case)
    tile, last = memory_before(case)["x"], -1
    for i in range(*bounds):
        tile, last = tile * np.float32(0.5) + np.float32(i), last + i
    np.testing.assert_array_equal(after["out"], tile)
    assert after["last"].tolist() == [last]


def test_nested_loops_carry_and_swap() -> None:
    after = memory_after(structures.nested_loops())
    rows, columns = np.indices((8, 4))
    tile, a, b = np.zeros((8, 4), np.int64), 0, 1
    for i in range(1, 7):
        for j in range(i):
            tile = tile + columns * j
        tile, a, b = tile ^ (rows + a), b, a + b
    np.testing.assert_array_equal(after["out"], tile.reshape(-1))
    assert after["scalars"].tolist() == [a, b]


@pytest.mark.parametrize("start", [1, 7, 27])
def test_while(start: int) -> None:
    after = memory_after(structures.while_loop(start))
    n, visited = start, []
    while n > 1:
        visited.append(n)
        n = 3 * n + 1 if n % 2 else n // 2
    assert after["out"].tolist() == [n, len(visited)]
    assert after["tile"].tolist() == [i + sum(visited) for i in range(16)]


@pytest.mark.parametrize(("value", "kind"), [(-3, -3), (2, 2), (5, None)])
def test_if(value: int, kind: int | None) -> None:
    case = structures.branches(value)
    before, after = memory_before(case), memory_after(case)
    x = before["x"]
    expected = {-3: np.ones_like(x), 2: -(x + x), 5: -(x * x)}[value]
    np.testing.assert_array_equal(after["out"], expected)
    flag = before["flag"].tolist() if kind is None else [kind]
    assert after["flag"].tolist() == flag


def test_programs_run_over_the_whole_grid_first_axis_fastest() -> None:
    after = memory_after(structures.program_grid())["out"].reshape(30, 6)
    expected = [[x, y, z, 3, 5, 2] for z in range(2) for y in range(5) for x in range(3)]
    assert after.tolist() == expected


def test_scalar_arguments() -> None:
    after = memory_after(structures.scalar_arguments())
    assert after["out_u64"].tolist() == [(1 << 64) - 1]
    assert after["out_i8"].tolist() == [-128]
    assert after["out_i1"].tolist() == [1]
    assert after["out_fp32"].tolist() == [float(np.float32(0.1))]
    assert after["out_fp64"].tolist() == [0.1]


# -- folds ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", [T.float32, T.float16, T.bfloat16, T.int32, T.int8], ids=str)
def test_reduce_by_addition(dtype: DType, axis: int) -> None:
    case = structures.fold_case("", "add", dtype, (4, 7, 6), axis)
    x = decode(memory_before(case)["x"], dtype).reshape(4, 7, 6)
    got = decode(memory_after(case)["out"], dtype)
    expected = x.astype(np.float64).sum(axis).reshape(-1)
    np.testing.assert_array_equal(got[: expected.size], expected)


@pytest.mark.parametrize("axis", [0, 1])
def test_reduce_two_operands_with_ties(axis: int) -> None:
    case = structures.fold_case("", "argmax", T.float32, (8, 33), axis)
    x = memory_before(case)["x"].reshape(8, 33)
    after = memory_after(case)
    count = x.size // x.shape[axis]
    np.testing.assert_array_equal(after["out"][:count], x.max(axis))
    np.testing.assert_array_equal(after["second"][:count], x.argmax(axis))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_scan(axis: int, reverse: bool) -> None:
    case = structures.fold_case("reverse" if reverse else "scan", "add", T.int32, (8, 16), axis)
    x = memory_before(case)["x"].reshape(8, 16)
    flipped = np.flip(x, axis) if reverse else x
    sums = np.cumsum(flipped, axis)
    expected = np.flip(sums, axis) if reverse else sums
    np.testing.assert_array_equal(memory_after(case)["out"].reshape(8, 16), expected)


def test_scan_by_a_combine_that_does_not_commute() -> None:
    case = structures.fold_case("scan", "affine", T.int64, (64,), 0)
    x = memory_before(case)["x"].tolist()

    def wrap(value: int) -> int:
        return (value + (1 << 63)) % (1 << 64) - (1 << 63)

    steps = list(
        accumulate(
            ((a, a - 1) for a in x),
            lambda left, right: (wrap(left[0] * right[0]), wrap(left[1] * right[0] + right[1])),
        )
    )
    after = memory_after(case)
    assert after["out"].tolist() == [a for a, _ in steps]
    assert after["second"].tolist() == [b for _, b in steps]


@pytest.mark.parametrize("columns", [781, 1024])
def test_softmax(columns: int) -> None:
    case = structures.softmax(columns, T.float32)
    x = memory_before(case)["x"].reshape(3, columns).astype(np.float64)
    e = np.exp(x - x.max(1, keepdims=True))
    got = memory_after(case)["out"].reshape(3, columns)
    np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=1e-5)


# -- shapes and products --------------------------------------------------------------------------
def moves() -> list[tuple[tile_kernels.Moves, tuple[int, ...], Array]]:
    """A move with the shape it is given and what it makes of x = 0, 1, … and y = 100, 101, …"""
    x, y = np.arange(32), np.arange(100, 132)
    wide, other = x.reshape(4, 8), y.reshape(4, 8)
    return [
        (lambda k, a, b: k.op("permute", a, order=(1, 0)), (4, 8), wide.T),
        (lambda k, a, b: k.op("permute", a, order=(2, 0, 1)), (2, 4, 4),
         x.reshape(2, 4, 4).transpose(2, 0, 1)),
        (lambda k, a, b: k.op("reshape", a, shape=(2, 16)), (4, 8), x),
        (tile_kernels.join, (4, 8), np.stack((wide, other), -1)),
        (tile_kernels.interleave, (32,), np.stack((x, y), 1)),
        (tile_kernels.split, (32,), np.concatenate((y[1::2], x[::2]))),
        (lambda k, a, b: k.op("cat", a, b, axis=0), (4, 8), np.concatenate((wide, other))),
        (lambda k, a, b: k.op("cat", a, b, axis=1), (4, 8), np.concatenate((wide, other), 1)),
        (tile_kernels.outer_product, (32,), x[:, None] - y),
        (tile_kernels.broadcast_middle, (4, 8), np.repeat(wide[:, None], 3, axis=1)),
        (tile_kernels.splats, (32,), np.zeros((4, 8))),
    ]  # fmt: skip


@pytest.mark.parametrize(("move", "shape", "expected"), moves())
def test_shape(move: tile_kernels.Moves, shape: tuple[int, ...], expected: Array) -> None:
    case = tile_kernels.moved("moved", T.int32, shape, move)
    args = case.fresh_args()
    out = args[2]
    assert isinstance(out, np.ndarray)
    x = np.arange(32, dtype=np.int32)
    run(case.function, [x, x + 100, out], (1, 1, 1))
    np.testing.assert_array_equal(out, expected.reshape(-1))


@pytest.mark.parametrize("dtype", list(tile_kernels.ACCUMULATOR), ids=str)
def test_dot(dtype: DType) -> None:
    case = tile_kernels.dot(dtype, 5, 7, 6, batch=2, domain="finite", transposed="b")
    before = memory_before(case)
    a = decode(before["a"], dtype).reshape(2, 5, 6).astype(np.float64)
    b = decode(before["b"], dtype).reshape(2, 7, 6).astype(np.float64)
    acc = before["acc"].reshape(2, 5, 7).astype(np.float64)
    expected = np.einsum("bik,bjk->bij", a, b) + acc
    got = memory_after(case)["out"].reshape(2, 5, 7)
    np.testing.assert_allclose(got, expected.astype(got.dtype), rtol=1e-6, atol=1e-6)


def test_matmul_with_masked_edges() -> None:
    case = tile_kernels.matmul(T.float32, 33, 50, 70, (16, 32, 32))
    before = memory_before(case)
    expected = before["a"].reshape(33, 70) @ before["b"].reshape(70, 50)
    np.testing.assert_array_equal(memory_after(case)["out"], expected.reshape(-1))


def test_attention() -> None:
    case = tile_kernels.attention(64, 32, 16)
    before = memory_before(case)
    q, k, v = (before[n].reshape(64, 16).astype(np.float64) for n in "qkv")
    weights = np.exp(q @ k.T)
    expected = weights @ v / weights.sum(1, keepdims=True)
    got = memory_after(case)["out"].reshape(64, 16)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


# -- memory ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(("row", "column"), [(16, 1), (1, 16), (-16, 1), (20, -1)])
def test_strides(row: int, column: int) -> None:
    case = memory.strided(T.float32, row, column, T.int32)
    x, out = case.args["x"], case.args["out"]
    assert isinstance(x, View)
    assert isinstance(out, View)
    expected = memory_before(case)["out"].copy()
    for i, j in np.ndindex(8, 16):
        expected[out.start + i * column + j * row] = x.array[x.start + i * row + j * column]
    np.testing.assert_array_equal(memory_after(case)["out"], expected)


def test_gather_leaves_masked_lanes_alone() -> None:
    case = memory.gather(T.float32, T.int64)
    before = memory_before(case)
    active = np.arange(64) % 3 != 0
    expected = np.ones(64, np.float32)
    expected[active] = before["x"][before["index"][active]]
    np.testing.assert_array_equal(memory_after(case)["out"], expected)


def test_stores_and_loads_keep_their_order() -> None:
    case = memory.store_then_load()
    x = memory_before(case)["x"].copy()
    before = x[:16].copy()
    x[:16] *= 10
    middle = x[1:17].copy()
    x[1:17] = middle + 1
    expected = np.concatenate((before, middle, x[:16]))
    after = memory_after(case)
    np.testing.assert_array_equal(after["out"], expected)
    np.testing.assert_array_equal(after["x"], x)


@pytest.mark.parametrize("distance", [-32, -1, 1, 17])
def test_a_tile_is_read_before_it_is_written(distance: int) -> None:
    case = memory.overlapping_move(distance)
    x = memory_before(case)["x"].copy()
    x[32 + distance : 160 + distance] = x[32:160].copy()
    np.testing.assert_array_equal(memory_after(case)["x"], x)


def test_carried_pointers() -> None:
    case = memory.carried_pointers()
    x = memory_before(case)["x"]
    after = memory_after(case)
    np.testing.assert_array_equal(after["out"], sum(x[8 * i : 8 * i + 32] for i in range(6)))
    np.testing.assert_array_equal(after["totals"][::2], np.arange(6))


def test_pointers_as_integers() -> None:
    case = memory.pointer_arithmetic()
    raw = memory_before(case)["x"].view(np.uint8)
    after = memory_after(case)
    np.testing.assert_array_equal(after["distance"], np.arange(16) * 4)
    np.testing.assert_array_equal(after["bytes"], np.concatenate((raw[1::4], raw[:16])))
    assert after["equal"].tolist() == [i == 5 for i in range(16)]
    assert after["less"].tolist() == [i < 5 for i in range(16)]


ATOMICS = {
    "add": lambda a, b: a + b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "max": max,
    "min": min,
    "xchg": lambda a, b: b,
}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", list(ATOMICS))
def test_atomics_run_lane_by_lane(kind: str, masked: bool, shared: bool) -> None:
    case = memory.atomic(kind, T.int32, masked=masked, shared=shared)
    before, after = memory_before(case), memory_after(case)
    x, y = before["x"].tolist(), before["y"].tolist()
    old = before["old"].tolist()
    for lane in range(32):
        place = lane % 3 if shared else lane
        if masked and place == 1:
            continue
        if not shared:
            old[lane] = x[place]
        x[place] = ATOMICS[kind](x[place], y[lane])
    assert after["x"].tolist() == x
    assert after["old"].tolist() == old


def test_compare_and_swap() -> None:
    case = memory.compare_and_swap(T.int64)
    before, after = memory_before(case), memory_after(case)
    hit = before["expected"] == before["x"][:16]
    assert 0 < hit.sum() < 16
    expected = np.where(hit, before["y"], before["x"][:16])
    assert after["x"].tolist() == [*expected.tolist(), 7]
    assert after["old"].tolist() == before["x"].tolist()


# -- prints, asserts, checks ----------------------------------------------------------------------
def test_print(capsys: pytest.CaptureFixture[str]) -> None:
    k = Kernel(x=T.float32, i=T.int16)
    k.b.ops("print", k.load("x", k.offsets((2, 2))), prefix="x: ", hex=False)
    k.b.ops("print", k.load("i", k.const(0)), k["x"], prefix="i", hex=True)
    k.b.ops("print", prefix="here", hex=False)
    x, i = np.array([0.1, -2.0, np.inf, 1e-9], np.float32), np.array([-2], np.int16)
    run(k.finish("prints"), [x, i], (1, 1, 1))
    assert capsys.readouterr().out.splitlines() == [
        "pid (0, 0, 0) idx (0, 0) x: 0.100000",
        "pid (0, 0, 0) idx (0, 1) x: -2.000000",
        "pid (0, 0, 0) idx (1, 0) x: inf",
        "pid (0, 0, 0) idx (1, 1) x: 1.000000e-09",
        "pid (0, 0, 0) idx () i (operand 0) 0xfffe",
        f"pid (0, 0, 0) idx () i (operand 1) {x.ctypes.data:#x}",
        "pid (0, 0, 0) here",
    ]


def test_assert_stops_at_the_first_program_that_fails() -> None:
    case = tile_kernels.asserts(40, masked=False)
    args = case.fresh_args()
    with pytest.raises(DeviceAssertionError, match=r"offset below the limit[^$]*\(2, 0, 0\)"):
        InterpRunner().run(case.function, args, case.grid)
    done = next(bits for name, _, bits in case.arrays(args) if name == "done")
    assert done.tolist() == [1, 1, *memory_before(case)["done"][2:].tolist()]


def copy_kernel(place: Loc) -> Function:
    """out[i] = x[i] for 16 elements, unmasked."""
    k = Kernel(x=T.float32, out=T.float32)
    k.b.loc = place
    lanes = k.offsets((16,))
    k.store("out", lanes, k.load("x", lanes))
    return k.finish("copy")


PLACE = Loc("kernel.py", 7, 4, 11, "    tl.load(x + i)\n")


def test_checked_memory_names_the_array_and_the_place() -> None:
    copy = copy_kernel(PLACE)
    short, long = np.zeros(10, np.float32), np.zeros(16, np.float32)
    run(copy, [long, long.copy()], (1, 1, 1), checked=True)
    with pytest.raises(
        OutOfBoundsError, match=r"of 4 bytes at 0x.*4 bytes past the end of `x`"
    ) as e:
        run(copy, [short, long], (1, 1, 1), checked=True)
    assert str(e.value).startswith("kernel.py:7:5: load")
    assert "    tl.load(x + i)\n        ^^^^^^^" in str(e.value)
    with pytest.raises(OutOfBoundsError, match=r"store .* past the end of `out`"):
        run(copy, [long, short], (1, 1, 1), checked=True)


def test_checked_memory_refuses_stores_to_read_only_arrays() -> None:
    source, target = np.ones(16, np.float32), np.zeros(16, np.float32)
    target.flags.writeable = False
    with pytest.raises(OutOfBoundsError, match="`out`, which is read-only"):
        run(copy_kernel(PLACE), [source, target], (1, 1, 1), checked=True)
    assert not target.any()


def test_checked_memory_takes_arrays_of_any_strides() -> None:
    backing = np.arange(32, dtype=np.float32)
    out = np.zeros(16, np.float32)
    k = Kernel(x=T.float32, out=T.float32)
    lanes = k.offsets((16,))
    k.store("out", lanes, k.load("x", k.op("mul", lanes, k.const(-2, shape=(16,)))))
    run(k.finish("reversed"), [backing[::-2], out], (1, 1, 1), checked=True)
    np.testing.assert_array_equal(out, backing[::-2])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([np.zeros(16, np.float32)], "copy takes 2 arguments, not 1"),
        ([[1.0], np.zeros(16, np.float32)], "argument `x`: expected a NumPy array .* got list"),
    ],
)
def test_wrong_arguments(args: list[object], message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        run(copy_kernel(PLACE), args, (1, 1, 1))


def test_wrong_number() -> None:
    k = Kernel(x=T.float32, n=I32)
    with pytest.raises(LaunchError, match="argument `n`: expected a number for i32, got str"):
        run(k.finish("number"), [np.zeros(1, np.float32), "3"], (1, 1, 1))


def test_addresses_as_arguments() -> None:
    source, target = operand(T.float32, "finite", 16), np.zeros(16, np.float32)
    run(copy_kernel(PLACE), [source.ctypes.data, target.ctypes.data], (1, 1, 1))
    np.testing.assert_array_equal(target, source)


def test_an_empty_grid_runs_nothing() -> None:
    target = np.zeros(16, np.float32)
    run(copy_kernel(PLACE), [target + 1, target], (0, 1, 1))
    assert not target.any()
