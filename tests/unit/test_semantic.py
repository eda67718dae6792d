"""Promotion, operators and conversions, built through the Context without any kernel source."""

from itertools import product

import pytest

from deuteron import dtypes as dt
from deuteron.dtypes import BY_SHORT, DType, float32, int1, int8, int32, int64, uint8, uint32
from deuteron.errors import CompilationError, Loc
from deuteron.ir import Builder, Pointer, Type, verify
from deuteron.lang import operators
from deuteron.lang.context import Context
from deuteron.lang.semantic import arith, casts
from deuteron.lang.values import Tensor, constexpr, unwrap

LOC = Loc("kernel.py", 3, 4, 9, "    x + y")

# What two tensors are computed in, for + - * and comparisons: row and column dtypes meet.
# Sources: Triton's documented rules; C's usual arithmetic conversions for integers.
PROMOTION = """
        i1   i8   i16  i32  i64  u8   u16  u32  u64  fp16 bf16 fp32 fp64
  i1    i1   i8   i16  i32  i64  u8   u16  u32  u64  fp16 fp32 fp32 fp64
  i8    i8   i8   i16  i32  i64  u8   u16  u32  u64  fp16 fp32 fp32 fp64
  i16   i16  i16  i16  i32  i64  i16  u16  u32  u64  fp16 fp32 fp32 fp64
  i32   i32  i32  i32  i32  i64  i32  i32  u32  u64  fp16 fp32 fp32 fp64
  i64   i64  i64  i64  i64  i64  i64  i64  i64  u64  fp16 fp32 fp32 fp64
  u8    u8   u8   i16  i32  i64  u8   u16  u32  u64  fp16 fp32 fp32 fp64
  u16   u16  u16  u16  i32  i64  u16  u16  u32  u64  fp16 fp32 fp32 fp64
  u32   u32  u32  u32  u32  i64  u32  u32  u32  u64  fp16 fp32 fp32 fp64
  u64   u64  u64  u64  u64  u64  u64  u64  u64  u64  fp16 fp32 fp32 fp64
  fp16  fp16 fp16 fp16 fp16 fp16 fp16 fp16 fp16 fp16 fp16 fp16 fp32 fp64
  bf16  fp32 fp32 fp32 fp32 fp32 fp32 fp32 fp32 fp32 fp16 bf16 fp32 fp64
  fp32  fp32 fp32 fp32 fp32 fp32 fp32 fp32 fp32 fp32 fp32 fp32 fp32 fp64
  fp64  fp64 fp64 fp64 fp64 fp64 fp64 fp64 fp64 fp64 fp64 fp64 fp64 fp64
"""


def promotion_cells():
    header, *rows = [line.split() for line in PROMOTION.strip().splitlines()]
    for name, *cells in rows:
        for column, cell in zip(header, cells, strict=True):
            yield BY_SHORT[name], BY_SHORT[column], BY_SHORT[cell]


@pytest.fixture
def ctx():
    builder = Builder()
    builder.loc = LOC
    builder.open()
    return Context(builder)


def tile(ctx, dtype, *shape):
    """A tile that depends on nothing."""
    return Tensor(ctx.builder.full(1, Type(dtype, shape)))


def pointer(ctx, dtype, *shape, const=False):
    address = Tensor(ctx.builder.full(64, Type(int64, shape)))
    return ctx.op("int_to_ptr", address, to=Pointer(dtype, const))


def finish(ctx):
    """The function built so far, checked by the IR's own rules."""
    function = ctx.builder.function("test", ctx.builder.close())
    verify(function)
    return function


def op_of(tensor):
    """The name of the op that defines a tensor."""
    assert tensor.handle.op is not None
    return tensor.handle.op.name


# -- promotion -----------------------------------------------------------------------------
@pytest.mark.parametrize(("a", "b", "expected"), list(promotion_cells()))
def test_two_tensors_promote(ctx, a: DType, b: DType, expected: DType):
    x, y = tile(ctx, a, 8), tile(ctx, b, 8)
    assert arith.add(ctx, x, y).dtype == expected
    comparison = arith.compare(ctx, "<", x, y)
    assert comparison.dtype == int1
    assert {o.type.dtype for o in comparison.handle.op.operands} == {expected}
    finish(ctx)


