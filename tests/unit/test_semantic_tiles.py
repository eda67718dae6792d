"""Shapes, memory, products and folds, built through the Context without any kernel source."""

import inspect

import pytest

from deuteron import dtypes as dt
from deuteron.dtypes import float32, int1, int8, int32, int64, uint8
from deuteron.errors import CompilationError, CompileTimeAssertionFailure, Loc, UserError
from deuteron.ir import Builder, Op, Pointer, Type, verify
from deuteron.lang import access, core, math, operators
from deuteron.lang.context import Context, Options, builtin, is_builtin
from deuteron.lang.semantic import arith, contract, debug, indexing, memory, shape
from deuteron.lang.values import Tensor, constexpr, unwrap, wrap

LOC = Loc("kernel.py", 3, 4, 9, "    x + y")


def make_context(**options):
    builder = Builder()
    builder.loc = LOC
    builder.open()
    return Context(builder, Options(**options))


@pytest.fixture
def ctx():
    return make_context()


def tile(ctx, dtype, *shape):
    return Tensor(ctx.builder.full(1, Type(dtype, shape)))


def pointer(ctx, dtype, *shape, const=False):
    address = Tensor(ctx.builder.full(64, Type(int64, shape)))
    return ctx.op("int_to_ptr", address, to=Pointer(dtype, const))


def finish(ctx):
    function = ctx.builder.function("test", ctx.builder.close())
    verify(function)
    return function


def names(ctx):
    return [n.name for n in ctx.builder.block.nodes if isinstance(n, Op)]


@builtin
def add(ctx: Context, a, b):
    return arith.add(ctx, a, b)


# -- shapes --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ((), (), ()),
        ((4,), (), (4,)),
        ((4, 1), (1, 8), (4, 8)),
        ((8,), (4, 8), (4, 8)),
        ((2, 1, 8), (4, 1), (2, 4, 8)),
        ((1,), (16,), (16,)),
    ],
)
def test_broadcasting_pads_the_lower_rank_in_front(ctx, left, right, expected):
    for a, b in ((left, right), (right, left)):
        results = shape.broadcast_together(ctx, tile(ctx, int32, *a), tile(ctx, int32, *b))
        assert [r.shape for r in results] == [expected, expected]
    finish(ctx)


def test_shapes_that_do_not_broadcast(ctx):
    with pytest.raises(CompilationError) as caught:
        arith.add(ctx, tile(ctx, int32, 4), tile(ctx, int32, 8))
    text = str(caught.value)
    assert "(4,) and (8,), which differ in axis 0" in text
    assert "remedy:" in text


def test_broadcast_to(ctx):
    assert shape.broadcast_to(ctx, tile(ctx, int32, 1, 4), (8, 4)).shape == (8, 4)
    assert shape.broadcast_to(ctx, tile(ctx, int32), (8, 4)).shape == (8, 4)
    for wrong in ((8,), (8, 2)):
        with pytest.raises(CompilationError, match="cannot be broadcast to this shape"):
            shape.broadcast_to(ctx, tile(ctx, int32, 1, 4), wrong)


@pytest.mark.parametrize("length", [1, 2, 3, 100, 1024, 1 << 20])
def test_arange_of_any_length(ctx, length):
    assert shape.arange(ctx, 0, length).type == Type(int32, (length,))


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        (4, 4, "empty"),
        (0, 1 << 21, "too large"),
        (2**31, 2**31 + 2, "does not fit int32"),
        (0, 4.0, "known at compile time"),
    ],
)
def test_arange_that_cannot_be(ctx, start, end, message):
    with pytest.raises(CompilationError, match=message):
        shape.arange(ctx, start, end)


def test_strict_kernels_count_in_powers_of_two(ctx):
    strict = Context(ctx.builder, Options(strict=True))
    assert shape.arange(strict, 0, 128).shape == (128,)
    with pytest.raises(CompilationError, match="an axis of 100 elements goes beyond Triton"):
        shape.arange(strict, 0, 100)


def test_arange_of_a_tensor_says_how_to_make_it_constant(ctx):
    with pytest.raises(CompilationError, match=r"BLOCK: tl\.constexpr"):
        shape.arange(ctx, 0, tile(ctx, int32))


