"""Page: the report of one or more results as one HTML file that needs no network and no script.

The verdict comes first, then labels, figures and plots; what was run, where and with which seeds comes last.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape

from voxload.benchmark.report import html
from voxload.benchmark.report.byte_plots import amplification_picture, tier_picture
from voxload.benchmark.report.html import style
from voxload.benchmark.report.picture import Picture
from voxload.benchmark.report.result import Result
from voxload.benchmark.report.speed_plots import latency_picture, throughput_picture
from voxload.benchmark.report.time_plots import epoch_picture, timeline_picture
from voxload.benchmark.results.compare import flat, host_facts
from voxload.benchmark.results.intervals import median_interval
from voxload.benchmark.results.measures import GB, GIB, GROUPS, MEANS, Measure, node_count, number
from voxload.benchmark.results.tables import interval_text, ranks_text
from voxload.benchmark.results.verdict import SPEED, judge

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""The browser itself refuses whatever the page would fetch or run."""


@dataclass(frozen=True, slots=True)
class Plots:
    """All plots of a report."""

    shared: tuple[Picture, ...]
    """Of all results together."""
    own: tuple[tuple[Picture, ...], ...]
    """Of each result by itself."""

    @property
    def every(self) -> tuple[Picture, ...]:
        """All of them."""
        return (*self.shared, *(picture for pictures in self.own for picture in pictures))


NO_PLOTS = Plots((), ())
"""Of a page that is written where nothing can be drawn."""


def draw(results: Sequence[Result]) -> Plots:
    """Return the plots of a report: throughput, latency, tiers, amplification; of each result timeline and epochs.

    Raises UsageError where there is no matplotlib.
    """
    makers = (throughput_picture, latency_picture, tier_picture, amplification_picture)
    ends = [f"-{place}" if len(results) > 1 else "" for place in range(1, len(results) + 1)]
    own = tuple(
        (timeline_picture(result, key=f"timeline{end}"), epoch_picture(result, key=f"epochs{end}"))
        for result, end in zip(results, ends, strict=True)
    )
    return Plots(tuple(make(results) for make in makers), own)


def page(results: Sequence[Result], plots: Plots, *, lack: str = "") -> str:
    """Return the report as HTML; `lack` says why it has no plots, where it has none."""
    title = f"I/O benchmark: {results[0].name if len(results) == 1 else f'{len(results)} results'}"
    parts = [f"<h1>{escape(title)}</h1>", _verdict(results), _headlines(results), _figures(results)]
    parts += ["<h2>Plots</h2>", html.labels([f"There are none: {lack}"])] if lack else _drawn(results, plots)
    parts += [html.folded(*_origin(result), is_open=len(results) == 1) for result in results]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(title)}</title><style>{style()}</style></head>\n"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _drawn(results: Sequence[Result], plots: Plots) -> list[str]:
    """Return all plots: of one result together, of several what they share first."""
    if len(results) == 1:
        return ["<h2>Plots</h2>", html.figures(plots.every)]
    own = [picture for pictures in plots.own for picture in pictures]
    return ["<h2>Plots</h2>", html.figures(plots.shared), "<h2>Over time</h2>", html.figures(own)]


def _verdict(results: Sequence[Result]) -> str:
    """Return which loader is the fastest, by how much, and whether that is sure; of one result what it came to."""
    if len(results) == 1:
        return html.verdict([_alone(results[0])], [])
    found = judge([(result.name, result.document) for result in results])
    tables = []
    for ranking in found.rankings:
        rows = [
            html.row(
                f"{place}. {one.known_as}",
                [number(one.speed), "" if one.lead is None else number(one.lead.ratio), one.sureness()],
            )
            for place, one in enumerate(ranking.places, 1)
        ]
        columns = (
            "loader (result)",
            "samples per second, median",
            "the first is so many times as fast",
            "is that sure?",
        )
        tables.append(html.table(columns, rows, title=ranking.about or "Ranking"))
        tables += [html.paragraph(note, kind="quiet") for note in ranking.notes]
    tables += [html.paragraph(text, kind="quiet") for text in found.apart]
    how = (
        "Ranked are results of equal ranks, samples, hosts and page cache. Sure means: the interval of the ratio of "
        "their runs, at a confidence of 95 % or more, lies above 1."
    )
    return html.verdict(found.headlines(), [*tables, html.paragraph(how, kind="quiet")])


