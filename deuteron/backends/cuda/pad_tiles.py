"""pad_tiles: tiles of any size, as tiles whose sizes are powers of two.

What lies beyond a tile's own size may be anything, and nobody may see it: memory is accessed under
masks, folds and products take in neutral elements there.  A tile in which it is known to be zero,
as what a masked load leaves, need not be cleared for a product again.

Requires: a verified function.
Ensures: every size of every tile is a power of two; the function leaves memory as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan, prod

from deuteron.dtypes import DType, int1, int_range
from deuteron.ir import BOOL, Block, Function, Op, Reduce, Rewriter, Scan, Value, walk
from deuteron.ir.nodes import Node
from deuteron.passes.simplify import constant_of, simplify

Shape = tuple[int, ...]

# Ops under which a tile of zeros stays one.
_KEEPS_ZERO = frozenset({"cast", "permute", "expand_dims", "hint"})


def pad_tiles(function: Function) -> Function:
    """The function with all tiles padded; itself when they need no padding."""
    sizes = [n for node in walk(function.body) for v in node.results for n in v.type.shape]
    if all(padded_size(size) == size for size in sizes):
        return function
    return simplify(_Padder().function(function))  # which shares the masks


def padded_size(size: int) -> int:
    """The least power of two that is not less."""
    return 1 << (size - 1).bit_length()


def _padded(shape: Sequence[int]) -> Shape:
    return tuple(map(padded_size, shape))


class _Padder(Rewriter):
    """Old values have their own shapes, new ones the padded shapes."""

    def __init__(self) -> None:
        super().__init__()
        self._zero_beyond: set[Value] = set()

    def block(self, block: Block) -> Block:
        types = [a.type.with_shape(_padded(a.type.shape)) for a in block.args]
        args = self.b.open(types, [a.name for a in block.args])
        self.map.update(zip(block.args, args, strict=True))
        self.nodes(block)
        return self.b.close(self.values(block.yields))

    def node(self, node: Node) -> Sequence[Value]:
        match node:
            case Reduce() if self._cut(node):
                return self._fold(node)
            case Scan() if node.reverse and self._cut(node):
                return self._fold(node)
            case _:
                return super().node(node)

    def op(self, node: Op, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        made = self._op(node, operands)
        if made is None:
            made = self.b.ops(node.name, *operands, **node.attrs)
        if self._leaves_zero(node):
            self._zero_beyond.add(made[0])
        return made

    def _op(self, node: Op, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        """New results where a row is not simply repeated on padded tiles."""
        attrs = dict(node.attrs)
        match node.name:
            case "arange":
                attrs["end"] = attrs["start"] + padded_size(attrs["end"] - attrs["start"])
            case "splat" | "broadcast":
                attrs["shape"] = _padded(attrs["shape"])
            case "reshape":
                return (self._reshape(node, operands[0]),)
            case "cat":
                return (self._cat(node, operands),)
            case "histogram":
                attrs["bins"] = padded_size(attrs["bins"])
                operands = (operands[0], *self._mask(node.operands[0], operands[1:]))
            case "load":
                mask = self._mask(node.operands[0], operands[1:2])
                operands = (operands[0], *mask, *operands[2:])
            case "store" | "atomic_rmw":
                operands = (*operands[:2], *self._mask(node.operands[0], operands[2:]))
            case "atomic_cas":
                operands = (*operands[:3], *self._mask(node.operands[0], operands[3:]))
            case "assert":
                operands = (operands[0], *self._mask(node.operands[0], operands[1:]))
            case "print":
                attrs["shapes"] = tuple(operand.type.shape for operand in node.operands)
            case "dot":
                k = node.operands[0].type.rank - 1
                a = self._cleared(node.operands[0], operands[0], k)
                b = self._cleared(node.operands[1], operands[1], k - 1)
                operands = (a, b, operands[2])
            case _:
                return None
        return self.b.ops(node.name, *operands, **attrs)

    # -- what lies beyond -------------------------------------------------------------------
    def _inside(self, shape: Shape, axes: Sequence[int]) -> Value | None:
        """A padded tile that is true within the own size along some axes; None when all is."""
        whole, result = _padded(shape), None
        for axis in axes:
            if shape[axis] == whole[axis]:
                continue
            line = self.b.op("arange", start=0, end=whole[axis])
            size = self.b.full(shape[axis], line.type)
            flags = self.b.op("lt", line, size)
            for other in range(len(shape)):
                if other != axis:
                    flags = self.b.op("expand_dims", flags, axis=other)
            flags = self.b.op("broadcast", flags, shape=whole)
            result = flags if result is None else self.b.op("and", result, flags)
        return result

    def _mask(self, old: Value, given: Sequence[Value]) -> Sequence[Value]:
        """The mask, if any, of an access to a tile, without what lies beyond it."""
        inside = self._inside(old.type.shape, range(old.type.rank))
        if inside is None:
            return given
        return (self.b.op("and", given[0], inside) if given else inside,)

    def _cleared(self, old: Value, new: Value, axis: int) -> Value:
        """A tile that is zero beyond its size along an axis."""
        inside = self._inside(old.type.shape, (axis,))
        if inside is None or new in self._zero_beyond:
            return new
        return self.b.op("select", inside, new, self.b.full(0, new.type))

    def _leaves_zero(self, node: Op) -> bool:
        """Whether what lies beyond an op's result is zero."""
        if node.name == "load":
            return len(node.operands) < 3 or constant_of(node.operands[2]) == 0
        return node.name in _KEEPS_ZERO and self.map[node.operands[0]] in self._zero_beyond

    # -- shapes -----------------------------------------------------------------------------
    def _places(self, shape: Shape) -> list[Value]:
        """For each axis the place along it, as a padded tile."""
        whole = _padded(shape)
        places: list[Value] = []
        for axis, size in enumerate(whole):
            line = self.b.op("arange", start=0, end=size)
            for other in range(len(shape)):
                if other != axis:
                    line = self.b.op("expand_dims", line, axis=other)
            places.append(self.b.op("broadcast", line, shape=whole))
        return places

    def _reshape(self, node: Op, source: Value) -> Value:
        """Row-major order is that of the own sizes: elements move, unless only 1s come or go."""
        old, new = node.operands[0].type.shape, node.result.type.shape
        if [n for n in old if n > 1] == [n for n in new if n > 1]:
            return self.b.op("reshape", source, shape=_padded(new))
        if _padded(old) == old and _padded(new) == new:
            return self.b.op("reshape", source, shape=new)
        number = self._number(self._places(new), new)
        element = self._number(self._unravelled(number, old), _padded(old))
        line = self.b.op("reshape", source, shape=(prod(source.type.shape),))
        index = self.b.op("reshape", element, shape=(prod(_padded(new)),))
        moved = self.b.op("gather", line, index, axis=0)
        return self.b.op("reshape", moved, shape=_padded(new))

    def _number(self, places: Sequence[Value], shape: Shape) -> Value:
        """The row-major number of an element of a shape."""
        number = places[0]
        for place, size in zip(places[1:], shape[1:], strict=True):
            number = self.b.op("mul", number, self.b.full(size, number.type))
            number = self.b.op("add", number, place)
        return number

    def _unravelled(self, number: Value, shape: Shape) -> list[Value]:
        """The inverse of `_number`; numbers of no element give places of none."""
        places: list[Value] = []
        for size in reversed(shape[1:]):
            length = self.b.full(size, number.type)
            places.append(self.b.op("irem", number, length))
            number = self.b.op("idiv", number, length)
        return [number, *reversed(places)]

    def _cat(self, node: Op, operands: tuple[Value, ...]) -> Value:
        axis: int = node.attrs["axis"]
        left, right = (operand.type.shape[axis] for operand in node.operands)
        if left == right == padded_size(left):
            return self.b.op("cat", *operands, axis=axis)
        place = self._places(node.result.type.shape)[axis]
        border = self.b.full(left, place.type)
        first = self.b.op("gather", operands[0], place, axis=axis)
        second = self.b.op("gather", operands[1], self.b.op("sub", place, border), axis=axis)
        return self.b.op("select", self.b.op("lt", place, border), first, second)

    # -- folds ------------------------------------------------------------------------------
    def _cut(self, node: Reduce | Scan) -> bool:
        size = node.operands[0].type.shape[node.axis]
        return padded_size(size) != size

    def _fold(self, node: Reduce | Scan) -> Sequence[Value]:
        """A fold that nothing from beyond gets into."""
        shape = node.operands[0].type.shape
        inside = self._inside(shape, (node.axis,))
        assert inside is not None
        operands = self.values(node.operands)
        neutral = _neutral(node)
        if neutral is not None:
            (operand,) = operands
            kept = self.b.op("select", inside, operand, self.b.full(neutral, operand.type))
            return self._folded(node, (kept,), self.block(node.combine))
        combine = self._with_flags(node.combine)
        return self._folded(node, (*operands, inside), combine)[:-1]

    def _folded(
        self, node: Reduce | Scan, operands: Sequence[Value], combine: Block
    ) -> Sequence[Value]:
        if isinstance(node, Reduce):
            return self.b.reduce(operands, node.axis, combine)
        return self.b.scan(operands, node.axis, combine, reverse=node.reverse)

    def _with_flags(self, block: Block) -> Block:
        """The combine block with one more operand: whether there is anything on that side."""
        count = len(block.args) // 2
        scalars = [arg.type for arg in block.args[:count]]
        args = self.b.open([*scalars, BOOL, *scalars, BOOL])
        left, right = args[: count + 1], args[count + 1 :]
        self.map.update(zip(block.args, (*left[:-1], *right[:-1]), strict=True))
        self.nodes(block)
        both = self.b.op("and", left[-1], right[-1])
        yields: list[Value] = []
        for combined, one, other in zip(self.values(block.yields), left, right, strict=False):
            alone = self.b.op("select", left[-1], one, other)
            yields.append(self.b.op("select", both, combined, alone))
        return self.b.close([*yields, self.b.op("or", left[-1], right[-1])])


def _neutral(node: Reduce | Scan) -> int | float | bool | None:
    """What a combine block of one well-known op leaves as it is; None when there is none."""
    nodes = node.combine.nodes
    op = nodes[0] if len(nodes) == 1 else None
    if not isinstance(op, Op) or len(node.operands) > 1 or op.result is not node.combine.yields[0]:
        return None
    if set(op.operands) != set(node.combine.args):
        return None
    return _neutral_of(op, op.result.type.dtype)


def _neutral_of(op: Op, dtype: DType) -> int | float | bool | None:
    match op.name:
        case "add":
            return -0.0 if dtype.is_floating() else 0
        case "mul":
            return 1
        case "or" | "xor":
            return 0
        case "and":
            return 1 if dtype is int1 else -1 if dtype.is_int_signed() else int_range(dtype)[1]
        case "min" | "max" if dtype.is_floating() and op.attrs.get("propagate_nan"):
            return inf if op.name == "min" else -inf
        case "min" | "max" if dtype.is_floating():
            return nan  # which loses against every number
        case "min" | "max":
            return int_range(dtype)[op.name == "min"]
        case _:
            return None