def test_full(ctx):
    assert shape.full(ctx, (4, 8), 1.5, float32).type == Type(float32, (4, 8))
    assert shape.full(ctx, (), 2, int8).type == Type(int8)
    assert shape.full(ctx, (4,), tile(ctx, int32, 1), float32).type == Type(float32, (4,))
    ones = shape.full(ctx, (), -1, dt.uint32)
    assert ones.handle.op.attrs["value"] == 2**32 - 1
    minus_one = shape.full(ctx, (), 0xFFFFFFFF, int32)
    assert minus_one.handle.op.attrs["value"] == -1
    for value, dtype in ((2**33, int32), (1.5, int32), (256, uint8)):
        with pytest.raises(CompilationError, match="remedy:"):
            shape.full(ctx, (4,), value, dtype)


@pytest.mark.parametrize("dims", [(0,), (4, 0), (-4,), (1 << 11, 1 << 10), (4.0,)])
def test_shapes_that_cannot_be(ctx, dims):
    with pytest.raises(CompilationError):
        shape.full(ctx, dims, 0, float32)


def test_reshaping(ctx):
    x = tile(ctx, int32, 4, 8)
    assert shape.reshape(ctx, x, (8, 4)).shape == (8, 4)
    assert shape.reshape(ctx, x, (4, 8)) is x
    assert shape.reshape(ctx, tile(ctx, int32, 1, 1), ()).shape == ()
    assert shape.expand_dims(ctx, x, (0, -1)).shape == (1, 4, 8, 1)
    assert shape.expand_dims(ctx, tile(ctx, int32), 0).shape == (1,)
    assert shape.permute(ctx, tile(ctx, int32, 2, 4, 8), (2, 0, 1)).shape == (8, 2, 4)
    assert shape.transpose(ctx, tile(ctx, int32, 2, 4, 8)).shape == (2, 8, 4)
    assert shape.cat(ctx, x, x, 1).shape == (4, 16)
    assert shape.cat(ctx, x, tile(ctx, int32, 2, 8), 0).shape == (6, 8)
    assert shape.join(ctx, x, tile(ctx, int32)).shape == (4, 8, 2)
    assert [h.shape for h in shape.split(ctx, tile(ctx, int32, 4, 2))] == [(4,), (4,)]
    assert [h.shape for h in shape.split(ctx, tile(ctx, int32, 2))] == [(), ()]
    finish(ctx)


def test_reshaping_that_cannot_be(ctx):
    x = tile(ctx, int32, 4, 8)
    wrong = [
        lambda: shape.reshape(ctx, x, (4, 4)),
        lambda: shape.expand_dims(ctx, x, 5),
        lambda: shape.expand_dims(ctx, x, (0, 0)),
        lambda: shape.permute(ctx, x, (0, 0)),
        lambda: shape.permute(ctx, x, (0,)),
        lambda: shape.transpose(ctx, tile(ctx, int32, 4)),
        lambda: shape.split(ctx, x),
        lambda: shape.cat(ctx, x, tile(ctx, int32, 8, 4), 0),
        lambda: shape.cat(ctx, x, tile(ctx, int32, 4), 0),
        lambda: shape.cat(ctx, x, tile(ctx, float32, 4, 8), 0),
        lambda: shape.join(ctx, x, tile(ctx, float32, 4, 8)),
    ]
    for call in wrong:
        with pytest.raises(CompilationError):
            call()


def test_brackets(ctx):
    x = tile(ctx, int32, 4)
    all_of = slice(None)
    assert indexing.subscript(ctx, x, (all_of, None)).shape == (4, 1)
    assert indexing.subscript(ctx, x, (None, all_of)).shape == (1, 4)
    assert indexing.subscript(ctx, x, (None, all_of, None, None)).shape == (1, 4, 1, 1)
    assert indexing.subscript(ctx, tile(ctx, int32, 4, 8), (..., None)).shape == (4, 8, 1)
    assert indexing.subscript(ctx, tile(ctx, int32, 4, 8), (None, ...)).shape == (1, 4, 8)
    assert indexing.subscript(ctx, x, (0,)).shape == ()
    assert indexing.subscript(ctx, tile(ctx, int32, 4, 8), (slice(1, None), -1)).shape == (3,)
    with pytest.raises(CompilationError, match="cannot be indexed by this"):
        indexing.subscript(ctx, x, (x,))
    with pytest.raises(CompilationError, match="too many axes"):
        indexing.subscript(ctx, x, (all_of, all_of))
    finish(ctx)


