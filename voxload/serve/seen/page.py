"""Page: a service as people see it in a browser, in HTML and SVG alone; pure.

Nothing comes from elsewhere and nothing runs in the browser: what jobs and files are called is text, whatever it says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from voxload.serve.seen.advice import Advice
from voxload.serve.seen.history import SOURCES, Span
from voxload.text import shown
from voxload.units import format_bytes

REFRESH = 5
"""Seconds until a browser asks again."""
_WIDTH, _HEIGHT, _LEFT = 720, 160, 64
_COLOURS = ("#2b7a4b", "#3b6ea5", "#c77f1b", "#b3372f")
"""Of `SOURCES`; told apart in grey and by the colour-blind, and named beside."""
_STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 50em; color: #222; background: #fff }
h1 { font-size: 1.3em } h2 { font-size: 1.05em; margin-top: 1.6em }
table { border-collapse: collapse } td, th { padding: .15em .9em .15em 0; text-align: right }
td:first-child, th:first-child { text-align: left } .none { color: #666 }
.advice { background: #eef4ea; padding: .5em .8em; border-left: 4px solid #2b7a4b }
svg text { font: 12px system-ui, sans-serif; fill: #444 }
"""


def page(
    tenants: Mapping[str, Mapping[str, Any]], spans: Mapping[str, Sequence[Span]], advice: Mapping[str, Advice | None]
) -> str:
    """Return the page of a service's tenants: their figures, what happened lately, and what would be of use."""
    parts = [f"<h1>voxload: the node's blocks</h1>{_levels(tenants)}"]
    for tenant, figures in tenants.items():
        title = f" of {_text(tenant)}" if len(tenants) > 1 else ""
        parts.append(_advice(advice.get(tenant), title))
        found = spans.get(tenant, ())
        parts.append(f"<h2>Where blocks came from{title}, a second</h2>{_stacked(found)}")
        storage = [(one.end, one.storage) for one in found]
        parts.append(f"<h2>Bytes of the storage{title}, a second</h2>{_line(storage, format_bytes)}")
        parts.append(f"<h2>Jobs{title}</h2>{_jobs(figures, found)}{_kept(figures)}")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>voxload</title>'
        f'<meta http-equiv="refresh" content="{REFRESH}"><style>{_STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>"
    )


def _text(words: object) -> str:
    return escape(shown(str(words)))


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    cells = "".join(f"<th>{_text(one)}</th>" for one in head)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{cells}</tr>{body}</table>"


def _levels(tenants: Mapping[str, Mapping[str, Any]]) -> str:
    rows = []
    for tenant, figures in tenants.items():
        for level in ("memory", "disk"):
            one = figures[level]
            if one["capacity"]:
                most = one.get("limit", one["capacity"])
                rows.append((tenant, level, format_bytes(one["used"]), format_bytes(most), one["blocks"]))
    return _table(("tenant", "level", "used", "of", "blocks"), rows) + _bars(tenants)


