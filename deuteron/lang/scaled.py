# pyright: basic, reportArgumentType=false, reportAssignmentType=false
# pyright: reportAttributeAccessIssue=false
# The functions below are kernels' code: their parameters are tensors and constants of the kernel
# language, which a Python type checker does not know, and tuples grow by `+` alone.
# ruff: noqa: RUF005
"""Products of tiles in block-scaled formats, by the OCP Microscaling specification 1.0.

A row along K is cut into groups (of 32 elements for MX, 16 for NVFP4) that share a scale.  Elements
are decoded and scaled, exactly, into bfloat16 (or float32 where one side is float16), and then
multiplied as ever.
"""

from __future__ import annotations

from typing import Any

from deuteron.dtypes import (
    DType,
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    int32,
    uint8,
)
from deuteron.lang.context import Context, builtin
from deuteron.lang.core import broadcast_to, dot, expand_dims, join, permute, reshape, trans, where
from deuteron.lang.jit import jit
from deuteron.lang.semantic import casts
from deuteron.lang.values import Tensor, constexpr, describe

_FORMATS = {"e4m3": float8e4nv, "e5m2": float8e5, "bf16": bfloat16, "fp16": float16}
_GROUPS = (16, 32)


@builtin
def _elements(ctx: Context, x: Tensor, form: str, k_pack: bool) -> Tensor:
    """The operand in the dtype of its format; e2m1 stays packed in bytes."""
    if form == "e2m1":
        if x.dtype == uint8:
            return x
        raise _wrong_dtype(ctx, x, form, uint8)
    dtype = _FORMATS.get(form)
    if dtype is None:
        raise ctx.error(
            "unknown format of dot_scaled",
            expected='"e2m1", "e4m3", "e5m2", "bf16" or "fp16"',
            got=repr(form),
            remedy="name the format of the elements, not of the scales",
        )
    if not k_pack:
        raise ctx.error(
            "only e2m1 is packed, two elements a byte",
            expected='format "e2m1" where k_pack is False',
            got=repr(form),
            remedy="leave lhs_k_pack and rhs_k_pack out",
        )
    if x.dtype == dtype:
        return x
    if x.is_pointer or not x.number.is_int() or x.number.bits != dtype.bits:
        raise _wrong_dtype(ctx, x, form, dtype)
    return casts.bitcast(ctx, x, dtype)


def _wrong_dtype(ctx: Context, x: Tensor, form: str, dtype: DType) -> Exception:
    bits = "" if form == "e2m1" else f", or its bits as uint{dtype.bits}"
    return ctx.error(
        f"an operand of dot_scaled is not in format {form}",
        expected=f"a tile of {dtype}{bits}",
        got=describe(x),
        remedy="name the format that the tile has",
    )


