"""A typed writer of LLVM IR text.

Shared by the CPU and CUDA backends.  A `Val` is SSA text with its LLVM type; every method appends
one instruction to the current `Code` buffer and returns its result.  All arithmetic works alike on
scalars and vectors, so that the math library (`math_*.py`) is written once for both.

Text, not llvmlite's object builder: masked and vendor intrinsics, bfloat, `splat`, fast-math flags
and inline assembly are all plain, and emission costs 0.2 µs an instruction.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

_UNDOES = {"fptrunc": "fpext", "trunc": "zext", "bitcast": "bitcast"}  # what each can undo
_LOSSLESS = frozenset(_UNDOES.values())

FLOAT_ELEMS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}


@dataclass(frozen=True, slots=True)
class LType:
    """An LLVM first-class type: an element name and a lane count (0 for a scalar)."""

    elem: str
    lanes: int = 0

    def __str__(self) -> str:
        return f"<{self.lanes} x {self.elem}>" if self.lanes else self.elem

    @property
    def bits(self) -> int:
        """Width of one element."""
        if self.elem == "ptr":
            return 64
        return FLOAT_ELEMS.get(self.elem) or int(self.elem[1:])

    @property
    def is_float(self) -> bool:
        return self.elem in FLOAT_ELEMS

    def with_elem(self, elem: str) -> LType:
        return LType(elem, self.lanes)

    @property
    def suffix(self) -> str:
        """How intrinsic names spell the type: `f32`, `v16f32`, `i64`, `p0`."""
        short = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}
        name = short.get(self.elem, self.elem)
        return f"v{self.lanes}{name}" if self.lanes else name


I1, I8, I16, I32, I64 = (LType(f"i{n}") for n in (1, 8, 16, 32, 64))
F16, F32, F64, PTR = LType("half"), LType("float"), LType("double"), LType("ptr")


@dataclass(frozen=True, slots=True)
class Val:
    """An SSA value or constant: its text (`%t3`, `splat (float 1.0)`, `7`) and its type."""

    text: str
    type: LType

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


@dataclass(slots=True)
class Code:
    """A buffer of instructions with the label of the basic block they end in.

    Among its lines may stand other buffers, in which code is still written (`Builder.reserve`).
    """

    block: str
    lines: list[str | Code] = field(default_factory=list["str | Code"])

    def text(self) -> str:
        """All lines, those of buffers inside it in their places."""
        return "\n".join(self._flat())

    def _flat(self) -> Iterator[str]:
        for line in self.lines:
            if isinstance(line, str):
                yield line
            else:
                yield from line._flat()


def float_text(value: float, elem: str) -> str:
    """A float constant as LLVM wants it: exact, in hexadecimal."""
    if elem == "double":
        return "0x" + struct.pack(">d", value).hex().upper()
    if elem == "float":
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
        return "0x" + struct.pack(">d", value).hex().upper()
    if elem == "half":
        try:
            return "0xH" + struct.pack(">e", value).hex().upper()
        except OverflowError:
            return "0xH7C00" if value > 0 else "0xHFC00"
    raise ValueError(f"no constants of type {elem}")


class Builder:
    """Writes instructions; owns SSA numbering and the declarations the module needs."""

    def __init__(self, block: str = "entry") -> None:
        self.code = Code(block)
        self.declares: dict[str, str] = {}
        # Whether the target rounds to bfloat16 in hardware (`fptrunc` is then one instruction).
        self.native_bf16 = False
        # Whether a product and the sum it goes into may be rounded together.
        self.fuses_products = False
        # Module-level constants: name to definition without the name.
        self.globals: dict[str, str] = {}
        # Definitions of structs, with their names.
        self.structs: dict[str, str] = {}
        self._next = 0
        # By a conversion and its result: what was converted, where nothing was lost.
        self._converted_from: dict[str, Val] = {}

    # -- raw text ---------------------------------------------------------------------------
    def name(self, hint: str = "t") -> str:
        self._next += 1
        return f"{hint}{self._next}"

    def emit(self, text: str, type: LType) -> Val:
        """Append `%new = text`."""
        result = f"%{self.name()}"
        self.code.lines.append(f"  {result} = {text}")
        return Val(result, type)

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self.code.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        """Begin basic block `name` in the current buffer."""
        self.code.lines.append(f"{name}:")
        self.code.block = name

    def reserve(self) -> Code:
        """A place here for code without branches that is written later, in `with at(place)`."""
        place = Code(self.code.block)
        self.code.lines.append(place)
        return place

    @contextmanager
    def at(self, place: Code) -> Generator[None]:
        """Write at a reserved place."""
        before, self.code = self.code, place
        yield
        self.code = before

    def declare(self, result: str, name: str, args: Iterable[str], attrs: str = "") -> None:
        self.declares[name] = f"declare {result} @{name}({', '.join(args)}){attrs}"

    def call(self, result: LType | None, name: str, args: Sequence[Val], flags: str = "") -> Val:
        """Call (and declare) a function; `result` None for void."""
        self.declare(str(result or "void"), name, [str(a.type) for a in args])
        shown = ", ".join(str(a) for a in args)
        prefix = f"call {flags} " if flags else "call "
        text = f"{prefix}{result or 'void'} @{name}({shown})"
        if result is None:
            self.do(text)
            return Val("void", I1)
        return self.emit(text, result)

    def intrinsic(self, name: str, args: Sequence[Val], result: LType | None = None) -> Val:
        """Call `llvm.<name>.<suffix of the first argument>`; result as the first argument."""
        return self.call(result or args[0].type, f"llvm.{name}.{args[0].type.suffix}", args)

    def struct(self, elements: Sequence[LType]) -> LType:
        """A struct, by a name: spelt out at every use, large ones are most of a module's text."""
        shown = f"{{ {', '.join(map(str, elements))} }}"
        return LType(self.structs.setdefault(shown, f"%struct{len(self.structs)}"))

    # -- constants --------------------------------------------------------------------------
    def const(self, value: float | int | bool, type: LType) -> Val:
        """A constant of any scalar type, or that constant in every lane."""
        if type.is_float:
            text = float_text(float(value), type.elem)
        elif type.elem == "i1":
            text = "true" if value else "false"
        else:
            bits = type.bits
            wrapped = int(value) & ((1 << bits) - 1)
            text = str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)
        return Val(f"splat ({type.elem} {text})" if type.lanes else text, type)

    def vector(self, values: Sequence[int], elem: str) -> Val:
        """A constant integer vector."""
        body = ", ".join(f"{elem} {v}" for v in values)
        return Val(f"<{body}>", LType(elem, len(values)))

    # -- arithmetic: float ------------------------------------------------------------------
    def binary(self, opcode: str, a: Val, b: Val) -> Val:
        return self.emit(f"{opcode} {a}, {b.text}", a.type)

    def fadd(self, a: Val, b: Val) -> Val:
        return self.binary("fadd", a, b)

    def fsub(self, a: Val, b: Val) -> Val:
        return self.binary("fsub", a, b)

    def fmul(self, a: Val, b: Val) -> Val:
        return self.binary("fmul", a, b)

    def fdiv(self, a: Val, b: Val) -> Val:
        return self.binary("fdiv", a, b)

    def fneg(self, a: Val) -> Val:
        return self.emit(f"fneg {a}", a.type)

    def fma(self, a: Val, b: Val, c: Val) -> Val:
        """a * b + c with one rounding."""
        return self.intrinsic("fma", [a, b, c])

    def fabs(self, a: Val) -> Val:
        return self.intrinsic("fabs", [a])

    def sqrt(self, a: Val) -> Val:
        return self.intrinsic("sqrt", [a])

    def floor(self, a: Val) -> Val:
        return self.intrinsic("floor", [a])

    def ceil(self, a: Val) -> Val:
        return self.intrinsic("ceil", [a])

    def trunc_toward_zero(self, a: Val) -> Val:
        return self.intrinsic("trunc", [a])

    def round_even(self, a: Val) -> Val:
        return self.intrinsic("roundeven", [a])

    def copysign(self, magnitude: Val, sign: Val) -> Val:
        return self.intrinsic("copysign", [magnitude, sign])

    # -- arithmetic: integer ----------------------------------------------------------------
    def add(self, a: Val, b: Val) -> Val:
        return self.binary("add", a, b)

    def sub(self, a: Val, b: Val) -> Val:
        return self.binary("sub", a, b)

    def mul(self, a: Val, b: Val) -> Val:
        return self.binary("mul", a, b)

    def and_(self, a: Val, b: Val) -> Val:
        return self.binary("and", a, b)

    def or_(self, a: Val, b: Val) -> Val:
        return self.binary("or", a, b)

    def xor(self, a: Val, b: Val) -> Val:
        return self.binary("xor", a, b)

    def shl(self, a: Val, b: Val) -> Val:
        return self.binary("shl", a, b)

    def lshr(self, a: Val, b: Val) -> Val:
        return self.binary("lshr", a, b)

    def ashr(self, a: Val, b: Val) -> Val:
        return self.binary("ashr", a, b)

    # -- comparison and choice --------------------------------------------------------------
    def fcmp(self, predicate: str, a: Val, b: Val) -> Val:
        return self.emit(f"fcmp {predicate} {a}, {b.text}", a.type.with_elem("i1"))

    def icmp(self, predicate: str, a: Val, b: Val) -> Val:
        return self.emit(f"icmp {predicate} {a}, {b.text}", a.type.with_elem("i1"))

    def select(self, condition: Val, a: Val, b: Val) -> Val:
        return self.emit(f"select {condition}, {a}, {b}", a.type)

    # -- conversion -------------------------------------------------------------------------
    def convert(self, opcode: str, a: Val, elem: str) -> Val:
        """zext, sext, trunc, fpext, fptrunc, sitofp, uitofp, fptosi, fptoui, bitcast, …

        Converting there and back again without loss gives the value that it was.
        """
        result = a.type.with_elem(elem)
        if opcode in _UNDOES:
            origin = self._converted_from.get(_UNDOES[opcode] + a.text)
            if origin is not None and origin.type == result:
                return origin
        made = self.emit(f"{opcode} {a} to {result}", result)
        if opcode in _LOSSLESS:
            self._converted_from[opcode + made.text] = a
        return made

    def bitcast(self, a: Val, elem: str) -> Val:
        return a if a.type.elem == elem else self.convert("bitcast", a, elem)

    # -- vectors ----------------------------------------------------------------------------
    def splat(self, a: Val, lanes: int) -> Val:
        """A scalar in every lane."""
        type = LType(a.type.elem, lanes)
        if not a.text.startswith("%"):
            return Val(f"splat ({a})", type)
        one = self.emit(f"insertelement {type} poison, {a}, i64 0", type)
        return self.emit(
            f"shufflevector {one}, {type} poison, <{lanes} x i32> zeroinitializer", type
        )

    def vector_of(self, elements: Sequence[Val]) -> Val:
        """Scalars as one vector; one alone stays a scalar."""
        if len(elements) == 1:
            return elements[0]
        vector = Val("poison", LType(elements[0].type.elem, len(elements)))
        for lane, element in enumerate(elements):
            vector = self.insert(vector, lane, element)
        return vector

    def shuffle(self, a: Val, b: Val | None, picks: Sequence[int]) -> Val:
        """Lanes `picks` of the concatenation of a and b (-1 leaves a lane undefined)."""
        mask = ", ".join(f"i32 {p}" if p >= 0 else "i32 poison" for p in picks)
        other = b.text if b is not None else "poison"
        type = LType(a.type.elem, len(picks))
        return self.emit(
            f"shufflevector {a}, {a.type} {other}, <{len(picks)} x i32> <{mask}>", type
        )

    def extract(self, a: Val, lane: int | Val) -> Val:
        index = lane.text if isinstance(lane, Val) else str(lane)
        return self.emit(f"extractelement {a}, i64 {index}", LType(a.type.elem))

    def insert(self, a: Val, lane: int | Val, value: Val) -> Val:
        index = lane.text if isinstance(lane, Val) else str(lane)
        return self.emit(f"insertelement {a}, {value}, i64 {index}", a.type)

    # -- memory -----------------------------------------------------------------------------
    def gep(self, elem: str, pointer: Val, index: Val | int) -> Val:
        """pointer + index * sizeof(elem)."""
        shown = str(index) if isinstance(index, Val) else f"i64 {index}"
        lanes = pointer.type.lanes or (index.type.lanes if isinstance(index, Val) else 0)
        return self.emit(f"getelementptr {elem}, {pointer}, {shown}", LType("ptr", lanes))

    def strided(self, pointer: Val, index: Val, stride_bytes: int) -> Val:
        """pointer + index * stride_bytes."""
        return self.gep("i8", pointer, self.mul(index, self.const(stride_bytes, index.type)))

    def load(self, type: LType, pointer: Val, align: int) -> Val:
        return self.emit(f"load {type}, {pointer}, align {align}", type)

    def store(self, value: Val, pointer: Val, align: int, suffix: str = "") -> None:
        self.do(f"store {value}, {pointer}, align {align}{suffix}")

    # -- control ----------------------------------------------------------------------------
    def branch(self, target: str) -> None:
        self.do(f"br label %{target}")

    def branch_if(self, condition: Val, then: str, otherwise: str) -> None:
        self.do(f"br {condition}, label %{then}, label %{otherwise}")

    def phi(self, type: LType, incoming: Iterable[tuple[Val, str]]) -> Val:
        pairs = ", ".join(f"[ {v.text}, %{block} ]" for v, block in incoming)
        return self.emit(f"phi {type} {pairs}", type)
