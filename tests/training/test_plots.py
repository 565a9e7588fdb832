"""Plots: pictures that are written whole, and the arithmetic of the timeline."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from voxload.grid import ProcessGrid
from voxload.training import plots


@given(spans=st.lists(st.tuples(st.floats(0, 3), st.floats(0, 3)), min_size=1, max_size=30), bins=st.integers(1, 50))
def test_shares_add_up_to_the_time_covered(spans: list[tuple[float, float]], bins: int) -> None:
    """The shares of all bins are the covered time; each agrees with a count of fine samples."""
    ordered, now = [], 0.0
    for pause, length in spans:
        ordered.append((now + pause, length))
        now += pause + length
    end = now or 1.0
    edges = np.linspace(0, end, bins + 1)
    share = plots._share(ordered, edges)
    assert np.isclose((share * np.diff(edges)).sum(), sum(length for _, length in ordered))
    assert share.min() >= -1e-9
    assert share.max() <= 1 + 1e-6


def test_the_blocks_borders_are_drawn_where_the_grid_has_them(tmp_path: Path) -> None:
    """Uneven blocks of a group are drawn with their own borders: the cyan lines part the picture in two."""
    grid = ProcessGrid((2, 1, 1), 2, 0)
    plane = np.zeros((9, 16), np.int16)
    plots.draw_blocks(plane, tmp_path / "blocks.png", grid=grid, shape=(9, 16, 4), depth=2)
    pixels = imread(tmp_path / "blocks.png")[..., :3]
    cyan = np.asarray((np.abs(pixels - np.array([0x21, 0xE0, 0xD6]) / 255) < 0.02).all(2))
    # Along a column right of the labels: the top border, the one between rows 3 and 4, and the bottom.
    column = cyan[:, int(np.flatnonzero(cyan.any(0))[-1]) - 40]
    lines = np.flatnonzero(np.diff(column.astype(int)) == 1)
    assert len(lines) == 3
    assert np.isclose((lines[1] - lines[0]) / (lines[2] - lines[0]), 4 / 9, atol=0.02)
    assert list(tmp_path.iterdir()) == [tmp_path / "blocks.png"]