def _bars(tenants: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a bar for each tenant's levels: how full they are."""
    rows = [
        (f"{tenant}: {level}", figures[level]["used"] / figures[level].get("limit", figures[level]["capacity"]))
        for tenant, figures in tenants.items()
        for level in ("memory", "disk")
        if figures[level].get("limit", figures[level]["capacity"])
    ]
    parts = []
    for place, (name, share) in enumerate(rows):
        top, width = 24 * place, 400 * min(1.0, share)
        parts.append(
            f'<text x="0" y="{top + 15}">{_text(name)}</text>'
            f'<rect x="200" y="{top + 4}" width="400" height="14" fill="#e6e6e6"/>'
            f'<rect x="200" y="{top + 4}" width="{width:.1f}" height="14" fill="{_COLOURS[0]}"/>'
            f'<text x="610" y="{top + 15}">{share:.0%}</text>'
        )
    return f'<svg class="levels" width="{_WIDTH}" height="{24 * len(rows) + 4}">{"".join(parts)}</svg>'


def _stacked(spans: Sequence[Span]) -> str:
    """Return areas on top of each other, one for each source."""
    if len(spans) < 2:
        return '<p class="none">Nothing was seen yet.</p>'
    most = max(sum(one.blocks) for one in spans) or 1.0
    times = [one.end for one in spans]
    parts, below = [], [0.0] * len(spans)
    for place, colour in enumerate(_COLOURS):
        above = [low + one.blocks[place] for low, one in zip(below, spans, strict=True)]
        points = [*zip(times, above, strict=True), *zip(reversed(times), reversed(below), strict=True)]
        path = " ".join(f"{_x(t, times):.1f},{_y(v, most):.1f}" for t, v in points)
        parts.append(f'<polygon points="{path}" fill="{colour}"/>')
        below = above
    legend = "".join(
        f'<rect x="{_LEFT + 150 * place}" y="{_HEIGHT + 26}" width="12" height="12" fill="{_COLOURS[place]}"/>'
        f'<text x="{_LEFT + 150 * place + 17}" y="{_HEIGHT + 36}">{name}</text>'
        for place, name in enumerate(SOURCES)
    )
    return _framed("sources", parts, times, top=f"{most:.3g}", more=legend, height=_HEIGHT + 44)


def _line(points: Sequence[tuple[float, float]], words: Any) -> str:
    if len(points) < 2:
        return '<p class="none">Nothing was seen yet.</p>'
    times, most = [time for time, _ in points], max(value for _, value in points) or 1.0
    path = " ".join(f"{_x(time, times):.1f},{_y(value, most):.1f}" for time, value in points)
    parts = [f'<polyline points="{path}" fill="none" stroke="{_COLOURS[1]}" stroke-width="2"/>']
    return _framed("storage", parts, times, top=words(int(most)), more="", height=_HEIGHT + 24)


def _framed(name: str, parts: Sequence[str], times: Sequence[float], *, top: str, more: str, height: int) -> str:
    """Return a picture with its axes: time in seconds before now, and values from 0 to the largest."""
    return (
        f'<svg class="{name}" width="{_WIDTH}" height="{height}">{"".join(parts)}'
        f'<path d="M{_LEFT} 8V{_HEIGHT}H{_WIDTH}" fill="none" stroke="#888"/>'
        f'<text x="{_LEFT - 6}" y="16" text-anchor="end">{_text(top)}</text>'
        f'<text x="{_LEFT - 6}" y="{_HEIGHT}" text-anchor="end">0</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT + 16}">{times[-1] - times[0]:.0f} s ago</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT + 16}" text-anchor="end">now</text>{more}</svg>'
    )


def _x(time: float, times: Sequence[float]) -> float:
    return _LEFT + (_WIDTH - _LEFT) * (time - times[0]) / max(1e-9, times[-1] - times[0])


def _y(value: float, most: float) -> float:
    return _HEIGHT - (_HEIGHT - 8) * value / most


def _jobs(figures: Mapping[str, Any], spans: Sequence[Span]) -> str:
    if not figures["jobs"]:
        return '<p class="none">None is connected.</p>'
    last = spans[-1].stalls if spans else {}
    rows = [
        (
            job["name"],
            job["pid"],
            job["hits"],
            job["misses"],
            job["ahead"],
            f"{job['stall_seconds']:.1f} s",
            f"{last.get(job['name'], 0.0):.0%}",
        )
        for job in figures["jobs"]
    ]
    return _table(("job", "process", "from memory", "past it", "uses to come", "stalled", "of late"), rows)


def _kept(figures: Mapping[str, Any]) -> str:
    if not figures["kept"]:
        return ""
    rows = [(one["name"], f"{one['there']} of {one['blocks']}", format_bytes(one["bytes"])) for one in figures["kept"]]
    return f"<h2>Kept near</h2>{_table(('name', 'blocks', 'bytes'), rows)}"


def _advice(advice: Advice | None, title: str) -> str:
    if advice is None:
        return ""
    words = f"{format_bytes(advice.more)} more memory would save about {advice.seconds:.3g} s an epoch"
    return f'<p class="advice">{_text(words)}{title}.</p>'