@pytest.mark.parametrize(("a", "b", "expected"), list(promotion_cells()))
def test_division_goes_to_float32_at_least(ctx, a: DType, b: DType, expected: DType):
    x, y = tile(ctx, a, 8), tile(ctx, b, 8)
    if a.is_int() and b.is_int() and a.is_int_signed() != b.is_int_signed():
        for divide in (arith.truediv, arith.floordiv, arith.mod):
            with pytest.raises(CompilationError, match="different signedness"):
                divide(ctx, x, y)
        return
    wide = dt.float64 if expected == dt.float64 else float32
    assert arith.truediv(ctx, x, y).dtype == wide
    if expected.is_int():
        assert arith.floordiv(ctx, x, y).dtype == expected
        assert arith.mod(ctx, x, y).dtype == expected
    else:
        assert arith.mod(ctx, x, y).dtype == wide
        with pytest.raises(CompilationError, match="invalid operands of type"):
            arith.floordiv(ctx, x, y)
    finish(ctx)


@pytest.mark.parametrize(
    ("tensor", "number", "expected"),
    [
        ("i8", 100, "i8"),
        ("u8", 255, "u8"),
        ("i64", 1, "i64"),
        ("fp16", 1, "fp16"),
        ("fp16", 1e30, "fp16"),
        ("bf16", 0.1, "bf16"),
        ("fp32", True, "fp32"),
        ("i32", True, "i32"),
        ("i1", 1, "i32"),
        ("i1", 2**31, "u32"),
        ("i1", 2**32, "i64"),
        ("i1", 2**63, "u64"),
        ("i1", 0.5, "fp32"),
        ("i8", 0.5, "fp32"),
        ("i64", 1e300, "fp64"),
        ("i32", 1e-40, "fp64"),
        ("i32", float("inf"), "fp32"),
        ("fp64", 0.5, "fp64"),
    ],
)
def test_a_number_adopts_the_dtype_of_a_tensor_of_its_kind(ctx, tensor, number, expected):
    x = tile(ctx, BY_SHORT[tensor], 4)
    for left, right in ((x, number), (number, x)):
        assert arith.add(ctx, left, right).dtype == BY_SHORT[expected]
    finish(ctx)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (True, "i1"), (0, "i32"), (-(2**31), "i32"), (2**31 - 1, "i32"), (2**31, "u32"),
        (2**32 - 1, "u32"), (2**32, "i64"), (-(2**31) - 1, "i64"), (2**63, "u64"),
        (0.0, "fp32"), (1e38, "fp32"), (1e39, "fp64"), (float("nan"), "fp32"),
        (float("-inf"), "fp32"), (2.0**-126, "fp32"), (2.0**-127, "fp64"),
    ],
)  # fmt: skip
def test_the_dtype_of_a_number_alone(ctx, number, expected):
    assert casts.to_tensor(ctx, number).dtype == BY_SHORT[expected]


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1])
def test_a_number_too_large_for_any_dtype(ctx, number):
    with pytest.raises(CompilationError, match="does not fit any dtype"):
        casts.to_tensor(ctx, number)


@pytest.mark.parametrize(("dtype", "number"), [(int8, 200), (uint8, 256), (int32, 2**40)])
def test_a_number_out_of_the_tensor_dtypes_range(ctx, dtype, number):
    with pytest.raises(CompilationError) as caught:
        arith.mul(ctx, tile(ctx, dtype, 4), number)
    text = str(caught.value)
    assert text.startswith("kernel.py:3:5: ")
    assert "    x + y\n        ^" in text
    assert f"{number} is out of range for {dtype}" in text
    assert "remedy:" in text


def test_an_unsigned_tensor_and_a_negative_number(ctx):
    with pytest.raises(CompilationError, match="a negative number meets an unsigned tensor"):
        arith.add(ctx, tile(ctx, uint32, 4), -1)
    assert arith.add(ctx, tile(ctx, uint32, 4), -0.5).dtype == float32


