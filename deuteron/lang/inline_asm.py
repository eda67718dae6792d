"""Inline assembly, and what takes its place where it has no meaning.

Assembly is written for one kind of hardware.  A kernel that holds some can still run on a CPU when
somebody says in the language what the assembly computes:

    @tl.extra.cpu.asm_body("cvt.rna.tf32.f32 $0, $1;")
    @jit
    def round_to_tf32(x): ...
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final
from typing import cast as typing_cast

from deuteron.errors import UserError
from deuteron.lang.context import Context, builtin
from deuteron.lang.dependencies import find_dependencies
from deuteron.lang.semantic.casts import cast, check_number_dtype, to_tensor
from deuteron.lang.semantic.shape import broadcast_together
from deuteron.lang.values import Tensor, describe
from deuteron.runtime.jit import JITFunction

_BODIES: Final[dict[str, JITFunction]] = {}


def asm_body(asm: str) -> Callable[[JITFunction], JITFunction]:
    """Decorator: on a CPU, `inline_asm_elementwise` with this text calls the jit function.

    It takes the tiles that the assembly is given, whatever `pack` says, and returns one tile or a
    tuple of them, which are cast to the dtypes asked for.  Spaces in the text make no difference.
    A body given later for the same text replaces it in kernels that are compiled from then on.
    """

    def register(function: JITFunction) -> JITFunction:
        _BODIES[_words(asm)] = _jit_function(function)
        return function

    return register


def _jit_function(function: object) -> JITFunction:
    if isinstance(function, JITFunction):
        return function
    raise UserError(
        "asm_body decorates jit functions\n"
        "  expected: a function decorated with @jit\n"
        f"  got:      {describe(function)}\n"
        "  remedy:   put @jit under @asm_body(…)"
    )


def _words(asm: str) -> str:
    return " ".join(asm.split())


def with_bodies(key: str) -> str:
    """A kernel's key joined with a hash of all bodies, which it may depend on."""
    if not _BODIES:
        return key
    digest = hashlib.sha256(key.encode())
    for text, function in sorted(_BODIES.items()):
        digest.update(f"{text}\0{find_dependencies(function).key}\0".encode())
    return digest.hexdigest()


@builtin
def inline_asm_elementwise(
    ctx: Context,
    asm: str,
    constraints: str,
    args: Sequence[Any],
    dtype: Any,
    is_pure: bool,
    pack: int,
) -> Any:
    """Assembly on every element of tiles that broadcast together.

    `asm` and `constraints` are written as LLVM wants them; one run of it takes `pack` elements.
    The result is a tile of `dtype`, or a tuple of tiles for a tuple of dtypes.  For a CPU the
    assembly must have a body (`tl.extra.cpu.asm_body`); without one the kernel is refused.
    """
    several = isinstance(dtype, (tuple, list))
    wanted = typing_cast("Sequence[object]", dtype) if several else (dtype,)
    dtypes = tuple(check_number_dtype(ctx, "dtype", element) for element in wanted)
    tensors = [to_tensor(ctx, arg) for arg in args]
    if tensors:
        tensors = list(broadcast_together(ctx, *tensors))
    body = _BODIES.get(_words(asm)) if ctx.options.target == "cpu" else None
    if body is not None:
        results = _call_body(ctx, body, tensors, len(dtypes))
        results = [cast(ctx, r, d) for r, d in zip(results, dtypes, strict=True)]
    else:
        attrs = {"asm": asm, "constraints": constraints, "dtypes": dtypes, "pack": pack}
        if not is_pure:
            attrs["volatile"] = True
        handles = ctx.builder.ops("inline_asm", *(t.handle for t in tensors), **attrs)
        results = [Tensor(h) for h in handles]
    return tuple(results) if several else results[0]


def _call_body(
    ctx: Context, body: JITFunction, tensors: Sequence[Tensor], count: int
) -> list[Tensor]:
    outcome = ctx.call(body, tensors, {})
    items = typing_cast("tuple[object, ...]", outcome) if isinstance(outcome, tuple) else (outcome,)
    results = [item for item in items if isinstance(item, Tensor)]
    if len(results) == len(items) == count:
        return results
    raise ctx.error(
        "the body given for this assembly returns something else",
        expected=f"{count} tiles, as `dtype` says",
        got=describe(items if isinstance(outcome, tuple) else items[0]),
        remedy=f"correct `{body.__name__}`",
    )
