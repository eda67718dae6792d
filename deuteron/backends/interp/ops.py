"""The interpreter's op table: what each row of `ir.OPS` does to held values.

A rule takes the running program, the op and its operands' values, and returns the results' values.
Elementwise rules look at the operands' own shapes, never at the result's: the combine function of a
reduction is run on whole slices although its values are typed as scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deuteron.backends.interp import arithmetic as ar
from deuteron.backends.interp import functions
from deuteron.backends.interp.memory import Memory, Site
from deuteron.backends.interp.printing import format_print
from deuteron.backends.interp.values import (
    Array,
    bitcast,
    constant,
    convert,
    decode,
    encode,
    held_dtype,
    round_to,
    storage_dtype,
)
from deuteron.backends.refusals import no_assembly
from deuteron.dtypes import DType
from deuteron.errors import DeviceAssertionError
from deuteron.ir import Op, Pointer


@dataclass(frozen=True, slots=True)
class Program:
    """One program of the grid, and the memory it sees."""

    ids: tuple[int, int, int]
    grid: tuple[int, int, int]
    memory: Memory


Rule = Callable[[Program, Op, Sequence[Array]], Sequence[Array]]
Pure = Callable[[Op, Sequence[Array]], Array]


def _dtype(op: Op, operand: int = 0) -> DType:
    return op.operands[operand].type.dtype


def _pure(function: Pure) -> Rule:
    """A rule for an op that has one result and touches nothing."""

    def rule(program: Program, op: Op, operands: Sequence[Array]) -> Sequence[Array]:
        return (np.asarray(function(op, operands)),)

    return rule


# -- elementwise ----------------------------------------------------------------------------------
def _float_unary(name: str) -> Rule:
    function = functions.UNARY[name]
    return _pure(lambda op, v: round_to(np.asarray(function(v[0].astype(np.float64))), _dtype(op)))


def _float_binary(name: str) -> Rule:
    function = functions.BINARY[name]

    def apply(op: Op, v: Sequence[Array]) -> Array:
        exact = function(v[0].astype(np.float64), v[1].astype(np.float64))
        return round_to(np.asarray(exact), _dtype(op))

    return _pure(apply)


def _arithmetic(function: ar.NumPyBinary) -> Rule:
    return _pure(lambda op, v: ar.arithmetic(function, _dtype(op), v[0], v[1]))


def _integer_binary(name: str) -> Rule:
    return _pure(lambda op, v: ar.integer_binary(name, _dtype(op), v[0], v[1]))


def _comparison(name: str) -> Rule:
    return _pure(lambda op, v: ar.compare(name, op.operands[0].type.element, v[0], v[1]))


def _extremum(function: Callable[[DType, Array, Array, bool], Array]) -> Rule:
    return _pure(
        lambda op, v: function(_dtype(op), v[0], v[1], bool(op.attrs.get("propagate_nan")))
    )


def _cast(op: Op, v: Sequence[Array]) -> Array:
    toward_zero = op.attrs.get("rounding") == "rtz"
    return convert(v[0], _dtype(op), op.attrs["to"], toward_zero=toward_zero)


def _bitcast(op: Op, v: Sequence[Array]) -> Array:
    if isinstance(op.attrs["to"], Pointer):
        return v[0]
    return bitcast(v[0], _dtype(op), op.attrs["to"])


def _addptr(op: Op, v: Sequence[Array]) -> Array:
    return v[0] + v[1].astype(np.int64) * op.operands[0].type.pointee.storage_bytes


def _identity(op: Op, v: Sequence[Array]) -> Array:
    return v[0]


# -- shapes ---------------------------------------------------------------------------------------
def _cat(op: Op, v: Sequence[Array]) -> Array:
    return np.concatenate((v[0], v[1]), op.attrs["axis"])


def _split(program: Program, op: Op, v: Sequence[Array]) -> Sequence[Array]:
    return v[0][..., 0], v[0][..., 1]


def _program_id(program: Program, op: Op, v: Sequence[Array]) -> Sequence[Array]:
    return (np.array(program.ids[op.attrs["axis"]], np.int32),)


def _num_programs(program: Program, op: Op, v: Sequence[Array]) -> Sequence[Array]:
    return (np.array(program.grid[op.attrs["axis"]], np.int32),)


def _gather(op: Op, v: Sequence[Array]) -> Array:
    axis: int = op.attrs["axis"]
    inside = np.clip(v[1].astype(np.int64), 0, v[0].shape[axis] - 1)
    return np.take_along_axis(v[0], inside, axis)


def _histogram(op: Op, v: Sequence[Array]) -> Array:
    bins: int = op.attrs["bins"]
    values = v[0][v[1]] if len(v) > 1 else v[0]
    counted = values[(values >= 0) & (values < bins)]
    return np.bincount(counted.astype(np.int64), minlength=bins).astype(np.int32)


# -- memory ---------------------------------------------------------------------------------------
def _active(v: Sequence[Array], mask_index: int) -> Array:
    """Which lanes, in row-major order, are not masked off."""
    if len(v) > mask_index:
        return v[mask_index].reshape(-1)
    return np.ones(v[0].size, np.bool_)


def _load(program: Program, op: Op, v: Sequence[Array]) -> Sequence[Array]:
    dtype = op.operands[0].type.pointee
    active = _active(v, 1)
    bits = program.memory.load(
        v[0].reshape(-1)[active], storage_dtype(dtype), Site(op.loc, program.ids)
    )
    values = np.zeros(v[0].size, held_dtype(dtype))
    if len(v) > 2:
        values[:] = v[2].reshape(-1)
    values[active] = decode(bits, dtype)
    return (values.reshape(v[0].shape),)


def _store(program: Program, op: Op, v: Sequence[Array]) -> Sequence[Array]:
    active = _active(v, 2)
    bits = encode(v[1].reshape(-1)[active], op.operands[0].type.pointee)
    program.memory.store(v[0].reshape(-1)[active], bits, Site(op.loc, program.ids))
    return ()


def _update(dtype: DType, kind: str, old: Array, value: Array) -> Array:
    """What an atomic of that kind leaves in memory."""
    match kind:
        case "add":
            return ar.arithmetic(np.add, dtype, old, value)
        case "min":
            return ar.minimum(dtype, old, value, False)
        case "max":
            return ar.maximum(dtype, old, value, False)
        case "xchg":
            return value
        case _:
            return ar.integer_binary(kind, dtype, old, value)


def _exchange(
    program: Program,
    op: Op,
    v: Sequence[Array],
    lanes: Array,
    update: Callable[[Array, int], Array],
) -> Sequence[Array]:
    """Lane after lane: read the old value, write `update(old, lane)`, and return the old ones."""
    dtype = op.operands[0].type.pointee
    site = Site(op.loc, program.ids)
    addresses = v[0].reshape(-1)
    olds = np.zeros(addresses.size, held_dtype(dtype))
    for lane in lanes.tolist():
        address = addresses[lane : lane + 1]
        old = decode(program.memory.load(address, storage_dtype(dtype), site), dtype)
        program.memory.store(address, encode(update(old, lane), dtype), site)
        olds[lane : lane + 1] = old
    return (olds.reshape(v[0].shape),)


def _atomic_rmw(program: Program, op: Op, v: Sequence[Array]) -> Sequence[Array]:
    dtype, kind, values = op.operands[0].type.pointee, op.attrs["kind"], v[1].reshape(-1)

    def update(old: Array, lane: int) -> Array:
        return _update(dtype, kind, old, values[lane : lane + 1])

    return _exchange(program, op, v, np.flatnonzero(_active(v, 2)), update)


def _atomic_cas(program: Program, op: Op, v: Sequence[Array]) -> Sequence[Array]:
    dtype = op.operands[0].type.pointee
    expected, desired = (encode(x.reshape(-1), dtype) for x in v[1:3])

    def update(old: Array, lane: int) -> Array:
        same = encode(old, dtype) == expected[lane]  # bits are compared: NaN may equal itself
        return decode(desired[lane : lane + 1], dtype) if same else old

    return _exchange(program, op, v, np.flatnonzero(_active(v, 3)), update)


# -- the rest -------------------------------------------------------------------------------------
def _print(program: Program, op: Op, v: Sequence[Array]) -> Sequence[Array]:
    elements = [o.type.element for o in op.operands]
    dtypes = [None if isinstance(e, Pointer) else e for e in elements]
    operands = list(zip(v, dtypes, strict=True))
    prefix, as_hex = op.attrs.get("prefix", ""), bool(op.attrs.get("hex"))
    for line in format_print(prefix, program.ids, operands, hex=as_hex):
        print(line)
    return ()


def _assert(program: Program, op: Op, v: Sequence[Array]) -> Sequence[Array]:
    held = v[0] | ~v[1] if len(v) > 1 else v[0]
    if not held.all():
        excerpt = op.loc.excerpt()
        message = op.attrs.get("message") or "the condition is false"
        text = f"{op.loc}: device_assert: {message}" + (f"\n{excerpt}" if excerpt else "")
        raise DeviceAssertionError(f"{text}\n  program:  {program.ids}")
    return ()


def _do_nothing(program: Program, op: Op, v: Sequence[Array]) -> Sequence[Array]:
    return ()


def _inline_asm(program: Program, op: Op, v: Sequence[Array]) -> Sequence[Array]:
    raise no_assembly(op)


def _rules() -> dict[str, Rule]:
    return {
        **{name: _float_unary(name) for name in functions.UNARY},
        **{name: _float_binary(name) for name in functions.BINARY},
        **{name: _integer_binary(name) for name in ar.INTEGER_BINARY},
        **{name: _comparison(name) for name in ar.COMPARISONS},
        "add": _arithmetic(np.add),
        "sub": _arithmetic(np.subtract),
        "mul": _arithmetic(np.multiply),
        "div": _arithmetic(np.divide),
        "min": _extremum(ar.minimum),
        "max": _extremum(ar.maximum),
        "fma": _pure(lambda op, v: ar.fused_multiply_add(_dtype(op), *v)),
        "neg": _pure(lambda op, v: ar.negate(_dtype(op), v[0])),
        "abs": _pure(lambda op, v: np.abs(v[0])),
        "not": _pure(lambda op, v: np.invert(v[0])),
        "select": _pure(lambda op, v: np.where(v[0], v[1], v[2])),
        "cast": _pure(_cast),
        "bitcast": _pure(_bitcast),
        "ptr_to_int": _pure(_identity),
        "int_to_ptr": _pure(_identity),
        "addptr": _pure(_addptr),
        "hint": _pure(_identity),
        "const": _pure(lambda op, v: constant(op.attrs["value"], op.attrs["dtype"])),
        "arange": _pure(
            lambda op, v: np.arange(op.attrs["start"], op.attrs["end"], dtype=np.int32)
        ),
        "splat": _pure(lambda op, v: np.broadcast_to(v[0], op.attrs["shape"])),
        "broadcast": _pure(lambda op, v: np.broadcast_to(v[0], op.attrs["shape"])),
        "expand_dims": _pure(lambda op, v: np.expand_dims(v[0], op.attrs["axis"])),
        "reshape": _pure(lambda op, v: v[0].reshape(op.attrs["shape"])),
        "permute": _pure(lambda op, v: v[0].transpose(op.attrs["order"])),
        "join": _pure(lambda op, v: np.stack((v[0], v[1]), axis=-1)),
        "cat": _pure(_cat),
        "split": _split,
        "gather": _pure(_gather),
        "histogram": _pure(_histogram),
        "program_id": _program_id,
        "num_programs": _num_programs,
        "load": _load,
        "store": _store,
        "atomic_rmw": _atomic_rmw,
        "atomic_cas": _atomic_cas,
        "dot": _pure(lambda op, v: ar.matrix_product(v[0], v[1], v[2], _dtype(op, 2))),
        "inline_asm": _inline_asm,
        "print": _print,
        "assert": _assert,
        "assume": _do_nothing,
        "barrier": _do_nothing,
    }


RULES: dict[str, Rule] = _rules()
