"""The kernel language: `import deuteron.language as tl`.

What a function decorated with `deuteron.jit` may use.  Names and meanings are Triton's.
"""

from builtins import tuple

from deuteron.dtypes import (
    DType as dtype,  # noqa: N813 - the language's own spelling
)
from deuteron.dtypes import (
    bfloat16,
    float8e4b8,
    float8e4b15,
    float8e4nv,
    float8e5,
    float8e5b16,
    float16,
    float32,
    float64,
    int1,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from deuteron.lang import math, target_info
from deuteron.lang.access import (
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_load,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_poll,
    atomic_store,
    atomic_xchg,
    atomic_xor,
    load,
    store,
)
from deuteron.lang.aggregates import aggregate_replace
from deuteron.lang.blocks import (
    advance,
    load_tensor_descriptor,
    make_block_ptr,
    make_tensor_descriptor,
    store_tensor_descriptor,
)
from deuteron.lang.core import (
    TRITON_MAX_TENSOR_NUMEL,
    arange,
    associative_scan,
    assume,
    broadcast,
    broadcast_to,
    cast,
    cat,
    debug_barrier,
    device_assert,
    device_print,
    dot,
    expand_dims,
    expect_zero,
    full,
    gather,
    histogram,
    interleave,
    join,
    map_elementwise,
    max_constancy,
    max_contiguous,
    multiple_of,
    num_programs,
    permute,
    program_id,
    ravel,
    reduce,
    reshape,
    split,
    squeeze,
    static_assert,
    static_print,
    to_tensor,
    trans,
    unsqueeze,
    view,
    where,
    zeros,
    zeros_like,
)
from deuteron.lang.inline_asm import inline_asm_elementwise
from deuteron.lang.loops import condition, range, static_range
from deuteron.lang.math import (
    PropagateNan,
    abs,
    add,
    ceil,
    clamp,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    fdiv,
    floor,
    fma,
    log,
    log2,
    maximum,
    minimum,
    mul,
    rsqrt,
    sin,
    sqrt,
    sqrt_rn,
    sub,
    umulhi,
)
from deuteron.lang.random import (
    pair_uniform_to_normal,
    philox,
    philox_impl,
    rand,
    rand4x,
    randint,
    randint4x,
    randn,
    randn4x,
    uint_to_uniform_float,
)
from deuteron.lang.scaled import dot_scaled
from deuteron.lang.semantic.blocks import (
    TensorDescriptor as tensor_descriptor,  # noqa: N813 - the language's own spelling
)
from deuteron.lang.sorting import bitonic_merge, flip, sort, topk
from deuteron.lang.standard import (
    argmax,
    argmin,
    cdiv,
    cumprod,
    cumsum,
    max,
    min,
    reduce_or,
    sigmoid,
    softmax,
    sum,
    swizzle2d,
    xor_sum,
)
from deuteron.lang.values import (
    BlockType as block_type,  # noqa: N813
)
from deuteron.lang.values import (
    ConstexprType as constexpr_type,  # noqa: N813
)
from deuteron.lang.values import (
    Tensor as tensor,  # noqa: N813
)
from deuteron.lang.values import (
    const,
    constexpr,
    pointer_type,
    void,
)
from deuteron.language import extra

__all__ = [
    "TRITON_MAX_TENSOR_NUMEL", "PropagateNan", "abs", "add", "advance", "aggregate_replace",
    "arange", "argmax", "argmin", "associative_scan", "assume", "atomic_add", "atomic_and",
    "atomic_cas", "atomic_load", "atomic_max", "atomic_min", "atomic_or", "atomic_poll",
    "atomic_store", "atomic_xchg", "atomic_xor", "bfloat16", "bitonic_merge", "block_type",
    "broadcast", "broadcast_to", "cast", "cat", "cdiv", "ceil", "clamp", "condition", "const",
    "constexpr", "constexpr_type", "cos", "cumprod", "cumsum", "debug_barrier", "device_assert",
    "device_print", "div_rn", "dot", "dot_scaled", "dtype", "erf", "exp", "exp2", "expand_dims",
    "expect_zero", "extra", "fdiv", "flip", "float8e4b8", "float8e4b15", "float8e4nv",
    "float8e5", "float8e5b16", "float16", "float32", "float64", "floor", "fma", "full",
    "gather", "histogram", "inline_asm_elementwise", "int1", "int8", "int16", "int32", "int64",
    "interleave", "join", "load", "load_tensor_descriptor", "log", "log2", "make_block_ptr",
    "make_tensor_descriptor", "map_elementwise", "math", "max", "max_constancy",
    "max_contiguous", "maximum", "min", "minimum", "mul", "multiple_of", "num_programs",
    "pair_uniform_to_normal", "permute", "philox", "philox_impl", "pointer_type", "program_id",
    "rand", "rand4x", "randint", "randint4x", "randn", "randn4x", "range", "ravel", "reduce",
    "reduce_or", "reshape", "rsqrt", "sigmoid", "sin", "softmax", "sort", "split", "sqrt",
    "sqrt_rn", "squeeze", "static_assert", "static_print", "static_range", "store",
    "store_tensor_descriptor", "sub", "sum", "swizzle2d", "target_info", "tensor",
    "tensor_descriptor", "to_tensor", "topk", "trans", "tuple", "uint8", "uint16", "uint32",
    "uint64", "uint_to_uniform_float", "umulhi", "unsqueeze", "view", "void", "where",
    "xor_sum", "zeros", "zeros_like",
]  # fmt: skip
