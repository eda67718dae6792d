"""The source text of a kernel: its syntax tree, the places in it, and facts about its statements.

A `Source` is made once for each Python function, when a kernel that needs it is first compiled.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

from deuteron.errors import CompilationError, Loc

if TYPE_CHECKING:
    from deuteron.runtime.jit import JITFunction

_LIBRARY: Final = "deuteron.lang."

_sources: WeakKeyDictionary[FunctionType, Source] = WeakKeyDictionary()
_replaced: WeakKeyDictionary[JITFunction, Source] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel or of a jit function."""

    name: str
    kind: Any  # one of inspect.Parameter's kinds
    default: object
    is_constexpr: bool

    @property
    def has_default(self) -> bool:
        return self.default is not inspect.Parameter.empty

    @property
    def is_variadic(self) -> bool:
        return self.kind is inspect.Parameter.VAR_POSITIONAL

    @property
    def is_keyword_only(self) -> bool:
        return self.kind is inspect.Parameter.KEYWORD_ONLY


@dataclass(slots=True)
class Source:
    """The text of one Python function.

    A function of the language itself (`is_library`) has no places of its own: what goes wrong in it
    went wrong where it was called.  `lines` start at `first_line` of the file, that of the first
    decorator.  Line 1 of the tree is line `offset + 1` of the file.  `local_names` are those that
    the function assigns anywhere, which by Python's rule are never looked for outside.
    """

    tree: ast.FunctionDef
    file: str
    first_line: int
    offset: int
    lines: list[str]
    parameters: tuple[Parameter, ...]
    local_names: frozenset[str]
    has_walrus: bool
    is_library: bool
    _stores: dict[ast.stmt, frozenset[str]] = field(
        default_factory=dict[ast.stmt, "frozenset[str]"]
    )
    _returns: dict[ast.stmt, bool] = field(default_factory=dict[ast.stmt, bool])

    @property
    def name(self) -> str:
        return self.tree.name

    def loc(self, node: ast.AST, caller: Loc | None = None) -> Loc:
        """The place of a node; `caller` is where the enclosing function was called."""
        if self.is_library and caller is not None:
            return caller
        line: int = getattr(node, "lineno", self.tree.lineno)
        col: int = getattr(node, "col_offset", self.tree.col_offset)
        end_line: int = getattr(node, "end_lineno", line)
        end_col: int = getattr(node, "end_col_offset", col)
        text = self.text_of_line(line + self.offset)
        if end_line != line:
            end_col = len(text.encode())
        if not text.isascii():  # ast counts bytes, people count characters
            encoded = text.encode()
            col, end_col = len(encoded[:col].decode()), len(encoded[:end_col].decode())
        return Loc(self.file, line + self.offset, col, end_col, text, self.name, caller)

    def text_of_line(self, line: int) -> str:
        """A line of the file by its number, without its end; "" outside of the function."""
        index = line - self.first_line
        return self.lines[index].rstrip() if 0 <= index < len(self.lines) else ""

    def text(self) -> str:
        """The definition without its decorators, which say nothing about the code."""
        return "".join(self.lines[self.tree.lineno + self.offset - self.first_line :])

    def stores(self, loop: ast.For | ast.While) -> frozenset[str]:
        """Names that a loop's body assigns, the counters of loops inside it left out."""
        known = self._stores.get(loop)
        if known is None:
            names: set[str] = set()
            _collect_stores(loop.body, names)
            if self.has_walrus:
                _collect_walruses(loop, names)
            known = self._stores[loop] = frozenset(names)
        return known

    def escapes(self, statement: ast.stmt, *kinds: type[ast.stmt]) -> bool:
        """Whether a `break` or `continue` (or only of `kinds`) of the loop around stands inside."""
        return isinstance(statement, kinds or (ast.Break, ast.Continue)) or (
            isinstance(statement, ast.If)
            and any(self.escapes(inner, *kinds) for block in _blocks(statement) for inner in block)
        )

    def breaks(self, loop: ast.For | ast.While) -> bool:
        """Whether a loop has a `break` of its own."""
        return any(self.escapes(statement, ast.Break) for statement in loop.body)

    def returns(self, statement: ast.stmt) -> bool:
        """Whether a `return` stands inside a statement."""
        known = self._returns.get(statement)
        if known is None:
            blocks = _blocks(statement)
            known = isinstance(statement, ast.Return) or any(
                self.returns(inner) for block in blocks for inner in block
            )
            self._returns[statement] = known
        return known


def source_of(kernel: JITFunction) -> Source:
    """The source of a jit function.  Raises CompilationError when Python does not know it."""
    replaced = _replaced.get(kernel)
    if replaced is not None:
        return replaced
    function = cast(FunctionType, kernel.fn)
    known = _sources.get(function)
    if known is None:
        known = _sources[function] = _read(function)
    return known


def replace_source(kernel: JITFunction, text: str) -> None:
    """Let a jit function be compiled from another text, which must define one of the same name.

    Its own text gives it back its own places too.  Raises CompilationError when there is no `def`.
    """
    function = cast(FunctionType, kernel.fn)
    if text == _own_text(function):
        _replaced.pop(kernel, None)
        return
    source = _parse(function, text.splitlines(keepends=True))
    if source is None:
        raise _error(
            function,
            "",
            "the new source is not a function definition",
            (text.splitlines() or ["nothing"])[0],
            f"write `def {function.__name__}`",
        )
    _replaced[kernel] = source


