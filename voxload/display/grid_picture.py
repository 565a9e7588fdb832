"""Grid picture: a sample as a box that is cut into blocks, with one rank's block and its halo, as a small SVG.

The front face is (h, w) at d = 0; depth goes to the right and upwards, and is drawn at half its length. Axes with many
blocks are drawn without their cuts, so that the picture of any grid has a few dozen lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from voxload.geometry import SPATIAL_AXES, Box

MOST = 16
"""Blocks along an axis that are drawn one by one."""
_SIZE = 160.0
"""Points of the longest edge."""
_THIN = 0.1
"""Least length of an edge over that of the longest one: a plane stays to be seen."""
_DEPTH = 0.42, 0.36
"""How far right and up a point of depth lies."""
_MARGIN = 22.0
_WORDS = 110.0
"""Points that a label takes."""
_BLOCK, _HALO = "#1f77d0", "#f0954a"
"""Colours of a block and its halo, to be told apart on white and on black."""

Point = tuple[float, float]
Triple = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where a sample is cut, and what of it is marked."""

    bounds: tuple[Sequence[int], ...]
    """Per axis (d, h, w), in ascending order: where blocks begin, and the end of the last."""
    block: Box | None = None
    """What is marked; None for nothing."""
    outer: Box | None = None
    """The same with its halo; what of it lies outside the sample is not drawn."""
    unit: str = "voxels"
    """What the bounds count; empty where they count blocks."""
    part: str = "block"
    """What the sample is cut into."""

    @property
    def counts(self) -> tuple[int, ...]:
        """Blocks along each axis."""
        return tuple(len(cut) - 1 for cut in self.bounds)

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of the sample."""
        return tuple(cut[-1] for cut in self.bounds)

    def label(self, axis: int) -> str:
        """Return what is written along an axis."""
        blocks, extent = self.counts[axis], self.extents[axis]
        size = f"{SPATIAL_AXES[axis]} {extent:,}, " if self.unit else f"{SPATIAL_AXES[axis]}: "
        return f"{size}{blocks:,} {self.part if blocks == 1 else f'{self.part}s'}"


def counted(spatial: Sequence[int], coords: Sequence[int] | None = None) -> Cuts:
    """Return the cuts of a grid whose samples are not known, in blocks; `coords` say which block is marked."""
    block = None if coords is None else Box(tuple(coords), tuple(place + 1 for place in coords))
    return Cuts(tuple(range(count + 1) for count in spatial), block, unit="")


def grid_picture(cuts: Cuts) -> str:
    """Return the picture as an SVG element."""
    place = _Projection.of(cuts)
    faces = "".join(_face(place, cuts, axis) for axis in range(3))
    marks = ""
    if cuts.outer is not None and cuts.outer != cuts.block:
        marks += _cuboid(place, cuts.outer, _HALO, opacity=0.22, style='stroke-dasharray="3 2"')
    if cuts.block is not None:
        marks += _cuboid(place, cuts.block, _BLOCK, opacity=0.4)
    width, height = place.size
    said = escape(_said(cuts))
    return (
        f'<svg role="img" aria-label="{said}" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" style="max-width:100%;height:auto"><title>{said}</title>'
        f'<g fill="none" stroke="currentColor" stroke-width="1" stroke-linejoin="round">{faces}</g>{marks}'
        f"{_labels(place, cuts)}</svg>"
    )


@dataclass(frozen=True, slots=True)
class _Projection:
    """From voxels to points."""

    extents: tuple[int, ...]
    edges: Triple
    """Points of the sample's edges along (d, h, w)."""

    @classmethod
    def of(cls, cuts: Cuts) -> _Projection:
        """Return the one that shows a sample in its proportions, as far as thin edges are to be seen."""
        # Of a sample of unknown extents a cube stands for any.
        longest = max(cuts.extents)
        d, h, w = (_SIZE * max(extent / longest, _THIN) if cuts.unit else _SIZE for extent in cuts.extents)
        return cls(cuts.extents, (d, h, w))

    @property
    def left(self) -> float:
        """Points left of the sample: a high one has its label turned, a low one beside it."""
        return 22.0 if self.edges[1] > _WORDS else _WORDS + 10

    @property
    def size(self) -> Point:
        """Width and height of the picture."""
        d, h, w = self.edges
        return self.left + max(w + d * _DEPTH[0], w / 2) + _WORDS + 10, h + d * _DEPTH[1] + 2 * _MARGIN

    def at(self, d: float, h: float, w: float) -> Point:
        """Return where a point of the sample is drawn."""
        across, down, right = (
            edge * value / extent for edge, value, extent in zip(self.edges, (d, h, w), self.extents, strict=True)
        )
        return (
            self.left + right + across * _DEPTH[0],
            _MARGIN + down + (self.edges[0] - across) * _DEPTH[1],
        )


