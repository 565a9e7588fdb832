"""Slices: the three middle planes of a volume in one picture: one colour scale, one length for a millimetre.

matplotlib's object interface only, as in `voxload.files.pictures`; drawing may be done in any thread.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from voxload.files.pictures import Plane, blank, drawing
from voxload.geometry import SPATIAL_AXES, Boundary, Halo
from voxload.pictures.numbers import plain
from voxload.pictures.scale import ODD, Scale
from voxload.text import drawn

if TYPE_CHECKING:  # drawing is what imports it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Extents = tuple[int, int, int]
LONGEST = 100.0
"""Edge of a voxel over another one beyond which a picture in its true proportions would be a line."""
LINES = 128
"""Cuts along an axis beyond which blocks are counted, not drawn; a half of it for chunks."""
_WIDE, _HIGH = 9.0, 7.0
"""Inches of all panels together, and of the highest, at most."""
_THIN = 0.1
"""Least width of a panel over the widest one's: a thin one stays to be seen, and has a scale of its own."""
_LINE = 25.0
"""Edge of a plane over the other one beyond which it is stretched: it would be a line."""
_NARROW = 0.9
"""Inches of a panel at least, for its title; narrower than `_TITLE` has it in two lines."""
_TITLE = 1.5
_LETTERS = 15
"""Of a line of words over an inch of panels."""
_SHORT = 8.0
"""Edge of a panel over the other one beyond which the other one has one number, and its letter alone."""
_RINGS = 100
"""Voxels of a plane that get a ring each."""
_BLOCK, _CHUNK = "#35c8ff", "#d8d8d8"


@dataclass(frozen=True, slots=True)
class Slices:
    """Planes that were read."""

    planes: tuple[Plane, ...]
    """Those normal to D, H and W: ``(H, W)``, ``(D, W)`` and ``(D, H)``, or every so many-th voxel of them."""
    extents: Extents
    """Of the volume, (D, H, W)."""
    places: Extents
    """Where the planes lie along D, H and W."""
    odd: tuple[int, int] = (0, 0)
    """Voxels of the planes that are NaN, and infinite."""

    @property
    def is_thinned(self) -> bool:
        """Whether not every voxel is there."""
        return any(plane.size != _size(self.extents, axis) for axis, plane in enumerate(self.planes))


def _size(extents: Extents, axis: int) -> int:
    return extents[0] * extents[1] * extents[2] // max(extents[axis], 1)


