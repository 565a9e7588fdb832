"""Parts of HTML with their style: every text that comes from a result is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from voxload.benchmark.report.picture import Picture, declarations

_RULES = """
*, *::before, *::after { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 88rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 2.2rem 0 0.6rem; }
h3 { font-size: 1.02rem; margin: 1.2rem 0 0.4rem; }
figure h3 { margin-top: 0; }
p { margin: 0.3rem 0 0.8rem; max-width: 48rem; }
.verdict { font-size: 1.15rem; line-height: 1.4; max-width: 60rem; padding: 0.6rem 0.8rem; background: var(--panel);
  border-left: 4px solid var(--compute); }
.quiet { color: var(--muted); font-size: 0.9rem; }
.items { list-style: none; margin: 0.6rem 0; padding: 0; }
.labels { list-style: none; margin: 0.6rem 0; padding: 0; }
.labels li { margin: 0.4rem 0; padding: 0.45rem 0.7rem; background: var(--panel);
  border-left: 4px solid var(--warning); }
.labels b { color: var(--warning); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
caption { text-align: left; font-weight: 600; padding: 0.3rem 0; }
th, td { text-align: right; padding: 0.22rem 0.7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th:first-child, td:first-child { text-align: left; padding-left: 0; font-weight: normal; }
thead th { font-weight: 600; }
td small { display: block; color: var(--muted); }
.facts th { white-space: nowrap; color: var(--muted); }
.facts td { text-align: left; overflow-wrap: anywhere; }
.side { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 1rem 2.4rem; }
.side > * { max-width: 100%; min-width: 0; }
summary { cursor: pointer; margin-top: 1.6rem; }
summary h2 { display: inline; }
.plots { columns: 24rem 3; column-gap: 1rem; }
figure { margin: 0 0 1rem; break-inside: avoid; padding: 0.8rem; background: var(--panel);
  border-radius: 6px; min-width: 0; }
figure svg { display: block; width: 100%; max-width: 34rem; height: auto; margin: 0 auto; }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
figcaption { color: var(--muted); font-size: 0.88rem; margin-top: 0.4rem; }
code { font: 0.88rem/1.5 ui-monospace, monospace; }
pre { margin: 0.4rem 0; padding: 0.6rem 0.8rem; background: var(--panel); white-space: pre-wrap; }
@media (min-width: 40rem) { .wide th, .wide small { white-space: nowrap; } }
@media (max-width: 30rem) {
  body { padding: 0.7rem; }
  figure { padding: 0.5rem; }
  .facts th { white-space: normal; }
}
"""


def style() -> str:
    """Return the page's CSS; it names no other file."""
    light, dark = declarations(dark=False), declarations(dark=True)
    schemes = (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        # Paper is white, whatever the screen prefers.
        f"@media print {{ :root {{ {light} }} }}"
    )
    return schemes + _RULES


def paragraph(text: str, *, kind: str = "") -> str:
    """Return a paragraph of plain text, of a class of the style where one is named."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def verdict(lines: Sequence[str], parts: Sequence[str]) -> str:
    """Return what a report comes to: a sentence or a few, and finished parts below them."""
    said = "".join(f'<p class="verdict">{escape(line)}</p>' for line in lines)
    return f'<section id="verdict" aria-label="Verdict">{said}{"".join(parts)}</section>'


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
