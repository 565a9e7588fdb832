"""What a picture of planes is made of: proportions, lines, bands and words."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from voxload.geometry import Boundary, Box, Halo, split
from voxload.pictures.slices import LINES, Overlay, Slices, draw_slices
from voxload.pictures.thin import SCREEN, ThinPlane, slices_of

Extents = tuple[int, int, int]


def _slices(extents: Extents) -> Slices:
    volume = np.arange(np.prod(extents), dtype=np.float32).reshape(extents)
    d, h, w = (extent // 2 for extent in extents)
    return Slices((volume[d], volume[:, h], volume[:, :, w]), extents, (d, h, w))


@pytest.mark.parametrize("extents", [(8, 8, 8), (20, 40, 60), (60, 20, 40), (30, 200, 100)])
@pytest.mark.parametrize("spacing", [None, (1.0, 1.0, 1.0), (2.0, 1.0, 0.5)])
def test_all_planes_have_one_scale(extents: Extents, spacing: tuple[float, float, float] | None) -> None:
    """A millimetre is as long in each panel, down and across."""
    figure = draw_slices(_slices(extents), title="t", spacing=spacing)
    figure.draw_without_rendering()
    edges = spacing or (1.0, 1.0, 1.0)
    lengths = []
    for axis, panel in enumerate(figure.axes[:3]):
        rows, columns = (other for other in range(3) if other != axis)
        box = panel.get_window_extent()
        lengths += [box.width / (extents[columns] * edges[columns]), box.height / (extents[rows] * edges[rows])]
    assert max(lengths) / min(lengths) == pytest.approx(1, rel=0.05)


def test_planes_that_would_be_lines_are_stretched_and_said_to_be() -> None:
    """And voxels of an extreme spacing are drawn as cubes."""
    thin = draw_slices(_slices((2, 2, 1000)), title="t")
    thin.draw_without_rendering()
    box = thin.axes[0].get_window_extent()
    assert box.width / box.height == pytest.approx(25, rel=0.05)
    assert "stretched" in thin.get_supxlabel()
    cubes = draw_slices(_slices((4, 4, 4)), title="t", spacing=(1.0, 1.0, 101.0), unit="mm")
    assert [panel.get_aspect() for panel in cubes.axes[:3]] == [1.0, 1.0, 1.0]
    assert "Voxels of 1 x 1 x 101 mm, drawn as cubes." in cubes.get_supxlabel()


def test_one_scale_of_colours() -> None:
    """Planes share a norm, and there is one bar."""
    figure = draw_slices(_slices((4, 6, 8)), title="t")
    norms = [(panel.images[0].norm.vmin, panel.images[0].norm.vmax) for panel in figure.axes[:3]]
    planes = _slices((4, 6, 8)).planes
    assert set(norms) == {(min(plane.min() for plane in planes), max(plane.max() for plane in planes))}
    assert len(figure.axes) == 4


@pytest.mark.parametrize(
    ("halo", "boundary", "expected"),
    [
        (0, "zero", []),
        (1, "zero", [(2, 4), (5, 7)]),
        (3, "zero", [(0, 9)]),
        (1, "periodic", [(0, 1), (2, 4), (5, 7), (9, 10)]),
        (100, "zero", [(0, 10)]),
    ],
)
def test_bands_are_the_voxels_that_neighbours_read(halo: int, boundary: str, expected: list[tuple[int, int]]) -> None:
    """As the boxes of ranks say that are expanded by the halo: those of a block that another block owns."""
    bounds = split(10, 3)
    overlay = Overlay((bounds,) * 3, Halo.parse(halo), Boundary.parse(boundary))
    assert overlay.bands(0, 10) == expected
    read: set[int] = set()
    for start, stop in pairwise(bounds):
        box = Box((start,), (stop,)).expand(Halo((halo,), (halo,)))
        outside = {index for index in range(box.start[0], box.stop[0]) if not start <= index < stop}
        read |= {index % 10 for index in outside} if boundary == "periodic" else {i for i in outside if 0 <= i < 10}
    assert {index for start, stop in overlay.bands(0, 10) for index in range(start, stop)} == read


def test_a_halo_of_one_side() -> None:
    """What lies before a block is wanted, and nothing behind it."""
    overlay = Overlay((split(8, 2),) * 3, Halo((2, 0, 0), (0, 0, 0)))
    assert [overlay.bands(axis, 8) for axis in range(3)] == [[(2, 4)], [], []]


def _constant(lines: Iterable[Any], axis: str) -> list[float]:
    """Return where lines lie that are straight along the other axis."""
    places = [set(getattr(line, f"get_{axis}data")()) for line in lines]
    return sorted(float(*place) for place in places if len(place) == 1)


def test_lines_are_at_the_bounds_of_blocks() -> None:
    """Between the voxels, in each plane that they cut, and so are the bands."""
    bounds = (split(8, 2), split(10, 3), split(12, 1))
    figure = draw_slices(_slices((8, 10, 12)), title="t", overlay=Overlay(bounds, Halo.parse(1)))
    for axis, panel in enumerate(figure.axes[:3]):
        rows, columns = (other for other in range(3) if other != axis)
        down, across = _constant(panel.lines, "y"), _constant(panel.lines, "x")
        assert down == [bound - 0.5 for bound in bounds[rows][1:-1]]
        assert across == [bound - 0.5 for bound in bounds[columns][1:-1]]
        assert len(panel.patches) == len(down) + len(across)


def test_a_picture_of_many_blocks_is_small() -> None:
    """Beyond so many they are counted."""
    extents = (4, 4, 4 * LINES)
    bounds = (split(4, 1), split(4, 1), split(4 * LINES, LINES + 1))
    figure = draw_slices(_slices(extents), title="t", overlay=Overlay(bounds, Halo.parse(1), chunks=(1, 1, 1)))
    words = " ".join(figure.get_supxlabel().split())
    assert not figure.axes[0].patches
    assert len(figure.axes[0].lines) == 3
    assert f"1 x 1 x {LINES + 1} blocks along D, H, W, too many along W to be drawn" in words
    assert "chunks of 1 x 1 x 1 voxels, too many along W to be drawn" in words


def test_a_title_is_no_formula() -> None:
    """Dollars, escapes and marks of direction come from files."""
    figure = draw_slices(_slices((4, 4, 4)), title="a$b$\x1b[2J\u202e" * 40)
    figure.draw_without_rendering()
    assert "\x1b" not in figure.get_suptitle()


@pytest.mark.parametrize("band", [1, 7, 1000])
def test_odd_voxels_are_counted_once_and_stay_to_be_seen(band: int) -> None:
    """In a plane that is thinned, wherever they lie and in whatever parts it is read."""
    random = np.random.default_rng(band)
    extents = (3, SCREEN * 2 + 1, 40)
    volume = random.normal(size=extents).astype("f4")
    for value in (np.nan, np.inf, -np.inf):
        volume[tuple(random.integers(0, extent, 300) for extent in extents)] = value
    volume[1, SCREEN, 20] = np.nan  # where all planes cross
    planes = [ThinPlane(axis, extents) for axis in range(3)]
    for plane in planes:
        rows = 1 if plane.axis == 0 else 0
        for begin in range(0, extents[rows], band):
            start, stop = list(plane.box.start), list(plane.box.stop)
            start[rows], stop[rows] = begin, min(begin + band, stop[rows])
            box = Box(tuple(start), tuple(stop))
            plane.take(box, volume[box.slices])
    found = slices_of(planes, extents)
    in_planes = np.zeros(extents, bool)
    in_planes[1] = in_planes[:, SCREEN] = in_planes[:, :, 20] = True
    assert found.odd == (int(np.isnan(volume[in_planes]).sum()), int(np.isinf(volume[in_planes]).sum()))
    assert max(found.planes[0].shape) <= SCREEN
    step = -(-extents[1] // SCREEN)
    odd = ~np.isfinite(np.pad(volume[1], ((0, -extents[1] % step), (0, 0)), constant_values=0))
    np.testing.assert_array_equal(np.isnan(found.planes[0]), odd.reshape(-1, step, 40).any(axis=1))
    kept = ~np.isnan(found.planes[0])
    np.testing.assert_array_equal(found.planes[0][kept], volume[1, ::step][kept])
