"""What all steps of the generator share: the kernel being written and what is known of its values.

Every value that a later step may use is *exact*: the same bits in any right implementation, but for
the sign of zero where `zero` is set and for NaN's sign and payload.  Steps whose results may be
rounded in more than one way (functions, sums of floats) write them to an output of their own with a
bound, and end there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from deuteron import dtypes as T
from deuteron.dtypes import DType
from tests.fuzz.case import ArraySpec, Bound, Case

Shape = tuple[int, ...]
Drawn = TypeVar("Drawn")

INTS = (T.int32, T.int32, T.int8, T.int16, T.int64, T.uint8, T.uint16, T.uint32, T.uint64)
FLOATS = (T.float32, T.float32, T.float16, T.bfloat16, T.float64)
FP8 = (T.float8e5, T.float8e4nv, T.float8e4b8, T.float8e5b16, T.float8e4b15)
NUMBERS = INTS + FLOATS
POWERS = (1, 2, 4, 8, 16, 32, 64, 128)
ODD = (3, 5, 7, 12, 17, 33, 48, 100)
MOST = 2048  # elements of a tile
MEMORY = 512  # elements of each memory that a program stores to and loads from


@dataclass(frozen=True)
class Value:
    """A variable of the kernel: a scalar or a tile.

    `whole` bounds the magnitude of a value that holds whole numbers only (None: not known, or not
    whole); `zero` says that the sign of a zero may be either.  `dot` marks a product of tiles of
    floats: an addition to it may be done by the dot, which then rounds otherwise.
    """

    name: str
    dtype: DType
    shape: Shape
    whole: int | None = None
    zero: bool = False
    dot: bool = False

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype.is_floating()


Wanted = Callable[[Value], bool]


class Author:
    """Writes one kernel; `values` are those that the next line may use."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.lines: list[str] = []
        self.functions: list[str] = []
        self.values: list[Value] = []
        self.arrays: dict[str, ArraySpec] = {}
        self.scalars: dict[str, int | float] = {}
        self.alias_of: dict[str, tuple[str, int]] = {}
        self.bounds: dict[str, Bound] = {}
        self.depth = 0
        self._count = 0
        self.odd = self.flag(1 / 3)
        self.grid = self.choice(((1, 1, 1), (2, 1, 1), (3, 1, 1), (2, 2, 1), (1, 2, 2)))
        self.programs = math.prod(self.grid)
        sizes = POWERS + ODD if self.odd else POWERS
        self.dims = tuple(self.choice(sizes) for _ in range(3))
        self._begin()

    def _begin(self) -> None:
        gx, gy, gz = self.grid
        terms = ["tl.program_id(0)"]
        if gy > 1:
            terms.append(f"{gx} * tl.program_id(1)")
        if gz > 1:
            terms.append(f"{gx * gy} * tl.program_id(2)")
        self.emit(f"pid = {' + '.join(terms)}")
        self.values.append(Value("pid", T.int32, (), whole=self.programs))

    # -- drawing ------------------------------------------------------------------------------
    def choice(self, options: Sequence[Drawn]) -> Drawn:
        return self._random.choice(options)

    def int(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def flag(self, chance: float = 0.5) -> bool:
        return self._random.random() < chance

    def shape(self) -> Shape:
        """A shape made of this kernel's dimensions."""
        rank = self.choice((0, 1, 1, 1, 2, 2, 2, 3))
        shape = tuple(self.choice(self.dims) for _ in range(rank))
        return shape if math.prod(shape) <= MOST else shape[:1]

    # -- writing ------------------------------------------------------------------------------
    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def name(self, letter: str = "v") -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def let(
        self,
        text: str,
        dtype: DType,
        shape: Shape,
        *,
        whole: int | None = None,
        zero: bool = False,
        keep: bool = True,
    ) -> Value:
        """`v = text`; the value is for later steps too unless `keep` is unset."""
        value = Value(self.name(), dtype, shape, self._limit(whole, dtype), zero)
        self.emit(f"{value.name} = {text}")
        if keep and value.numel <= MOST:
            self.values.append(value)
        return value

    @staticmethod
    def _limit(whole: int | None, dtype: DType) -> int | None:
        """The bound, if every whole number up to it is a value of the dtype."""
        if dtype.is_int():
            most = T.int_range(dtype)[1]
        else:
            most = 2 ** (dtype.mantissa_bits + 1)
        return whole if whole is not None and whole <= most else None

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block; values defined in it are not seen after it."""
        self.emit(head)
        seen, start = list(self.values), len(self.lines)
        self.depth += 1
        yield
        if len(self.lines) == start:
            self.emit("pass")
        self.depth -= 1
        self.values = seen

    def function(self, text: str) -> str:
        """The name of a jit function with this text, which is defined once."""
        if text not in self.functions:
            self.functions.append(text)
        return text.removeprefix("def ").split("(")[0]

    # -- arguments ----------------------------------------------------------------------------
    def array(self, letter: str, dtype: DType, count: int, domain: str = "") -> str:
        """A new array argument."""
        name = self.name(letter)
        self.arrays[name] = ArraySpec(name, dtype.name, count, domain, self.int(0, 3))
        return name

    def scalar(self, value: int) -> str:
        """`value` as text: a number, or an argument that holds it."""
        if self.flag(0.6):
            return str(value)
        for name, known in self.scalars.items():
            if known == value:
                return name
        name = self.name("n")
        self.scalars[name] = value
        return name

    # -- finding values -----------------------------------------------------------------------
    def find(self, wanted: Wanted) -> Value | None:
        """A value so far that fits, rather a late one."""
        fits = [v for v in self.values if wanted(v)]
        return fits[-1 - min(self.int(0, len(fits) - 1), self.int(0, 12))] if fits else None

    def tile(self, dtypes: Sequence[DType] = NUMBERS, wanted: Wanted = lambda v: True) -> Value:
        """A tile (or scalar) of one of these dtypes that fits, made if there is none."""
        if self.flag(0.85):
            found = self.find(lambda v: v.dtype in dtypes and wanted(v))
            if found is not None:
                return found
        for _ in range(8):
            made = self.load_plain(self.choice(dtypes), self.shape())
            if wanted(made):
                return made
        return self.load_plain(self.choice(dtypes), self.dims[:1])

    def like(self, value: Value, dtype: DType | None = None) -> str:
        """The text of an operand that broadcasts with `value` to its shape."""
        return self.partner(value, dtype).name

    def partner(self, value: Value, dtype: DType | None = None) -> Value:
        """A value, or an expression as one, that broadcasts with `value` to its shape."""
        dtype = dtype or value.dtype
        shape = value.shape

        def fits(other: Value) -> bool:
            return other.dtype == dtype and _stretches(other.shape, shape) is not None

        found = self.find(fits) if self.flag(0.75) else None
        if found is None:
            smaller = [shape, shape, ()] + [(d,) for d in shape[-1:]]
            found = self.load_plain(dtype, self.choice(smaller))
        return replace(found, name=found.name + (_stretches(found.shape, shape) or ""))

    def load_plain(self, dtype: DType, shape: Shape, domain: str = "any") -> Value:
        """A tile of an input, row-major, each program its own."""
        count = math.prod(shape)
        name = self.array("x", dtype, count * self.programs, domain)
        whole = 4 if domain == "small" else None
        return self.let(
            f"tl.load({name} + pid * {count} + {places(shape)})", dtype, shape, whole=whole
        )

    # -- outputs ------------------------------------------------------------------------------
    def output(self, value: Value, bound: Bound | None = None) -> str:
        """Store a value to a new output array, each program its own part."""
        count = value.numel
        name = self.array("out", value.dtype, count * self.programs)
        self.emit(f"tl.store({name} + pid * {count} + {places(value.shape)}, {value.name})")
        if bound is not None:
            self.bounds[name] = bound
        return name

    def finish(self) -> Case:
        """Store what no line has used."""
        text = "\n".join(self.lines)
        unused = [v for v in self.values if len(re.findall(rf"\b{v.name}\b", text)) < 2]
        for value in unused[-6:]:
            self.output(value)
        if not any(name.startswith(("out", "m", "c")) for name in self.arrays):
            self.output(self.values[-1])
        arrays = tuple(self.arrays.values())
        warps = self.choice((4, 4, 1, 2, 8))
        return Case(
            tuple(self.functions), tuple(self.lines), arrays, self.scalars, self.alias_of,
            self.grid, self.bounds, {"num_warps": warps},
        )  # fmt: skip


def _stretches(own: Shape, shape: Shape) -> str | None:
    """The subscript that makes a tile broadcast to a shape, or None when there is none."""
    if own == shape or not own:
        return ""
    if len(own) == len(shape):
        return "" if all(a in (1, b) for a, b in zip(own, shape, strict=True)) else None
    if len(own) == 1 and len(shape) > 1:
        if own[0] == shape[0]:
            return "[:, " + ", ".join(["None"] * (len(shape) - 1)) + "]"
        return "" if own[0] in (1, shape[-1]) else None
    if len(own) == 2 and len(shape) == 3:
        if own == shape[:2]:
            return "[:, :, None]"
        return "" if own == shape[1:] else None
    return None


def along(axis: int, rank: int, text: str) -> str:
    """A 1-D tile along an axis of a shape."""
    if rank == 1:
        return text
    index = ", ".join(":" if i == axis else "None" for i in range(rank))
    return f"{text}[{index}]"


def places(shape: Shape, strides: Sequence[int | str] | None = None) -> str:
    """The offsets of a tile's elements: row-major, or by these strides."""
    if not shape:
        return "0"
    if strides is None:
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    terms: list[str] = []
    for axis, (length, stride) in enumerate(zip(shape, strides, strict=True)):
        text = along(axis, len(shape), f"tl.arange(0, {length})")
        terms.append(text if stride == 1 else f"{text} * {stride}")
    return " + ".join(terms)