# -- memory --------------------------------------------------------------------------------
def test_load_broadcasts_mask_and_other(ctx):
    p = pointer(ctx, float32, 4, 8)
    loaded = memory.load(ctx, p, tile(ctx, int1, 8), 0)
    assert loaded.type == Type(float32, (4, 8))
    assert [o.type.shape for o in loaded.handle.op.operands] == [(4, 8)] * 3
    scalar = memory.load(ctx, pointer(ctx, int32), True, -1, volatile=True)
    assert scalar.type == Type(int32)
    assert scalar.handle.op.attrs == {"volatile": True}
    widened = memory.load(ctx, pointer(ctx, int32, 1, 8), tile(ctx, int1, 4, 1), None)
    assert widened.shape == (4, 8)
    finish(ctx)


def test_booleans_are_bytes_in_memory(ctx):
    p = pointer(ctx, int1, 4)
    loaded = memory.load(ctx, p, None, None)
    assert loaded.dtype == int1
    memory.store(ctx, p, tile(ctx, int32, 4), None)
    for node in ctx.builder.block.nodes:
        if node.name in ("load", "store"):
            assert node.operands[0].type.pointee == int8
    # A number is made a truth before it is made a byte: 256 is true.
    casts = [n.attrs["to"] for n in ctx.builder.block.nodes if n.name == "cast"]
    assert casts[-2:] == [int1, int8]
    finish(ctx)


def test_store_casts_and_broadcasts_the_value(ctx):
    memory.store(ctx, pointer(ctx, dt.float16, 4, 8), tile(ctx, float32, 8), True)
    (store,) = [n for n in ctx.builder.block.nodes if n.name == "store"]
    assert [o.type for o in store.operands] == [
        Type(Pointer(dt.float16), (4, 8)),
        Type(dt.float16, (4, 8)),
        Type(int1, (4, 8)),
    ]
    finish(ctx)


def test_memory_misuse(ctx):
    p, scalar = pointer(ctx, float32, 4), pointer(ctx, float32)
    mask = tile(ctx, int1, 4)
    wrong = {
        "load needs a pointer": lambda: memory.load(ctx, tile(ctx, int64, 4), None, None),
        "`other` but no mask": lambda: memory.load(ctx, p, None, 0),
        "mask of load is not boolean": lambda: memory.load(ctx, p, tile(ctx, int32, 4), None),
        "tile as its mask": lambda: memory.load(ctx, scalar, mask, None),
        "tile as its other": lambda: memory.load(ctx, scalar, True, tile(ctx, float32, 4)),
        "tile as its value": lambda: memory.store(ctx, scalar, tile(ctx, float32, 4), None),
        "store would need more": lambda: memory.store(ctx, p, tile(ctx, float32, 8, 4), None),
        "through a const pointer": lambda: memory.store(
            ctx, pointer(ctx, float32, 4, const=True), 0, None
        ),
        "unknown cache_modifier": lambda: memory.load(ctx, p, None, None, cache_modifier=".wb"),
        "unknown eviction_policy": lambda: memory.load(ctx, p, None, None, eviction_policy="no"),
        "do not broadcast": lambda: memory.load(ctx, p, tile(ctx, int1, 8), None),
    }
    for message, call in wrong.items():
        with pytest.raises(CompilationError, match=message):
            call()


@pytest.mark.parametrize("kind", ["add", "and", "or", "xor", "max", "min", "xchg"])
def test_atomics(ctx, kind):
    old = memory.atomic_rmw(ctx, kind, pointer(ctx, int32, 4), 1, tile(ctx, int1, 4), None, "sys")
    assert old.type == Type(int32, (4,))
    assert old.handle.op.attrs == {"kind": kind, "sem": "acq_rel", "scope": "sys"}
    floats = kind in ("add", "max", "min", "xchg")
    for dtype, allowed in (
        (float32, floats),
        (dt.float16, kind == "add"),
        (dt.int16, False),
        (dt.uint64, True),
    ):
        if allowed:
            p = pointer(ctx, dtype)
            assert memory.atomic_rmw(ctx, kind, p, 1, None, "relaxed", None).dtype == dtype
        else:
            with pytest.raises(CompilationError, match="is not defined on"):
                memory.atomic_rmw(ctx, kind, pointer(ctx, dtype), 1, None, None, None)
    finish(ctx)