def test_a_scalar_tensor_is_no_number(ctx):
    """Only constants adopt a dtype: a scalar known at run time promotes as a tile does."""
    scalar = tile(ctx, float32)
    assert arith.add(ctx, tile(ctx, dt.float16, 4), scalar).dtype == float32


@pytest.mark.parametrize(
    ("a", "b"), [(dt.float8e5, dt.float8e5), (dt.float8e4nv, 1.0), (dt.float8e4nv, dt.float8e4nv)]
)
def test_fp8_has_no_arithmetic(ctx, a, b):
    y = tile(ctx, b, 4) if isinstance(b, DType) else b
    with pytest.raises(CompilationError, match="for storage"):
        arith.add(ctx, tile(ctx, a, 4), y)


def test_mixed_fp8_goes_to_float16(ctx):
    x, y = tile(ctx, dt.float8e5, 4), tile(ctx, dt.float8e4nv, 4)
    assert arith.add(ctx, x, y).dtype == dt.float16
    assert arith.where(ctx, True, x, x).dtype == dt.float8e5


# -- operators -----------------------------------------------------------------------------
def test_constants_fold_in_python(ctx):
    fold = operators.binary
    assert unwrap(fold(ctx, "//", constexpr(-7), constexpr(2))) == -4
    assert unwrap(fold(ctx, "%", constexpr(-7), constexpr(2))) == 1
    assert unwrap(fold(ctx, "**", constexpr(2), constexpr(10))) == 1024
    assert unwrap(fold(ctx, "/", constexpr(1), constexpr(2))) == 0.5
    assert unwrap(operators.compare(ctx, "==", constexpr("a"), constexpr("a"))) is True
    assert unwrap(operators.unary(ctx, "not", constexpr(0))) is True
    assert ctx.builder.block.nodes == []


def test_a_fold_that_fails_is_located(ctx):
    with pytest.raises(CompilationError, match=r"`//` of constants failed: integer division"):
        operators.binary(ctx, "//", constexpr(1), constexpr(0))


def test_tensor_division_truncates(ctx):
    x = tile(ctx, int32, 4)
    assert op_of(operators.binary(ctx, "//", x, constexpr(2))) == "idiv"
    assert op_of(operators.binary(ctx, "%", x, constexpr(2))) == "irem"
    assert op_of(operators.binary(ctx, "%", tile(ctx, float32, 4), x)) == "fmod"


def test_operators_tensors_do_not_have(ctx):
    with pytest.raises(CompilationError, match="remedy:") as caught:
        operators.binary(ctx, "@", tile(ctx, float32, 4), tile(ctx, float32, 4))
    assert "tensors have no" in str(caught.value)


def test_powers(ctx):
    x, n = tile(ctx, float32, 4), tile(ctx, int32, 4)
    assert op_of(operators.binary(ctx, "**", x, constexpr(3))) == "mul"
    assert op_of(operators.binary(ctx, "**", x, constexpr(-1))) == "div"
    assert op_of(operators.binary(ctx, "**", x, constexpr(0.5))) == "pow"
    assert op_of(operators.binary(ctx, "**", x, n)) == "pow"
    assert operators.binary(ctx, "**", n, constexpr(1)) is n
    for left, right in ((n, n), (n, constexpr(-1)), (constexpr(2), constexpr(1 << 40))):
        with pytest.raises(CompilationError, match="remedy:"):
            operators.binary(ctx, "**", left, right)


@pytest.mark.parametrize("symbol", ["&", "|", "^", "<<", ">>"])
def test_bitwise_operators_need_integers(ctx, symbol):
    x, f = tile(ctx, int32, 4), tile(ctx, float32, 4)
    assert operators.binary(ctx, symbol, x, constexpr(3)).dtype == int32
    with pytest.raises(CompilationError, match="integers or booleans"):
        operators.binary(ctx, symbol, x, f)


