"""The exception tree.

    DeuteronError
    ├── UserError                    the caller's mistake; the message says what to do
    │   ├── CompilationError         in the kernel's source: file:line:column and a caret
    │   │   └── CompileTimeAssertionFailure   a `static_assert` did not hold
    │   ├── LaunchError              in the call: arguments, grid, options
    │   │   └── GlobalChangedError   a constant outside of the kernel is another by now
    │   ├── OutOfResources           the kernel needs more than the machine has (scratch, …)
    │   ├── DeviceError              a GPU or its driver is missing, refuses, or stopped a kernel
    │   ├── DeviceAssertionError     a `device_assert` did not hold while the kernel ran
    │   └── OutOfBoundsError         a checked kernel touched memory outside its arrays
    └── InternalError                ours; please report it

A CompilationError is located in a kernel, a LaunchError at the call that leaves this package's
user's own code; it is also a TypeError and a ValueError, as Python's own callers would expect.
"""

from __future__ import annotations

import inspect
import linecache
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import Any


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

    def code(self) -> str:
        """The text at the place, as far as it stands on one line; empty when it is unknown."""
        return self.source_line.rstrip("\n")[self.col : max(self.end_col, self.col + 1)]

    def excerpt(self) -> str:
        """The source line with a caret under the place, or nothing when the text is unknown."""
        if not self.source_line:
            return ""
        width = max(1, self.end_col - self.col)
        text = self.source_line.rstrip("\n")
        width = min(width, max(1, len(text) - self.col))
        return f"    {text}\n    {' ' * self.col}{'^' * width}"


UNKNOWN = Loc("<unknown>", 0, 0)

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_COMMANDS = _PACKAGE + "cli" + os.sep


def call_site() -> Loc:
    """The call, outside of this package, that is being carried out; UNKNOWN when there is none."""
    here = inspect.currentframe()
    frame = here.f_back if here is not None else None
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        if frame.f_code.co_filename.startswith(_COMMANDS):
            return UNKNOWN  # the command line calls by itself
        frame = frame.f_back
    return UNKNOWN if frame is None else _loc_of(frame)


def _loc_of(frame: FrameType) -> Loc:
    code = frame.f_code
    positions = islice(code.co_positions(), frame.f_lasti // 2, None)
    first, last, col, end_col = next(positions, (None, None, None, None))
    line = first or frame.f_lineno
    text = linecache.getline(code.co_filename, line, frame.f_globals).rstrip()
    encoded = text.encode()  # columns count bytes of it
    if col is None or end_col is None:
        col, end_col = len(encoded) - len(encoded.lstrip()), len(encoded)
    elif last != line:
        end_col = len(encoded)
    start, end = (len(encoded[:c].decode(errors="replace")) for c in (col, end_col))
    return Loc(code.co_filename, line, start, end, text, code.co_name)


def _placed(loc: Loc, message: str) -> str:
    """A message with its place in front, and the excerpt below its first line."""
    if loc is UNKNOWN:
        return message
    head, *rest = message.split("\n")
    excerpt = loc.excerpt()
    return "\n".join([f"{loc}: {head}", *filter(None, [excerpt]), *rest])


class DeuteronError(Exception):
    """Root of every error this package raises on purpose."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Any, ...]]:
        # The text is complete: an error that comes from another process must not be made anew.
        return _copy_of_error, (type(self), self.args, self.__dict__)


def _copy_of_error(
    cls: type[DeuteronError], args: tuple[object, ...], state: dict[str, Any]
) -> DeuteronError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class UserError(DeuteronError):
    """The caller's mistake."""


class InternalError(DeuteronError):
    """A broken invariant of the package itself."""


class CompilationError(UserError):
    """A mistake in a kernel's source.

    The message reads: place, excerpt with caret, what is wrong, expected and got, remedy, and for
    an error inside a called jit function the chain of calls.  `cause` is the ValueError that code
    written for Triton looks for in `__cause__`, in its words.
    """

    def __init__(
        self,
        message: str,
        loc: Loc = UNKNOWN,
        *,
        expected: str = "",
        got: str = "",
        remedy: str = "",
        cause: str = "",
    ) -> None:
        self.error_message = message
        if cause:
            self.__cause__ = ValueError(cause)
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
            code = caller.code()
            call = f": {code}" if code else ""
            parts.append(f"  called from {caller} in {caller.function or 'a kernel'}{call}")
            caller = caller.caller
        return "\n".join(parts)


class CompileTimeAssertionFailure(CompilationError):
    """A `static_assert` did not hold."""


class LaunchError(UserError, TypeError, ValueError):
    """A kernel was called wrongly: its arguments, grid or options.

    The message begins with the place of the call.
    """

    def __init__(self, message: str) -> None:
        self.error_message = message
        self.loc = call_site()
        super().__init__(_placed(self.loc, message))


class GlobalChangedError(LaunchError, RuntimeError):
    """A constant outside of a kernel is not what it was when the kernel was compiled."""


class OutOfResources(UserError):
    """A kernel needs more than there is.

    `name` is the resource, `required` and `limit` are in its unit (bytes for scratch).  `got` goes
    on after the latter, and says what takes the most; `loc` is where the kernel stands.
    """

    def __init__(
        self,
        name: str,
        required: int,
        limit: int,
        remedy: str = "",
        *,
        got: str = "",
        loc: Loc = UNKNOWN,
    ) -> None:
        self.name, self.required, self.limit = name, required, limit
        self.remedy, self.got, self.loc = remedy, got, loc
        text = (
            f"out of resource: {name}\n  expected: at most {limit:,}\n  got:      {required:,}{got}"
        )
        if remedy:
            text += f"\n  remedy:   {remedy}"
        super().__init__(_placed(loc, text))


class DeviceError(UserError, RuntimeError):
    """A GPU or its driver is not there, refuses what was asked, or stopped a kernel.

    The message begins with the place of the call.  `code` is the driver's name of the error, such
    as CUDA_ERROR_ILLEGAL_ADDRESS; empty when it did not come from there.
    """

    def __init__(self, message: str, *, code: str = "") -> None:
        self.error_message = message
        self.code = code
        self.loc = call_site()
        super().__init__(_placed(self.loc, message))


class DeviceAssertionError(UserError, AssertionError):
    """A `device_assert` did not hold while the kernel ran."""


class OutOfBoundsError(UserError):
    """A kernel run with checks touched memory outside the arrays it was given."""

    def __init__(self, message: str, loc: Loc = UNKNOWN) -> None:
        self.loc = loc
        remedy = "mask off the lanes that lie outside, or correct the offsets"
        super().__init__(_placed(loc, f"{message}\n  remedy:   {remedy}"))