@dataclass(frozen=True, slots=True)
class Overlay:
    """What is drawn over the planes."""

    bounds: tuple[Sequence[int], ...] = ()
    """Per axis, the bounds that cut the volume into blocks, 0 and the extent among them; empty for no blocks."""
    halo: Halo = field(default_factory=lambda: Halo.parse(0))
    """Voxels that each block wants around it."""
    boundary: Boundary = Boundary.ZERO
    """What lies outside: at a periodic boundary the halo of the first block is at the end of the volume."""
    chunks: Sequence[int] | None = None
    """Extents (D, H, W) of a chunk; None for none."""
    origin: Sequence[int] = (0, 0, 0)
    """Where the volume begins in what is cut into chunks, where it is a window of that."""

    def bands(self, axis: int, extent: int) -> list[tuple[int, int]]:
        """Return the voxels along an axis that lie in halos, as half-open ranges that do not touch."""
        if not self.bounds or not self.halo:
            return []
        low, high = self.halo.low[axis], self.halo.high[axis]
        found = [(bound - low, bound + high) for bound in self.bounds[axis][1:-1]]
        found += [(0, high), (extent - low, extent)] if self.boundary is Boundary.PERIODIC else []
        merged: list[tuple[int, int]] = []
        for start, stop in sorted((max(start, 0), min(stop, extent)) for start, stop in found):
            if start >= stop:
                continue
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
            else:
                merged.append((start, stop))
        return merged

    def chunk_bounds(self, axis: int, extent: int) -> range:
        """Return where chunks begin inside the volume along an axis; nothing where there are too many."""
        if self.chunks is None or extent > self.chunks[axis] * LINES // 2:
            return range(0)
        size = self.chunks[axis]
        return range(-self.origin[axis] % size or size, extent, size)

    def words(self, extents: Extents) -> list[str]:
        """Return what is drawn, and what is not, a sentence each."""
        found = []
        if self.bounds:
            counts = [len(cut) - 1 for cut in self.bounds]
            many = [SPATIAL_AXES[axis] for axis in range(3) if counts[axis] > LINES]
            left = f", too many along {', '.join(many)} to be drawn" if many else ""
            found.append(f"Lines: {' x '.join(map(str, counts))} blocks along D, H, W{left}.")
            found += [f"Bands: their halos of {_halo_words(self.halo)}."] if self.halo else []
        if self.chunks is not None:
            many = [name for name, size, extent in zip(SPATIAL_AXES, self.chunks, extents, strict=True)
                    if extent > size * LINES // 2]  # fmt: skip
            left = f", too many along {', '.join(many)} to be drawn" if many else ""
            found.append(f"Dotted: chunks of {' x '.join(map(str, self.chunks))} voxels{left}.")
        return found


NOTHING_OVER = Overlay()
"""Planes alone."""


def _halo_words(halo: Halo) -> str:
    widths = {*halo.low, *halo.high}
    if len(widths) == 1:
        return f"{widths.pop()} voxels"
    return f"{halo.low} voxels" if halo.low == halo.high else f"{halo.low} voxels before and {halo.high} behind"


def draw_slices(
    slices: Slices,
    *,
    title: str,
    spacing: Sequence[float] | None = None,
    unit: str = "",
    overlay: Overlay = NOTHING_OVER,
) -> Figure:
    """Return the planes side by side, as a figure that a notebook shows.

    Parameters
    ----------
    slices
        The planes.
    title
        Above them.
    spacing
        Distances between neighbouring voxels along D, H and W: the proportions in which they are drawn; None where they
        are not known, and voxels are cubes.
    unit
        What `spacing` is in.
    overlay
        Blocks, halos and chunks.
    """
    edges = tuple(spacing or (1.0, 1.0, 1.0))
    edges = edges if max(edges) <= LONGEST * min(edges) else (1.0, 1.0, 1.0)
    scale = Scale.of(slices.planes)
    widths, height = _inches(slices.extents, edges)
    heading = fill(drawn(title), int(_LETTERS * sum(widths)))
    caption = fill(drawn(" ".join(_caption(slices, spacing, unit, overlay, edges=edges))), int(_LETTERS * sum(widths)))
    lines = heading.count("\n") + caption.count("\n")
    figure = blank(sum(widths) + 2.7, height + 2.0 + 0.2 * lines)
    panels = figure.subplots(1, 3, width_ratios=widths)
    image: Any = None
    for axis, (panel, width) in enumerate(zip(panels, widths, strict=True)):
        between = "\n" if width < _TITLE else " "
        panel.set_title(
            f"{SPATIAL_AXES[axis]} = {slices.places[axis]:,}{between}of {slices.extents[axis]:,}", fontsize=10
        )
        image = _draw_plane(panel, slices, axis, scale, edges)
        _draw_overlay(panel, slices.extents, axis, overlay)
    bar = figure.colorbar(image, ax=panels, fraction=0.04, pad=0.02, aspect=30, shrink=0.9, label=scale.label)
    for panel in panels:
        panel.set_anchor("N")  # which the bar changes
    ticks = scale.ticks() if scale.is_known else []
    bar.set_ticks(ticks, labels=plain(ticks))
    bar.ax.minorticks_off()
    figure.suptitle(heading, fontsize=11)
    figure.supxlabel(caption, fontsize=9)
    vars(figure)["_repr_png_"] = partial(png, figure)
    return figure


def png(figure: Figure) -> bytes:
    """Return a figure as the bytes of a PNG file, as a notebook shows it."""
    drawing("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=100)
    return stream.getvalue()


def _inches(extents: Extents, edges: Sequence[float]) -> tuple[list[float], float]:
    """Return the widths of the panels, and the height of the highest: of one scale, where that is to be seen."""
    sizes = [extent * edge for extent, edge in zip(extents, edges, strict=True)]
    wide = [sizes[max(other for other in range(3) if other != axis)] for axis in range(3)]
    high = [sizes[min(other for other in range(3) if other != axis)] for axis in range(3)]
    wide = [max(each, _THIN * max(wide)) for each in wide]
    scale = min(_WIDE / sum(wide), _HIGH / max(high))
    # A tower of a panel is not drawn as a thread: it gets room in width, and its own scale.
    return [max(scale * each, _NARROW) for each in wide], max(scale * max(high), 1.0)


def _draw_plane(panel: Axes, slices: Slices, axis: int, scale: Scale, edges: Sequence[float]) -> Any:
    rows, columns = (other for other in range(3) if other != axis)
    high, wide = slices.extents[rows], slices.extents[columns]
    values, aspect = scale.drawn(slices.planes[axis]), edges[rows] / edges[columns]
    aspect *= _stretch(slices.extents, edges, axis)
    image = panel.imshow(
        values,
        cmap=scale.colours(),
        norm=scale.norm(),
        interpolation="nearest",
        extent=(-0.5, wide - 0.5, high - 0.5, -0.5),
        aspect=aspect,
    )
    _ring_odd(panel, values, slices.extents[rows], slices.extents[columns])
    shown = slices.extents[rows] * aspect / slices.extents[columns]
    ticker = drawing("matplotlib.ticker")
    for side, letter, is_short in ((panel.xaxis, columns, shown > _SHORT), (panel.yaxis, rows, shown < 1 / _SHORT)):
        side.set_label_text(SPATIAL_AXES[letter] if is_short else f"{SPATIAL_AXES[letter]}, voxels")
        side.set_major_locator(ticker.MaxNLocator(1 if is_short else 4, integer=True, min_n_ticks=1))
        side.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
    return image


def _ring_odd(panel: Axes, values: Any, high: int, wide: int) -> None:
    """Put rings around a few voxels that are no finite numbers: of a large plane, a screen shows not every voxel."""
    rows, columns = np.nonzero(np.isnan(values))
    if 0 < len(rows) <= _RINGS:
        down, right = high / values.shape[0], wide / values.shape[1]
        places = (columns + 0.5) * right - 0.5, (rows + 0.5) * down - 0.5
        panel.plot(*places, "o", color=ODD, fillstyle="none", markersize=7, markeredgewidth=1.2)


def _stretch(extents: Extents, edges: Sequence[float], normal: int) -> float:
    """Return how many times its height a plane is drawn, so that it is no line; 1 for most."""
    rows, columns = (other for other in range(3) if other != normal)
    ratio = extents[rows] * edges[rows] / (extents[columns] * edges[columns])
    return max(ratio, 1 / _LINE) / ratio if ratio < 1 else min(ratio, _LINE) / ratio


def _draw_overlay(panel: Axes, extents: Extents, normal: int, overlay: Overlay) -> None:
    """Draw what cuts a plane: bands below lines, and the lines of chunks below those of blocks."""
    rows, columns = (other for other in range(3) if other != normal)
    for axis, line, band in ((rows, panel.axhline, panel.axhspan), (columns, panel.axvline, panel.axvspan)):
        for start, stop in overlay.bands(axis, extents[axis]) if not _is_crowded(overlay, axis) else []:
            band(start - 0.5, stop - 0.5, color=_BLOCK, alpha=0.28, linewidth=0)
        for bound in overlay.chunk_bounds(axis, extents[axis]):
            line(bound - 0.5, color=_CHUNK, linewidth=0.8, linestyle=":")
        if overlay.bounds and not _is_crowded(overlay, axis):
            for bound in overlay.bounds[axis][1:-1]:
                line(bound - 0.5, color=_BLOCK, linewidth=1.4)
    panel.set(xlim=(-0.5, extents[columns] - 0.5), ylim=(extents[rows] - 0.5, -0.5))


def _is_crowded(overlay: Overlay, axis: int) -> bool:
    return bool(overlay.bounds) and len(overlay.bounds[axis]) - 1 > LINES


def _caption(
    slices: Slices, spacing: Sequence[float] | None, unit: str, overlay: Overlay, *, edges: Sequence[float]
) -> list[str]:
    """Return what has to be known of the picture, a sentence each."""
    found = []
    if spacing is not None:
        size = " x ".join(f"{edge:.6g}" for edge in spacing)
        how = "" if tuple(spacing) == tuple(edges) else ", drawn as cubes"
        found.append(f"Voxels of {' '.join(filter(None, (size, unit)))}{how}.")
    nan, inf = slices.odd
    if nan or inf:
        parts = [f"{nan:,} NaN"] * bool(nan) + [f"{inf:,} infinite"] * bool(inf)
        found.append(f"Green: {' and '.join(parts)} voxels of these planes.")
    if any(_stretch(slices.extents, edges, axis) != 1 for axis in range(3)):
        found.append(f"Planes thinner than 1 in {_LINE:g} are stretched to that.")
    found += overlay.words(slices.extents)
    return [*found, "Not every voxel is drawn."] if slices.is_thinned else found