def test_atomic_compare_and_swap(ctx):
    old = memory.atomic_cas(ctx, pointer(ctx, int64, 4), 0, 1, "acquire", "cta")
    assert old.type == Type(int64, (4,))
    with pytest.raises(CompilationError, match="16, 32 or 64 bits"):
        memory.atomic_cas(ctx, pointer(ctx, int8), 0, 1, None, None)
    with pytest.raises(CompilationError, match="unknown sem"):
        memory.atomic_cas(ctx, pointer(ctx, int32), 0, 1, "seq_cst", None)
    with pytest.raises(CompilationError, match="unknown scope"):
        memory.atomic_cas(ctx, pointer(ctx, int32), 0, 1, None, "world")
    finish(ctx)


# -- dot -----------------------------------------------------------------------------------
def dot(ctx, a, b, acc=None, precision=None, allow_tf32=None, out_dtype=None):
    return contract.dot(
        ctx,
        a,
        b,
        acc,
        input_precision=precision,
        allow_tf32=allow_tf32,
        out_dtype=out_dtype,
    )


@pytest.mark.parametrize(
    ("operand", "out", "expected"),
    [
        (float32, None, float32),
        (dt.bfloat16, None, float32),
        (dt.float16, None, float32),
        (dt.float16, dt.float16, dt.float16),
        (dt.float8e5, None, float32),
        (dt.float64, None, dt.float64),
        (dt.float64, float32, dt.float64),
        (int8, None, int32),
        (uint8, int32, int32),
    ],
)
def test_the_dtype_of_dot(ctx, operand, out, expected):
    a, b = tile(ctx, operand, 2, 16, 32), tile(ctx, operand, 2, 32, 8)
    assert dot(ctx, a, b, out_dtype=out).type == Type(expected, (2, 16, 8))
    acc = tile(ctx, expected, 2, 16, 8)
    assert dot(ctx, a, b, acc).type == acc.type
    finish(ctx)


def test_dot_precision(ctx):
    a = tile(ctx, float32, 16, 16)
    assert dot(ctx, a, a).handle.op.attrs["input_precision"] == "tf32"
    assert dot(ctx, a, a, allow_tf32=False).handle.op.attrs["input_precision"] == "ieee"
    assert dot(ctx, a, a, allow_tf32=True).handle.op.attrs["input_precision"] == "tf32"
    assert dot(ctx, a, a, precision="tf32x3").handle.op.attrs["input_precision"] == "tf32x3"


def test_dot_misuse(ctx):
    a, b = tile(ctx, float32, 16, 32), tile(ctx, float32, 32, 8)
    half = tile(ctx, dt.float16, 32, 8)
    wrong = {
        r"\(16, 32\) @ \(16, 32\)": lambda: dot(ctx, a, a),
        "the dtypes of dot differ": lambda: dot(ctx, a, half),
        "not defined on int64": lambda: dot(ctx, tile(ctx, int64, 4, 4), tile(ctx, int64, 4, 4)),
        "as many axes, two at least": lambda: dot(ctx, a, tile(ctx, float32, 32)),
        "two tiles of numbers": lambda: dot(ctx, a, 2.0),
        "the same batch": lambda: dot(
            ctx, tile(ctx, float32, 2, 4, 4), tile(ctx, float32, 4, 4, 4)
        ),
        "accumulator of dot": lambda: dot(ctx, a, b, tile(ctx, float32, 8, 8)),
        "both input_precision and": lambda: dot(ctx, a, b, precision="ieee", allow_tf32=True),
        "unknown input_precision": lambda: dot(ctx, a, b, precision="fp8"),
        "cannot give bfloat16": lambda: dot(ctx, a, b, out_dtype=dt.bfloat16),
        "`out_dtype` is no dtype": lambda: dot(ctx, a, b, out_dtype="float32"),
    }
    for message, call in wrong.items():
        with pytest.raises(CompilationError, match=message):
            call()


