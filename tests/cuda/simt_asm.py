"""What our inline assembly does, for the simulator of whole kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tests.cuda import simt_matrix as matrix
from tests.cuda.simt_memory import SHARED_START, Copy, GlobalMemory, SharedMemory
from tests.cuda.simt_types import Bits, fp8_table, from_floats, to_floats

_WARP, _GROUP = 32, 128


class Assembly:
    """Carries out the assembly of one block; knows which accumulators are still being added to."""

    def __init__(self, shared: SharedMemory, memory: GlobalMemory, threads: int) -> None:
        self.shared = shared
        self.memory = memory
        self.threads = threads
        self._copies: list[list[Copy]] = []
        self._open: list[Copy] = []
        self._reads: list[list[NDArray[np.int64]]] = []
        self._open_reads: list[NDArray[np.int64]] = []
        self._groups_done = 0
        # Names of values under way; struct results have an entry for each field.
        self._flights: dict[str | tuple[str, int], int] = {}
        self._rules: list[tuple[str, Callable[[re.Match[str]], None]]] = [
            (r"ldmatrix\.sync\.aligned\.m8n8\.x(\d)(\.trans)?\.shared\.b16 (.*)", self._ldmatrix),
            (r"mma\.sync\.aligned\.m16n8k(\d+)\.row\.col\.(\S+) (.*)", self._mma),
            (r"cp\.async\.c[ag]\.shared\.global (.*)", self._cp_async),
            (r"cp\.async\.commit_group", self._commit_copies),
            (r"cp\.async\.wait_group (\d+)", self._wait_copies),
            (r"fence\.proxy\.async\.shared::cta", self._fence),
            (r"wgmma\.fence\.sync\.aligned", lambda _: None),
            (r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.(\S+) (.*)", self._wgmma),
            (r"wgmma\.commit_group\.sync\.aligned", self._commit_wgmma),
            (r"wgmma\.wait_group\.sync\.aligned (\d+)", self._wait_wgmma),
            (r"cvt\.rna\.tf32\.f32 (.*)", self._round_tf32),
            (r"fma\.rn\.sat\.f32 (.*)", self._saturated_fma),
            (r"cvt\.rn\.f16x2\.(e4m3|e5m2)x2 (.*)", self._widen),
            (r"ld\.global\.(?:v(\d)\.)?b(\d+) (.*)", self._load),
            (r"st\.global\.(?:v(\d)\.)?b(\d+) (.*)", self._store),
        ]

    # -- who may use what -------------------------------------------------------------------
    def check_use(self, name: str) -> None:
        """An ordinary instruction reads a value."""
        group = self._flights.get(name)
        assert group is None or group < self._groups_done, f"{name} is still being added to"

    def moved(self, source: str, target: str, rows: NDArray[np.bool_]) -> None:
        """A phi passes a value on."""
        if source in self._flights:
            self._flights[target] = self._flights[source]
        elif rows.any():
            self._flights.pop(target, None)

    def extracted(self, whole: str, place: int, target: str) -> None:
        if (whole, place) in self._flights:
            self._flights[target] = self._flights[whole, place]
        else:
            self._flights.pop(target, None)

    def finish(self) -> None:
        """At the end of the kernel nothing is under way."""
        assert not self._open
        assert not self._open_reads
        assert not any(self._copies), "copies were never waited for"
        assert self._groups_done == len(self._reads), "wgmma was never waited for"

    # -- statements -------------------------------------------------------------------------
    def run(
        self,
        text: str,
        constraints: str,
        names: Sequence[str],
        args: Sequence[Bits],
        result: str,
        active: NDArray[np.bool_],
    ) -> Bits | list[Bits]:
        """Carry out a statement; its results."""
        kinds = [c for c in constraints.split(",") if not c.startswith("~")]
        outputs = sum(kind.startswith("=") for kind in kinds)
        self.active = active
        self._names = ["", *names]
        self._result = result
        self._outputs = outputs
        self._tied = {int(k): i for i, k in enumerate(kinds[outputs:]) if k.isdigit()}
        self._slots: list[Bits] = [np.zeros((self.threads, 1), np.uint64) for _ in range(outputs)]
        for kind, name, value in zip(kinds[outputs:], names, args, strict=True):
            if kind.isdigit():
                self._slots[int(kind)] = value.copy()
            if "wgmma" not in text:
                self.check_use(name)
            self._slots.append(value)
        self._arguments = names
        for statement in filter(None, re.split(r";(?:\\0A)?", text)):
            self._statement(statement.strip())
        found = self._slots[:outputs]
        self._note_flights(text)
        return found[0] if outputs == 1 else found

    def _statement(self, text: str) -> None:
        self.guard = self.active
        if guarded := re.fullmatch(r"@\$(\d+) (.*)", text):
            self.guard = self.active & (self._slots[int(guarded[1])][:, 0] != 0)
            text = guarded[2]
        for pattern, rule in self._rules:
            if found := re.fullmatch(pattern, text):
                rule(found)
                return
        raise AssertionError(f"unknown assembly: {text}")

    def _note_flights(self, text: str) -> None:
        for place in range(self._outputs):
            key = self._result if self._outputs == 1 else (self._result, place)
            self._flights.pop(key, None)
            if "mma_async" in text:
                self._flights[key] = len(self._reads) - 1
            elif "wait_group" in text and place in self._tied:
                group = self._flights.get(self._arguments[self._tied[place]])
                if group is not None and group >= self._groups_done:
                    self._flights[key] = group

    def _operand_lists(self, text: str) -> list[list[int]]:
        """Slot numbers of operands, those in braces together; constants left out."""
        found = re.findall(r"\{([^}]*)\}|(\$\d+)", text)
        return [[int(n) for n in re.findall(r"\$(\d+)", a or b)] for a, b in found]

    def _address(self, text: str, slot: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Guarded threads, and the addresses that `[$slot+constant]` means in them."""
        found = re.search(rf"\[\${slot}(?:\+(\d+))?\]", text)
        assert found is not None
        threads = np.flatnonzero(self.guard)
        return threads, self._slots[slot][threads, 0].astype(np.int64) + int(found[1] or 0)

    # -- memory -----------------------------------------------------------------------------
    def _load(self, found: re.Match[str]) -> None:
        count, size = int(found[1] or 1), int(found[2]) // 8
        outputs, (pointer,) = self._operand_lists(found[3])
        threads, starts = self._address(found[3], pointer)
        data = self.memory.read(starts, count * size).reshape(-1, count, size)
        padded = np.zeros((len(threads), count, 8), np.uint8)
        padded[..., :size] = data
        words = padded.view("<u8")[..., 0]
        for place, slot in enumerate(outputs):
            self._slots[slot][threads, 0] = words[:, place]

    def _store(self, found: re.Match[str]) -> None:
        size = int(found[2]) // 8
        (pointer,), inputs = self._operand_lists(found[3])
        threads, starts = self._address(found[3], pointer)
        words = np.stack([self._slots[slot][threads, 0] for slot in inputs], axis=1)
        data = np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape, 8)
        self.memory.write(starts, data[..., :size].reshape(len(threads), size * len(inputs)))

    def _cp_async(self, found: re.Match[str]) -> None:
        (target,), (source,), *rest = self._operand_lists(found[1])
        constant = re.search(r"\], (\d+)", found[1])
        assert constant is not None
        size = int(constant[1])
        threads, starts = self._address(found[1], target)
        assert (starts % size == 0).all()
        data = np.zeros((len(threads), size), np.uint8)
        sizes = self._slots[rest[0][0]][threads, 0] if rest else np.full(len(threads), size)
        assert np.isin(sizes, (0, size)).all()
        full = sizes == size
        if full.any():
            sources = self._slots[source][threads, 0].astype(np.int64)
            data[full] = self.memory.read(sources[full], size)
        if len(threads):
            copy = Copy(threads, starts, data)
            self.shared.begin_copy(copy)
            self._open.append(copy)

    def _commit_copies(self, found: re.Match[str]) -> None:
        self._copies.append(self._open)
        self._open = []

    def _wait_copies(self, found: re.Match[str]) -> None:
        """Copies arrive as late as they may."""
        last = len(self._copies) - int(found[1])
        for number in range(max(0, last)):
            for copy in self._copies[number]:
                self.shared.end_copy(copy)
            self._copies[number] = []

    def _fence(self, found: re.Match[str]) -> None:
        self.shared.fence(np.flatnonzero(self.active))

    def _ldmatrix(self, found: re.Match[str]) -> None:
        assert self.active.all()
        count = int(found[1])
        outputs, (pointer,) = self._operand_lists(found[3])
        threads, starts = self._address(found[3], pointer)
        used = (threads & 31) < 8 * count
        rows = np.zeros((self.threads, 16), np.uint8)
        rows[used] = self.shared.read(threads[used], starts[used], 16)
        for warp in range(0, self.threads, _WARP):
            matrices = rows[warp : warp + 8 * count].reshape(count, 8, 16)
            words = matrix.ldmatrix(matrices, trans=bool(found[2]))
            for place, slot in enumerate(outputs):
                self._slots[slot][warp : warp + _WARP, 0] = words[:, place]

    # -- arithmetic -------------------------------------------------------------------------
    def _round_tf32(self, found: re.Match[str]) -> None:
        (output,), (value,) = self._operand_lists(found[1])
        bits = self._slots[value].astype(np.uint64)
        self._slots[output] = (bits + np.uint64(0x1000)) & np.uint64(0xFFFFE000)

    def _saturated_fma(self, found: re.Match[str]) -> None:
        output, *factors = (slot for (slot,) in self._operand_lists(found[1]))
        a, b, c = (to_floats(self._slots[slot], "float") for slot in factors)
        with np.errstate(all="ignore"):
            result = np.nan_to_num(np.clip(a * b + c, 0.0, 1.0), nan=0.0)
        self._slots[output] = from_floats(result, "float")

    def _widen(self, found: re.Match[str]) -> None:
        (output,), (value,) = self._operand_lists(found[2])
        codes = self._slots[value]
        halves = [
            from_floats(
                fp8_table(found[1])[(codes >> np.uint64(shift) & np.uint64(255)).astype(int)],
                "half",
            )
            for shift in (0, 8)
        ]
        self._slots[output] = halves[0] | halves[1] << np.uint64(16)

    def _accumulators(self, name: str, slots: Sequence[int], rows: slice) -> np.ndarray:
        words = [self._slots[slot][rows] for slot in slots]
        return matrix.numbers(matrix.elements(words, 16 if name == "f16" else 32), name)

    def _set_accumulators(
        self, name: str, slots: Sequence[int], rows: slice, values: np.ndarray
    ) -> None:
        bits = matrix.accumulated(values, name)
        for slot, word in zip(slots, matrix.words(bits, 16 if name == "f16" else 32), strict=True):
            self._slots[slot][rows] = word

    def _mma(self, found: re.Match[str]) -> None:
        assert self.active.all()
        k, (acc, a_name, b_name, _) = int(found[1]), found[2].split(".")
        d, a, b, c = self._operand_lists(found[3])
        for warp in range(0, self.threads, _WARP):
            rows = slice(warp, warp + _WARP)
            left = matrix.elements([self._slots[s][rows] for s in a], matrix.BITS[a_name])
            right = matrix.elements([self._slots[s][rows] for s in b], matrix.BITS[b_name])
            total = self._accumulators(acc, c, rows)
            total = matrix.mma(k, (a_name, b_name), left, right, total)
            self._set_accumulators(acc, d, rows, total)

    # -- wgmma ------------------------------------------------------------------------------
    def _wgmma(self, found: re.Match[str]) -> None:
        assert self.active.all()
        columns, k = int(found[1]), int(found[2])
        acc, a_name, b_name = found[3].split(".")
        d, a, (b,) = self._operand_lists(found[4])
        constants = [int(c) for c in re.findall(r", (\d)(?=,|$)", found[4])]
        keeps = constants[0]
        transposed = constants[3:] if a_name in ("f16", "bf16") else []
        if len(a) == 1 and "{" not in found[4].split("}, ", 1)[1]:
            a_transposed = bool(transposed and transposed[0])
        else:
            a_transposed = False
        b_transposed = bool(transposed and transposed[-1])
        for group in range(0, self.threads, _GROUP):
            rows = slice(group, group + _GROUP)
            if len(a) == 1:
                left = self._described(a[0], rows, 64, k, a_name, transposed=a_transposed)
            else:
                left = self._a_registers(a, rows, k, a_name)
            right = self._described(b, rows, columns, k, b_name, transposed=b_transposed).T
            self._add_product(acc, d, rows, left @ right, keeps=bool(keeps))

    def _described(
        self, slot: int, rows: slice, outer: int, k: int, name: str, *, transposed: bool
    ) -> np.ndarray:
        descriptors = np.unique(self._slots[slot][rows])
        assert len(descriptors) == 1, "a descriptor that differs within a warpgroup"
        size = matrix.BITS[name] // 8
        places = matrix.described(int(descriptors[0]), outer, k, size, transposed=transposed)
        offsets = places[..., None] - SHARED_START + np.arange(size)
        data = self.shared.begin_matrix(offsets)
        self._open_reads.append(offsets)
        padded = np.zeros((*places.shape, 8), np.uint8)
        padded[..., :size] = data
        return matrix.numbers(padded.view("<u8")[..., 0], name)

    def _a_registers(self, slots: Sequence[int], rows: slice, k: int, name: str) -> np.ndarray:
        bits = matrix.BITS[name]
        values = matrix.numbers(matrix.elements([self._slots[s][rows] for s in slots], bits), name)
        left = np.zeros((64, k))
        row, column = matrix.a_places(bits)
        for warp in range(4):
            left[16 * warp + row, column] = values[32 * warp : 32 * warp + 32]
        return left

    def _add_product(
        self, acc: str, d: Sequence[int], rows: slice, product: np.ndarray, *, keeps: bool
    ) -> None:
        row, column = matrix.d_places(product.shape[1])
        values = np.concatenate([product[16 * warp + row, column] for warp in range(4)])
        if keeps:
            values = values + self._accumulators(acc, d, rows)
        self._set_accumulators(acc, d, rows, values)

    def _commit_wgmma(self, found: re.Match[str]) -> None:
        self._reads.append(self._open_reads)
        self._open_reads = []

    def _wait_wgmma(self, found: re.Match[str]) -> None:
        """Groups end as late as they may."""
        last = len(self._reads) - int(found[1])
        for number in range(self._groups_done, max(self._groups_done, last)):
            for places in self._reads[number]:
                self.shared.end_matrix(places)
            self._reads[number] = []
        self._groups_done = max(self._groups_done, last)
