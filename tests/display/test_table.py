"""Parts of a notebook's HTML: texts are escaped and cut, tables end, and what is left out is counted."""

from __future__ import annotations

import doctest

import pytest

from voxload.display import table
from voxload.display.table import COLUMNS, ROWS, Listing, cut, facts_table, joined, wrapped

NASTY = "<script>alert('x')</script>&\"\x1b[2J\u202e"


def test_examples_hold() -> None:
    """What the docstrings show is what comes."""
    assert doctest.testmod(table).failed == 0


@pytest.mark.parametrize("length", [0, 1, 79, 80, 81, 10**6])
def test_a_text_is_as_long_as_asked_at_most(length: int) -> None:
    """A million letters cost no more than a hundred; begin and end are kept."""
    found = cut("a" * (length // 2) + "b" * (length - length // 2))
    assert len(found) == min(length, 80) or len(found) == 79
    assert found[:1] in {"", "a", "b"}
    assert (found[-1:] or "b") == "b"


def test_escapes_take_room() -> None:
    """A text that is made longer by being made printable is cut all the same."""
    assert len(cut("\x1b" * 80)) <= 80


def test_nothing_of_a_text_is_markup() -> None:
    """Names, texts, heads and titles."""
    listing = Listing(NASTY, (NASTY, "b"), ((NASTY, "1"),))
    for html in (listing.html(), facts_table({NASTY: NASTY})):
        assert "<script" not in html
        assert "&lt;script&gt;" in html
        assert "\x1b" not in html
        assert "\u202e" not in html
        assert '&"' not in html


def test_tables_end() -> None:
    """A million rows and a thousand columns are a small table that counts the rest."""
    wide = tuple(map(str, range(1000)))
    html = Listing("t", wide, (wide,) * 1000, total=10**6).html()
    assert html.count("<tr>") == ROWS + 1
    assert html.count("<td ") == ROWS * COLUMNS
    assert f"({10**6 - ROWS:,} rows and {1000 - COLUMNS} columns more)" in html
    facts = facts_table({str(place): "x" for place in range(1000)})
    assert facts.count("<tr>") == ROWS + 1
    assert f"and {1000 - ROWS} more" in facts


def test_names_are_counted_beyond_the_first() -> None:
    """Any iterable, once."""
    assert joined(iter("abcdefgh"), 3) == "a, b, c and 5 more"
    assert joined([]) == ""


def test_lines_break_between_parts() -> None:
    """A part that is longer than a line stands alone on one."""
    text = wrapped("Name", ["a" * 30, "b" * 10, "c" * 10], 28)
    assert text.splitlines() == [f"Name({'a' * 30},", f"     {'b' * 10}, {'c' * 10})"]
    assert wrapped("Name", [], 80) == "Name()"
