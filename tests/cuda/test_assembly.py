"""`inline_asm_elementwise` for GPUs: what ptxas accepts, and what is refused where it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any, no_type_check

import pytest

import deuteron.language as tl
from deuteron import jit
from deuteron.dtypes import bfloat16, float16, float32, float64, int8, int16, int32, int64
from deuteron.errors import CompilationError
from deuteron.language.extra import cuda
from tests.cuda.lowering import image_of, lower, ptx_of
from tests.cuda.test_ptx import assemble


@jit
@no_type_check
def one(
    x, out, N: tl.constexpr, ASM: tl.constexpr, KINDS: tl.constexpr, PACK: tl.constexpr,
    PURE: tl.constexpr,
):  # fmt: skip
    at = tl.arange(0, N)
    y = tl.inline_asm_elementwise(
        ASM, KINDS, [tl.load(x + at)], dtype=out.dtype.element_ty, is_pure=PURE, pack=PACK
    )
    tl.store(out + at, y)


@jit
@no_type_check
def quotients(x, y, q, r, N: tl.constexpr):
    at = tl.arange(0, N)
    whole, rest = tl.inline_asm_elementwise(
        """
        div.s32 $0, $2, $3;
        rem.s32 $1, $2, $3;  // "both"
        """,
        "=&r, =r, r, r",
        [tl.load(x + at)[:, None], tl.load(y + at)[None, :]],
        dtype=(tl.int32, tl.int8),
        is_pure=True,
        pack=1,
    )
    at = at[:, None] * N + at[None, :]
    tl.store(q + at, whole)
    tl.store(r + at, rest)


@jit
@no_type_check
def registers(out, N: tl.constexpr):
    tl.store(out, cuda.globaltimer())
    tl.store(out + 1, cuda.smid().to(tl.int64))
    tl.store(out + 2 + tl.arange(0, N), tl.full((N,), cuda.num_threads(), tl.int64))
    tl.static_assert(cuda.num_threads() == 32 * cuda.num_warps())


ACCEPTED: dict[str, tuple[Any, Any, str, str, int]] = {
    "tf32": (float32, float32, "cvt.rna.tf32.f32 $0, $1;", "=r,r", 1),
    "ex2": (float32, float32, "ex2.approx.ftz.f32 $0, $1;", "=f,f", 1),
    "two halves": (float16, float16, "neg.f16x2 $0, $1;", "=r,r", 2),
    "four halves": (
        bfloat16, bfloat16, "xor.b32 $0, $2, 1; xor.b32 $1, $3, 1;", "=r,=r,r,r", 4,
    ),
    "four bytes": (int8, int8, "not.b32 $0, $1;", "=r,r", 4),
    "bytes to halves": (
        int8, float16, "{ .reg .b32 t; not.b32 t, $2; mov.b32 $0, t; mov.b32 $1, t; }",
        "=r,=r,r", 4,
    ),
    "half": (float16, float16, "neg.f16 $0, $1;", "=h,h", 1),
    "short": (int16, int32, "cvt.s32.s16 $0, $1;", "=r,h", 1),
    "long": (int64, int64, "not.b64 $0, $1;", "=l,l,~{memory}", 1),
    "double": (float64, float64, "neg.f64 $0, $1;", "=d,d", 1),
    "tied": (int32, int32, "add.s32 $0, $0, 1;", "=r,0", 1),
    "lane": (int32, int32, "mov.u32 $0, %laneid; // $1 $$ ${1}", "=r,r", 1),
}  # fmt: skip


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_ptxas_accepts_it(arch: str, tmp_path: Path) -> None:
    ptx: dict[str, str] = {}
    for number, (name, (source, target, asm, kinds, pack)) in enumerate(ACCEPTED.items()):
        for size, pure in ((512, True), (64, False)):
            function = lower(
                one, source, target, N=size, ASM=asm, KINDS=kinds, PACK=pack, PURE=pure
            )
            ptx[f"{name} {size}"] = ptx_of(function, arch, f"kernel_{number}_{size}")
    ptx["several"] = ptx_of(lower(quotients, int32, int32, int32, int8, N=32), arch)
    ptx["registers"] = ptx_of(lower(registers, int64, N=64), arch)
    assemble(ptx, arch, tmp_path)


def test_what_has_side_effects_is_kept() -> None:
    for pure in (True, False):
        function = lower(
            one, int32, int32, N=256, ASM="not.b32 $0, $1;", KINDS="=r,r", PACK=1, PURE=pure
        )
        text = image_of(function, "sm_90a").llvm
        assert text.count('call i32 asm sideeffect "not.b32') == (0 if pure else 2)
        assert text.count('call i32 asm "not.b32') == (2 if pure else 0)


@pytest.mark.parametrize(
    ("source", "asm", "kinds", "pack", "expected"),
    [
        (float32, "mov.b32 $0, $1;", "=r", 1, "1 results and 1 operands"),
        (float32, "mov.b32 $0, $1;", "=r,r,r", 1, "got:      3: =r, r, r"),
        (float32, "mov.b32 $0, $1;", "r,r", 1, "one of =r, =f"),
        (float32, "mov.b32 $0, $1;", "=f,x", 1, "the constraint `x`"),
        (float32, "mov.b32 $0, $1;", "=f,h", 1, "one of r, f"),
        (float64, "mov.b64 $0, $1;", "=r,l", 1, "one of =l, =d"),
        (float16, "mov.b32 $0, $1;", "=r,h", 2, "2 elements of float16"),
        (float32, "mov.b32 $0, $2;", "=r,r", 1, "$0 to $1"),
        (float32, "mov.b32 $0, $r;", "=r,r", 1, "$$ for a dollar sign"),
    ],
)
def test_wrong_constraints_are_shown_in_the_source(
    source: Any, asm: str, kinds: str, pack: int, expected: str
) -> None:
    function = lower(one, source, source, N=128, ASM=asm, KINDS=kinds, PACK=pack, PURE=True)
    with pytest.raises(CompilationError) as caught:
        ptx_of(function, "sm_90a")
    text = str(caught.value)
    assert expected in text
    assert "test_assembly.py" in text
    assert "y = tl.inline_asm_elementwise(" in text
