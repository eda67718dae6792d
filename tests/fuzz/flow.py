"""Steps of the generator: loops, branches and calls, with steps inside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from deuteron import dtypes as T
from tests.fuzz.access import layout
from tests.fuzz.author import NUMBERS, Author, Value

Step = Callable[[Author], None]
Inner = Callable[[Author, int], None]
DEEPEST = 2


def _condition(a: Author) -> str:
    """A scalar condition that differs between programs, loops or data."""
    kind = a.int(0, 2)
    if kind == 0:
        return f"pid == {a.scalar(a.int(0, 2))}"
    found = a.find(lambda v: not v.shape and v.dtype in (*NUMBERS, T.int1))
    if found is not None and kind == 1:
        return found.name if found.dtype == T.int1 else f"{found.name} > 1"
    tile = a.find(lambda v: v.rank == 1 and v.dtype.is_int())
    if tile is not None and tile.dtype != T.int1:
        return f"tl.max({tile.name}, 0) > {a.scalar(5)}"
    return "pid < 1"


def _carried(a: Author, count: int) -> list[Value]:
    """New variables that begin as copies of values; nothing is known of them later."""
    made: list[Value] = []
    for _ in range(count):
        x = a.tile((*NUMBERS, T.int1))
        name = a.name("c")
        a.emit(f"{name} = {x.name}")
        made.append(Value(name, x.dtype, x.shape, zero=x.is_float, dot=x.dot))
    a.values += made
    return made


def _update(a: Author, carried: list[Value]) -> None:
    """Assign the carried variables anew: each by itself, or traded at once."""
    pairs = [
        (x, y) for x in carried for y in carried
        if x is not y and x.dtype == y.dtype and x.shape == y.shape
    ]  # fmt: skip
    if pairs and a.flag():
        x, y = a.choice(pairs)
        a.emit(f"{x.name}, {y.name} = {y.name}, {x.name}")
        return
    for value in carried:
        x = a.find(lambda v, w=value: v.dtype == w.dtype and v.shape == w.shape)
        if x is None or x.name == value.name or a.flag(0.3):
            x = replace(value, name=_mix(a, value))
        a.emit(f"{value.name} = {x.name}")


def _mix(a: Author, value: Value) -> str:
    other = a.partner(value)
    safe = "-*" if value.dot or other.dot else "+-*"
    symbol = "^" if value.dtype == T.int1 else a.choice(safe)
    text = f"{value.name} {symbol} {other.name}"
    return text if value.dtype == T.int1 or not value.is_float else f"({text}) * 0.5"


def loop(a: Author, inner: Inner) -> None:
    """for, counting up or down, with or without break and continue."""
    carried = _carried(a, a.int(1, 3))
    i, trips = a.name("i"), a.int(0, 4)
    start, step = a.choice(((0, 1), (0, 1), (2, 1), (0, 3), (5, -1), (7, -2)))
    bounds = f"{a.scalar(start)}, {a.scalar(start + trips * step)}, {step}"
    if start == 0 and step == 1:
        bounds = a.scalar(trips)
    head = a.choice(("range({})", "range({})", "tl.range({})", "tl.range({}, num_stages=2)"))
    if "tl.range" not in head and a.flag(0.1):
        head, bounds = "tl.static_range({})", str(max(trips, 1))
    with a.block(f"for {i} in {head.format(bounds)}:"):
        a.values.append(Value(i, T.int32, (), whole=16))
        inner(a, a.int(1, 3))
        if a.flag(0.2):
            leave(a, i, carried)
        _update(a, carried)


def leave(a: Author, i: str, carried: list[Value]) -> None:
    """break or continue."""
    with a.block(f"if {a.choice((f'{i} == {a.scalar(1)}', _condition(a)))}:"):
        if a.flag():
            value = a.choice(carried)
            a.emit(f"{value.name} = {_mix(a, value)}")
        a.emit(a.choice(("break", "continue")))


def while_loop(a: Author, inner: Inner) -> None:
    """while, with a counter and a condition of data."""
    carried = _carried(a, a.int(1, 2))
    i, limit = a.name("i"), a.scalar(a.int(0, 4))
    a.emit(f"{i} = 0")
    test = f"{i} < {limit}"
    scalars = [v for v in carried if not v.shape and v.dtype != T.int1]
    if scalars and a.flag():
        test = f"({test}) & ({scalars[0].name} < 100)"
    with a.block(f"while {test}:"):
        a.values.append(Value(i, T.int32, (), whole=16))
        inner(a, a.int(1, 2))
        _update(a, carried)
        a.emit(f"{i} += 1")


def branch(a: Author, inner: Inner) -> None:
    """if and else, which give variables new values or store."""
    carried = _carried(a, a.int(1, 2))
    with a.block(f"if {_condition(a)}:"):
        inner(a, a.int(1, 2))
        _update(a, carried)
    if a.flag(0.6):
        with a.block("else:"):
            inner(a, a.int(1, 2))
            if a.flag():
                _update(a, carried)


def moving_pointer(a: Author, inner: Inner) -> None:
    """A tile of pointers carried through a loop."""
    shape = a.shape()
    dtype = a.choice(NUMBERS)
    trips, step = a.int(1, 4), a.choice((1, 2, 16, -1, -4))
    text, span = layout(a, shape, apart=False)
    moved = abs(step) * trips
    first = moved if step < 0 else 0
    name = a.array("x", dtype, span + moved + 1, "any")
    p, i = a.name("p"), a.name("i")
    acc = a.load_plain(dtype, shape)
    a.values.remove(acc)
    a.emit(f"{p} = {name} + {first} + {text}")
    with a.block(f"for {i} in range({a.scalar(trips)}):"):
        value = a.let(f"tl.load({p})", dtype, shape)
        other = a.choice((acc.name, f"({acc.name} + {value.name})"))
        test = f"{value.name} < {other}"
        a.emit(f"{acc.name} = tl.where({test}, {value.name}, {acc.name})")
        a.emit(f"{p} += {a.scalar(step) if step > 0 else step}")
    a.values.append(replace(acc, zero=acc.is_float))


CALLS = (
    "def early(p, q, flag: tl.constexpr):\n    if flag:\n        return p\n    return p + q",
    "def swapped(p, q, flag: tl.constexpr):\n    return q, p",
    "def twice(p, q, flag: tl.constexpr):\n    for _ in range(2):\n        p = p * q\n    return p",
    "def kept(p, q, flag: tl.constexpr):\n    r = p\n    if flag:\n        r = q - p\n"
    "    return tl.where(r > q, r, p)",
)


def call(a: Author, inner: Inner) -> None:
    """A call of another jit function."""
    x = a.tile(NUMBERS, lambda v: not v.dot)
    y = a.find(lambda v: v.dtype == x.dtype and v.shape == x.shape and not v.dot) or x
    text = a.choice(CALLS)
    arguments = f"{x.name}, {y.name}, {a.flag()}"
    zero = x.zero or y.zero
    name = a.function(text)
    if name == "swapped":
        first, second = a.name(), a.name()
        a.emit(f"{first}, {second} = swapped({arguments})")
        a.values += [Value(first, x.dtype, x.shape, y.whole, y.zero),
                     Value(second, x.dtype, x.shape, x.whole, x.zero)]  # fmt: skip
        return
    a.let(f"{name}({arguments})", x.dtype, x.shape, zero=zero)


def leave_program(a: Author, inner: Inner) -> None:
    """Some programs end here."""
    if a.depth == 0:
        with a.block(f"if {_condition(a)}:"):
            a.emit("return")


def debug(a: Author, inner: Inner) -> None:
    """Statements that change nothing."""
    a.emit(a.choice((
        f"tl.device_assert(pid < {a.programs})", f"tl.assume(pid < {a.programs})",
        "tl.debug_barrier()", "tl.static_assert(True)",
    )))  # fmt: skip


STEPS = (
    (loop, 3), (while_loop, 1), (branch, 3), (moving_pointer, 1), (call, 2), (debug, 1),
    (leave_program, 1),
)  # fmt: skip