# -- folds ---------------------------------------------------------------------------------
def test_reduce_and_scan(ctx):
    x, y = tile(ctx, float32, 4, 8), tile(ctx, int32, 4, 8)
    assert contract.reduce(ctx, x, 1, add).type == Type(float32, (4,))
    assert contract.reduce(ctx, x, -2, add, keep_dims=True).shape == (1, 8)
    assert contract.reduce(ctx, x, None, add).shape == ()
    assert contract.reduce(ctx, x, None, add, keep_dims=True).shape == (1, 1)

    @builtin
    def both(ctx: Context, a, i, b, j):
        return arith.add(ctx, a, b), arith.maximum(ctx, i, j)

    pair = contract.reduce(ctx, (x, y), 0, both)
    assert [p.type for p in pair] == [Type(float32, (8,)), Type(int32, (8,))]
    scanned = contract.associative_scan(ctx, (x, y), 0, both, reverse=True)
    assert [p.type for p in scanned] == [x.type, y.type]
    finish(ctx)


def test_combine_functions_may_make_tiles_that_nobody_reads(ctx):
    """Library code asks such a tile for its dtype."""
    x = tile(ctx, float32, 8)

    @builtin
    def ask(ctx: Context, a, b):
        one = ctx.op("splat", a, shape=(1,))
        assert arith.add(ctx, one, one).dtype == float32
        return arith.add(ctx, a, b)

    assert contract.reduce(ctx, x, 0, ask).type == Type(float32)
    finish(ctx)


def test_combine_functions_that_do_not_fit(ctx):
    x = tile(ctx, int32, 4)

    @builtin
    def divide(ctx: Context, a, b):
        return arith.truediv(ctx, a, b)

    @builtin
    def look(ctx: Context, a, b):
        return memory.load(ctx, ctx.op("int_to_ptr", a, to=Pointer(int64)), None, None)

    with pytest.raises(CompilationError, match="other types than it takes"):
        contract.reduce(ctx, x, 0, divide)
    with pytest.raises(CompilationError, match="more than arithmetic"):
        contract.reduce(ctx, tile(ctx, int64, 4), 0, look)
    with pytest.raises(CompilationError, match="`axis` is out of range"):
        contract.reduce(ctx, x, 1, add)
    with pytest.raises(CompilationError, match="a reduction needs a tile"):
        contract.reduce(ctx, tile(ctx, int32), 0, add)
    with pytest.raises(CompilationError, match="tiles of one shape"):
        contract.reduce(ctx, (x, tile(ctx, int32, 8)), 0, add)


# -- hints and debugging -------------------------------------------------------------------
def test_hints(ctx):
    x = tile(ctx, int32, 4, 8)
    hinted = debug.hint(ctx, "multiple_of", "divisibility", x, (1, 8))
    assert hinted.handle.op.attrs == {"divisibility": (1, 8)}
    assert debug.hint(ctx, "multiple_of", "divisibility", tile(ctx, int32), 8).shape == ()
    with pytest.raises(CompilationError, match="one value a dimension"):
        debug.hint(ctx, "multiple_of", "divisibility", x, 8)
    with pytest.raises(CompilationError, match="positive integer constants"):
        debug.hint(ctx, "multiple_of", "divisibility", x, (1, 0))
    with pytest.raises(CompilationError, match="scalar condition"):
        debug.assume(ctx, tile(ctx, int1, 4))
    finish(ctx)


def test_device_assert_is_built_only_for_debug():
    for wanted in (False, True):
        ctx = make_context(debug=wanted)
        debug.device_assert(ctx, tile(ctx, int1, 4), "in range", tile(ctx, int1))
        assert ("assert" in names(ctx)) is wanted
        finish(ctx)


def test_device_print(ctx):
    core.device_print(constexpr("x"), tile(ctx, int32, 4), pointer(ctx, int8), hex=True, _ctx=ctx)
    printed = ctx.builder.block.nodes[-1]
    assert printed.attrs == {"prefix": "x:", "hex": True}
    assert [o.type for o in printed.operands] == [Type(int32, (4,)), Type(int64)]
    with pytest.raises(CompilationError, match="no plain ASCII string"):
        core.device_print(tile(ctx, int32), _ctx=ctx)