def _own_text(function: FunctionType) -> str | None:
    """The source from `def` on, without indentation; None when there is none."""
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return None
    return text[text.find("def ") :]


def has_replaced_source(kernel: JITFunction) -> bool:
    """Whether `replace_source` gave a jit function another text than its Python function has."""
    return kernel in _replaced


def is_constexpr_annotation(annotation: object) -> bool:
    """True for `tl.constexpr`, also when annotations are kept as text."""
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] == "constexpr"
    return getattr(annotation, "__name__", "") == "constexpr"


def _read(function: FunctionType) -> Source:
    lines = _lines_by_indentation(function)
    source = _parse(function, lines) if lines else None
    if source is not None:
        return source
    try:
        lines, _ = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise _error(
            function,
            "",
            f"the source of `{function.__name__}` cannot be read",
            str(error),
            "define kernels in a file (or a notebook cell), not in text given to exec",
        ) from error
    source = _parse(function, lines)
    if source is None:
        raise _error(
            function,
            lines[0].rstrip(),
            f"the source of `{function.__name__}` is not a function definition",
            lines[0].strip(),
            "decorate a `def` with @jit; after editing a file, import it again",
        )
    return source


def _lines_by_indentation(function: FunctionType) -> list[str]:
    """The lines of a function: up to the first that is indented no more than its `def`.

    This finds the end without splitting the text into tokens, as `inspect` does, which takes half
    of the time to read a kernel.  It cuts too early in a string with lines that are indented less;
    such a text does not parse.
    """
    code = function.__code__
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)
    start = code.co_firstlineno - 1
    if not 0 <= start < len(lines):
        return []
    base = _indentation(lines[start])
    end = min(_last_line(code), len(lines))
    while end < len(lines) and (not lines[end].strip() or _indentation(lines[end]) > base):
        end += 1
    while not lines[end - 1].strip():
        end -= 1
    return lines[start:end]


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _last_line(code: CodeType) -> int:
    """The last line that any instruction comes from."""
    inner = [_last_line(const) for const in code.co_consts if isinstance(const, CodeType)]
    own = [line for _, _, line in code.co_lines() if line is not None]
    return max([code.co_firstlineno, *own, *inner])


def _parse(function: FunctionType, lines: list[str]) -> Source | None:
    """The source in some lines, or None when they do not define that function.

    That happens to lambdas, and to files that changed since they were imported.
    """
    file, first_line = function.__code__.co_filename, function.__code__.co_firstlineno
    text = "".join(lines)
    # A method or a nested function is indented: an `if` in front makes it a legal file without
    # moving a column or touching the strings inside.
    indented = text[:1].isspace()
    try:
        first = ast.parse("if True:\n" + text if indented else text, file).body[0]
    except (SyntaxError, IndexError):
        return None
    tree = first.body[0] if isinstance(first, ast.If) else first
    if not isinstance(tree, ast.FunctionDef) or tree.name != function.__code__.co_name:
        return None
    offset = first_line - (2 if indented else 1)
    parameters = tuple(_parameters(function))
    has_walrus = ":=" in text
    local_names = {p.name for p in parameters}
    _collect_stores(tree.body, local_names, counters=True)
    if has_walrus:
        _collect_walruses(tree, local_names)
    return Source(
        tree,
        file,
        first_line,
        offset,
        lines,
        parameters,
        frozenset(local_names),
        has_walrus,
        is_library=function.__module__.startswith(_LIBRARY),
    )


def _error(
    function: FunctionType, line: str, message: str, got: str, remedy: str
) -> CompilationError:
    code = function.__code__
    loc = Loc(code.co_filename, code.co_firstlineno, 0, len(line), line, function.__name__)
    expected = f"`def {function.__name__}(…):` with named parameters, in a file"
    return CompilationError(message, loc, expected=expected, got=got, remedy=remedy)


def _parameters(function: FunctionType) -> Iterable[Parameter]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            message = f"a kernel cannot take `**{parameter.name}`"
            got = f"**{parameter.name}"
            raise _error(function, "", message, got, "name the parameters, or pass a tuple")
        constexpr = is_constexpr_annotation(parameter.annotation)
        yield Parameter(parameter.name, parameter.kind, parameter.default, constexpr)


def _blocks(statement: ast.stmt) -> tuple[list[ast.stmt], ...]:
    match statement:
        case ast.If() | ast.For() | ast.While():
            return (statement.body, statement.orelse)
        case ast.With():
            return (statement.body,)
        case _:
            return ()


def _collect_stores(body: list[ast.stmt], names: set[str], *, counters: bool = False) -> None:
    """Names that statements assign; those that loops count with only when asked for."""
    for statement in body:
        match statement:
            case ast.Assign(targets=targets):
                for target in targets:
                    _collect_target(target, names)
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                _collect_target(target, names)
            case _:
                if counters and isinstance(statement, ast.For):
                    _collect_target(statement.target, names)
                for block in _blocks(statement):
                    _collect_stores(block, names, counters=counters)


def _collect_target(target: ast.expr, names: set[str]) -> None:
    match target:
        case ast.Name():
            names.add(target.id)
        case ast.Tuple() | ast.List():
            for element in target.elts:
                _collect_target(element, names)
        case _:
            pass


def _collect_walruses(loop: ast.stmt, names: set[str]) -> None:
    for node in ast.walk(loop):
        if isinstance(node, ast.NamedExpr):
            _collect_target(node.target, names)
