"""Parts of HTML: every text that comes from a result is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from voxload.benchmark.report.picture import Picture


def paragraph(text: str, *, kind: str = "") -> str:
    """Return a paragraph of plain text, of a class of the style where one is named."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def items(texts: Sequence[str]) -> str:
    """Return a line of plain text each."""
    return f'<ul class="items">{"".join(f"<li>{escape(text)}</li>" for text in texts)}</ul>'


def labels(texts: Sequence[str]) -> str:
    """Return what a reader must know first; nothing where there is nothing."""
    if not texts:
        return ""
    notes = "".join(f"<li><b>Note</b> {escape(text)}</li>" for text in texts)
    return f'<ul class="labels">{notes}</ul>'


def facts(title: str, values: Mapping[str, str]) -> str:
    """Return a table of facts by name, without those that are empty."""
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>' for name, text in values.items() if text
    )
    return f'<table class="facts"><caption>{escape(title)}</caption><tbody>{rows}</tbody></table>'


def table(columns: Sequence[str], rows: Sequence[str], *, title: str) -> str:
    """Return a table of finished rows in a box that scrolls by itself."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(title)}"><table>'
        f"<caption>{escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def side_by_side(parts: Iterable[str]) -> str:
    """Return parts beside each other where there is room."""
    return f'<div class="side">{"".join(parts)}</div>'


def folded(title: str, inside: str, *, is_open: bool) -> str:
    """Return a part under a title that the reader opens and closes."""
    state = " open" if is_open else ""
    return f"<details{state}><summary><h2>{escape(title)}</h2></summary>{inside}</details>"


def row(name: str, cells: Sequence[str], *, small: Sequence[str] = ()) -> str:
    """Return a row of a table: its name, then a cell each, with a second line where `small` has one."""
    below = [f"<small>{escape(text)}</small>" if text else "" for text in small] or [""] * len(cells)
    found = "".join(f"<td>{escape(cell)}{extra}</td>" for cell, extra in zip(cells, below, strict=True))
    return f'<tr><th scope="row">{escape(name)}</th>{found}</tr>'


def figure(picture: Picture) -> str:
    """Return a plot with its title and caption; who does not see it gets its description."""
    said = escape(f"{picture.title}. {picture.description}")
    svg = picture.svg().replace("<svg", f'<svg role="img" aria-label="{said}"', 1)
    return (
        f'<figure id="{escape(picture.key)}"><h3>{escape(picture.title)}</h3>{svg}'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def figures(pictures: Sequence[Picture]) -> str:
    """Return plots side by side where there is room."""
    return f'<div class="plots">{"".join(figure(picture) for picture in pictures)}</div>'
