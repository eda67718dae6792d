"""Element types: what a scalar or one element of a tile may be.

The names, short names and promotion order are Triton's.  A dtype is plain data: backends decide how
to hold one in memory or in registers.  First link of the import chain (with `errors` and `config`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar


class Kind(Enum):
    """The family of an element type."""

    BOOL = "bool"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"


class _ByName(type):
    """`DType("fp32")`, as Triton's kernels write it, is the one dtype of that name."""

    def __call__(cls, name: str, *rest: Any, **named: Any) -> Any:
        if rest or named:
            return super().__call__(name, *rest, **named)
        known = BY_SHORT.get(name) or BY_NAME.get(name)
        if known is None:
            raise ValueError(f"no dtype is called {name!r}; there are {', '.join(BY_SHORT)}")
        return known


@dataclass(frozen=True, slots=True)
class DType(metaclass=_ByName):
    """One element type.

    `bits` is the width of a value (1 for int1); `storage_bytes` the width in memory (1 for int1).
    `mantissa_bits` excludes the implicit bit and is 0 for integers.
    """

    name: str
    short: str
    kind: Kind
    bits: int
    mantissa_bits: int = 0

    # Names by family, as Triton lists them.
    SINT_TYPES: ClassVar = ["int8", "int16", "int32", "int64"]
    UINT_TYPES: ClassVar = ["int1", "uint8", "uint16", "uint32", "uint64"]
    FP_TYPES: ClassVar = [
        "fp8e4b15", "fp8e4nv", "fp8e4b8", "fp8e5", "fp8e5b16", "fp16", "bf16", "fp32", "fp64",
    ]  # fmt: skip
    STANDARD_FP_TYPES: ClassVar = ["fp16", "bf16", "fp32", "fp64"]
    OTHER_TYPES: ClassVar = ["void"]

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    @property
    def storage_bytes(self) -> int:
        return max(1, self.bits // 8)

    @property
    def primitive_bitwidth(self) -> int:
        """Width in bits, under Triton's name."""
        return self.bits

    @property
    def fp_mantissa_width(self) -> int:
        """Width of a float's mantissa in bits, under Triton's name."""
        return self.mantissa_bits

    @property
    def exponent_bias(self) -> int:
        """What a float's exponent is stored plus, under Triton's name; 0 for integers."""
        return _EXPONENT_BIAS.get(self.short, 0)

    @property
    def itemsize(self) -> int:
        """Width in memory, in bytes."""
        return self.storage_bytes

    def is_bool(self) -> bool:
        return self.kind is Kind.BOOL

    def is_int(self) -> bool:
        """True for int1 and every signed or unsigned integer."""
        return self.kind is not Kind.FLOAT

    def is_int_signed(self) -> bool:
        return self.kind is Kind.SIGNED

    def is_int_unsigned(self) -> bool:
        """True for unsigned integers and int1, which zero-extend."""
        return self.kind in (Kind.UNSIGNED, Kind.BOOL)

    def is_floating(self) -> bool:
        return self.kind is Kind.FLOAT

    def is_standard_floating(self) -> bool:
        """float16, bfloat16, float32, float64: the types arithmetic is defined on."""
        return self.kind is Kind.FLOAT and self.bits >= 16

    def is_fp8(self) -> bool:
        return self.kind is Kind.FLOAT and self.bits == 8

    def is_fp16(self) -> bool:
        return self.name == "float16"

    def is_bf16(self) -> bool:
        return self.name == "bfloat16"

    def is_fp32(self) -> bool:
        return self.name == "float32"

    def is_fp64(self) -> bool:
        return self.name == "float64"

    def is_ptr(self) -> bool:
        """False: a pointer type is `ir.types.Pointer`."""
        return False

    @property
    def scalar(self) -> DType:
        """Itself: `x.type.scalar` is the dtype of tiles and scalars alike."""
        return self


_EXPONENT_BIAS = {
    "fp8e4b15": 15, "fp8e4nv": 7, "fp8e4b8": 8, "fp8e5": 15, "fp8e5b16": 16, "fp16": 15,
    "bf16": 127, "fp32": 127, "fp64": 1023,
}  # fmt: skip

int1 = DType("int1", "i1", Kind.BOOL, 1)
int8 = DType("int8", "i8", Kind.SIGNED, 8)
int16 = DType("int16", "i16", Kind.SIGNED, 16)
int32 = DType("int32", "i32", Kind.SIGNED, 32)
int64 = DType("int64", "i64", Kind.SIGNED, 64)
uint8 = DType("uint8", "u8", Kind.UNSIGNED, 8)
uint16 = DType("uint16", "u16", Kind.UNSIGNED, 16)
uint32 = DType("uint32", "u32", Kind.UNSIGNED, 32)
uint64 = DType("uint64", "u64", Kind.UNSIGNED, 64)
float8e5 = DType("float8e5", "fp8e5", Kind.FLOAT, 8, 2)
float8e4nv = DType("float8e4nv", "fp8e4nv", Kind.FLOAT, 8, 3)
float8e5b16 = DType("float8e5b16", "fp8e5b16", Kind.FLOAT, 8, 2)
float8e4b8 = DType("float8e4b8", "fp8e4b8", Kind.FLOAT, 8, 3)
float8e4b15 = DType("float8e4b15", "fp8e4b15", Kind.FLOAT, 8, 3)
float16 = DType("float16", "fp16", Kind.FLOAT, 16, 10)
bfloat16 = DType("bfloat16", "bf16", Kind.FLOAT, 16, 7)
float32 = DType("float32", "fp32", Kind.FLOAT, 32, 23)
float64 = DType("float64", "fp64", Kind.FLOAT, 64, 52)

ALL: tuple[DType, ...] = (
    int1, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
    float8e5, float8e4nv, float8e5b16, float8e4b8, float8e4b15,
    float16, bfloat16, float32, float64,
)  # fmt: skip
BY_NAME: dict[str, DType] = {d.name: d for d in ALL}
BY_SHORT: dict[str, DType] = {d.short: d for d in ALL} | {"u1": int1}

# Names under which array libraries speak of the same types.
BY_ARRAY_NAME: dict[str, DType] = {d.name: d for d in ALL if not d.is_fp8()} | {
    "bool": int1,
    "float8_e5m2": float8e5,
    "float8_e4m3fn": float8e4nv,
    "float8_e5m2fnuz": float8e5b16,
    "float8_e4m3fnuz": float8e4b8,
}


def canonical_name(dtype: object) -> str:
    """The short name of a dtype of this package, of NumPy or of torch: "fp32", "i8"."""
    name = str(dtype).removeprefix("torch.")
    found = BY_ARRAY_NAME.get(name) or BY_NAME.get(name) or BY_SHORT.get(name)
    if found is None:
        raise ValueError(f"{dtype} is the name of no dtype")
    return found.short


@dataclass(frozen=True, slots=True)
class GPUTarget:
    """A kind of hardware, under Triton's name: "cpu" is one too, with `warp_size` 1.

    `arch` is the compute capability of CUDA (90 for 9.0), and 0 for a CPU.
    """

    backend: str
    arch: int
    warp_size: int


class Specials(Enum):
    """Which codes of an 8-bit float are no numbers; S is the sign bit."""

    IEEE = "S.11111.00 is infinity, what follows it NaN"
    LAST = "S.1111.111 is NaN"
    NEGATIVE_ZERO = "1.0…0 is NaN, and there is no negative zero"
    NONE = "every code is a number"


@dataclass(frozen=True, slots=True)
class Float8:
    """An 8-bit float format.

    `least_exponent` is that of the smallest normal number, `greatest` the greatest finite one,
    where conversions saturate.  Where there is no NaN, it converts to the greatest number.
    """

    mantissa_bits: int
    least_exponent: int
    greatest: float
    specials: Specials


# OCP 8-bit formats (OFP8 revision 1.0, table 1); those of Graphcore and AMD (arXiv:2206.02915);
# e4b15 is Triton's own, all numbers.
FLOAT8: dict[DType, Float8] = {
    float8e5: Float8(2, -14, 57344.0, Specials.IEEE),
    float8e4nv: Float8(3, -6, 448.0, Specials.LAST),
    float8e5b16: Float8(2, -15, 57344.0, Specials.NEGATIVE_ZERO),
    float8e4b8: Float8(3, -7, 240.0, Specials.NEGATIVE_ZERO),
    float8e4b15: Float8(3, -14, 1.875, Specials.NONE),
}


def int_range(dtype: DType) -> tuple[int, int]:
    """Least and greatest value of an integer dtype."""
    if dtype.kind is Kind.SIGNED:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def integer(bits: int, signed: bool = True) -> DType:
    """The integer dtype of that width."""
    return BY_SHORT[f"{'i' if signed else 'u'}{bits}"]


def promote(a: DType, b: DType, *, division: bool = False) -> DType:
    """The dtype both operands of a binary operation are cast to, by Triton's rules.

    float64 > float32 > float16; two bfloat16 stay, bfloat16 with an integer or fp8 goes to
    float32; different fp8 types, or fp8 with an integer, go to float16; integers follow C's usual
    arithmetic conversions on width and signedness.  With `division` (`/` and `%`), 16-bit floats
    go to float32.
    """
    if a.is_floating() or b.is_floating():
        return _promote_floats(a, b, division)
    if a == b:
        return a
    if a.is_int_signed() == b.is_int_signed():
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.is_int_signed() else (b, a)
    return unsigned if unsigned.bits >= signed.bits else signed


def _promote_floats(a: DType, b: DType, division: bool) -> DType:
    for wide in (float64, float32):
        if wide in (a, b):
            return wide
    if float16 in (a, b):
        return float32 if division else float16
    if bfloat16 in (a, b):
        return bfloat16 if a == b and not division else float32
    return a if a == b else float16