def test_shifting_a_signed_value_right_keeps_its_sign(ctx):
    signed = arith.shift_right(ctx, tile(ctx, int32, 4), tile(ctx, uint32, 4))
    assert signed.dtype == uint32
    assert op_of(signed) == "bitcast"
    (shift,) = [n for n in ctx.builder.block.nodes if n.name == "shr"]
    assert shift.result.type.dtype == int32
    assert op_of(arith.shift_right(ctx, tile(ctx, uint32, 4), 3)) == "shr"


def test_unary_operators(ctx):
    x, f, b = tile(ctx, int32, 4), tile(ctx, float32, 4), tile(ctx, int1, 4)
    assert operators.unary(ctx, "+", x) is x
    assert op_of(operators.unary(ctx, "-", f)) == "neg"
    assert op_of(operators.unary(ctx, "~", b)) == "not"
    assert operators.unary(ctx, "not", f).dtype == int1
    with pytest.raises(CompilationError, match="`~` does not take"):
        operators.unary(ctx, "~", f)
    with pytest.raises(CompilationError, match="`-` does not take"):
        operators.unary(ctx, "-", pointer(ctx, float32))


def test_logical_operators_ask_for_truth(ctx):
    x, f = tile(ctx, int32, 4), tile(ctx, float32)
    both = operators.logical(ctx, "and", x, f)
    assert both.dtype == int1
    assert both.shape == (4,)
    assert op_of(operators.logical(ctx, "or", x, constexpr(True))) == "or"
    assert unwrap(operators.logical(ctx, "or", constexpr(0), constexpr(5))) == 5


def test_a_branch_needs_one_truth(ctx):
    assert operators.truth(ctx, tile(ctx, int32)).dtype == int1
    with pytest.raises(CompilationError, match="no single truth value"):
        operators.truth(ctx, tile(ctx, int1, 4))


# -- pointers ------------------------------------------------------------------------------
def test_pointer_arithmetic(ctx):
    p = pointer(ctx, float32)
    moved = arith.add(ctx, 4, arith.add(ctx, p, tile(ctx, int32, 8)))
    assert moved.type == Type(Pointer(float32), (8,))
    assert op_of(arith.sub(ctx, p, 1)) == "addptr"
    finish(ctx)


def test_unsigned_offsets_are_zero_extended(ctx):
    moved = arith.add(ctx, pointer(ctx, float32), tile(ctx, uint32))
    assert moved.handle.op.operands[1].type == Type(int64)
    back = arith.sub(ctx, pointer(ctx, float32), tile(ctx, uint8))
    assert back.handle.op.operands[1].type == Type(int64)


@pytest.mark.parametrize(
    ("symbol", "left", "right"),
    [
        ("+", "pointer", "pointer"), ("+", "pointer", "float"), ("-", "int", "pointer"),
        ("*", "pointer", "int"), ("<", "pointer", "pointer"), ("&", "pointer", "int"),
    ],
)  # fmt: skip
def test_what_pointers_cannot_do(ctx, symbol, left, right):
    made = {
        "pointer": pointer(ctx, float32, 4),
        "float": tile(ctx, float32, 4),
        "int": tile(ctx, int32, 4),
    }
    apply = operators.compare if symbol == "<" else operators.binary
    with pytest.raises(CompilationError, match="invalid operands of type"):
        apply(ctx, symbol, made[left], made[right])


# -- casts ---------------------------------------------------------------------------------
@pytest.mark.parametrize(("source", "to"), list(product(dt.ALL, dt.ALL)))
def test_numbers_cast_to_each_other(ctx, source, to):
    assert casts.cast(ctx, tile(ctx, source, 4), to).type == Type(to, (4,))
    finish(ctx)


@pytest.mark.parametrize(("source", "to"), list(product(dt.ALL, dt.ALL)))
def test_bitcasts_keep_the_width(ctx, source, to):
    x = tile(ctx, source, 4)
    if source.bits == to.bits:
        assert casts.bitcast(ctx, x, to).type == Type(to, (4,))
    else:
        with pytest.raises(CompilationError, match="dtypes of one width"):
            casts.bitcast(ctx, x, to)


