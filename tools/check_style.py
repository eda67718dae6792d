"""The house rules that ruff and pyright do not know.

    python tools/check_style.py [ROOT]

Sizes of files and functions, module names, where the environment is read, and the direction of
imports.  Prints one line for each offence and exits with 1 when there is any.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_FILE_LINES = 600
MAX_EXAMPLE_LINES = 100
MAX_FUNCTION_LINES = 60
SOURCE_FOLDERS = ("deuteron", "tests", "tools", "examples", "benchmarks")
VAGUE_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "misc"})
ENVIRONMENT_READER = "deuteron/config.py"

# A module may import from its own layer and from those above it in this list.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "dtypes", "config"),
    ("ir",),
    ("passes",),
    ("backends",),
    ("runtime",),
    ("lang",),
    ("tiles", "tune", "dist"),
    ("__init__", "__main__", "language", "testing"),
    ("ops",),
    ("serve", "cli", "compat"),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
# The public face gathers names from everywhere below `ops`, and starts the command line.
FACE = frozenset({"__init__", "__main__", "language", "testing"})


@dataclass(frozen=True, slots=True)
class Source:
    """One parsed Python file; `path` is relative to the root, with forward slashes."""

    path: str
    lines: int
    tree: ast.Module

    @property
    def module(self) -> list[str]:
        """The dotted name's parts: `deuteron/ir/__init__.py` is `["deuteron", "ir"]`."""
        parts = self.path.removesuffix(".py").split("/")
        return parts[:-1] if parts[-1] == "__init__" else parts


@dataclass(frozen=True, slots=True)
class Offence:
    """A broken rule and its place."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def check_file_size(source: Source) -> Iterator[Offence]:
    """A file stops at 600 lines, an example at 100."""
    limit = MAX_EXAMPLE_LINES if source.path.startswith("examples/") else MAX_FILE_LINES
    if source.lines > limit:
        yield Offence(source.path, limit, f"file has {source.lines} lines, limit {limit}")


def check_function_size(source: Source) -> Iterator[Offence]:
    """A function stops at 60 lines, its decorators not counted."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > MAX_FUNCTION_LINES:
            message = f"function {node.name} has {lines} lines, limit {MAX_FUNCTION_LINES}"
            yield Offence(source.path, node.lineno, message)


def check_module_name(source: Source) -> Iterator[Offence]:
    """A module's name says what is inside."""
    for part in source.module:
        if part in VAGUE_NAMES:
            yield Offence(source.path, 1, f"`{part}` names nothing; say what is inside")


def check_environment(source: Source) -> Iterator[Offence]:
    """The package reads environment variables in config.py only."""
    if source.module[0] != "deuteron" or source.path == ENVIRONMENT_READER:
        return
    for node in ast.walk(source.tree):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "environb" | "getenv"):
                yield Offence(source.path, node.lineno, "read the environment in config.py")
            case ast.ImportFrom(module="os", names=names) if any(
                name.name in ("environ", "environb", "getenv") for name in names
            ):
                yield Offence(source.path, node.lineno, "read the environment in config.py")
            case _:
                pass


def check_import_direction(source: Source) -> Iterator[Offence]:
    """Imports inside the package point from the later layers to the earlier ones."""
    if source.module[0] != "deuteron":
        return
    layer = source.module[1] if len(source.module) > 1 else "__init__"
    if layer not in RANK:
        yield Offence(source.path, 1, f"`{layer}` has no layer; add it to LAYERS in check_style.py")
        return
    if layer in FACE:
        return
    for line, target in package_imports(source):
        if RANK.get(target, len(LAYERS)) > RANK[layer]:
            yield Offence(source.path, line, f"`{layer}` must not import `{target}`")


def package_imports(source: Source) -> Iterator[tuple[int, str]]:
    """Line and layer of every import from the package itself, inside functions too."""
    package = source.path.split("/")[:-1]
    for node in ast.walk(source.tree):
        names: list[list[str]] = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            names = [[*base, alias.name] for alias in node.names]
        else:
            continue
        for parts in names:
            if parts[0] == "deuteron":
                layer = parts[1] if len(parts) > 1 and parts[1] in RANK else "__init__"
                yield node.lineno, layer


RULES: tuple[Callable[[Source], Iterator[Offence]], ...] = (
    check_file_size,
    check_function_size,
    check_module_name,
    check_environment,
    check_import_direction,
)


def read_sources(root: Path) -> Iterator[Source]:
    """Every Python file of the source folders, parsed."""
    for folder in SOURCE_FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            name = path.relative_to(root).as_posix()
            yield Source(name, text.count("\n"), ast.parse(text, name))


def check(root: Path) -> list[Offence]:
    """All offences under `root`."""
    return [offence for source in read_sources(root) for rule in RULES for offence in rule(source)]


def main(argv: list[str]) -> int:
    """Print the offences; 0 when there are none."""
    root = Path(argv[0]) if argv else Path(__file__).resolve().parent.parent
    offences = check(root)
    for offence in offences:
        print(offence)
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
