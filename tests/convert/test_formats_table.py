"""The tables of docs/reference/formats.md: every raw format, how it is known, and the tests by which no axis moves."""

from __future__ import annotations

import sys

import pytest

from tests.support import processes
from tests.support.tables import ROOT, functions, is_there, named_in, rows
from voxload.convert.sources.protocol import RawFormat
from voxload.convert.sources.registry import FORMATS

TESTS = ROOT / "tests" / "convert"
LAW = "test_no_axis_moves"
TABLE = rows(
    "reference/formats.md",
    "format",
    "recognised when",
    "axes, slowest first",
    "targets and attributes",
    "options",
    "needs",
)
PROOFS = rows("reference/formats.md", "format", "no axis moves: tests in `tests/convert/`")
NAMED = {name: named_in(cell) for name, cell in PROOFS}
"""Tests by the format whose axes they look at."""
BY_OPTION = ["Gadget-1 and Gadget-2 binary particles", "headerless binary"]
"""What only an option makes known: only the table of tests has it."""


def _sign(kind: RawFormat) -> str:
    """Return how a format is recognised: the first line of its `claims`."""
    first = (kind.claims.__doc__ or "").strip().splitlines()[0]
    return first.removeprefix("Tell whether ").removesuffix(".").replace("``", "`")


def test_every_format_has_a_row_in_the_order_of_asking() -> None:
    """No row is of anything else, and the table of tests goes on with what only an option makes known."""
    names = [known.name for known in FORMATS]
    assert [row[0] for row in TABLE] == names
    assert [name for name, _ in PROOFS] == names + BY_OPTION


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
def test_a_row_says_what_the_format_does(known: RawFormat) -> None:
    """Its sign is what `claims` says of itself, its axes are named, and by each of its tests none moves."""
    ((_, sign, axes, *_),) = (row for row in TABLE if row[0] == known.name)
    assert sign
    assert sign == _sign(known)
    assert axes
    assert all(LAW in test for test in NAMED[known.name])


@pytest.mark.parametrize("name", NAMED)
def test_every_test_of_the_table_is_there(name: str) -> None:
    """One that is renamed or removed is no proof any more."""
    assert [test for test in NAMED[name] if not is_there(test, TESTS)] == []


def test_no_law_is_forgotten() -> None:
    """Every test by which no axis moves in a source stands in the table."""
    files = (TESTS / "sources").glob("test_*.py")
    there = {f"sources/{path.name}::{name}" for path in files for name in functions(path) if name.startswith(LAW)}
    assert there - {test for tests in NAMED.values() for test in tests} == set()
    assert len(there) > len(FORMATS) / 2


@pytest.mark.long
def test_pytest_collects_every_test_of_the_table() -> None:
    """Pytest finds each of them by its name."""
    wanted = sorted({f"tests/convert/{test}" for tests in NAMED.values() for test in tests})
    words = ["--collect-only", "-q", "-p", "no:cacheprovider", "-m", "long or not long"]
    command = [sys.executable, "-m", "pytest", *words, *wanted]
    done = processes.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line}
    assert found == set(wanted)