@builtin
def _group(ctx: Context, x: Tensor, scale: Tensor) -> int:
    """How many elements share a scale: 0 for one scale for all."""
    if not scale.shape:
        return 0
    rows, length = x.shape[:-1], x.shape[-1]
    group = length // scale.shape[-1]
    if scale.shape[:-1] != rows or group * scale.shape[-1] != length or group not in _GROUPS:
        sizes = " or ".join(str((*rows, length // g)) for g in _GROUPS if length >= g)
        raise ctx.error(
            "the scales of dot_scaled do not fit the elements",
            expected=f"shape {sizes}: one for {_GROUPS[0]} or {_GROUPS[1]} elements along K",
            got=str(scale.shape),
            remedy="rows of rhs_scale are columns of rhs: its shape is (N, K // 32)",
        )
    return group


@builtin
def _check_same_group(
    ctx: Context, left: Tensor, lhs_scale: Any, right: Tensor, rhs_scale: Any
) -> None:
    """Both sides have as many elements a scale, where they have scales along K."""
    scales = (lhs_scale, rhs_scale)
    if not all(isinstance(scale, Tensor) and scale.shape for scale in scales):
        return
    lhs = left.shape[-1] // lhs_scale.shape[-1]
    rhs = right.shape[-2] // rhs_scale.shape[-1]
    if lhs != rhs:
        raise ctx.error(
            "the two sides of dot_scaled have scales for groups of different lengths",
            expected=f"scales for {lhs} elements on both sides",
            got=f"scales for {lhs} elements of lhs, for {rhs} of rhs",
            remedy="repeat the scales of the longer groups",
            cause=f"Operands must have the same scale factor; (lhs: {lhs} vs rhs: {rhs})",
        )


@jit
def _decode_e2m1(code):
    """Four bits (sign, two of exponent, one of mantissa) as float32."""
    exponent = (code >> 1) & 3
    mantissa = code & 1
    normal = ((exponent + 126) << 23) | (mantissa << 22)
    small = mantissa * 0x3F000000  # 0 and a half
    magnitude = where(exponent == 0, small, normal)
    return (magnitude | ((code & 8) << 28)).to(float32, bitcast=True)


@jit
def _unpack_e2m1(x, k_pack: constexpr):
    """Two elements a byte, the low half first, along the last axis, or else the one before."""
    code = x.to(int32)
    pairs = join(_decode_e2m1(code & 15), _decode_e2m1(code >> 4))
    rank: constexpr = len(x.shape)
    if k_pack:
        return reshape(pairs, x.shape[:-1] + (2 * x.shape[-1],))
    order: constexpr = (0, 2, 1) if rank == 2 else (0, 1, 3, 2)
    return reshape(permute(pairs, order), x.shape[:-2] + (2 * x.shape[-2], x.shape[-1]))


@jit
def _decode_scale(scale):
    """Powers of two in a byte (e8m0, 255 is NaN), or any float."""
    if scale.dtype.is_floating():
        return scale.to(float32)
    code = scale.to(int32)
    bits = where(code == 0, 0x00400000, code << 23)
    return where(code == 255, 0x7FC00000, bits).to(float32, bitcast=True)


@jit
def _scaled(x, scale, form: constexpr, k_pack: constexpr):
    """The elements of rows, times their scales, as float32."""
    elements = _elements(x, form, k_pack)
    if form == "e2m1":
        values = _unpack_e2m1(elements, k_pack)
    else:
        values = elements.to(float32)
    if scale is None:
        return values
    factors = _decode_scale(scale)
    group: constexpr = _group(values, factors)
    if group != 0:
        spread = broadcast_to(expand_dims(factors, len(factors.shape)), factors.shape + (group,))
        factors = reshape(spread, values.shape)
    return values * factors


@jit
def dot_scaled(
    lhs,
    lhs_scale,
    lhs_format: constexpr,
    rhs,
    rhs_scale,
    rhs_format: constexpr,
    acc=None,
    fast_math: constexpr = False,
    lhs_k_pack: constexpr = True,
    rhs_k_pack: constexpr = True,
    out_dtype: constexpr = float32,
):
    """The matrix product of two block-scaled tiles, plus `acc`.

    `lhs` is (M, K), `rhs` (K, N), or both with one batch axis in front.  A format is "e2m1" (in
    bytes of two elements, the low half first, so that K is halved; M or N instead without
    `k_pack`), "e4m3", "e5m2", "bf16" or "fp16"; integers of that width hold its bits.  `lhs_scale`
    is (M, K // 32) and `rhs_scale` (N, K // 32), or K // 16: powers of two as bytes (e8m0) or
    floats; None for no scaling.  `fast_math` is accepted and has no effect here.
    """
    wide: constexpr = lhs_format == "fp16" or rhs_format == "fp16"
    dtype: constexpr = float32 if wide else bfloat16
    left = _scaled(lhs, lhs_scale, lhs_format, lhs_k_pack)
    right = trans(_scaled(trans(rhs), rhs_scale, rhs_format, rhs_k_pack))
    _check_same_group(left, lhs_scale, right, rhs_scale)
    return dot(left.to(dtype), right.to(dtype), acc, out_dtype=out_dtype)
