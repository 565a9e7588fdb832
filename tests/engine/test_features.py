"""The tables of the engine's page: what it computes beside other engines, and the tests that ours rests on."""

from __future__ import annotations

import pytest

from tests.support.tables import ROOT, is_there, named_in, rows

TESTS = ROOT / "tests" / "engine"
COLUMNS = (
    "feature",
    *("DistConv-PT ●", "DistConv C++", "ShardTensor ●", "torch DTensor 2.15 ●"),
    *("DistDL", "Mesh-TF", "XLA GSPMD ●", "MPI4DL", "voxload ●"),
)
"""Of the survey, ours the last; ● where an engine was run."""
FEATURES = rows("explanation/engine.md", *COLUMNS)
PROOFS = rows("explanation/engine.md", "feature", "tests in `tests/engine/`")
NONE = "none"
"""In the place of tests."""
UNTESTED = ["on a GPU", "inference that streams a volume tile by tile"]
"""What the survey or its readers ask for and no test here shows: only the table of tests has it."""


def test_the_table_of_tests_has_every_feature_and_says_what_no_test_shows() -> None:
    """The features of both tables are the same, in one order; behind them is what has none."""
    assert len(FEATURES) > len(UNTESTED)
    assert [name for name, _ in PROOFS] == [name for name, *_ in FEATURES] + UNTESTED
    assert [row for row in PROOFS if row[0] in UNTESTED] == [[name, NONE] for name in UNTESTED]


@pytest.mark.parametrize("row", FEATURES, ids=lambda row: row[0])
def test_every_entry_rests_on_tests_that_are_there(row: list[str]) -> None:
    """All engines have an entry, and one of ours that says correct names functions of files that pytest collects."""
    assert all(row)
    ((_, proofs),) = (proof for proof in PROOFS if proof[0] == row[0])
    assert row[-1].startswith("✔") == (proofs != NONE)
    named = [] if proofs == NONE else named_in(proofs)
    assert [test for test in named if not is_there(test, TESTS)] == []
