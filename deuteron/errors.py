"""The exception tree.

    DeuteronError
    ├── UserError                    the caller's mistake; the message says what to do
    │   ├── CompilationError         in the kernel's source: file:line:column and a caret
    │   │   └── CompileTimeAssertionFailure   a `static_assert` did not hold
    │   ├── LaunchError              in the call: arguments, grid, options
    │   ├── OutOfResources           the kernel needs more than the machine has (scratch, …)
    │   ├── DeviceAssertionError     a `device_assert` did not hold while the kernel ran
    │   └── OutOfBoundsError         a checked kernel touched memory outside its arrays
    └── InternalError                ours; please report it

CompilationError is also a SyntaxError-like located error; LaunchError is also a TypeError or a
ValueError where Python's own callers would expect one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Loc:
    """A place in a kernel's source.  `line` counts from 1, `col` from 0, as Python's ast does."""

    file: str
    line: int
    col: int
    end_col: int = 0
    source_line: str = ""
    function: str = ""
    caller: Loc | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col + 1}"

    def excerpt(self) -> str:
        """The source line with a caret under the place, or nothing when the text is unknown."""
        if not self.source_line:
            return ""
        width = max(1, self.end_col - self.col)
        text = self.source_line.rstrip("\n")
        width = min(width, max(1, len(text) - self.col))
        return f"    {text}\n    {' ' * self.col}{'^' * width}"


UNKNOWN = Loc("<unknown>", 0, 0)


class DeuteronError(Exception):
    """Root of every error this package raises on purpose."""


class UserError(DeuteronError):
    """The caller's mistake."""


class InternalError(DeuteronError):
    """A broken invariant of the package itself."""


class CompilationError(UserError):
    """A mistake in a kernel's source.

    The message reads: place, excerpt with caret, what is wrong, expected and got, remedy, and for
    an error inside a called jit function the chain of calls.
    """

    def __init__(
        self,
        message: str,
        loc: Loc = UNKNOWN,
        *,
        expected: str = "",
        got: str = "",
        remedy: str = "",
    ) -> None:
        self.error_message = message
        self.loc = loc
        self.expected = expected
        self.got = got
        self.remedy = remedy
        super().__init__(self._render())

    def _render(self) -> str:
        parts = [f"{self.loc}: {self.error_message}"]
        if excerpt := self.loc.excerpt():
            parts.append(excerpt)
        if self.expected:
            parts.append(f"  expected: {self.expected}")
        if self.got:
            parts.append(f"  got:      {self.got}")
        if self.remedy:
            parts.append(f"  remedy:   {self.remedy}")
        caller = self.loc.caller
        while caller is not None:
            parts.append(f"  called from {caller} in {caller.function or 'a kernel'}")
            caller = caller.caller
        return "\n".join(parts)


class CompileTimeAssertionFailure(CompilationError):
    """A `static_assert` did not hold."""


class LaunchError(UserError, TypeError, ValueError):
    """A kernel was called wrongly: its arguments, grid or options."""


class OutOfResources(UserError):
    """A kernel needs more than there is.

    `name` is the resource, `required` and `limit` are in its unit (bytes for scratch).
    """

    def __init__(self, name: str, required: int, limit: int, remedy: str = "") -> None:
        self.name, self.required, self.limit = name, required, limit
        text = f"out of resource: {name}, required {required:,}, limit {limit:,}"
        super().__init__(f"{text}\n  remedy:   {remedy}" if remedy else text)


class DeviceAssertionError(UserError, AssertionError):
    """A `device_assert` did not hold while the kernel ran."""


class OutOfBoundsError(UserError):
    """A kernel run with checks touched memory outside the arrays it was given."""

    def __init__(self, message: str, loc: Loc = UNKNOWN) -> None:
        self.loc = loc
        parts = [f"{loc}: {message}"]
        if excerpt := loc.excerpt():
            parts.append(excerpt)
        parts.append("  remedy:   mask off the lanes that lie outside, or correct the offsets")
        super().__init__("\n".join(parts))
