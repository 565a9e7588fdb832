"""Figures of voxels that are counted by value, in groups, in blocks, or that are no numbers."""

from __future__ import annotations

import numpy as np
import pytest

from voxload.convert.encode.statistics import Counts, StatisticsSum, count_channels, total_of
from voxload.readers.protocol import Volume


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "f2"])
@pytest.mark.parametrize("highest", [1, 15, 16, 127, 5000])
def test_each_value_is_counted(dtype: str, highest: int) -> None:
    """Groups of small values, which are counted together, and of large ones, in any mixture, and a rest."""
    draw = np.random.default_rng(highest)
    most = min(highest, np.iinfo(dtype).max if dtype != "f2" else highest)
    voxels = draw.integers(0, most, 10007, endpoint=True)
    voxels[draw.integers(0, 10007, 3)] = most
    found = count_channels(voxels.astype(dtype)[np.newaxis])[0]
    values, counts = np.unique(voxels.astype(dtype).view(f"u{np.dtype(dtype).itemsize}"), return_counts=True)
    np.testing.assert_array_equal(found.found[0], values)
    np.testing.assert_array_equal(found.found[1], counts)


def test_tables_are_left_empty() -> None:
    """What one channel had is not counted for the next one."""
    voxels = np.stack([np.full(5000, 100, np.int16), np.full(5000, -3, np.int16), np.full(5000, 300, np.int16)])
    for _ in range(2):
        for value, found in zip((100, -3, 300), count_channels(voxels), strict=True):
            total = total_of([found])
            assert (total.count, total.minimum, total.maximum, total.mean) == (5000, value, value, value)
    wide = count_channels(voxels.astype("f4"))
    assert [total_of([found]).maximum for found in wide] == [100, -3, 300]
    assert all(sum(found.found[1]) == 5000 for found in wide)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_what_is_no_number_is_counted_apart(dtype: str) -> None:
    """NaNs and infinities anywhere in a block leave the other figures alone; so does a block of nothing else."""
    voxels = np.linspace(-2, 2, 9001).astype(dtype)
    voxels[[0, 2048, 9000]] = np.nan
    voxels[[1, 4000]] = np.inf, -np.inf
    voxels[4096:6144] = np.nan
    finite = voxels[np.isfinite(voxels)].astype("f8")
    total = total_of(count_channels(voxels[np.newaxis]))
    assert (total.count, total.nan_count, total.inf_count) == (len(finite), 3 + 2048, 2)
    assert (total.minimum, total.maximum) == (finite.min(), finite.max())
    assert total.mean == pytest.approx(finite.mean(), abs=1e-15)
    assert total.std == pytest.approx(finite.std(), rel=1e-12)


def test_no_finite_voxel() -> None:
    """There is nothing to take a mean of."""
    for dtype in ("f2", "f4"):
        total = total_of(count_channels(np.full((1, 10), np.nan, dtype)))
        assert (total.count, total.nan_count, total.bins) == (0, 10, {})


@pytest.mark.parametrize("dtype", ["i2", "f4"])
def test_no_voxel_at_all(dtype: str) -> None:
    """Each channel has figures, of nothing."""
    assert [total_of([found]).count for found in count_channels(np.empty((3, 0), dtype))] == [0, 0, 0]


def test_subnormal_and_huge_values_have_bins_of_their_own() -> None:
    """The histogram knows the exponent of any float."""
    voxels = np.array([[1e-42, -1e-42, 3e38, -3e38, 0.0, -0.0]], np.float32)
    edges, counts = total_of(count_channels(voxels)).histogram()
    np.testing.assert_array_equal(np.histogram(voxels.astype("f8"), edges)[0], counts)


def test_sums_do_not_depend_on_how_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts that are put together early give the figures of those put together at the end."""

    def added(parts: list[Counts]) -> Volume:
        total = StatisticsSum()
        for one in parts:
            total.add(one)
        found = total.total()
        return np.array([found.count, found.minimum, found.maximum, found.mean, found.std, *found.histogram()[1]])

    draw = np.random.default_rng(1)
    parts = [count_channels(draw.integers(-500, 500, (1, 4000)).astype(np.int16))[0] for _ in range(9)]
    late = added(parts)
    monkeypatch.setattr("voxload.convert.encode.statistics._FOLD", 1500)
    np.testing.assert_allclose(added(parts), late, rtol=1e-13)