def test_pointer_casts(ctx):
    p = pointer(ctx, float32, 4)
    assert casts.cast(ctx, p, int64).dtype == int64
    assert casts.cast(ctx, p, dt.uint64).dtype == dt.uint64
    assert casts.cast(ctx, p, int1).dtype == int1
    assert casts.cast(ctx, p, Pointer(int8)).dtype == Pointer(int8)
    assert casts.cast(ctx, tile(ctx, int32, 4), Pointer(int8)).dtype == Pointer(int8)
    for to in (int32, float32):
        with pytest.raises(CompilationError, match="cannot cast"):
            casts.cast(ctx, p, to)
    finish(ctx)


def test_downcast_rounding(ctx):
    x = tile(ctx, float32, 4)
    assert casts.cast(ctx, x, dt.float16, "rtz").handle.op.attrs["rounding"] == "rtz"
    assert "rounding" not in casts.cast(ctx, x, dt.float16, "rtne").handle.op.attrs
    assert casts.cast(ctx, x, float32, "rtne") is x
    with pytest.raises(CompilationError, match="only for casts to a narrower float"):
        casts.cast(ctx, x, dt.float64, "rtz")
    with pytest.raises(CompilationError, match="unknown fp_downcast_rounding"):
        casts.cast(ctx, x, dt.float16, "up")


# -- selection -----------------------------------------------------------------------------
def test_where_broadcasts_all_three(ctx):
    condition = tile(ctx, int1, 4, 1)
    chosen = arith.where(ctx, condition, tile(ctx, dt.float16, 8), 0.0)
    assert chosen.type == Type(dt.float16, (4, 8))
    scalar = arith.where(ctx, tile(ctx, int32), tile(ctx, int32, 2), tile(ctx, int64, 2))
    assert scalar.type == Type(int64, (2,))
    p = pointer(ctx, float32, 4)
    assert arith.where(ctx, True, p, p).dtype == Pointer(float32)
    with pytest.raises(CompilationError, match="two pointers of one type"):
        arith.where(ctx, True, p, pointer(ctx, int32, 4))
    finish(ctx)


def test_extremes_follow_tritons_promotion(ctx):
    """Numbers count as tensors here, and bfloat16 leaves as float32."""
    half, brain = tile(ctx, dt.float16, 4), tile(ctx, dt.bfloat16, 4)
    assert arith.maximum(ctx, half, half).dtype == dt.float16
    assert arith.maximum(ctx, half, 0.0).dtype == float32
    assert arith.minimum(ctx, brain, brain).dtype == float32
    assert arith.maximum(ctx, tile(ctx, int8, 4), 0).dtype == int32
    assert arith.clamp(ctx, brain, 0.0, 1.0).dtype == float32
    kept = arith.maximum(ctx, half, half, propagate_nan=True)
    assert kept.handle.op.attrs["propagate_nan"] is True
    with pytest.raises(CompilationError, match="clamp takes floats"):
        arith.clamp(ctx, tile(ctx, int32, 4), 0, 1)
    finish(ctx)


def test_functions_of_floats(ctx):
    assert arith.float_unary(ctx, "exp", tile(ctx, dt.float16, 4)).dtype == dt.float16
    assert arith.float_unary(ctx, "sqrt", 2).dtype == float32
    with pytest.raises(CompilationError, match="exp needs a float") as caught:
        arith.float_unary(ctx, "exp", tile(ctx, int32, 4))
    assert ".to(tl.float32)" in str(caught.value)
    mixed = arith.fma(ctx, tile(ctx, dt.float16, 4), 2.0, tile(ctx, float32, 4))
    assert mixed.type == Type(float32, (4,))
    assert arith.absolute(ctx, tile(ctx, uint8, 4)).dtype == uint8
    assert arith.umulhi(ctx, tile(ctx, uint32, 4), 3).dtype == uint32
    with pytest.raises(CompilationError, match="umulhi needs wider"):
        arith.umulhi(ctx, tile(ctx, uint8, 4), 3)
    finish(ctx)
