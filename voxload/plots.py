"""Plots: the pictures of reports, drawn without a display.

matplotlib's object interface only, no pyplot: nothing here touches its global state, so reports may be drawn
from any thread. Each function writes one PNG that appears whole or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from voxload.atomic import replacing
from voxload.geometry import SPATIAL_AXES, Box
from voxload.grid import ProcessGrid
from voxload.training.result import TrainingResult

Plane = npt.NDArray[Any]
"""A two-dimensional cut through a volume."""

_BLUE, _ORANGE, _GREY = "#1f5fa8", "#e07b20", "#8a8f98"
_EDGE = "#21e0d6"
_MOST_BARS = 400
"""Steps drawn in a timeline: more are not told apart at this width."""


def draw_slices(planes: Sequence[Plane], path: Path, *, title: str) -> None:
    """Draw the three central planes of a volume, normal to D, H and W."""
    figure = Figure(figsize=(12.5, 4.6), layout="constrained")
    panels = figure.subplots(1, len(planes))
    figure.suptitle(title, fontsize=11)
    for axis, (panel, plane) in enumerate(zip(np.atleast_1d(panels), planes, strict=True)):
        rows, columns = (letter for letter in SPATIAL_AXES if letter != SPATIAL_AXES[axis])
        image = _show(panel, plane)
        panel.set(title=f"centre of {SPATIAL_AXES[axis]}", xlabel=f"{columns} (voxels)", ylabel=f"{rows} (voxels)")
        figure.colorbar(image, ax=panel, shrink=0.85, label=_scale_label(plane))
    _save(figure, path)


def draw_blocks(plane: Plane, path: Path, *, grid: ProcessGrid, shape: Sequence[int], depth: int) -> None:
    """Draw the plane at `depth` normal to the last axis, with the border of every rank's block in it.

    Parameters
    ----------
    plane
        ``(D, H)`` voxels at index `depth` of W.
    path
        Where the picture goes.
    grid
        The ranks; those of one sample group are drawn.
    shape
        Extents (D, H, W) of the sample.
    depth
        Index of the plane along W.
    """
    figure = Figure(figsize=(6.6, 5.8), layout="constrained")
    panel = figure.subplots()
    image = _show(panel, plane)
    at_plane = Box((0, 0, depth), (shape[0], shape[1], depth + 1))
    for rank in grid.group_ranks:
        part = grid.at(rank).block(shape).intersect(at_plane)
        if part is None:
            continue
        (top, left, _), (bottom, right, _) = part.start, part.stop
        corners = ((left, top), (right, top), (right, bottom), (left, bottom), (left, top))
        panel.plot([x - 0.5 for x, _ in corners], [y - 0.5 for _, y in corners], color=_EDGE, linewidth=2.4)
        label = f"rank {rank} {grid.at(rank).coords}"
        panel.text(
            left + 0.3,
            top + 0.3,
            label,
            va="top",
            fontsize=9,
            color="black",
            bbox={"facecolor": _EDGE, "edgecolor": "none", "pad": 2},
        )
    blocks = "x".join(map(str, grid.spatial))
    panel.set(
        title=f"One universe of {'x'.join(map(str, shape))} over {blocks} blocks, plane W={depth}",
        xlabel="H (voxels)",
        ylabel="D (voxels)",
        xlim=(-1, plane.shape[1]),
        ylim=(plane.shape[0], -1),
    )
    figure.colorbar(image, ax=panel, shrink=0.9, label=_scale_label(plane))
    _save(figure, path)


def draw_learning(result: TrainingResult, path: Path) -> None:
    """Draw loss by epoch, and each target's held-out error against the mean predictor's."""
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    losses, errors = figure.subplots(1, 2)
    numbers = range(1, len(result.epochs) + 1)
    losses.plot(numbers, [epoch.training_loss for epoch in result.epochs], "o-", color=_BLUE, label="training")
    losses.plot(numbers, [epoch.validation_loss for epoch in result.epochs], "s-", color=_ORANGE, label="held out")
    losses.set(title="Loss", xlabel="epoch", ylabel="mean squared error", yscale="log")
    losses.legend(frameon=False)
    for index, name in enumerate(result.targets):
        ratios = [epoch.validation_mae[index] / result.mean_predictor_mae[index] for epoch in result.epochs]
        errors.plot(numbers, ratios, "o-", markersize=3, label=name)
    errors.axhline(1, color=_GREY, linestyle="--", linewidth=1)
    errors.annotate("mean predictor", (1, 1), xytext=(0, 4), textcoords="offset points", color=_GREY, fontsize=8)
    errors.set(title="Held-out error over the mean predictor's", xlabel="epoch", ylabel="ratio of MAE")
    errors.set_ylim(bottom=0)
    errors.legend(frameon=False, fontsize=8)
    for panel in (losses, errors):
        panel.xaxis.get_major_locator().set_params(integer=True)
        _tidy(panel)
    _save(figure, path)


def draw_timeline(result: TrainingResult, path: Path) -> None:
    """Draw, for each rank, when it computed and when it waited for data."""
    figure = Figure(figsize=(11, 1.6 + 0.62 * len(result.ranks)), layout="constrained")
    panel = figure.subplots()
    for row, rank in enumerate(result.ranks):
        steps = rank.steps[:_MOST_BARS]
        panel.broken_barh(
            [(asked + stall, compute) for asked, stall, compute in steps], (row - 0.36, 0.72), color=_BLUE
        )
        panel.broken_barh([(asked, stall) for asked, stall, _ in steps], (row - 0.36, 0.72), color=_ORANGE)
    labels = [
        f"rank {rank.rank}: group {rank.group} {rank.coords}\nstall {rank.seconds_stalled:.2f} s, "
        f"AU {rank.accelerator_utilisation:.1%}"
        for rank in result.ranks
    ]
    panel.set_yticks(range(len(labels)), labels, fontsize=8)
    panel.invert_yaxis()
    shown = min(_MOST_BARS, max((len(rank.steps) for rank in result.ranks), default=0))
    panel.set(
        title=f"The first {shown} steps: computing (blue), waiting for data (orange), for other ranks (gaps)",
        xlabel="seconds",
    )
    _tidy(panel)
    _save(figure, path)


def _show(panel: Axes, plane: Plane) -> Any:
    """Draw a plane; counts that span decades are shown as log(1 + x)."""
    values = np.log1p(plane.astype(np.float64)) if _is_count(plane) else plane
    return panel.imshow(values, cmap="magma", interpolation="nearest")


def _scale_label(plane: Plane) -> str:
    return "log(1 + voxel)" if _is_count(plane) else "voxel"


def _is_count(plane: Plane) -> bool:
    return plane.dtype.kind in "iu" and plane.size > 0 and int(plane.min()) >= 0


def _tidy(panel: Axes) -> None:
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(alpha=0.25)


def _save(figure: Figure, path: Path) -> None:
    FigureCanvasAgg(figure)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130)