def _path(points: Sequence[Point], *, closed: bool = False) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + ("Z" if closed else "")


def _corners(low: Sequence[float], high: Sequence[float], axis: int) -> list[Triple]:
    """Return the corners of the visible face of a box that is normal to an axis: front, top or right."""
    (d0, h0, w0), (d1, h1, w1) = low, high
    if axis == 0:
        return [(d0, h0, w0), (d0, h0, w1), (d0, h1, w1), (d0, h1, w0)]
    if axis == 1:
        return [(d0, h0, w0), (d0, h0, w1), (d1, h0, w1), (d1, h0, w0)]
    return [(d0, h0, w1), (d1, h0, w1), (d1, h1, w1), (d0, h1, w1)]


def _face(place: _Projection, cuts: Cuts, normal: int) -> str:
    """Return one face of the sample with its cuts."""
    low, high = (0.0, 0.0, 0.0), tuple(map(float, cuts.extents))
    whole = _path([place.at(*corner) for corner in _corners(low, high, normal)], closed=True)
    inner = ""
    for axis in (axis for axis in range(3) if axis != normal):
        for bound in _drawn(cuts, axis):
            begin, end = list(low), list(high)
            begin[axis] = end[axis] = float(bound)
            if normal == 2:
                begin[2] = end[2]
            else:
                end[normal] = 0.0
            inner += _path([place.at(*begin), place.at(*end)])
    return f'<path d="{whole}"/>' + (f'<path d="{inner}" stroke-opacity="0.45"/>' if inner else "")


def _drawn(cuts: Cuts, axis: int) -> list[int]:
    """Return the bounds along an axis that are drawn: all, or of many those of the marked block."""
    bounds = cuts.bounds[axis]
    if len(bounds) - 1 > MOST:
        marked = () if cuts.block is None else (cuts.block.start[axis], cuts.block.stop[axis])
        return [bound for bound in marked if 0 < bound < bounds[-1]]
    return list(bounds[1:-1])


def _cuboid(place: _Projection, box: Box, colour: str, *, opacity: float, style: str = "") -> str:
    """Return the visible faces of a box, as if the rest of the sample were of glass."""
    low = [float(max(start, 0)) for start in box.start]
    high = [float(min(stop, extent)) for stop, extent in zip(box.stop, place.extents, strict=True)]
    faces = (_path([place.at(*corner) for corner in _corners(low, high, axis)], closed=True) for axis in range(3))
    return (
        f'<path d="{"".join(faces)}" fill="{colour}" fill-opacity="{opacity}" stroke="{colour}" stroke-width="1.5" '
        f'stroke-linejoin="round" {style}/>'
    )


def _labels(place: _Projection, cuts: Cuts) -> str:
    depth, height, width = (float(extent) for extent in cuts.extents)
    (bottom_x, bottom_y), (side_x, side_y), (back_x, back_y) = (
        place.at(0, height, width / 2),
        place.at(0, height / 2, 0),
        place.at(depth / 2, height, width),
    )
    style = 'fill="currentColor" font-size="11" font-family="sans-serif"'
    turned = f'transform="translate({side_x - 7:.1f} {side_y:.1f}) rotate(-90)" text-anchor="middle"'
    beside = f'x="{side_x - 6:.1f}" y="{side_y + 4:.1f}" text-anchor="end"'
    return (
        f'<text x="{bottom_x:.1f}" y="{bottom_y + 14:.1f}" text-anchor="middle" {style}>{escape(cuts.label(2))}</text>'
        f"<text {turned if place.edges[1] > _WORDS else beside} {style}>{escape(cuts.label(1))}</text>"
        f'<text x="{back_x + 6:.1f}" y="{back_y + 9:.1f}" {style}>{escape(cuts.label(0))}</text>'
    )


def _said(cuts: Cuts) -> str:
    """Return the picture in words."""
    counts = " x ".join(f"{count:,}" for count in cuts.counts)
    size = f"A sample of {' x '.join(f'{extent:,}' for extent in cuts.extents)} voxels" if cuts.unit else "A sample"
    block = "" if cuts.block is None else f"; marked is {cuts.part} {cuts.block}"
    outer = f", with its halo {cuts.outer}" if cuts.outer not in (None, cuts.block) else ""
    return f"{size} in {counts} {cuts.part}s along (d, h, w){block}{outer}"
