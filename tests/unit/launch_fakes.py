"""Stand-ins for front end and backend, and kernels written in LLVM IR, for tests of launching."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from deuteron.backends.cpu.kernel_info import AssertSite, KernelInfo, ParamInfo, PrintSite
from deuteron.backends.llvm.compile import compile_object, host_machine, load_object
from deuteron.dtypes import BY_SHORT
from deuteron.ir import Block, Function, Type, Value
from deuteron.lang.frontend import parse_element
from deuteron.runtime.cpu_backend import CpuBackend, CpuKernel
from deuteron.runtime.jit import JITFunction
from deuteron.runtime.options import LaunchOptions
from deuteron.runtime.protocols import Change, Hardware
from deuteron.runtime.specialize import ParamSpec, Specialization


class constexpr:
    """Looks like the language's, which lives above the runtime."""

    def __init__(self, value: Any) -> None:
        self.value = value


class const:
    """Looks like the language's mark of a pointer that is only read."""


def four(a: Any, b: Any, c: Any, n: Any, BLOCK: constexpr = 64):  # type: ignore[assignment]
    """Parameters of most kernels in these tests."""


EMPTY = """
define void @kernel(ptr %args, i64 %begin, i64 %end, ptr %scratch) {
  ret void
}
"""

# Adds 1 to out[pid] for each program, out being the first argument, and fills 1,000 bytes of
# scratch with the program's number while it works, adding 1,000,000 when they do not stay so.
COUNT = """
define void @kernel(ptr %args, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %outp = getelementptr i64, ptr %args, i64 4
  %out = load ptr, ptr %outp
  br label %loop
loop:
  %pid = phi i64 [ %begin, %entry ], [ %pid1, %next ]
  %more = icmp slt i64 %pid, %end
  br i1 %more, label %fill, label %done
fill:
  %i = phi i64 [ 0, %loop ], [ %i1, %fill ]
  %to = getelementptr i64, ptr %scratch, i64 %i
  store volatile i64 %pid, ptr %to
  %i1 = add i64 %i, 1
  %filling = icmp slt i64 %i1, 125
  br i1 %filling, label %fill, label %check
check:
  %j = phi i64 [ 0, %fill ], [ %j1, %check ]
  %bad = phi i64 [ 0, %fill ], [ %bad1, %check ]
  %from = getelementptr i64, ptr %scratch, i64 %j
  %seen = load volatile i64, ptr %from
  %differs = icmp ne i64 %seen, %pid
  %one = zext i1 %differs to i64
  %bad1 = add i64 %bad, %one
  %j1 = add i64 %j, 1
  %checking = icmp slt i64 %j1, 125
  br i1 %checking, label %check, label %next
next:
  %scaled = mul i64 %bad1, 1000000
  %delta = add i64 %scaled, 1
  %slot = getelementptr i64, ptr %out, i64 %pid
  %old = atomicrmw add ptr %slot, i64 %delta monotonic
  %pid1 = add i64 %pid, 1
  br label %loop
done:
  ret void
}
"""

# Copies the first 16 words of the args block to the first argument.
RECORD = """
define void @kernel(ptr %args, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %outp = getelementptr i64, ptr %args, i64 4
  %out = load ptr, ptr %outp
  %words = load [COUNT x i64], ptr %args
  store [COUNT x i64] %words, ptr %out
  ret void
}
"""

# Fails assert 0 in the first program whose number is the second argument or more.
FAIL = """
define void @kernel(ptr %args, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %limitp = getelementptr i64, ptr %args, i64 5
  %limit = load i64, ptr %limitp
  %controlp = getelementptr i64, ptr %args, i64 3
  %control = load ptr, ptr %controlp
  %bad = icmp sgt i64 %end, %limit
  br i1 %bad, label %fail, label %done
fail:
  %from = call i64 @llvm.smax.i64(i64 %begin, i64 %limit)
  %pids = getelementptr i64, ptr %control, i64 1
  store i64 %from, ptr %pids
  store i64 1, ptr %control
  ret void
done:
  ret void
}
declare i64 @llvm.smax.i64(i64, i64)
"""

