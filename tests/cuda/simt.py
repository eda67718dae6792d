"""Runs a whole kernel, as the LLVM text we write, for all threads of a block at once.

No GPU is needed, and more is seen than on one: races in shared memory, asynchronous copies that
nobody waited for, accumulators used while wgmma still adds to them.  Control flow may differ
between threads where both sides of a branch meet again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tests.cuda import simt_scalar
from tests.cuda.simt_asm import Assembly
from tests.cuda.simt_memory import SHARED_START, GlobalMemory, SharedMemory
from tests.cuda.simt_types import Bits, from_bytes, to_bytes, width

_TYPE = r"(?:<\d+ x [\w ()]+?>|ptr addrspace\(\d\)|%struct\d+|\w+)"
_ASSIGNMENT = re.compile(r"(%\S+) = (.*)")
_ASM = re.compile(
    rf'call (?P<result>{_TYPE}) asm (?:sideeffect )?"(?P<text>[^"]*)", "(?P<constraints>[^"]*)"'
    r"\((?P<args>.*)\)(?: convergent)?"
)

Value = Bits | list[Bits]


@dataclass
class Kernel:
    """The parsed text of a kernel: parameters by name, instructions by label."""

    params: list[tuple[str, str]]
    blocks: dict[str, list[str]]
    join: dict[str, str] = field(default_factory=dict[str, str])

    @staticmethod
    def parse(text: str) -> Kernel:
        head, _, body = text.partition("define ptx_kernel void @")[2].partition("{\n")
        listed = head[head.index("(") + 1 : head.rindex(")")]
        params = [tuple(p.rsplit(" ", 1)) for p in listed.split(", ") if p]
        blocks: dict[str, list[str]] = {}
        lines: list[str] = []
        for line in body[: body.index("\n}")].splitlines():
            text = line.strip()
            if text.endswith(":"):
                lines = blocks.setdefault(text[:-1], [])
            elif text:
                lines.append(text)
        kernel = Kernel([(type, name) for type, name in params], blocks)
        kernel.join = _joins(blocks)
        return kernel


def _targets(line: str) -> list[str]:
    return re.findall(r"label %([\w.]+)", line) if line.startswith("br ") else []


def _joins(blocks: dict[str, list[str]]) -> dict[str, str]:
    """For each block, the first one that all ways from it lead to (its immediate postdominator)."""
    after: dict[str, set[str]] = {name: set(blocks) | {""} for name in blocks}
    after[""] = {""}
    follow = {name: _targets(lines[-1]) or [""] for name, lines in blocks.items()}
    changed = True
    while changed:
        changed = False
        for name in reversed(list(blocks)):
            common = set[str].intersection(*(after[f] for f in follow[name])) | {name}
            if common != after[name]:
                after[name], changed = common, True
    joins: dict[str, str] = {}
    for name in blocks:
        later = after[name] - {name}
        joins[name] = next(n for n in later if all(o in after[n] for o in later))
    return joins


def run_kernel(
    text: str,
    grid: tuple[int, int, int],
    threads: int,
    shared_bytes: int,
    memory: GlobalMemory,
    args: Sequence[int | float | np.generic],
) -> None:
    """Run every block of a grid, one after another."""
    kernel = Kernel.parse(text)
    for z in range(grid[2]):
        for y in range(grid[1]):
            for x in range(grid[0]):
                block = Block(threads, (x, y, z), grid, shared_bytes, memory)
                block.run(kernel, args)


class Block:
    """One block of threads at work."""

    def __init__(
        self,
        threads: int,
        program: tuple[int, int, int],
        grid: tuple[int, int, int],
        shared_bytes: int,
        memory: GlobalMemory,
    ) -> None:
        self.threads = threads
        self.program = program
        self.grid = grid
        self.memory = memory
        self.shared = SharedMemory(shared_bytes)
        self.values: dict[str, Value] = {}
        self.active: NDArray[np.bool_] = np.ones(threads, bool)
        # The block each thread came from, for phis.
        self._from: list[str] = ["entry"] * threads
        self.assembly = Assembly(self.shared, memory, threads)

    def run(self, kernel: Kernel, args: Sequence[int | float | np.generic]) -> None:
        self.kernel = kernel
        for (type, name), arg in zip(kernel.params, args, strict=True):
            self.values[name] = self._argument(type, arg)
        self._walk("entry", "")
        self.assembly.finish()

    def _argument(self, type: str, arg: float | np.generic) -> Bits:
        if isinstance(arg, np.generic):
            raw = np.frombuffer(arg.tobytes().ljust(8, b"\0"), np.uint64)[0]
        elif type == "float":
            raw = np.float32(arg).view(np.uint32)
        else:
            raw = np.uint64(int(arg) & (1 << 64) - 1)
        return np.full((self.threads, 1), raw, np.uint64)

    # -- control ----------------------------------------------------------------------------
    def _walk(self, label: str, stop: str) -> None:
        """Run blocks from `label` until control reaches `stop`."""
        while label != stop:
            lines = self.kernel.blocks[label]
            self._phis([line for line in lines if " = phi " in line])
            for line in lines:
                if " = phi " not in line:
                    self._line(line)
            label = self._leave(label, lines[-1], stop)

    def _leave(self, label: str, line: str, stop: str) -> str:
        targets = _targets(line)
        if not targets:
            return ""
        self._came(label)
        if len(targets) == 1:
            return targets[0]
        condition = self._bits(line.split()[2].rstrip(","), "i1")[:, 0] != 0
        chosen = condition[self.active]
        if chosen.all() or not chosen.any():
            return targets[0] if chosen.all() else targets[1]
        before, join = self.active, self.kernel.join[label]
        for target, side in zip(targets, (before & condition, before & ~condition), strict=True):
            self.active = side
            self._walk(target, join)
        self.active = before
        return join

    def _came(self, label: str) -> None:
        for thread in np.flatnonzero(self.active):
            self._from[thread] = label

    def _phis(self, lines: Sequence[str]) -> None:
        """All phis of a block read before any is written."""
        found: dict[str, Bits] = {}
        for line in lines:
            name, type, listed = _fields(rf"(%\S+) = phi ({_TYPE}) (.*)", line)
            pairs = re.findall(r"\[ (\S+), %([\w.]+) \]", listed)
            used = set(self._from)
            result = np.zeros((self.threads, width(type)[1]), np.uint64)
            for value, block in pairs:
                if block in used:
                    rows = np.array([source == block for source in self._from]) & self.active
                    incoming = self._value(value, type)
                    assert not isinstance(incoming, list)
                    result[rows] = incoming[rows]
                    self.assembly.moved(value, name, rows)
            found[name] = result
        self.values.update(found)

    # -- instructions -----------------------------------------------------------------------
    def _line(self, line: str) -> None:
        if assignment := _ASSIGNMENT.fullmatch(line):
            name, text = assignment.groups()
            self.values[name] = self._masked(name, self._compute(name, text))
        elif line.startswith("store "):
            self._store(line)
        elif line.startswith("call "):
            self._call_asm("", line) if " asm " in line else self._barrier(line)
        else:
            assert line.startswith(("br ", "ret ")), line

    def _masked(self, name: str, value: Value) -> Value:
        """Inactive threads keep what they had."""
        if self.active.all() or isinstance(value, list) or name not in self.values:
            return value
        before = self.values[name]
        assert not isinstance(before, list)
        return np.where(self.active[:, None], value, before)

    def _barrier(self, line: str) -> None:
        assert "barrier.cta.sync.aligned.all" in line, line
        assert self.active.all(), "some threads miss a barrier"
        self.shared.barrier()

    def _value(self, text: str, type: str) -> Value:
        if text.startswith("%"):
            return self.values[text]
        shape = self.threads, width(type)[1]
        return simt_scalar.constant(text, type, shape)

    def _bits(self, text: str, type: str) -> Bits:
        if text == "@shared_memory":
            return np.full((self.threads, 1), SHARED_START, np.uint64)
        self.assembly.check_use(text)
        value = self._value(text, type)
        assert not isinstance(value, list)
        return value

    def _compute(self, name: str, text: str) -> Value:
        if " asm " in text:
            return self._call_asm(name, text)
        opcode = text.split(" ", 1)[0]
        match opcode:
            case "extractvalue":
                _, value, place = _fields(rf"extractvalue ({_TYPE}) (\S+), (\d+)", text)
                self.assembly.extracted(value, int(place), name)
                whole = self.values[value]
                assert isinstance(whole, list)
                return whole[int(place)]
            case "load":
                return self._load(text)
            case "getelementptr":
                return self._element_pointer(text)
            case "call":
                return self._call(text)
            case "select" | "icmp" | "fcmp" | "insertelement" | "extractelement":
                types, operands = _operands(text)
                bits = [self._bits(o, t) for t, o in zip(types, operands, strict=True)]
                return getattr(simt_scalar, opcode)(text, types, bits)
        if " to " in text:
            type, value, to = _fields(rf"\w+ (?:nneg )?({_TYPE}) (\S+) to ({_TYPE})", text)
            return simt_scalar.convert(opcode, self._bits(value, type), type, to)
        if opcode == "fneg":
            type, value = _fields(rf"fneg ({_TYPE}) (\S+)", text)
            return simt_scalar.negate(self._bits(value, type), type)
        type, left, right = _fields(rf"\w+ (?:\w+ )*?({_TYPE}) (\S+), (\S+)", text)
        operands = [self._bits(v, type) for v in (left, right)]
        return simt_scalar.binary(opcode, operands[0], operands[1], type)

    # -- memory -----------------------------------------------------------------------------
    def _element_pointer(self, text: str) -> Bits:
        elem, space, pointer, type, index = _fields(
            r"getelementptr (\S+), (ptr(?: addrspace\(\d\))?) (\S+), (i\d+) (\S+)", text
        )
        size = max(1, width(elem)[0] // 8)
        offset = simt_scalar.sign_extended(self._bits(index, type), type) * np.uint64(size)
        moved = self._bits(pointer, space) + offset
        return moved & np.uint64(0xFFFFFFFF) if "3" in space else moved

    def _load(self, text: str) -> Bits:
        type, space, pointer, _ = _fields(
            rf"load ({_TYPE}), (ptr(?: addrspace\(\d\))?) (\S+), align (\d+)", text
        )
        bits, count = width(type)
        size = max(1, bits // 8) * count
        threads = np.flatnonzero(self.active)
        starts = self._bits(pointer, space)[threads, 0].astype(np.int64)
        if "3" in space:
            data = self.shared.read(threads, starts, size)
        else:
            data = self.memory.read(starts, size)
        result = np.zeros((self.threads, count), np.uint64)
        result[threads] = from_bytes(data, type)
        return result

    def _store(self, text: str) -> None:
        type, value, space, pointer = _fields(
            rf"store ({_TYPE}) (\S+), (ptr(?: addrspace\(\d\))?) (\S+), align .*", text
        )
        threads = np.flatnonzero(self.active)
        starts = self._bits(pointer, space)[threads, 0].astype(np.int64)
        data = to_bytes(self._bits(value, type)[threads], type)
        if "3" in space:
            self.shared.write(threads, starts, data)
        else:
            self.memory.write(starts, data)

    # -- calls ------------------------------------------------------------------------------
    def _call(self, text: str) -> Bits:
        result, name, listed = _fields(rf"call ({_TYPE}) @llvm\.([\w.]+)\((.*)\)", text)
        arguments = [a.rsplit(" ", 1) for a in _split(listed)]
        if name.startswith("nvvm.read.ptx.sreg"):
            return self._special(name.removeprefix("nvvm.read.ptx.sreg."))
        bits = [self._bits(value, type) for type, value in arguments]
        if name.startswith("nvvm.shfl.sync"):
            assert self.active.all(), "some lanes miss a shuffle"
            return simt_scalar.shuffle(name.split(".")[3], bits)
        return simt_scalar.intrinsic(name, bits, result)

    def _special(self, name: str) -> Bits:
        if name == "tid.x":
            return np.arange(self.threads, dtype=np.uint64)[:, None]
        kind, axis = name.split(".")
        source = {"ctaid": self.program, "nctaid": self.grid}[kind]
        return np.full((self.threads, 1), source["xyz".index(axis)], np.uint64)

    def _call_asm(self, name: str, text: str) -> Value:
        found = _ASM.fullmatch(text)
        assert found is not None, text
        arguments = [a.rsplit(" ", 1) for a in _split(found["args"])]
        names = [value for _, value in arguments]
        bits = [
            np.full((self.threads, 1), SHARED_START, np.uint64)
            if value == "@shared_memory"
            else self._value(value, type)
            for type, value in arguments
        ]
        assert not any(isinstance(b, list) for b in bits)
        return self.assembly.run(
            found["text"], found["constraints"], names, bits, name, self.active
        )


@cache
def _fields(pattern: str, text: str) -> tuple[str, ...]:
    found = re.fullmatch(pattern, text)
    assert found is not None, f"unknown instruction: {text}"
    return found.groups()


@cache
def _split(listed: str) -> tuple[str, ...]:
    """Arguments of a call: at commas outside of brackets."""
    return tuple(p.strip() for p in re.split(r",(?![^<(]*[>)])", listed) if p.strip())


@cache
def _operands(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Types and names of the operands of instructions that take several."""
    opcode = text.split(" ", 1)[0]
    if opcode in ("icmp", "fcmp"):
        type, left, right = _fields(rf"\w+ \w+ ({_TYPE}) (\S+), (\S+)", text)
        return (type, type), (left, right)
    listed = text.removeprefix(opcode + " ")
    pairs = [p.rsplit(" ", 1) for p in _split(listed)]
    return tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)
