"""Parts of HTML for a notebook: every text is escaped here, cut where it is long, and put into tables of bounded size.

Styles stand at the elements: a notebook keeps no style sheet of ours, and colours are the notebook's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import islice

from voxload.text import shown

LETTERS = 80
"""Letters of a text that are shown; of a longer one, its begin and its end."""
ROWS = 32
"""Rows of a table that are shown."""
COLUMNS = 8
"""Columns of a listing that are shown."""
_NAME = 'style="text-align:left;vertical-align:top;white-space:nowrap;font-weight:normal;opacity:0.7"'
_VALUE = 'style="text-align:left;vertical-align:top"'
_HEAD = 'style="text-align:left"'
_CAPTION = 'style="text-align:left;caption-side:top"'


def cut(text: object, letters: int = LETTERS) -> str:
    """Return text on one line of so many letters at most, its middle left out where it is longer; pure.

    >>> cut("universe"), cut("universe-00000.zarr", 9)
    ('universe', 'univ…zarr')
    """
    # What nobody sees is not made printable either: a name may have a million letters.
    raw = str(text)
    half = (letters - 1) // 2
    if len(raw) > 2 * letters:
        raw = f"{raw[:letters]}\N{HORIZONTAL ELLIPSIS}{raw[-letters:]}"
    line = shown(raw)
    return line if len(line) <= letters else f"{line[:half]}\N{HORIZONTAL ELLIPSIS}{line[-half:]}"


def joined(names: Iterable[object], most: int = 6, *, letters: int = 40) -> str:
    """Return names with commas, the first few, and how many more there are where that is known; pure.

    >>> joined("abc"), joined(range(9), 2)
    ('a, b, c', '0, 1 and 7 more')
    """
    there = iter(names)
    found = ", ".join(cut(name, letters) for name in islice(there, most))
    left = sum(1 for _ in there)
    return f"{found} and {left:,} more" if left else found


def extents(shape: Iterable[int]) -> str:
    """Return extents as people write them.

    >>> extents((4, 512, 512))
    '4 x 512 x 512'
    """
    return " x ".join(map(str, shape))


def several(count: int, noun: str, nouns: str = "") -> str:
    """Return a count with its noun.

    >>> several(1, "batch", "batches"), several(2000, "rank")
    ('1 batch', '2,000 ranks')
    """
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


@dataclass(frozen=True, slots=True)
class Listing:
    """A table with a head; what is beyond `ROWS` and `COLUMNS` is counted, not shown."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """A text for each column."""
    total: int = 0
    """Rows that there are, where only the first of them are given."""

    def html(self) -> str:
        """Return the table."""
        head = "".join(f"<th {_HEAD}>{escape(cut(name))}</th>" for name in self.columns[:COLUMNS])
        body = "".join(
            f"<tr>{''.join(f'<td {_VALUE}>{escape(cut(text, 2 * LETTERS))}</td>' for text in row[:COLUMNS])}</tr>"
            for row in self.rows[:ROWS]
        )
        hidden = {
            "row": max(self.total, len(self.rows)) - min(len(self.rows), ROWS),
            "column": max(len(self.columns) - COLUMNS, 0),
        }
        left = " and ".join(several(count, what) for what, count in hidden.items() if count)
        more = f" ({left} more)" if left else ""
        return (
            f"<table><caption {_CAPTION}>{escape(cut(self.title))}{more}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


def facts_table(facts: Mapping[str, str]) -> str:
    """Return a table of facts by name, without those that are empty."""
    known = [(name, text) for name, text in facts.items() if text]
    rows = "".join(
        f'<tr><th scope="row" {_NAME}>{escape(cut(name))}</th><td {_VALUE}>{escape(cut(text, 2 * LETTERS))}</td></tr>'
        for name, text in known[:ROWS]
    )
    left = len(known) - ROWS
    more = f"<tr><th {_NAME}></th><td {_VALUE}>and {left:,} more</td></tr>" if left > 0 else ""
    return f"<table><tbody>{rows}{more}</tbody></table>"


def wrapped(name: str, parts: Sequence[str], width: int) -> str:
    """Return ``name(part, part)`` on lines of about so many letters, broken between parts.

    >>> print(wrapped("Grid", ["2 x 2 x 2 blocks", "rank 5 of 16"], 24))
    Grid(2 x 2 x 2 blocks,
         rank 5 of 16)
    """
    lines, indent = [f"{name}("], " " * (len(name) + 1)
    for place, part in enumerate(parts):
        text = part + (")" if place == len(parts) - 1 else ",")
        is_first = len(lines[-1]) == len(name) + 1
        if is_first:
            lines[-1] += text
        elif len(lines[-1]) + 1 + len(text) <= width:
            lines[-1] += f" {text}"
        else:
            lines.append(indent + text)
    return "\n".join(lines) if parts else f"{name}()"