# Prints the four floats at the first argument, in every program.
PRINT = """
declare void @deuteron_print(i64, ptr, ptr, i64)
define void @kernel(ptr %args, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %datap = getelementptr i64, ptr %args, i64 4
  %data = load ptr, ptr %datap
  %pids = alloca [3 x i64]
  store [3 x i64] zeroinitializer, ptr %pids
  br label %loop
loop:
  %pid = phi i64 [ %begin, %entry ], [ %pid1, %loop ]
  store i64 %pid, ptr %pids
  call void @deuteron_print(i64 0, ptr %pids, ptr %data, i64 4)
  %pid1 = add i64 %pid, 1
  %more = icmp slt i64 %pid1, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""

# Sleeps for 1 ms in every program, then counts it.
NAP = """
declare i32 @usleep(i32)
define void @kernel(ptr %args, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %outp = getelementptr i64, ptr %args, i64 4
  %out = load ptr, ptr %outp
  br label %loop
loop:
  %pid = phi i64 [ %begin, %entry ], [ %pid1, %loop ]
  %r = call i32 @usleep(i32 1000)
  %slot = getelementptr i64, ptr %out, i64 %pid
  %old = atomicrmw add ptr %slot, i64 1 monotonic
  %pid1 = add i64 %pid, 1
  %more = icmp slt i64 %pid1, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


# Writes into out[pid], out being the first argument, how many calls before this one had this tile
# store since its thread began the launch, or -1 where there is no store; naps for 1 ms.
STORE = """
declare i32 @usleep(i32)
define void @kernel(ptr %args, i64 %begin, i64 %end, ptr %scratch, ptr %store) {
entry:
  %outp = getelementptr i64, ptr %args, i64 4
  %out = load ptr, ptr %outp
  %r = call i32 @usleep(i32 1000)
  %none = icmp eq ptr %store, null
  br i1 %none, label %loop, label %count
count:
  %calls = load i64, ptr %store
  %more_calls = add i64 %calls, 1
  store i64 %more_calls, ptr %store
  br label %loop
loop:
  %number = phi i64 [ -1, %entry ], [ %calls, %count ], [ %number, %loop ]
  %pid = phi i64 [ %begin, %entry ], [ %begin, %count ], [ %pid1, %loop ]
  %slot = getelementptr i64, ptr %out, i64 %pid
  store i64 %number, ptr %slot
  %pid1 = add i64 %pid, 1
  %more = icmp slt i64 %pid1, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


@cache
def compiled(text: str) -> bytes:
    """The object of LLVM text."""
    return compile_object(text, host_machine()).obj


@cache
def address_of(text: str) -> int:
    """Where a kernel that needs no imports was loaded."""
    return load_object(compiled(text), ["kernel"])["kernel"]


@dataclass
class Image:
    """What a backend returns."""

    metadata: Mapping[str, Any]
    obj: bytes


@dataclass
class Frontend:
    """Lowers a kernel to an empty function that carries its specialisation."""

    changed: Change | None = None
    lowered: list[Specialization] = field(default_factory=list)
    gate: Callable[[], None] = lambda: None

    def cache_key(self, fn: JITFunction) -> str:
        return f"fake {fn.fn.__qualname__}"

    def globals_changed(self, fn: JITFunction) -> Change | None:
        return self.changed

    def forget(self) -> None:
        pass

    def replace_source(self, fn: JITFunction, text: str) -> None:
        self.lowered.clear()

    def lower(self, fn: JITFunction, spec: Specialization, hardware: Hardware | None = None) -> Any:
        self.gate()
        self.lowered.append(spec)
        params = tuple(Value(Type(parse_element(leaf.type)), leaf.name) for leaf in spec.leaves())
        return Function(fn.__name__, Block(params), ({},) * len(params), {"spec": spec})


@dataclass
class Backend:
    """Compiles any specialisation to one LLVM text."""

    text: str = EMPTY
    scratch_bytes: int = 0
    written: tuple[str, ...] = ()
    prints: tuple[PrintSite, ...] = ()
    asserts: tuple[AssertSite, ...] = ()
    name: str = "fake"
    compiled: list[LaunchOptions] = field(default_factory=list)
    interpreted: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def hardware(self) -> Hardware:
        return Hardware()

    def key(self) -> str:
        return f"{self.name} {self.text} {self.written} {self.scratch_bytes}"

    def compile(self, function: Any, options: LaunchOptions) -> Image:
        self.compiled.append(options)
        params = tuple(_param(leaf, self.written) for leaf in function.attrs["spec"].leaves())
        info = KernelInfo(
            "kernel", self.scratch_bytes, params, self.prints, self.asserts, llvm=self.text
        )
        return Image(info.to_json(), compiled(self.text))

    def load(self, name: str, metadata: Mapping[str, Any], obj: bytes) -> CpuKernel:
        return CpuBackend().load(name, metadata, obj)

    def interpret(self, function: Any, args: Any, grid: tuple[int, int, int]) -> None:
        self.interpreted.append((function, args, grid))


def _param(leaf: ParamSpec, written: tuple[str, ...]) -> ParamInfo:
    if leaf.type.startswith("*"):
        short = leaf.type.removeprefix("*").removeprefix("k")
        return ParamInfo(leaf.name, "pointer", BY_SHORT[short].name, leaf.name in written)
    dtype = BY_SHORT[leaf.type]
    return ParamInfo(leaf.name, "float" if dtype.is_floating() else "int", dtype.name)


def make(fn: Callable[..., Any], text: str = EMPTY, **options: Any) -> JITFunction:
    """A jit function of `fn` whose compiled code is `text`; backend options by name."""
    own = {name: options.pop(name) for name in Backend.__annotations__ if name in options}
    frontend = options.pop("frontend", None) or Frontend()
    return JITFunction(fn, frontend, backend=Backend(text, **own), **options)


def together(count: int, work: Callable[[int], object]) -> list[BaseException]:
    """Run `work(i)` in `count` threads that start at once; returns what they raised."""
    barrier = threading.Barrier(count)
    errors: list[BaseException] = []

    def one(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    return errors