def _alone(result: Result) -> str:
    document = result.document
    speeds = SPEED.known(document)
    several = f"{number(min(speeds))} to {number(max(speeds))} in {len(speeds)} runs" if len(speeds) > 1 else "one run"
    return (
        f"{document.workload.supply.loader} delivered {number(SPEED.median(document))} samples per second ({several}). "
        "One result is compared with nothing: name several to have loaders ranked."
    )


def _headlines(results: Sequence[Result]) -> str:
    """Return name and size of each result, then the labels, each once with the results that it is about."""
    lines = [
        f"{result.name}: {result.document.workload.supply.loader}, {ranks_text(result.document)}, "
        f"{result.document.started}"
        for result in results
    ]
    found: dict[str, list[str]] = {}
    for result in results:
        for label in result.document.labels:
            found.setdefault(label, []).append(result.name)
    told = [label if len(names) == len(results) else f"{', '.join(names)}: {label}" for label, names in found.items()]
    return html.items(lines) + html.labels(told)


def _figures(results: Sequence[Result]) -> str:
    """Return tables of figures, a column a result, each with its interval below."""
    columns = ("median", *(result.short for result in results))
    tables = [
        html.table(columns, [_row(measure, results) for measure in group if _is_known(measure, results)], title=title)
        for title, group in GROUPS.items()
    ]
    tables.append(html.table(columns, _rates(results), title="Delivered, by node and rank"))
    intervals = dict.fromkeys(interval_text(result.document) for result in results)
    units = "GB is 1e9 bytes, GiB is 2^30. A dash is what a loader does not count."
    note = " ".join((f"Small: the interval of the median. {' '.join(intervals)}", units, MEANS))
    return f"<h2>Figures</h2>{html.side_by_side(tables)}{html.paragraph(note, kind='quiet')}"


def _is_known(measure: Measure, results: Sequence[Result]) -> bool:
    return any(measure.known(result.document) for result in results)


def _row(measure: Measure, results: Sequence[Result]) -> str:
    cells = [number(measure.median(result.document)) for result in results]
    intervals = [median_interval(measure.known(result.document)) for result in results]
    small = ["" if found is None else f"{number(found.low)} to {number(found.high)}" for found in intervals]
    return html.row(measure.title, cells, small=small)


def _rates(results: Sequence[Result]) -> list[str]:
    """Return delivered bytes per second of a node and of a rank, in both units, means over nodes and ranks."""
    rates = [result.document.median("delivered_per_second") for result in results]
    nodes, ranks = [node_count(result.document) for result in results], [result.document.ranks for result in results]
    parts = (("all ranks", [1] * len(results)), ("a node", nodes), ("a rank", ranks))
    return [
        html.row(f"{who}, {unit}/s", [number(rate / factor / count) for rate, count in zip(rates, counts, strict=True)])
        for unit, factor in (("GB", GB), ("GiB", GIB))
        for who, counts in parts
    ]


def _origin(result: Result) -> tuple[str, str]:
    """Return where a result comes from, with a title: data set, hosts, workload, seeds and command."""
    document = result.document
    workload = flat(asdict(document.workload))
    cold = dict.fromkeys(run.cold.text for run in document.runs)
    last = {"started": document.started, "page cache": "; ".join(cold)}
    last["seeds of the runs"] = ", ".join(str(run.seed) for run in document.runs)
    tables = (
        html.facts("Data set", flat(document.data)),
        html.facts(f"Hosts: {len(document.hosts)}", host_facts(document)),
        html.facts("Workload", workload),
        html.facts("Runs", last),
    )
    command = f"<pre><code>{escape(shlex.join(document.command))}</code></pre>"
    return f"What was run: {result.name}", f"{html.side_by_side(tables)}<h3>Command</h3>{command}"
