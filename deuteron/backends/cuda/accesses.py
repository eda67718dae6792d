"""Loads, stores and atomics of a tile of addresses: as wide as facts allow, predicated by masks."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, product

from deuteron.backends.cpu.planner import is_memory_write
from deuteron.backends.cuda.layout import Layout
from deuteron.backends.cuda.tiles import Tile, Tiles
from deuteron.backends.cuda.turns import Place, keeps_apart, place_of
from deuteron.backends.llvm.atomics import emit_compare_exchange, emit_read_modify_write
from deuteron.backends.llvm.builder import I32, Builder, LType, Val
from deuteron.backends.llvm.levels import Placed
from deuteron.backends.llvm.registers import elem_bytes, storage_elem, to_register, to_storage
from deuteron.dtypes import DType
from deuteron.ir import For, Op, Value, While, walk
from deuteron.ir.pointer_roots import PointerRoots


@dataclass(frozen=True, slots=True)
class _Access:
    """One access: the array (None when it is not known), the place in it, and by which layout."""

    root: Value | None
    place: Place
    layout: Layout | None

    def may_meet(self, other: _Access, *, one_array: bool) -> bool:
        """Whether both may be of one array; with `one_array` arguments may be the same."""
        return one_array or None in (self.root, other.root) or self.root is other.root

    def is_by_the_threads_of(self, other: _Access) -> bool:
        """Whether the same elements are touched by the same threads, each by one."""
        alone = self.layout is not None and not self.layout.replicates
        return alone and (self.place, self.layout) == (other.place, other.layout)


@dataclass
class OpenAccesses:
    """What was read and written and may still be under way in other threads."""

    read: set[_Access] = field(default_factory=set[_Access])
    written: set[_Access] = field(default_factory=set[_Access])

    def copy(self) -> OpenAccesses:
        return OpenAccesses(set(self.read), set(self.written))

    def merge(self, other: OpenAccesses) -> None:
        self.read |= other.read
        self.written |= other.written

    def clear(self) -> None:
        self.read.clear()
        self.written.clear()

    def risks(self, *, writes: bool) -> set[_Access]:
        """What an access has to come after."""
        return self.written | self.read if writes else self.written


# For arrays that are apart, and for arguments that are the same array.
BothWays = tuple[OpenAccesses, OpenAccesses]

_GLOBAL = LType("ptr addrspace(1)")
_SCOPES = {"cta": 'syncscope("block") ', "gpu": 'syncscope("device") ', "sys": ""}
_LETTERS = {"i32": "r", "i64": "l", "float": "f", "double": "d"}
_CACHE = frozenset({".ca", ".cg", ".cs", ".cv", ".wb", ".wt"})
_EVICTION = {"evict_first": ".L1::evict_first", "evict_last": ".L1::evict_last"}


@dataclass(frozen=True, slots=True)
class _Word:
    """How a run of elements moves: `count` registers of `bits`, as PTX and LLVM call them."""

    bits: int
    count: int

    @property
    def ptx(self) -> str:
        vector = f".v{self.count}" if self.count > 1 else ""
        return f"{vector}.b{self.bits}"

    @property
    def constraint(self) -> str:
        return {64: "l", 32: "r"}.get(self.bits, "h")

    @property
    def type(self) -> LType:
        """8 bits travel in a register of 16."""
        return LType(f"i{max(16, self.bits)}")

    def registers(self, first: int) -> str:
        names = ",".join(f"${first + i}" for i in range(self.count))
        return f"{{{names}}}" if self.count > 1 else names


def _word(size: int) -> _Word:
    """The registers for `size` bytes: 1, 2, 4, 8 or 16."""
    return _Word(8 * size, 1) if size < 8 else _Word(32, size // 4)


class Accesses:
    """Writes the memory ops of one kernel."""

    def __init__(self, tiles: Tiles) -> None:
        self.tiles = tiles
        self.b = tiles.b
        self.cta = tiles.cta
        function = tiles.assignment.function
        self.roots = PointerRoots(function)
        self._params = function.params
        stores = (n for n in walk(function.body) if isinstance(n, Op) and is_memory_write(n))
        self._written = {root for op in stores for root in self.roots.all_of(op.operands[0])}
        # What was accessed since all threads last waited for each other.
        self._apart, self._one_array = OpenAccesses(), OpenAccesses()
        # What was accessed in each loop around the present place.
        self._loops: list[OpenAccesses] = []

    # -- ops --------------------------------------------------------------------------------
    def load(self, op: Op) -> Tile:
        """A load at the home of its result."""
        pointer = op.operands[0]
        element = pointer.type.pointee
        layout = self.tiles.assignment.homes[op.result] if op.result.type.shape else None
        self.order(pointer, layout, writes=False)
        pointers, masks, others = self._operands(op.operands, layout)
        run = self._run(op, layout)
        modifiers = _modifiers(op)
        loaded: list[Val] = []
        for start in range(0, len(pointers), run):
            stored = [to_storage(self.b, o, element) for o in others[start : start + run]]
            mask = masks[start] if masks else None
            loaded += self._load_run(pointers[start], mask, stored, run, element, modifiers)
        return Tile(layout, [to_register(self.b, val, element) for val in loaded])

    def store(self, op: Op) -> None:
        """A store where its access was assigned."""
        pointer = op.operands[0]
        element = pointer.type.pointee
        layout = self.tiles.assignment.access_layout(op)
        self.order(pointer, layout, writes=True)
        values = self._registers(op.operands[1], layout)
        pointers, masks, _ = self._operands((pointer, *op.operands[2:]), layout)
        run = self._run(op, layout)
        own = self.tiles.representative(layout)
        modifiers = _modifiers(op)
        for start in range(0, len(pointers), run):
            stored = [to_storage(self.b, v, element) for v in values[start : start + run]]
            mask = _both(self.b, masks[start] if masks else None, own)
            self._store_run(pointers[start], mask, stored, element, modifiers)

    def atomic(self, op: Op) -> Tile:
        """An atomic, done once an element; the result is what every holder of it gets."""
        layout = self.tiles.assignment.access_layout(op)
        operands = [self._registers(o, layout) for o in op.operands]
        own = self.tiles.representative(layout)
        with self._ordering(op):
            olds = [
                self._atomic_element(op, list(args), own) for args in zip(*operands, strict=True)
            ]
        if own is not None and self.tiles.assignment.is_used(op.result):
            olds = self._spread(olds, layout, own)
        return Tile(layout, olds)

    # -- operands ---------------------------------------------------------------------------
    def _registers(self, value: Value, layout: Layout | None) -> Sequence[Val]:
        if layout is None:
            return [self.tiles.scalar(value)]
        return self.tiles.registers(value, layout)

    def _operands(
        self, operands: Sequence[Value], layout: Layout | None
    ) -> tuple[Sequence[Val], Sequence[Val], Sequence[Val]]:
        """Addresses, masks and replacements (empty where not given)."""
        found = [self._registers(o, layout) for o in operands]
        found += [[] for _ in range(3 - len(found))]
        return found[0], found[1], found[2]

    def _run(self, op: Op, layout: Layout | None) -> int:
        """How many neighbouring registers one access moves."""
        if layout is None:
            return 1
        coalescing, facts = self.tiles.assignment.coalescing, self.tiles.assignment.facts
        pointer = op.operands[0]
        axis = coalescing.order(pointer)[0]
        run = min(coalescing.run(pointer), layout.run_length(axis))
        mask = op.operands[1 if op.name == "load" else 2 :][:1]
        for value in mask:
            run = min(run, facts.of(value).constancy[axis])
        return run

    # -- one access -------------------------------------------------------------------------
    def _global(self, pointer: Val) -> Val:
        return self.b.emit(f"addrspacecast {pointer} to {_GLOBAL}", _GLOBAL)

    def _load_run(
        self,
        pointer: Val,
        mask: Val | None,
        others: Sequence[Val],
        run: int,
        element: DType,
        modifiers: str,
    ) -> list[Val]:
        """Elements in their storage type."""
        elem = LType(storage_elem(element))
        size = elem_bytes(elem.elem)
        word = _word(size * run)
        if mask is None and not modifiers:
            vector = LType(elem.elem, run if run > 1 else 0)
            whole = self.b.load(vector, self._global(pointer), size * run)
            return [self.b.extract(whole, i) for i in range(run)] if run > 1 else [whole]
        results = [word.type] * word.count
        outs = ",".join([f"={word.constraint}"] * word.count)
        if mask is None:
            text = f"ld{modifiers}.global{word.ptx} {word.registers(0)}, [${word.count}];"
            words = self.cta.asm(text, f"{outs},l", [pointer], results)
        else:
            first = (
                self._packed(others, word) if others else [self.b.const(0, word.type)] * word.count
            )
            ties = ",".join(map(str, range(word.count)))
            place, predicate = word.count, word.count + 1
            text = f"@${predicate} ld{modifiers}.global{word.ptx} {word.registers(0)}, [${place}];"
            args = [pointer, mask, *first]
            words = self.cta.asm(text, f"{outs},l,b,{ties}", args, results)
        return self._unpacked(words, word, elem, run)

    def _store_run(
        self, pointer: Val, mask: Val | None, stored: Sequence[Val], element: DType, modifiers: str
    ) -> None:
        size = elem_bytes(storage_elem(element))
        word = _word(size * len(stored))
        words = self._packed(stored, word)
        ins = ",".join([word.constraint] * word.count)
        text = f"st{modifiers}.global{word.ptx} [${word.count}], {word.registers(0)};"
        if mask is None:
            self.cta.asm(text, f"{ins},l", [*words, pointer])
        else:
            guard = f"@${word.count + 1} "
            self.cta.asm(guard + text, f"{ins},l,b", [*words, pointer, mask])

    def _packed(self, elements: Sequence[Val], word: _Word) -> list[Val]:
        """Elements in storage type as the words that move them."""
        b = self.b
        bits = elements[0].type.bits
        whole = [self._bits(e) for e in elements]
        if bits > word.bits:  # 64 bits as two words
            halves: list[Val] = []
            for e in whole:
                halves.append(b.convert("trunc", e, "i32"))
                halves.append(b.convert("trunc", b.lshr(e, b.const(32, e.type)), "i32"))
            return halves
        per_word = word.bits // bits
        words: list[Val] = []
        for start in range(0, len(whole), per_word):
            words.append(self._joined(whole[start : start + per_word], word))
        return words

    def _bits(self, element: Val) -> Val:
        if element.type.elem == "ptr":
            return self.b.convert("ptrtoint", element, "i64")
        return self.b.bitcast(element, f"i{element.type.bits}")

    def _joined(self, elements: Sequence[Val], word: _Word) -> Val:
        b = self.b
        if len(elements) == 1:
            one = elements[0]
            return one if one.type == word.type else b.convert("zext", one, word.type.elem)
        whole = LType(f"i{word.bits}")
        return b.emit(f"bitcast {b.vector_of(elements)} to {whole}", whole)

    def _unpacked(self, words: Sequence[Val], word: _Word, elem: LType, run: int) -> list[Val]:
        """The inverse of `_packed`."""
        b, bits = self.b, elem.bits
        if bits > word.bits:
            wide = [b.convert("zext", w, "i64") for w in words]
            pairs = zip(wide[::2], wide[1::2], strict=True)
            whole = [b.or_(low, b.shl(high, b.const(32, high.type))) for low, high in pairs]
        elif bits == word.bits:
            whole = [w if w.type.bits == bits else b.convert("trunc", w, f"i{bits}") for w in words]
        else:
            vector = LType(f"i{bits}", word.bits // bits)
            parts = [b.emit(f"bitcast {w} to {vector}", vector) for w in words]
            whole = [b.extract(p, i) for p in parts for i in range(vector.lanes)]
        assert len(whole) == run
        if elem.elem == "ptr":
            return [b.convert("inttoptr", w, "ptr") for w in whole]
        return [b.bitcast(w, elem.elem) for w in whole]

    # -- atomics ----------------------------------------------------------------------------
    def _atomic_element(self, op: Op, args: list[Val], own: Val | None) -> Val:
        b, element = self.b, op.operands[1].type.dtype
        sem = op.attrs.get("sem") or "acq_rel"
        scope: str = op.attrs.get("scope") or "gpu"

        def update() -> list[Val]:
            if op.name == "atomic_cas":
                reach = _SCOPES[scope]
                return [emit_compare_exchange(b, args[0], args[1], args[2], element, sem, reach)]
            kind: str = op.attrs["kind"]
            if instruction := _atom(kind, element):
                letter = _LETTERS[storage_elem(element)]
                text = f"atom.relaxed.{scope}.global.{instruction} $0, [$1], $2;"
                args_in = [args[0], args[1]]
                return self.cta.asm(text, f"={letter},l,{letter}", args_in, [args[1].type])
            reach = _SCOPES[scope]
            return [emit_read_modify_write(b, kind, args[0], args[1], element, sem, reach)]

        masks = args[3 if op.name == "atomic_cas" else 2 :]
        guard = _both(b, masks[0] if masks else None, own)
        if guard is None:
            return update()[0]
        return self.tiles.levels.branch(guard, update, lambda: [self.tiles.zero(op.result)])[0]

    @contextmanager
    def _ordering(self, op: Op) -> Generator[None]:
        """The order that an atomic's `sem` asks for, of all that the program does around it.

        LLVM leaves it out of read-modify-writes.  The fences speak for the whole block because all
        its threads wait for each other between their other accesses and the atomic.
        """
        sem = op.attrs.get("sem") or "acq_rel"
        fence = f"fence {_SCOPES[op.attrs.get('scope') or 'gpu']}acq_rel"
        if sem == "relaxed":
            self.order(op.operands[0], self.tiles.assignment.access_layout(op), writes=True)
        if sem in ("release", "acq_rel"):
            self.wait()
            self.b.do(fence)
        yield
        if sem in ("acquire", "acq_rel"):
            self.b.do(fence)
            self.wait()

    def _spread(self, olds: Sequence[Val], layout: Layout | None, own: Val) -> list[Val]:
        """Results of the threads that acted, in all threads that stand for the same elements."""
        if layout is None:
            return [self.tiles.everywhere(olds[0], own)]
        b, size = self.b, max(1, olds[0].type.bits // 8)
        offset = self.cta.scratch(layout.numel * size)
        coords = layout.register_coords()
        places = [
            self.cta.shared(b.add(offset, b.mul(self.tiles.linear(layout, c), b.const(size, I32))))
            for c in coords
        ]

        def write() -> list[Val]:
            for old, place in zip(olds, places, strict=True):
                b.store(old, place, size)
            return []

        self.tiles.levels.branch(own, write, list)
        self.cta.barrier()
        return [b.load(olds[0].type, place, size) for place in places]

    # -- order between threads --------------------------------------------------------------
    def begin_loop(self) -> None:
        """What follows, until `end_loop`, may run several times."""
        self._loops.append(OpenAccesses())

    def end_loop(self, loop: For | While) -> None:
        """The body may run again: its last accesses may meet its first ones."""
        inside = self._loops.pop()
        for state, one_array in ((self._apart, False), (self._one_array, True)):
            pairs = chain(
                product(state.written, inside.read | inside.written),
                product(state.read, inside.written),
            )
            if any(
                last.may_meet(first, one_array=one_array) and _turns_meet(last, first, loop)
                for last, first in pairs
            ):
                self._wait(one_array=one_array)
        if self._loops:
            self._loops[-1].merge(inside)

    def order(self, pointer: Value, layout: Layout | None, *, writes: bool) -> None:
        """Let all threads wait when this access may meet another thread's of the same array.

        A program's accesses happen in its own order, whichever threads carry them out.  Two that
        have the same offsets in the same layout, each element in one thread, are carried out by the
        same threads and need no waiting.  Two arguments may be one array: where only that makes two
        accesses meet, threads wait only if it is so when the kernel runs.
        """
        place = place_of(pointer, self._params)
        accesses = [_Access(root, place, layout) for root in self.roots.all_of(pointer)]
        for state, one_array in ((self._apart, False), (self._one_array, True)):
            if any(
                not access.is_by_the_threads_of(before)
                and access.may_meet(before, one_array=one_array)
                for before in state.risks(writes=writes)
                for access in accesses
            ):
                self._wait(one_array=one_array)
        for state in (self._apart, self._one_array, *self._loops[-1:]):
            (state.written if writes else state.read).update(accesses)

    def open_accesses(self) -> BothWays:
        """What was read and written since all threads last waited, on the way to this place."""
        return self._apart.copy(), self._one_array.copy()

    def reopen(self, accesses: BothWays) -> None:
        """Another way leads to this place, on which these are open."""
        self._apart.merge(accesses[0])
        self._one_array.merge(accesses[1])

    def start_over(self, accesses: BothWays) -> None:
        """The code that follows comes after the place where just these were open."""
        self._apart, self._one_array = (state.copy() for state in accesses)

    def wait(self) -> None:
        """Let all threads of the block wait for each other."""
        self.cta.barrier()
        self._apart.clear()
        self._one_array.clear()

    def _wait(self, *, one_array: bool) -> None:
        """Wait; or, with `one_array`, only if two arguments are the same array."""
        if not one_array or self.tiles.assignment.function.attrs.get("aliased"):
            self.wait()
            return
        same = self._same_arrays()
        if same is not None:
            self.tiles.on_condition(same, self.cta.barrier)
        self._one_array.clear()

    def _same_arrays(self) -> Val | None:
        """Whether two arguments, one of which is written, are the same array; None if none can be.

        Arrays are the same or apart unless the function's attribute `aliased` says otherwise.
        """
        key = ("same arrays",)
        placed = self.tiles.levels.recall(key)
        if placed is not None:
            return placed.val
        pointers = [p for p in self._params if p.type.is_pointer]
        pairs = [(p, q) for i, p in enumerate(pointers) for q in pointers[:i]]
        pairs = [pair for pair in pairs if self._written.intersection(pair)]
        if not pairs:
            return None
        b = self.b
        with self.tiles.levels.at(0):
            found = b.const(0, LType("i1"))
            for p, q in pairs:
                found = b.or_(found, b.icmp("eq", self.tiles.scalar(p), self.tiles.scalar(q)))
        return self.tiles.levels.remember(key, Placed(found)).val


def _turns_meet(last: _Access, other: _Access, loop: For | While) -> bool:
    """Whether an access of one turn may meet another thread's of a later turn."""
    return not (last.is_by_the_threads_of(other) and keeps_apart(last.place, loop))


def _atom(kind: str, element: DType) -> str | None:
    """PTX's read-modify-write, with its type; None where LLVM has to make a loop of it."""
    bits = element.bits
    if bits not in (32, 64):
        return None
    match kind:
        case "add":
            return f"add.{'f' if element.is_floating() else 'u'}{bits}"
        case "and" | "or" | "xor":
            return f"{kind}.b{bits}"
        case "xchg":
            return f"exch.b{bits}"
        case _ if not element.is_floating():
            return f"{kind}.{'s' if element.is_int_signed() else 'u'}{bits}"
        case _:
            return None


def _both(b: Builder, left: Val | None, right: Val | None) -> Val | None:
    if left is None or right is None:
        return left or right
    return b.and_(left, right)


def _modifiers(op: Op) -> str:
    """PTX suffixes for cache hints and volatility."""
    if op.attrs.get("volatile"):
        return ".volatile"
    cache = op.attrs.get("cache_modifier") or ""
    eviction = _EVICTION.get(op.attrs.get("eviction_policy") or "", "")
    return (cache if cache in _CACHE else "") + eviction