def test_static_assert_and_print(ctx, capsys):
    core.static_assert(constexpr(True), _ctx=ctx)
    with pytest.raises(CompileTimeAssertionFailure, match=r"kernel\.py:3:5: too small"):
        core.static_assert(constexpr(False), constexpr("too small"), _ctx=ctx)
    with pytest.raises(CompilationError, match="known at compile time"):
        core.static_assert(tile(ctx, int1), _ctx=ctx)
    core.static_print(constexpr("block"), constexpr(4), tile(ctx, int32, 4), _ctx=ctx)
    assert capsys.readouterr().out == "block 4 int32[constexpr[4]]\n"


# -- builtins ------------------------------------------------------------------------------
def test_a_builtin_outside_of_a_kernel():
    with pytest.raises(UserError, match="load is a function of the kernel language"):
        access.load(None)


def test_wrong_arguments_are_located(ctx):
    with pytest.raises(CompilationError) as caught:
        access.store(pointer(ctx, float32), _ctx=ctx)
    text = str(caught.value)
    assert "store: missing a required argument: 'value'" in text
    assert "expected: store(pointer" in text
    with pytest.raises(CompilationError, match="unexpected keyword argument 'maks'"):
        access.load(pointer(ctx, float32), maks=True, _ctx=ctx)
    with pytest.raises(CompilationError, match=r"no axis of the grid\n.*\n.*\n.*0, 1 or 2"):
        core.program_id(constexpr(3), _ctx=ctx)


def test_builtins_unwrap_arguments_and_wrap_results(ctx):
    @builtin
    def width(ctx: Context, dims, scale=1):
        assert dims == (2, 3)
        return dims[0] * scale

    assert is_builtin(width)
    assert str(inspect.signature(width)) == "(dims, scale=1)"
    result = width((constexpr(2), constexpr(3)), scale=constexpr(8), _ctx=ctx)
    assert isinstance(result, constexpr)
    assert unwrap(result) == 16


def test_attributes(ctx):
    x = tile(ctx, float32, 4, 8)
    assert unwrap(operators.attribute(ctx, x, "shape")) == (4, 8)
    assert unwrap(operators.attribute(ctx, x, "dtype")) == float32
    assert unwrap(operators.attribute(ctx, x, "numel")) == 32
    assert operators.attribute(ctx, x, "T").shape == (8, 4)
    assert operators.attribute(ctx, x, "type").element_ty == float32
    assert unwrap(operators.attribute(ctx, tile(ctx, int8), "type")) == int8
    for value, element in (
        (x, float32),
        (tile(ctx, int8), int8),
        (pointer(ctx, int8), Pointer(int8)),
    ):
        scalar = operators.attribute(ctx, operators.attribute(ctx, value, "type"), "scalar")
        assert unwrap(scalar) == element
    element = operators.attribute(
        ctx, operators.attribute(ctx, pointer(ctx, int8), "dtype"), "element_ty"
    )
    assert unwrap(element) == int8
    method = operators.attribute(ctx, constexpr(3), "to")
    assert ctx.call(method, [constexpr(int64)], {}).type == Type(int64)
    with pytest.raises(CompilationError, match="has no attribute `foo`"):
        operators.attribute(ctx, x, "foo")
    with pytest.raises(CompilationError, match="load from the pointer first"):
        operators.attribute(ctx, pointer(ctx, int8), "foo")


def test_methods(ctx):
    x = tile(ctx, float32, 4)
    for name, args in (
        ("to", [constexpr(dt.float16)]),
        ("exp", []),
        ("reshape", [constexpr(2), constexpr(2)]),
    ):
        method = operators.attribute(ctx, x, name)
        assert isinstance(ctx.call(method, args, {}), Tensor)
    assert math.exp(x, _ctx=ctx).type == x.type


def test_constants_wrap_and_unwrap():
    assert unwrap(wrap((1, (2.0, None)))) == (1, (2.0, None))
    assert constexpr(constexpr(3)).value == 3
    assert constexpr(3) == 3
    assert constexpr(3) != 4
    assert {constexpr(3): "a"}[constexpr(3)] == "a"
    assert (2 + constexpr(3)).value == 5
    assert (constexpr(7) // 2).value == 3
    assert list(range(10))[constexpr(4)] == 4
