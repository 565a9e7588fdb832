"""Plots: the pictures of training runs, drawn without a display, in any thread.

Each function writes one PNG that appears whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from voxload.files.pictures import Plane, blank, drawing, scale_label, show_plane, write_png
from voxload.geometry import Box
from voxload.grid import ProcessGrid
from voxload.text import drawn
from voxload.training.result import DiceBaseline, TrainingResult

if TYPE_CHECKING:  # of the extra `plots`
    from matplotlib.axes import Axes

_BLUE, _ORANGE, _GREY = "#1f5fa8", "#e07b20", "#8a8f98"
_EDGE = "#21e0d6"
_BINS = 240
"""Bins of a timeline: steps are shorter than a pixel, so their shares of a few pixels are drawn."""
_LINEAR, _FEW = 3, 200
"""Largest over least loss below which the axis is linear, and below which a decade has more numbers than one."""
_ROW = 0.76
"""Height of a rank's row in a timeline."""


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
    figure = blank(6.6, 5.8)
    panel = figure.subplots()
    image = show_plane(panel, plane)
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
    figure.colorbar(image, ax=panel, shrink=0.9, label=scale_label(plane))
    write_png(figure, path)


def draw_learning(result: TrainingResult, path: Path) -> None:
    """Draw loss by epoch, and each target's error, or class's Dice, on held-out samples beside what is not learnt."""
    figure = blank(11, 4.4)
    losses, judged = figure.subplots(1, 2)
    numbers = range(1, len(result.epochs) + 1)
    losses.plot(numbers, [epoch.training_loss for epoch in result.epochs], "o-", color=_BLUE, label="training")
    losses.plot(numbers, [epoch.validation_loss for epoch in result.epochs], "s-", color=_ORANGE, label="held out")
    label = "mean squared error" if result.dice_baseline is None else "cross-entropy + Dice loss"
    losses.set(title="Loss", xlabel="epoch", ylabel=label)
    _scale([loss for epoch in result.epochs for loss in (epoch.training_loss, epoch.validation_loss)], losses)
    losses.legend(frameon=False)
    if result.dice_baseline is None:
        _draw_errors(judged, result)
    else:
        _draw_dice(judged, result, result.dice_baseline)
    for panel in (losses, judged):
        panel.xaxis.get_major_locator().set_params(integer=True)
        _tidy(panel)
    write_png(figure, path)


def _scale(values: Sequence[float], panel: Axes) -> None:
    """Give an axis of losses a logarithmic scale where they differ much, with numbers as people write them."""
    above = [value for value in values if value > 0 and np.isfinite(value)]
    ratio = max(above, default=1.0) / min(above, default=1.0)
    if ratio < _LINEAR:
        return
    panel.set_yscale("log")
    ticker = drawing("matplotlib.ticker")
    panel.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if ratio < _FEW else (1,)))
    panel.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.10g}"))
    panel.yaxis.set_minor_formatter(ticker.NullFormatter())


def _draw_errors(panel: Axes, result: TrainingResult) -> None:
    """Draw each target's held-out error over the mean predictor's."""
    numbers = range(1, len(result.epochs) + 1)
    for index, name in enumerate(result.targets):
        ratios = [epoch.validation_mae[index] / result.mean_predictor_mae[index] for epoch in result.epochs]
        panel.plot(numbers, ratios, "o-", markersize=3, label=drawn(name))
    panel.axhline(1, color=_GREY, linestyle="--", linewidth=1, label="mean predictor")
    panel.set(title="Held-out error over the mean predictor's", xlabel="epoch", ylabel="ratio of MAE")
    panel.set_ylim(bottom=0)
    panel.legend(frameon=False, fontsize=8)


def _draw_dice(panel: Axes, result: TrainingResult, baseline: DiceBaseline) -> None:
    """Draw each class's held-out Dice, with that of the class everywhere in the same colour."""
    numbers = range(1, len(result.epochs) + 1)
    for index, name in enumerate(baseline.classes):
        dices = [epoch.validation_dice[index] for epoch in result.epochs]
        (line,) = panel.plot(numbers, dices, "o-", markersize=3, label=f"class {name}")
        panel.axhline(baseline.everywhere_dice[index], color=line.get_color(), linestyle="--", linewidth=1)
        panel.axhline(baseline.chance_dice[index], color=line.get_color(), linestyle=":", linewidth=1)
    panel.plot([], [], color=_GREY, linestyle="--", linewidth=1, label="that class everywhere")
    panel.plot([], [], color=_GREY, linestyle=":", linewidth=1, label="that class by chance, as often as it is there")
    panel.set(title="Held-out Dice", xlabel="epoch", ylabel="Dice", ylim=(0, 1))
    panel.legend(frameon=False, fontsize=8)


