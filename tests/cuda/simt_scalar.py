"""What single LLVM instructions compute, for the simulator of whole kernels."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from tests.cuda.simt_types import (
    FLOATS,
    Bits,
    Floats,
    element,
    from_bytes,
    from_floats,
    signed,
    to_bytes,
    to_floats,
    width,
    wrap,
)

_LEAST_NORMAL = 2.0**-126
_PREDICATES = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def constant(text: str, type: str, shape: tuple[int, int]) -> Bits:
    """A constant in every thread."""
    match text:
        case "poison" | "null" | "false" | "zeroinitializer":
            value = 0
        case "true":
            value = 1
        case _ if text.startswith("0xH"):
            value = int(text[3:], 16)
        case _ if text.startswith("0x"):
            number = struct.unpack(">d", bytes.fromhex(text[2:]))[0]
            return np.full(shape, from_floats(np.array([number]), type)[0], np.uint64)
        case _:
            value = int(text)
    return wrap(np.full(shape, value & (1 << 64) - 1, np.uint64), type)


def sign_extended(bits: Bits, type: str) -> Bits:
    return signed(bits, type).view(np.uint64)


def round_down(numbers: np.ndarray) -> Bits:
    """Floats not above the numbers."""
    nearest = numbers.astype(np.float32)
    below = np.nextafter(nearest, np.float32(-np.inf))
    return np.where(nearest > numbers, below, nearest).view(np.uint32).astype(np.uint64)


def flushed(numbers: Floats) -> Floats:
    """Zeros in place of floats that are not normal."""
    return np.where(np.abs(numbers) < _LEAST_NORMAL, np.copysign(0.0, numbers), numbers)


def binary(opcode: str, left: Bits, right: Bits, type: str) -> Bits:
    """Arithmetic of integers and floats."""
    if opcode in ("fadd", "fsub", "fmul", "fdiv"):
        a, b = to_floats(left, type), to_floats(right, type)
        with np.errstate(all="ignore"):
            return from_floats(_FLOAT[opcode](a, b), type)
    if opcode in ("sdiv", "srem"):
        return wrap(_divided(opcode, signed(left, type), signed(right, type)), type)
    if opcode == "ashr":
        moved = signed(left, type) >> right.astype(np.int64)
        return wrap(moved.view(np.uint64), type)
    return wrap(_INTEGER[opcode](left, right), type)


_FLOAT = {"fadd": np.add, "fsub": np.subtract, "fmul": np.multiply, "fdiv": np.divide}
_INTEGER = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "lshr": np.right_shift,
    "udiv": np.floor_divide,
    "urem": np.remainder,
}


def _divided(opcode: str, left: np.ndarray, right: np.ndarray) -> Bits:
    """C's division, which truncates."""
    safe = np.where(right == 0, 1, right)
    quotient = np.sign(left) * np.sign(safe) * (np.abs(left) // np.abs(safe))
    result = quotient if opcode == "sdiv" else left - quotient * safe
    return result.astype(np.int64).view(np.uint64)


def negate(bits: Bits, type: str) -> Bits:
    return bits ^ np.uint64(1 << (width(type)[0] - 1))


def icmp(text: str, types: Sequence[str], bits: Sequence[Bits]) -> Bits:
    predicate = text.split()[1]
    if predicate.startswith("s"):
        operands = [signed(b, types[0]) for b in bits]
        return _PREDICATES[predicate[1:]](*operands).astype(np.uint64)
    return _PREDICATES[predicate.removeprefix("u")](*bits).astype(np.uint64)


def fcmp(text: str, types: Sequence[str], bits: Sequence[Bits]) -> Bits:
    predicate = text.split()[1]
    a, b = (to_floats(x, types[0]) for x in bits)
    unordered = np.isnan(a) | np.isnan(b)
    if predicate in ("uno", "ord"):
        return (unordered if predicate == "uno" else ~unordered).astype(np.uint64)
    holds = _PREDICATES[predicate[1:]](a, b)
    result = (holds & ~unordered) if predicate[0] == "o" else (holds | unordered)
    return result.astype(np.uint64)


def select(text: str, types: Sequence[str], bits: Sequence[Bits]) -> Bits:
    return np.where(bits[0] != 0, bits[1], bits[2])


def insertelement(text: str, types: Sequence[str], bits: Sequence[Bits]) -> Bits:
    result = bits[0].copy()
    result[:, int(text.rsplit(" ", 1)[1])] = bits[1][:, 0]
    return result


def extractelement(text: str, types: Sequence[str], bits: Sequence[Bits]) -> Bits:
    return bits[0][:, [int(text.rsplit(" ", 1)[1])]]


def convert(opcode: str, bits: Bits, source: str, target: str) -> Bits:
    """Conversions, by the opcode's name."""
    match opcode:
        case "bitcast":
            return from_bytes(to_bytes(bits, source), target)
        case "sext":
            return wrap(sign_extended(bits, source), target)
        case "zext" | "trunc" | "ptrtoint" | "inttoptr" | "addrspacecast":
            return wrap(bits, target)
        case "fpext" | "fptrunc":
            return from_floats(to_floats(bits, source), target)
        case "sitofp":
            return from_floats(signed(bits, source).astype(np.float64), target)
        case "uitofp":
            return from_floats(bits.astype(np.float64), target)
        case "fptosi" | "fptoui":
            with np.errstate(invalid="ignore"):
                whole = np.trunc(np.nan_to_num(to_floats(bits, source)))
                return wrap(whole.astype(np.int64).view(np.uint64), target)
        case _:
            raise AssertionError(f"unknown conversion: {opcode}")


def shuffle(mode: str, bits: Sequence[Bits]) -> Bits:
    """shfl.sync of all lanes."""
    _, words, pick, _ = bits
    thread = np.arange(len(words))
    lane = thread & 31
    step = pick[:, 0].astype(np.int64)
    match mode:
        case "bfly":
            source = lane ^ step
        case "idx":
            source = step & 31
        case "up":
            source = np.where(lane >= step, lane - step, lane)
        case _:
            raise AssertionError(mode)
    return words[(thread & ~31) + source]


def intrinsic(name: str, bits: Sequence[Bits], type: str) -> Bits:
    """LLVM's functions of numbers."""
    base = name.rsplit(".", 1)[0]
    if element(type) not in FLOATS:
        return wrap(_INTEGERS[base](type, *bits), type)
    numbers = [to_floats(b, type) for b in bits]
    with np.errstate(all="ignore"):
        if base == "nvvm.fma.rm":
            return round_down(_fma(*numbers))
        if base.endswith(".ftz"):
            result = _NUMBERS[base.removesuffix(".ftz")](*map(flushed, numbers))
            return from_floats(flushed(result), type)
        return from_floats(_NUMBERS[base](*numbers), type)


def _signed_minimum(type: str, a: Bits, b: Bits) -> Bits:
    return np.where(signed(a, type) < signed(b, type), a, b)


def _signed_maximum(type: str, a: Bits, b: Bits) -> Bits:
    return np.where(signed(a, type) > signed(b, type), a, b)


def _fma(a: Floats, b: Floats, c: Floats) -> Floats:
    return (a.astype(np.longdouble) * b + c).astype(np.float64)


def _count_ones(type: str, a: Bits) -> Bits:
    return (a[..., None] >> np.arange(64, dtype=np.uint64) & 1).sum(-1).astype(np.uint64)


_INTEGERS = {
    "ctpop": _count_ones,
    "smin": _signed_minimum,
    "smax": _signed_maximum,
    "umin": lambda type, a, b: np.minimum(a, b),
    "umax": lambda type, a, b: np.maximum(a, b),
}
_NUMBERS = {
    "fma": _fma,
    "fabs": np.abs,
    "sqrt": np.sqrt,
    "copysign": np.copysign,
    "maxnum": np.fmax,
    "minnum": np.fmin,
    "nvvm.ex2.approx": np.exp2,
    "nvvm.rcp.approx": np.reciprocal,
    "nvvm.sqrt.approx": np.sqrt,
}
