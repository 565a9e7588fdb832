"""The engine's features beside those of others: the document holds the table, and what it rests on is there."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from bench.documented import ROOT
from bench.engine_features import CORRECT, DOCUMENT, DOCUMENTED, FEATURES, PEERS, TESTS, UNTESTED, Feature, section


@cache
def _functions(name: str) -> frozenset[str]:
    """Return the names of a file's functions."""
    tree = ast.parse((ROOT / TESTS / name).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_the_document_holds_the_table() -> None:
    """What the script makes stands in docs/engine.md, once."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text.count(section()) == 1
    assert DOCUMENTED.filled(text) == text, "run python bench/engine_features.py --write"


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
def test_every_entry_rests_on_tests_that_are_there(feature: Feature) -> None:
    """All peers have an entry, and one of ours that says correct names functions of files that pytest collects."""
    assert len(feature.cells) == len(PEERS)
    assert all(feature.cells)
    assert feature.ours.startswith(CORRECT) == bool(feature.tests)
    for test in feature.tests:
        name, _, function = test.partition("::")
        assert name.startswith("test_")
        assert function.startswith("test_")
        assert function in _functions(name), test


def test_what_no_test_shows_is_said() -> None:
    """The table of tests says none of it."""
    for name in UNTESTED:
        assert f"| {name} | none |" in section()
