"""The picture of a grid: right lines, right block, and small whatever the grid is."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from voxload.display.grid_picture import MOST, Cuts, counted, grid_picture
from voxload.geometry import Box, Halo, split
from voxload.grid import ProcessGrid

Extents = tuple[int, int, int]


def _svg(cuts: Cuts) -> ET.Element:
    return ET.fromstring(grid_picture(cuts))  # noqa: S314 - our own


def _strokes(svg: ET.Element) -> int:
    return sum(len(re.findall("M", path.get("d", ""))) for path in svg.iter("path"))


@pytest.mark.parametrize("spatial", [(1, 1, 1), (2, 1, 1), (2, 3, 4), (1, 16, 2)])
def test_each_cut_is_on_both_faces_beside_it(spatial: Extents) -> None:
    """Three faces, two strokes for each inner bound, and nothing else."""
    inner = sum(count - 1 for count in spatial)
    assert _strokes(_svg(counted(spatial))) == 3 + 2 * inner


@pytest.mark.parametrize("spatial", [(1, 1, 1), (17, 1, 1), (1000, 1000, 1000), (1, 1, 10**6)])
def test_it_is_small_whatever_the_grid(spatial: Extents) -> None:
    """Of many blocks those bounds are drawn that the marked one has."""
    coords = tuple(count // 2 for count in spatial)
    text = grid_picture(counted(spatial, coords))
    assert len(text) < 8_000
    svg = ET.fromstring(text)  # noqa: S314 - our own
    assert _strokes(svg) <= 3 + 2 * 3 * MOST + 3
    labels = [element.text for element in svg.iter("text")]
    assert all(any(f"{count:,} block" in (label or "") for label in labels) for count in spatial)


@pytest.mark.parametrize("extents", [(512, 512, 512), (1, 1, 10**6), (10**6, 1, 1), (3, 4000, 2)])
def test_it_stays_within_its_frame(extents: Extents) -> None:
    """Also of planes, lines and towers, and of a halo that leaves the sample."""
    grid = ProcessGrid()
    box = grid.block(extents)
    svg = _svg(Cuts(grid.bounds(extents), box, box.expand(Halo.parse(1000))))
    _, _, width, height = map(float, svg.get("viewBox", "").split())
    assert width < 500
    assert height < 350
    for path in svg.iter("path"):
        for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path.get("d", "")):
            assert 0 <= float(x) <= width
            assert 0 <= float(y) <= height


def test_the_marked_block_is_this_ranks() -> None:
    """Its cuboid ends where the front face's lines are, and words say where it lies."""
    grid = ProcessGrid((1, 2, 2), 4, 3)
    cuts = Cuts(grid.bounds((8, 8, 8)), grid.block((8, 8, 8)), grid.block((8, 8, 8)).expand(Halo.parse(1)))
    svg = _svg(cuts)
    halo, block = list(svg.findall("path"))
    front = re.findall(r"(-?[\d.]+) (-?[\d.]+)", block.get("d", "").split("Z")[0])
    assert len({x for x, _ in front}) == len({y for _, y in front}) == 2
    whole = re.findall(r"(-?[\d.]+) (-?[\d.]+)", next(svg.iter("path")).get("d", "").split("Z")[0])
    xs, ys = sorted({float(x) for x, _ in whole}), sorted({float(y) for _, y in whole})
    assert min(float(x) for x, _ in front) == pytest.approx(sum(xs) / 2, abs=0.1)
    assert max(float(y) for _, y in front) == pytest.approx(ys[-1])
    assert halo.get("stroke-dasharray")
    title = svg.find("title")
    assert title is not None
    assert title.text == (
        "A sample of 8 x 8 x 8 voxels in 1 x 2 x 2 blocks along (d, h, w); marked is block [0:8, 4:8, 4:8], "
        "with its halo [-1:9, 3:9, 3:9]"
    )


def test_unequal_blocks_are_drawn_as_they_are() -> None:
    """Ten voxels in four blocks: the bounds are not evenly spaced."""
    cuts = Cuts(((0, 1), (0, 1), split(10, 4)), Box((0, 0, 0), (1, 1, 2)))
    lines = _svg(cuts).findall(".//path[@stroke-opacity]")
    xs = sorted({float(x) for x in re.findall(r"M(-?[\d.]+)", lines[0].get("d", ""))})
    gaps = [b - a for a, b in pairwise(xs)]
    assert gaps[0] > gaps[1] * 1.2
