"""Loads and stores of chunks: of buffers in scratch, and through pointer tiles.

The address of a chunk's first lane is the pointer expression asked for as a scalar; whether the
other lanes follow it in memory is what the axis facts say.  Where they do not, lanes are gathered.
A masked-off lane's address is never touched: masked instructions do not, and a wholly masked-off
chunk is pointed at scratch, because suppressing its page faults would cost microcode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deuteron.backends.cpu.buffers import Buffer
from deuteron.backends.cpu.index import ZERO, Index
from deuteron.backends.llvm.builder import I64, LType, Val
from deuteron.backends.llvm.levels import Placed
from deuteron.backends.llvm.registers import (
    elem_bytes,
    register_elem,
    storage_elem,
    to_register,
    to_storage,
)
from deuteron.ir import Element, Op, Value

if TYPE_CHECKING:
    from deuteron.backends.cpu.chunks import Chunks

NONTEMPORAL = ", !nontemporal !0"


class Memory:
    """The memory side of `Chunks`."""

    def __init__(self, chunks: Chunks) -> None:
        self.chunks = chunks
        self.b = chunks.b
        self.levels = chunks.levels

    # -- scratch ----------------------------------------------------------------------------
    def buffer_address(self, buffer: Buffer, index: Index) -> Placed:
        """Where the first lane of a chunk of a buffer lies."""
        constant = buffer.offset
        size = elem_bytes(buffer.elem)
        place = buffer.base or Placed(self.chunks.scratch)
        for coord, stride in zip(index.coords, buffer.strides, strict=True):
            constant += coord.offset * stride * size
            if coord.base:
                place = self._moved(place, coord.base, coord.level, stride * size)
        if not constant:
            return place
        return self._shifted(place, constant)

    def _moved(self, place: Placed, base: str, level: int, stride: int) -> Placed:
        key = ("move", place.val, base, stride)
        known = self.levels.recall(key)
        if known is None:
            level = max(level, place.level)
            with self.levels.at(level):
                index = Val(base, I64)
                if stride != 1:
                    index = self.b.emit(f"mul nuw nsw i64 {base}, {stride}", I64)
                text = f"getelementptr inbounds i8, {place.val}, {index}"
                val = self.b.emit(text, place.val.type)
            known = self.levels.remember(key, Placed(val, level))
        return known

    def _shifted(self, place: Placed, constant: int) -> Placed:
        key = ("shift", place.val, constant)
        known = self.levels.recall(key)
        if known is None:
            with self.levels.at(place.level):
                text = f"getelementptr inbounds i8, {place.val}, i64 {constant}"
                val = self.b.emit(text, place.val.type)
            known = self.levels.remember(key, Placed(val, place.level))
        return known

    def read(self, buffer: Buffer, element: Element, index: Index) -> Placed:
        """A chunk of a buffer, in registers."""
        address = self.buffer_address(buffer, index)
        level = max(address.level, self.chunks.pin)
        size = elem_bytes(buffer.elem)
        with self.levels.at(level):
            if index.axis is None:
                stored = self.b.load(LType(buffer.elem), address.val, size)
            elif buffer.strides[index.axis] == 1:
                stored = self.b.load(LType(buffer.elem, index.lanes), address.val, size)
            else:
                stride = buffer.strides[index.axis] * size
                stored = self._read_strided(address.val, buffer.elem, index.lanes, stride)
            return Placed(to_register(self.b, stored, element), level)

    def _read_strided(self, address: Val, elem: str, lanes: int, stride: int) -> Val:
        vector = Val("poison", LType(elem, lanes))
        for lane in range(lanes):
            at = self.b.gep("i8", address, lane * stride)
            one = self.b.load(LType(elem), at, elem_bytes(elem))
            vector = self.b.insert(vector, lane, one)
        return vector

    def write(self, buffer: Buffer, element: Element, index: Index, value: Val) -> None:
        """Store a chunk (in registers) to a buffer of the element's storage type, here and now."""
        self.write_stored(buffer, index, to_storage(self.b, value, element))

    def write_stored(self, buffer: Buffer, index: Index, stored: Val) -> None:
        """Store a chunk that already has the buffer's element type."""
        address = self.buffer_address(buffer, index).val
        size = elem_bytes(buffer.elem)
        if index.axis is None or buffer.strides[index.axis] == 1:
            self.b.store(stored, address, size)
            return
        stride = buffer.strides[index.axis] * size
        for lane in range(index.lanes):
            at = self.b.gep("i8", address, lane * stride)
            self.b.store(self.b.extract(stored, lane), at, size)

    # -- loads through pointers -------------------------------------------------------------
    def load(self, op: Op, index: Index, *, raw: bool = False) -> Placed:
        """A chunk of a load, in registers; as it lies in memory when `raw` (`other` must be 0)."""
        pointer = op.operands[0]
        element = pointer.type.pointee
        mask = self._mask(op.operands[1], index) if len(op.operands) > 1 else None
        run = self.run_length(pointer, index)
        if index.axis is None or run == 0:
            assert not raw, "raw loads are contiguous"
            return self._load_scalar(op, index, element, mask)
        other = None
        if mask is not None and len(op.operands) > 2 and not raw:
            other = self.chunks.vector(op.operands[2], index)
        if run >= index.lanes:
            address = self.first_address(pointer, index)
            inputs = [address, *(p for p in (mask, other) if p)]
            with self.levels.at(self._level(inputs)):
                stored = self._load_vector(address.val, element, index.lanes, mask)
        else:
            inputs = [*(p for p in (mask, other) if p)]
            addresses = self.chunks.vector(pointer, index)
            inputs.append(addresses)
            with self.levels.at(self._level(inputs)):
                stored = self.gather(addresses.val, element, mask)
        if raw:
            return Placed(stored, self._level(inputs))
        return self._finish(stored, element, mask, other, self._level(inputs))

    def _finish(
        self, stored: Val, element: Element, mask: Placed | None, other: Placed | None, level: int
    ) -> Placed:
        with self.levels.at(level):
            value = to_register(self.b, stored, element)
            if mask is not None and other is not None:
                chosen = self.chunks.widen(mask, value.type.lanes).val
                value = self.b.select(chosen, value, other.val)
            return Placed(value, level)

    def _level(self, inputs: list[Placed]) -> int:
        return max(self.chunks.pin, *(p.level for p in inputs))

    def _mask(self, mask: Value, index: Index) -> Placed | None:
        """The mask's chunk, or None where it is known to hold."""
        placed = self.chunks.get(mask, index)
        return None if placed.val.text == "true" else placed

    def run_length(self, pointer: Value, index: Index) -> int:
        """How many lanes follow one another in memory; 0 when all are one address."""
        if index.axis is None:
            return 1
        info = self.chunks.facts.of(pointer)
        if info.constancy[index.axis] >= index.lanes:
            return 0
        return info.contiguity[index.axis]

    def first_address(self, pointer: Value, index: Index) -> Placed:
        """The address of a contiguous chunk's first lane."""
        axis = index.axis
        assert axis is not None
        coord = index.coords[axis]
        whole = self.chunks.facts.of(pointer).contiguity[axis] >= pointer.type.shape[axis]
        if not whole or not coord.base:
            return self.chunks.get(pointer, index.scalar())
        # The axis is one run: its address is that of its start, moved.
        start = self.chunks.get(pointer, index.at(axis, ZERO).scalar())
        size = elem_bytes(storage_elem(pointer.type.pointee))
        place = self._moved(start, coord.base, coord.level, size)
        return self._shifted(place, coord.offset * size) if coord.offset else place

    def _load_scalar(self, op: Op, index: Index, element: Element, mask: Placed | None) -> Placed:
        """One element; where all lanes read it but not all may, the lanes are masked after."""
        address = self.chunks.get(op.operands[0], index.scalar())
        allowed = mask
        inputs = [address, *([mask] if mask else [])]
        other = self.chunks.get(op.operands[2], index) if len(op.operands) > 2 and mask else None
        if other is not None:
            inputs.append(other)
        level = self._level(inputs)
        with self.levels.at(level):
            pointer = address.val
            if allowed is not None:
                pointer = self.b.select(self._any(allowed.val), pointer, self.chunks.scratch)
            elem = storage_elem(element)
            stored = self.b.load(LType(elem), pointer, elem_bytes(elem))
            value = to_register(self.b, stored, element)
            if mask is None:
                return Placed(value, level)
            if other is None:
                other = Placed(self.b.const(0, LType(register_elem(element))))
            lanes = max(mask.val.type.lanes, other.val.type.lanes)
            parts = [self.chunks.widen(p, lanes) for p in (mask, Placed(value, level), other)]
            return Placed(self.b.select(*(p.val for p in parts)), level)

    def _any(self, mask: Val) -> Val:
        """Whether any lane of a mask holds."""
        if not mask.type.lanes:
            return mask
        bits = LType(f"i{mask.type.lanes}")
        whole = self.b.emit(f"bitcast {mask} to {bits}", bits)
        return self.b.icmp("ne", whole, self.b.const(0, bits))

    def _guarded(self, address: Val, mask: Val) -> Val:
        return self.b.select(self._any(mask), address, self.chunks.scratch)

    def _load_vector(self, address: Val, element: Element, lanes: int, mask: Placed | None) -> Val:
        elem = storage_elem(element)
        type = LType(elem, lanes)
        size = elem_bytes(elem)
        if mask is None:
            return self.b.load(type, address, size)
        chosen = self.chunks.widen(mask, lanes).val
        address = self._guarded(address, mask.val)
        name = f"llvm.masked.load.{type.suffix}.p0"
        self.b.declare(str(type), name, ["ptr", str(chosen.type), str(type)])
        args = f"ptr align {size} {address.text}, {chosen}, {type} zeroinitializer"
        return self.b.emit(f"call {type} @{name}({args})", type)

    def gather(self, addresses: Val, element: Element, mask: Placed | None) -> Val:
        """One element a lane from addresses of their own, as they lie in memory."""
        elem = storage_elem(element)
        type = LType(elem, addresses.type.lanes)
        chosen = self._lanes_mask(mask, type.lanes)
        name = f"llvm.masked.gather.{type.suffix}.{addresses.type.suffix}"
        self.b.declare(str(type), name, [str(addresses.type), str(chosen.type), str(type)])
        pointers = f"{addresses.type} align {elem_bytes(elem)} {addresses.text}"
        args = f"{pointers}, {chosen}, {type} zeroinitializer"
        return self.b.emit(f"call {type} @{name}({args})", type)

    def _lanes_mask(self, mask: Placed | None, lanes: int) -> Val:
        if mask is None:
            return Val("splat (i1 true)", LType("i1", lanes))
        return self.chunks.widen(mask, lanes).val

    # -- stores through pointers ------------------------------------------------------------
    def store(self, op: Op, index: Index, value: Placed, *, nontemporal: bool = False) -> None:
        """Store a chunk where its pointers say, here and now."""
        pointer, element = op.operands[0], op.operands[0].type.pointee
        mask = self._mask(op.operands[2], index) if len(op.operands) > 2 else None
        size = elem_bytes(storage_elem(element))
        if index.axis is None:
            address = self.chunks.get(pointer, index).val
            if mask is not None:
                address = self.b.select(mask.val, address, self.chunks.scratch)
            self.b.store(to_storage(self.b, value.val, element), address, size)
            return
        wide = self.chunks.widen(value, index.lanes)
        stored = to_storage(self.b, wide.val, element)
        if self.run_length(pointer, index) >= index.lanes:
            address = self.first_address(pointer, index).val
            self._store_vector(stored, address, size, mask, nontemporal)
        else:
            addresses = self.chunks.vector(pointer, index).val
            self._scatter(stored, addresses, size, mask)

    def _store_vector(
        self, stored: Val, address: Val, size: int, mask: Placed | None, nontemporal: bool
    ) -> None:
        if mask is None:
            align = size * stored.type.lanes if nontemporal else size
            self.b.store(stored, address, align, NONTEMPORAL if nontemporal else "")
            return
        chosen = self.chunks.widen(mask, stored.type.lanes).val
        address = self._guarded(address, mask.val)
        name = f"llvm.masked.store.{stored.type.suffix}.p0"
        self.b.declare("void", name, [str(stored.type), "ptr", str(chosen.type)])
        self.b.do(f"call void @{name}({stored}, ptr align {size} {address.text}, {chosen})")

    def _scatter(self, stored: Val, addresses: Val, size: int, mask: Placed | None) -> None:
        chosen = self._lanes_mask(mask, stored.type.lanes)
        name = f"llvm.masked.scatter.{stored.type.suffix}.{addresses.type.suffix}"
        self.b.declare("void", name, [str(stored.type), str(addresses.type), str(chosen.type)])
        pointers = f"{addresses.type} align {size} {addresses.text}"
        self.b.do(f"call void @{name}({stored}, {pointers}, {chosen})")
