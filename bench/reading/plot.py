"""Plot: how many times faster voxload is than each peer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from bench.reading.results import Result, thread_counts

mpl.use("Agg")

_PEERS = {
    "h5py": "#1f77b4",
    "h5py-direct": "#6baed6",
    "h5py-processes": "#08306b",
    "numpy": "#7f7f7f",
    "zarr": "#e6550d",
    "zarr-fused": "#a63603",
    "zarrs": "#fdae6b",
    "tensorstore": "#31a354",
    "memcpy": "#222222",
}
"""Colour of each peer."""


def draw(results: Sequence[Result], path: Path) -> None:
    """Draw one panel for each case and dtype: a group of bars a format, the smallest chunk extent only."""
    chunk = min((result.chunk for result in results if result.chunk), default=None)
    shown = [result for result in results if result.chunk in (chunk, None)]
    cases = list(dict.fromkeys(result.case for result in shown))
    dtypes = list(dict.fromkeys(result.dtype for result in shown))
    layouts = list(dict.fromkeys(result.layout for result in shown))
    threads = max(thread_counts(shown), default=1)
    height = 1.6 + len(dtypes) * (0.8 + 0.62 * len(layouts))
    figure = Figure(figsize=(4.2 * len(cases) + 2, height), layout="constrained")
    panels = figure.subplots(len(dtypes), len(cases), squeeze=False, sharex=True, sharey=True)
    for row, dtype in enumerate(dtypes):
        for column, case in enumerate(cases):
            panel = panels[row][column]
            panel.set_title(f"{dtype}, {case}")
            _bars(panel, [r for r in shown if (r.dtype, r.case) == (dtype, case)], layouts, threads)
    handles, labels = _legend(list(panels.ravel()))
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 9), frameon=False)
    size = shown[0].size if shown else 0
    figure.suptitle(f"How many times faster voxload ({threads} threads) reads; {size}^3, chunks of {chunk}^3")
    figure.savefig(path, dpi=110)


def _bars(panel: Any, results: Sequence[Result], layouts: Sequence[str], threads: int) -> None:
    """Draw one group of bars for each format, the bars of a group from the top down."""
    for result in results:
        # Beside a decoder, memcpy is no measure.
        peers = [peer for peer in _PEERS if peer != "memcpy" or not result.is_compressed]
        ratios = {peer: result.ratio(threads, peer) for peer in peers}
        present = [(peer, ratio) for peer, ratio in ratios.items() if ratio is not None]
        width = 0.8 / max(len(present), 1)
        middle = layouts.index(result.layout)
        for place, (peer, ratio) in enumerate(present):
            at = middle - 0.4 + (place + 0.5) * width
            panel.barh(at, ratio - 1, width * 0.9, left=1, color=_PEERS[peer], label=peer)
            end = max(ratio, 1.0)
            panel.text(end * 1.04, at, f"{ratio:.2g}", va="center", fontsize=6)
    panel.axvline(1, color="black", linewidth=0.8)
    panel.set_xscale("log")
    panel.set_xticks([0.25, 0.5, 1, 2, 4, 8, 16, 32], ["1/4", "1/2", "1", "2", "4", "8", "16", "32"])
    panel.set_xlim(1 / 8, 64)
    panel.minorticks_off()
    panel.set_yticks(np.arange(len(layouts)), layouts)
    panel.set_ylim(len(layouts) - 0.5, -0.5)
    panel.grid(axis="x", alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)


def _legend(panels: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Return one handle for each peer that is in any panel."""
    found = {
        label: handle for panel in panels for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    order = [peer for peer in _PEERS if peer in found]
    return [found[peer] for peer in order], order