def draw_classes(volume: Plane, maps: Mapping[str, Plane], path: Path, *, title: str) -> None:
    """Draw a plane of a volume beside the classes that several sources say are there.

    Parameters
    ----------
    volume
        ``(rows, columns)`` voxels.
    maps
        Name of a source to the class of each of these voxels.
    path
        Where the picture goes.
    title
        What stands above all.
    """
    figure = blank(4.1 * (1 + len(maps)), 4.4)
    first, *others = np.atleast_1d(figure.subplots(1, 1 + len(maps)))
    figure.suptitle(drawn(title), fontsize=11)
    image = show_plane(first, volume)
    first.set(title="volume", xlabel="voxels", ylabel="voxels")
    figure.colorbar(image, ax=first, shrink=0.8, label=scale_label(volume))
    most = max(int(plane.max()) for plane in maps.values()) or 1
    colours = drawing("matplotlib").colormaps["viridis"].resampled(most + 1)
    for panel, (name, plane) in zip(others, maps.items(), strict=True):
        image = panel.imshow(plane, cmap=colours, vmin=-0.5, vmax=most + 0.5, interpolation="nearest")
        panel.set(title=drawn(name), xlabel="voxels")
    figure.colorbar(image, ax=others, shrink=0.8, label="class", ticks=range(most + 1))
    write_png(figure, path)


def draw_timeline(result: TrainingResult, path: Path) -> None:
    """Draw, for each rank, which share of the time it computed and which it waited for data."""
    figure = blank(11, 1.8 + 0.72 * len(result.ranks))
    panel = figure.subplots()
    end = max((asked + stall + compute for rank in result.ranks for asked, stall, compute in rank.steps), default=1.0)
    edges = np.linspace(0, end, _BINS + 1)
    width = edges[1] - edges[0]
    for row, rank in enumerate(result.ranks):
        computing = _share([(asked + stall, compute) for asked, stall, compute in rank.steps], edges)
        stalled = _share([(asked, stall) for asked, stall, _ in rank.steps], edges)
        base = np.full(_BINS, row + _ROW / 2)
        labels = ("computing", "waiting for data") if row == 0 else (None, None)
        for share, colour, label in zip((computing, stalled), (_BLUE, _ORANGE), labels, strict=True):
            # Heights are negative because the axis is turned over: rank 0 stands at the top.
            panel.bar(edges[:-1], -share * _ROW, width, base, align="edge", color=colour, linewidth=0, label=label)
            base = base - share * _ROW
    names = [
        f"rank {rank.rank}: group {rank.group} {rank.coords}\nstall {rank.seconds_stalled:.2f} s, "
        f"AU {rank.accelerator_utilisation:.1%}"
        for rank in result.ranks
    ]
    panel.set_yticks(range(len(names)), names, fontsize=8)
    panel.invert_yaxis()
    panel.set(title="Share of the time, per rank; white: other ranks, validation", xlabel="seconds", xlim=(0, end))
    panel.legend(frameon=False, ncols=2, fontsize=8, loc="upper right", bbox_to_anchor=(1, 1.14))
    _tidy(panel)
    write_png(figure, path)


def _share(spans: Sequence[tuple[float, float]], edges: Plane) -> Plane:
    """Return which share of each bin the (start, length) spans cover; they are in order and do not overlap."""
    if not spans:
        return np.zeros(len(edges) - 1)
    starts = np.array([start for start, _ in spans])
    lengths = np.array([length for _, length in spans])
    covered = np.concatenate([[0.0], np.cumsum(lengths)])
    times = np.stack([starts, starts + lengths], 1).ravel()
    until = np.interp(edges, times, np.stack([covered[:-1], covered[1:]], 1).ravel())
    share: Plane = np.diff(until) / np.diff(edges)
    return share


def _tidy(panel: Axes) -> None:
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(alpha=0.25)
