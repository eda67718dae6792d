"""The house rules hold for this repository, and each rule catches what it is there for."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_style", ROOT / "tools" / "check_style.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


checker = load_checker()


def offences(root: Path, path: str, text: str) -> list[str]:
    """The messages for a tree that holds this one file."""
    file = root / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return [str(offence) for offence in checker.check(root)]


def test_repository_keeps_the_rules() -> None:
    assert [str(offence) for offence in checker.check(ROOT)] == []


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("deuteron/ir/long.py", "x = 1\n" * 601, "file has 601 lines, limit 600"),
        ("examples/09_long.py", "x = 1\n" * 101, "file has 101 lines, limit 100"),
        ("deuteron/ir/a.py", "def f():\n" + "    x = 1\n" * 60, "function f has 61 lines"),
        ("deuteron/ir/utils.py", "", "`utils` names nothing"),
        ("deuteron/ir/a.py", "import os\nx = os.environ['A']\n", "a.py:2: read the environment"),
        ("deuteron/ir/a.py", "from os import getenv\n", "a.py:1: read the environment"),
        ("deuteron/ir/a.py", "from deuteron.lang import x\n", "`ir` must not import `lang`"),
        ("deuteron/ir/a.py", "from ..passes import x\n", "`ir` must not import `passes`"),
        ("deuteron/ir/a.py", "from .. import runtime\n", "`ir` must not import `runtime`"),
        ("deuteron/ir/a.py", "import deuteron\n", "`ir` must not import `__init__`"),
        ("deuteron/ir/a.py", "def f():\n    import deuteron.cli\n", "a.py:2: `ir` must not"),
        ("deuteron/nowhere/a.py", "", "`nowhere` has no layer"),
    ],
)
def test_each_rule_catches_its_offence(tmp_path: Path, path: str, text: str, expected: str) -> None:
    found = offences(tmp_path, path, text)
    assert len(found) == 1
    assert expected in found[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("deuteron/config.py", "import os\nx = os.environ['A']\n"),
        ("deuteron/cli/a.py", "import deuteron\nfrom deuteron.ops import matmul\n"),
        ("deuteron/passes/a.py", "from deuteron.ir import nodes\nfrom . import b\n"),
        ("deuteron/__main__.py", "from deuteron.cli.main import main\n"),
        ("tests/unit/a.py", "import os\nx = os.environ['A']\nimport deuteron.cli\n"),
    ],
)
def test_what_is_allowed_passes(tmp_path: Path, path: str, text: str) -> None:
    assert offences(tmp_path, path, text) == []
