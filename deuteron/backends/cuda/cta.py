"""One block of threads (CTA) as code generation sees it: who is who, shared memory, barriers.

Everything here writes the code of one thread.  Shared memory is a stack: a region is taken at the
top and given back when its user is done, and whoever takes a region that others may still read
first waits for them, so that users need not know of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from deuteron.backends.cuda.target import WARP_SIZE, CudaTarget
from deuteron.backends.llvm.builder import I1, I32, I64, Builder, LType, Val

SHARED_PTR = LType("ptr addrspace(3)")
SHARED_SYMBOL = "shared_memory"
SHARED_ALIGN = 1024
_ALL_LANES = -1


class Cta:
    """Writes what all parts of a kernel need; `b` holds the code so far."""

    def __init__(self, target: CudaTarget, num_warps: int) -> None:
        self.b = Builder()
        self.b.native_bf16 = True
        self.target = target
        self.num_warps = num_warps
        self.thread = self._special_register("tid.x")
        self.lane = self.b.and_(self.thread, self.i32(WARP_SIZE - 1))
        self.warp = self.b.lshr(self.thread, self.i32(5))
        self.shared_bytes = 0
        self._top = 0
        self._read_since_barrier = False
        self._program: dict[int, Val] = {}

    def i32(self, value: int) -> Val:
        return self.b.const(value, I32)

    def _special_register(self, name: str) -> Val:
        return self.b.call(I32, f"llvm.nvvm.read.ptx.sreg.{name}", [])

    def program_id(self, axis: int) -> Val:
        return self._special_register(f"ctaid.{'xyz'[axis]}")

    def num_programs(self, axis: int) -> Val:
        return self._special_register(f"nctaid.{'xyz'[axis]}")

    # -- shared memory ----------------------------------------------------------------------
    def allocate(self, size: int, align: int = 128) -> int:
        """Take `size` bytes of shared memory until `release`; returns their offset."""
        start = -(-self._top // align) * align
        self._top = start + size
        self.shared_bytes = max(self.shared_bytes, self._top)
        return start

    @contextmanager
    def region(self) -> Generator[None]:
        """What is allocated inside is given back at the end."""
        top = self._top
        yield
        self._top = top
        self._read_since_barrier = True

    def scratch(self, size: int) -> Val:
        """The offset of `size` bytes that are free until the next call of this or `allocate`.

        Waits first for threads that may still read what lay there.
        """
        self.wait_for_readers()
        with self.region():
            return self.i32(self.allocate(size))

    def wait_for_readers(self) -> None:
        """Wait for threads that may still read what lay where something was allocated since."""
        if self._read_since_barrier:
            self.barrier()

    @property
    def allocated(self) -> int:
        """Bytes of shared memory that are taken at present."""
        return self._top

    def enter_loop(self) -> None:
        """The code that follows is run again after code that is not written yet."""
        self._read_since_barrier = True

    def barrier(self) -> None:
        """All threads of the block wait for each other; their accesses before come before."""
        self.b.call(None, "llvm.nvvm.barrier.cta.sync.aligned.all", [self.i32(0)])

    def shared(self, offset: Val | int, extra: int = 0) -> Val:
        """A pointer to byte `offset + extra` of shared memory."""
        if isinstance(offset, int):
            return self._at(Val(f"@{SHARED_SYMBOL}", SHARED_PTR), self.i32(offset + extra))
        pointer = self._at(Val(f"@{SHARED_SYMBOL}", SHARED_PTR), offset)
        return self._at(pointer, self.i32(extra)) if extra else pointer

    def _at(self, pointer: Val, offset: Val) -> Val:
        return self.b.emit(f"getelementptr i8, {pointer}, {offset}", SHARED_PTR)

    def shared_address(self, offset: Val | int) -> Val:
        """The 32-bit address of a byte of shared memory, as instructions in assembly want it."""
        return self.b.emit(f"ptrtoint {self.shared(offset)} to i32", I32)

    # -- threads ----------------------------------------------------------------------------
    def on_one_thread(self) -> Val:
        """True in the block's first thread."""
        return self.b.icmp("eq", self.thread, self.i32(0))

    def shuffle_xor(self, value: Val, mask: int) -> Val:
        """The value that lane `lane ^ mask` has."""
        return self._shuffle("bfly", value, self.i32(mask))

    def shuffle_index(self, value: Val, lane: Val) -> Val:
        """The value that a lane has."""
        return self._shuffle("idx", value, lane)

    def _shuffle(self, mode: str, value: Val, pick: Val) -> Val:
        def one(word: Val) -> Val:
            args = [self.i32(_ALL_LANES), word, pick, self.i32(WARP_SIZE - 1)]
            return self.b.call(I32, f"llvm.nvvm.shfl.sync.{mode}.i32", args)

        return through_words(self.b, value, one)

    # -- assembly ---------------------------------------------------------------------------
    def asm(
        self,
        text: str,
        constraints: str,
        args: Sequence[Val],
        results: Sequence[LType] = (),
        *,
        sideeffect: bool = True,
        convergent: bool = False,
    ) -> list[Val]:
        """PTX with `$0`… for results, then arguments.  LLVM keeps only those with side effects.

        `convergent` is for what a whole warp must carry out together.
        """
        b = self.b
        shown = ", ".join(str(a) for a in args)
        quoted = _quoted(text)
        flags = "asm sideeffect" if sideeffect else "asm"
        suffix = " convergent" if convergent else ""
        match results:
            case []:
                b.do(f'call void {flags} "{quoted}", "{constraints}"({shown}){suffix}')
                return []
            case [single]:
                call = f'call {single} {flags} "{quoted}", "{constraints}"({shown}){suffix}'
                return [b.emit(call, single)]
            case _:
                struct = b.struct(results)
                call = f'call {struct} {flags} "{quoted}", "{constraints}"({shown}){suffix}'
                whole = b.emit(call, struct)
                return [
                    b.emit(f"extractvalue {whole}, {i}", type) for i, type in enumerate(results)
                ]


def _quoted(text: str) -> str:
    """Text as it stands in the string constants of LLVM."""
    return "".join(
        chr(c) if 32 <= c < 127 and chr(c) not in '"\\' else f"\\{c:02X}" for c in text.encode()
    )


def through_words(b: Builder, value: Val, each: Callable[[Val], Val]) -> Val:
    """Apply a function of 32-bit words to a value of any type in registers."""
    type = value.type
    if type.elem == "ptr":
        whole = through_words(b, b.convert("ptrtoint", value, "i64"), each)
        return b.convert("inttoptr", whole, "ptr")
    if type.is_float:
        bits = b.bitcast(value, f"i{type.bits}")
        return b.bitcast(through_words(b, bits, each), type.elem)
    if type.bits == 64:
        low = each(b.convert("trunc", value, "i32"))
        high = each(b.convert("trunc", b.lshr(value, b.const(32, I64)), "i32"))
        wide = b.shl(b.convert("zext", high, "i64"), b.const(32, I64))
        return b.or_(wide, b.convert("zext", low, "i64"))
    if type.bits == 32:
        return each(value)
    narrow = each(b.convert("zext", value, "i32"))
    if type == I1:
        return b.icmp("ne", narrow, b.const(0, I32))
    return b.convert("trunc", narrow, type.elem)
