"""`tools/conformance.py`: reading reports and telling gaps from what has no meaning."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("conformance", ROOT / "tools" / "conformance.py")
assert _spec is not None
assert _spec.loader is not None
conformance = importlib.util.module_from_spec(_spec)
sys.modules["conformance"] = conformance
_spec.loader.exec_module(conformance)

REPORT = """<testsuites><testsuite>
<testcase name="test_a[1]"/>
<testcase name="test_a[2]"><failure message="KeyError: 'ptx'">the traceback</failure></testcase>
<testcase name="test_b"><error message="E: at 0x7f12 in /tmp/x/y.py">more</error></testcase>
<testcase name="test_c"><skipped message="why"/></testcase>
</testsuite></testsuites>"""


def outcome_of(tmp_path: Path):
    path = tmp_path / "report.xml"
    path.write_text(REPORT, encoding="utf-8")
    rule = conformance.Rule("reads PTX", re.compile("test_a"), re.compile("'ptx'"), True)
    outcome = conformance.Outcome(conformance.Suite("python/test_thing.py"))
    conformance.read_report(path, outcome, [rule])
    return outcome


def test_counts(tmp_path):
    outcome = outcome_of(tmp_path)
    assert (outcome.passed, outcome.failed, outcome.meaningless, outcome.skipped) == (1, 1, 1, 1)
    assert outcome.share == "50.0 %"


def test_the_table_names_every_failure_with_its_reason(tmp_path):
    text = conformance.render([outcome_of(tmp_path)])
    assert "| test_thing | 1 | 1 | 1 | 1 | 50.0 % | 0 |" in text
    assert "\n\n## Kernel libraries\n\n" in text
    gaps, meaningless = text.split("## What is missing")[1].split("## What has no meaning")
    assert "- **not explained: E: at 0x… in …/y.py** (1): `test_thing::test_b` (1)" in gaps
    assert "- **reads PTX** (1): `test_thing::test_a` (1)" in meaningless


def test_the_rules_can_be_read():
    assert all(rule.reason for rule in conformance.read_rules(conformance.REASONS))


def test_a_file_that_is_not_there_is_said_to_be(tmp_path):
    outcome = conformance.run_suite(tmp_path, conformance.SUITES[0], [])
    assert outcome.note == "not in this checkout"
    assert not outcome.died


def test_without_sources_it_is_skipped_with_a_reason(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("TRITON_SRC", raising=False)
    assert conformance.main(["--out", str(tmp_path / "out.md")]) == 0
    assert "TRITON_SRC names no checkout" in capsys.readouterr().out
    assert not (tmp_path / "out.md").exists()


def test_names_choose_files(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_SRC", str(tmp_path))
    out = tmp_path / "out.md"
    assert conformance.main(["--out", str(out), "test_tuple"]) == 0
    rows = [line for line in out.read_text(encoding="utf-8").split("\n") if "test_" in line]
    assert len(rows) == 1
    assert "test_tuple (not in this checkout)" in rows[0]


@pytest.mark.parametrize("count", [10, 500])
def test_messages_are_kept_short(count):
    shown = conformance.shorten("x" * count + "\nmore")
    assert len(shown) == min(count, conformance.MESSAGE_WIDTH)
