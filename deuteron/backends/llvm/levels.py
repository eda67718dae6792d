"""Nested places to put code, and what is already computed at each.

While a loop is being written its text is kept apart from what surrounds it, and joined to it when
the loop is done.  Until then code may still be added in front of the loop: a value is written at
the outermost level that knows all it needs.  So loop-invariant code is never inside the loop,
without a pass that would find it there and move it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from deuteron.backends.llvm.builder import I64, Builder, Code, Val

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A value and the level it was written at: any deeper level may use it."""

    val: Val
    level: int = 0


@dataclass(slots=True)
class Level:
    """A buffer of code (shared with the level around it when there is no branch between)."""

    code: Code
    keys: list[Key] = field(default_factory=list[Key])


class Levels:
    """A stack of levels over one Builder; the innermost is where the builder writes."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.stack: list[Level] = [Level(b.code)]
        self._known: dict[Key, Placed] = {}

    @property
    def depth(self) -> int:
        """The number of the innermost level."""
        return len(self.stack) - 1

    @contextmanager
    def at(self, level: int) -> Generator[None]:
        """Write at an outer level."""
        before = self.b.code
        self.b.code = self.stack[level].code
        yield
        self.b.code = before

    @contextmanager
    def scope(self) -> Generator[None]:
        """A level whose code runs on from the one around it but whose values end with it."""
        self.stack.append(Level(self.b.code))
        yield
        self._pop()

    @contextmanager
    def _buffer(self, label: str) -> Generator[Code]:
        before = self.b.code
        code = Code(label)
        self.b.code = code
        self.stack.append(Level(code))
        yield code
        self._pop()
        self.b.code = before

    @contextmanager
    def apart(self) -> Generator[None]:
        """Remember nothing from outside, and nothing from inside afterwards."""
        before, self._known = self._known, {}
        yield
        self._known = before

    def recall(self, key: Key) -> Placed | None:
        """What was remembered under a key, unless its level has ended."""
        return self._known.get(key)

    def remember(self, key: Key, placed: Placed) -> Placed:
        """Know a value until the level it was written at ends."""
        self._known[key] = placed
        self.stack[placed.level].keys.append(key)
        return placed

    def _pop(self) -> None:
        for key in self.stack.pop().keys:
            self._known.pop(key, None)

    # -- loops ------------------------------------------------------------------------------
    def counted(
        self,
        trips: int,
        step: int,
        carried: Sequence[Val],
        body: Callable[[Val, list[Val]], Sequence[Val]],
    ) -> list[Val]:
        """`for i in range(0, trips * step, step)` of at least one trip, i an i64."""
        b = self.b
        head, done = b.name("loop"), b.name("done")
        index = Val(f"%{b.name('i')}", I64)
        inside = [Val(f"%{b.name('c')}", v.type) for v in carried]
        with self._buffer(head) as code:
            after = list(body(index, inside))
            following = b.emit(f"add nuw nsw i64 {index.text}, {step}", I64)
            more = b.icmp("ult", following, b.const(trips * step, I64))
            b.branch_if(more, head, done)
            latch = b.code.block
        entry = b.code.block
        b.branch(head)
        first = [b.const(0, I64), *carried]
        self._phis(head, [index, *inside], first, [following, *after], entry, latch)
        b.code.lines += code.lines
        b.label(done)
        return after

    def guarded(
        self,
        carried: Sequence[Val],
        header: Callable[[list[Val]], Val],
        body: Callable[[list[Val]], Sequence[Val]],
    ) -> list[Val]:
        """`while header(carried): carried = body(carried)`; returns the carried values at the end.

        What `header` writes is done each time round and is known to the body.
        """
        b = self.b
        head, inner, done = b.name("head"), b.name("body"), b.name("done")
        inside = [Val(f"%{b.name('c')}", v.type) for v in carried]
        with self._buffer(head) as head_code:
            go_on = header(inside)
            with self._buffer(inner) as body_code:
                after = list(body(inside))
                latch = b.code.block
                b.branch(head)
            b.branch_if(go_on, inner, done)
        entry = b.code.block
        b.branch(head)
        self._phis(head, inside, carried, after, entry, latch)
        b.code.lines += [*head_code.lines, f"{inner}:", *body_code.lines]
        b.label(done)
        return inside

    def _phis(
        self,
        head: str,
        names: Sequence[Val],
        first: Sequence[Val],
        following: Sequence[Val],
        entry: str,
        latch: str,
    ) -> None:
        """Open block `head`: each name is its first value from `entry`, the next from `latch`."""
        self.b.code.lines.append(f"{head}:")
        self.b.code.lines += [
            f"  {n.text} = phi {n.type} [ {f.text}, %{entry} ], [ {s.text}, %{latch} ]"
            for n, f, s in zip(names, first, following, strict=True)
        ]

    # -- branches ---------------------------------------------------------------------------
    def branch(
        self,
        condition: Val,
        then: Callable[[], Sequence[Val]],
        otherwise: Callable[[], Sequence[Val]],
    ) -> list[Val]:
        """Write both sides of a branch; returns what they give, merged."""
        b = self.b
        labels = b.name("then"), b.name("else")
        join = b.name("join")
        sides: list[tuple[Code, Sequence[Val]]] = []
        for label, side in zip(labels, (then, otherwise), strict=True):
            with self._buffer(label) as code:
                values = side()
                b.branch(join)
            sides.append((code, values))
        b.branch_if(condition, *labels)
        for label, (code, _) in zip(labels, sides, strict=True):
            b.code.lines += [f"{label}:", *code.lines]
        b.label(join)
        (left_code, left), (right_code, right) = sides
        return [
            b.phi(x.type, [(x, left_code.block), (y, right_code.block)])
            for x, y in zip(left, right, strict=True)
        ]
