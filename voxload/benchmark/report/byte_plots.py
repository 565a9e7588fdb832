"""Plots of bytes: by tier, and as read over delivered."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from voxload.benchmark.measure.figures import SOURCES as KINDS
from voxload.benchmark.report.picture import (
    COMPUTE,
    PANEL,
    PEERS,
    SOURCES,
    STALL,
    TICKS,
    Picture,
    blank,
    legend,
    note,
    tidy,
)
from voxload.benchmark.report.result import Result
from voxload.benchmark.results.measures import BYTES, GB, middle, number
from voxload.files.pictures import drawing
from voxload.text import drawn

if TYPE_CHECKING:  # of the extra `plots`
    from matplotlib.axes import Axes

_LABELS = {"storage": "storage", "memory": "node memory", "disk": "node disk", "peer": "other ranks"}
_KERNEL = ("devices", "page cache or network")
"""What the kernel tells of a loader that says nothing itself."""


_Group = tuple[str, Sequence[Result], Sequence[Mapping[str, float]]]
"""Results that are counted alike: how, which, and the bytes of each by tier."""


def tier_picture(results: Sequence[Result]) -> Picture:
    """Return a bar for each result, parted by where its bytes came from: like beside like.

    Where all loaders count by themselves, that is shown. Where one does not, the kernel's counts of all stand above the
    own counts of those that have them: the two count different things, and share no axis.
    """
    own = [(result, found) for result in results if (found := _own(result)) is not None]
    telling, counted = [result for result, _ in own], [found for _, found in own]
    groups: list[_Group] = [("", results, counted)]
    if len(own) < len(results):
        groups = [("counted by the kernel", results, [_kernel(result) for result in results])]
        groups += [("counted by the loader itself", telling, counted)] if own else []
    heights = [len(found) for _, found, _ in groups]
    figure = blank(0.6 + 1.0 * len(groups) + 0.42 * sum(heights))
    panels = figure.subplots(len(groups), squeeze=False, height_ratios=heights)[:, 0]
    for panel, (title, shown, parts) in zip(panels, groups, strict=True):
        _draw(panel, shown, parts, title=title)
    legend(figure, *panels, columns=2)
    return Picture("tiers", "Bytes by tier", _caption(results, telling), _tier_words(groups), figure)


def _draw(panel: Axes, results: Sequence[Result], parts: Sequence[Mapping[str, float]], *, title: str) -> None:
    """Draw one bar for each result."""
    starts = [0.0] * len(results)
    for name, colour in zip((*_LABELS.values(), *_KERNEL), _colours(), strict=True):
        widths = [found.get(name, 0.0) / GB for found in parts]
        if not any(widths):
            continue
        hatch = "////" if name in _KERNEL else None
        places = range(len(results))
        panel.barh(
            places,
            widths,
            left=starts,
            height=0.62,
            color=colour,
            label=drawn(name),
            hatch=hatch,
            edgecolor=PANEL.light,
            linewidth=0,
        )
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    panel.set_yticks(range(len(results)), [result.short for result in results])
    panel.invert_yaxis()
    panel.set(xlabel="GB of a run, all ranks (1e9 bytes)")
    if title:
        panel.set_title(title, loc="left", fontsize="medium")
    panel.set_xlim(0, max(*starts, 1e-9) * 1.05)
    panel.xaxis.set_major_locator(drawing("matplotlib.ticker").MaxNLocator(TICKS))
    tidy(panel, grid="x")


def _colours() -> list[str]:
    return [SOURCES[name].light for name in (*_LABELS, "storage", "memory")]


def _own(result: Result) -> dict[str, float] | None:
    """Return the bytes of a run by tier as the loader counts them, medians; None where it counts nothing.

    A loader without tiers asks all of the storage.
    """
    told: list[Mapping[str, int]] = [run.figures["sources"] for run in result.document.runs]
    if any(told):
        return {_LABELS[kind]: middle([sources.get(kind, 0) for sources in told]) for kind in KINDS}
    asked = BYTES[1].median(result.document) * GB
    return {_LABELS["storage"]: asked} if math.isfinite(asked) else None


def _kernel(result: Result) -> dict[str, float]:
    """Return the bytes of a run as the kernel counts them, whatever the loader: from devices, and other read calls."""
    _, _, calls, devices = (measure.median(result.document) * GB for measure in BYTES)
    return dict(zip(_KERNEL, (devices, max(0.0, calls - devices)), strict=True))


def _caption(results: Sequence[Result], telling: Sequence[Result]) -> str:
    silent = [result.name for result in results if result not in telling]
    text = "Bytes of a run by where they came from; median of the repetitions."
    if not silent:
        return f"{text} As the loaders count them."
    return (
        f"{text} Hatched is what the kernel counts of read calls, the same for every loader, since "
        f"{', '.join(silent)} count nothing; blocks out of memory that ranks share are no read calls. Below is what "
        "the others count by themselves, which is to be compared among these alone."
    )


def _tier_words(groups: Sequence[_Group]) -> str:
    return "; ".join(
        f"{result.name}{f', {title}' if title else ''}: "
        + ", ".join(f"{number(nbytes / GB)} GB from {name}" for name, nbytes in found.items())
        for title, results, parts in groups
        for result, found in zip(results, parts, strict=True)
    )


_COLOURS = (COMPUTE, STALL, PEERS, SOURCES["disk"])
_HEIGHT = 0.2


def amplification_picture(results: Sequence[Result]) -> Picture:
    """Return four bars for each result: bytes delivered, asked of the storage, returned by read calls, from devices."""
    figure = blank(1.3 + 0.85 * len(results))
    panel = figure.subplots()
    values = [[measure.median(result.document) for measure in BYTES] for result in results]
    for place, (measure, colour) in enumerate(zip(BYTES, _COLOURS, strict=True)):
        lengths = [found[place] for found in values]
        places = [row + (place - 1.5) * _HEIGHT for row in range(len(results))]
        drawn = [0.0 if math.isnan(length) else length for length in lengths]
        panel.barh(places, drawn, height=_HEIGHT * 0.9, color=colour.light, linewidth=0, label=measure.label)
        for row, length in enumerate(lengths):
            _name(panel, places[row], length, whole=values[row][0])
    most = max((length for found in values for length in found if math.isfinite(length)), default=0.0)
    panel.set_yticks(range(len(results)), [result.short for result in results])
    panel.invert_yaxis()
    panel.set(xlabel="GB of a run, all ranks (1e9 bytes)", xlim=(0, 1.25 * most or 1))
    panel.xaxis.set_major_locator(drawing("matplotlib.ticker").MaxNLocator(TICKS))
    legend(figure, panel, columns=2)
    tidy(panel, grid="x")
    return Picture(
        "amplification",
        "Read amplification",
        "Bytes handed to the consumers, and what was read for them: as the loader asks, as read calls returned, and "
        "as devices gave. Beside a bar is its ratio to what was delivered.",
        "; ".join(_amplification_words(result, found) for result, found in zip(results, values, strict=True)),
        figure,
    )


def _name(panel: Axes, place: float, length: float, *, whole: float) -> None:
    text = "not counted" if math.isnan(length) else f"{length / whole:.2f}x" if whole else ""
    note(panel, text, (0.0 if math.isnan(length) else length, place))


def _amplification_words(result: Result, values: Sequence[float]) -> str:
    parts = (f"{measure.label} {number(value)} GB" for measure, value in zip(BYTES, values, strict=True))
    return f"{result.name}: {', '.join(parts)}"
