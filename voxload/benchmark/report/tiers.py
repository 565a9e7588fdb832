"""The plot of bytes by tier."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.ticker import MaxNLocator

from voxload.benchmark.figures import SOURCES as KINDS
from voxload.benchmark.measures import BYTES, GB, middle, number
from voxload.benchmark.report.colours import PANEL, SOURCES
from voxload.benchmark.report.picture import TICKS, Picture, blank, legend, tidy
from voxload.benchmark.report.result import Result
from voxload.text import drawn

_LABELS = {"storage": "storage", "memory": "node memory", "disk": "node disk", "peer": "other ranks"}
_KERNEL = ("devices", "page cache or network")
"""What the kernel tells of a loader that says nothing itself."""


def tier_picture(results: Sequence[Result]) -> Picture:
    """Return a bar for each result, parted by where its bytes came from."""
    parts = [_parts(result) for result in results]
    figure = blank(1.6 + 0.42 * len(results))
    panel = figure.subplots()
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
    panel.set_xlim(0, max(*starts, 1e-9) * 1.05)
    panel.xaxis.set_major_locator(MaxNLocator(TICKS))
    if panel.get_legend_handles_labels()[0]:
        legend(figure, panel, columns=2)
    tidy(panel, grid="x")
    return Picture("tiers", "Bytes by tier", _caption(results, parts), _words(results, parts), figure)


def _colours() -> list[str]:
    return [SOURCES[name].light for name in (*_LABELS, "storage", "memory")]


def _parts(result: Result) -> dict[str, float]:
    """Return the bytes of a run by tier, medians.

    A loader without tiers asks all of the storage; where one does not count that, the kernel's counts serve.
    """
    told: list[Mapping[str, int]] = [run.figures["sources"] for run in result.document.runs]
    if any(told):
        return {_LABELS[kind]: middle([sources.get(kind, 0) for sources in told]) for kind in KINDS}
    _, asked, calls, devices = (measure.median(result.document) * GB for measure in BYTES)
    if math.isfinite(asked):
        return {_LABELS["storage"]: asked}
    return dict(zip(_KERNEL, (devices, max(0.0, calls - devices)), strict=True))


def _caption(results: Sequence[Result], parts: Sequence[Mapping[str, float]]) -> str:
    silent = [result.name for result, found in zip(results, parts, strict=True) if _KERNEL[0] in found]
    text = "Bytes of a run by where they came from, as the loader counts them; median of the repetitions."
    if not silent:
        return text
    return (
        f"{text} Hatched is what the kernel counts of read calls, where the loader tells nothing: {', '.join(silent)}."
    )


def _words(results: Sequence[Result], parts: Sequence[Mapping[str, float]]) -> str:
    return "; ".join(
        f"{result.name}: " + ", ".join(f"{number(nbytes / GB)} GB from {name}" for name, nbytes in found.items())
        for result, found in zip(results, parts, strict=True)
    )
