"""The table of raw formats: the document holds it, and every test that it names is collected."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from bench.convert_formats import BY_OPTION, DOCUMENT, DOCUMENTED, ROWS, TESTS, section, sign
from bench.documented import ROOT
from tests.support import processes
from voxload.convert.sources.registry import FORMATS

LAW = "test_no_axis_moves"
NAMED = {test for row in ROWS.values() for test in row.tests} | {test for tests in BY_OPTION.values() for test in tests}


def _laws(path: Path) -> set[str]:
    """Return the tests of a file that show that no axis moves, as the table names them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = (node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    return {f"{path.relative_to(ROOT / TESTS).as_posix()}::{name}" for name in names if name.startswith(LAW)}


def test_the_document_holds_the_table() -> None:
    """What the script makes stands in docs/formats.md, once."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text.count(section()) == 1
    assert DOCUMENTED.filled(text) == text, "run python bench/convert_formats.py --write"


def test_every_format_has_a_row_and_a_law() -> None:
    """Each format that is asked has a sign in words and a test by which no axis moves, and no other has."""
    assert [known.name for known in FORMATS if known.name not in ROWS] == []
    assert len(ROWS) == len(FORMATS)
    for name, row in ROWS.items():
        assert sign(name)
        assert row.axes
        assert row.tests, name
        assert all(LAW in test for test in row.tests), name


def test_no_law_is_forgotten() -> None:
    """Every test by which no axis moves in a source stands in the table."""
    there = {law for path in (ROOT / TESTS / "sources").glob("test_*.py") for law in _laws(path)}
    assert there - NAMED == set()
    assert len(there) > len(FORMATS) / 2


@pytest.mark.long
def test_pytest_collects_every_test_of_the_table() -> None:
    """Pytest finds each of them by its name: one that is renamed or removed is no proof any more."""
    wanted = sorted(f"{TESTS.as_posix()}/{test}" for test in NAMED)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *wanted]
    done = processes.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line}
    assert found == set(wanted)
