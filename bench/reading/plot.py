"""Plot: how many times faster voxload is than each peer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

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
    drawn: set[str] = set()
    for row, dtype in enumerate(dtypes):
        for column, case in enumerate(cases):
            panel = panels[row][column]
            panel.set_title(f"{dtype}, {case}")
            drawn |= _bars(panel, [r for r in shown if (r.dtype, r.case) == (dtype, case)], layouts, threads)
    handles = [Patch(color=color, label=peer) for peer, color in _PEERS.items() if peer in drawn]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(_PEERS), frameon=False)
    size = shown[0].size if shown else 0
    figure.suptitle(f"How many times faster voxload ({threads} threads) reads; {size}^3, chunks of {chunk}^3")
    figure.savefig(path, dpi=110)


def _bars(panel: Any, results: Sequence[Result], layouts: Sequence[str], threads: int) -> set[str]:
    """Draw one group of bars for each format, from the top down, and return the peers that have one."""
    drawn: set[str] = set()
    for result in results:
        # Beside a decoder, memcpy is no measure.
        peers = [peer for peer in _PEERS if peer != "memcpy" or not result.is_compressed]
        ratios = {peer: result.ratio(threads, peer) for peer in peers}
        present = {peer: ratio for peer, ratio in ratios.items() if ratio is not None}
        width = 0.8 / max(len(present), 1)
        middle = layouts.index(result.layout)
        for place, (peer, ratio) in enumerate(present.items()):
            at = middle - 0.4 + (place + 0.5) * width
            panel.barh(at, ratio - 1, width * 0.9, left=1, color=_PEERS[peer])
            panel.text(max(ratio, 1.0) * 1.04, at, f"{ratio:.2g}", va="center", fontsize=6)
        drawn |= present.keys()
    panel.axvline(1, color="black", linewidth=0.8)
    panel.set_xscale("log")
    panel.set_xticks([0.25, 0.5, 1, 2, 4, 8, 16, 32], ["1/4", "1/2", "1", "2", "4", "8", "16", "32"])
    panel.set_xlim(1 / 8, 64)
    panel.minorticks_off()
    panel.set_yticks(np.arange(len(layouts)), layouts)
    panel.set_ylim(len(layouts) - 0.5, -0.5)
    panel.grid(axis="x", alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)
    return drawn
