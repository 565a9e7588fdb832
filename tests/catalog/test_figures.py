"""figures: statistics of many volumes are those of all their voxels together."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.catalog.tables import rows
from voxload.catalog import field_figures
from voxload.catalog.columns import SUMMARY_TYPE
from voxload.catalog.statistics import Summary
from voxload.errors import DataError

Voxels = npt.NDArray[np.float64]


def _row(volume: Voxels) -> dict[str, Any]:
    """Return a row's statistics as numpy has them; of no voxels there are none."""

    def figures(values: Voxels) -> dict[str, Any]:
        finite = values[np.isfinite(values)]
        counts = {
            "count": finite.size,
            "nan_count": int(np.isnan(values).sum()),
            "inf_count": int(np.isinf(values).sum()),
        }
        kinds: dict[str, Any] = {"min": np.min, "max": np.max, "mean": np.mean, "std": np.std}
        return counts | {name: float(kind(finite)) if finite.size else None for name, kind in kinds.items()}

    return figures(volume) | {"edges": [], "histogram": [], "channels": [figures(channel) for channel in volume]}


def _like(found: Summary | None, values: Voxels) -> bool:
    expected = _row(values[np.newaxis])
    assert found is not None
    return astuple(found)[:3] == (expected["count"], expected["nan_count"], expected["inf_count"]) and all(
        (value == expected[name] if value is None else value == pytest.approx(expected[name], rel=1e-9, abs=1e-9))
        for name, value in ((name, getattr(found, name)) for name in ("min", "max", "mean", "std"))
    )


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5), channels=st.integers(1, 3), seed=st.integers(0, 10**6)
)
def test_merged_figures_are_those_of_all_voxels(sizes: list[int], channels: int, seed: int) -> None:
    """Means and deviations of volumes of any size, with NaN and inf, merge as if they were one; channels too."""
    random = np.random.default_rng(seed)
    volumes = [
        np.where(
            random.random((channels, size)) < 0.2,
            random.choice([np.nan, np.inf, -np.inf], (channels, size)),
            random.normal(random.normal(0, 50), 3, (channels, size)),
        )
        for size in sizes
    ]
    names = [str(number) for number in range(len(volumes))]
    found = field_figures(rows(names, statistics=pa.array(list(map(_row, volumes)), SUMMARY_TYPE)))["full"]
    together = np.concatenate(volumes, axis=1)
    assert (found.volumes, found.unknown) == (len(sizes), 0)
    assert _like(found.whole, together.ravel())
    assert len(found.channels) == channels
    assert all(_like(part, values) for part, values in zip(found.channels, together, strict=True))


def test_fields_are_apart_and_gaps_are_counted() -> None:
    """Each dataset has figures of its own; volumes without statistics are counted, not taken for zeros."""
    known = _row(np.array([[1.0, 2.0, 3.0]]))
    catalog = rows(
        ["a", "a", "b", "c"],
        dataset=["labels", "x", "x", "none"],
        statistics=pa.array([_row(np.array([[7.0]])), known, None, None], SUMMARY_TYPE),
    )
    found = field_figures(catalog)
    assert list(found) == ["labels", "none", "x"]
    assert (found["x"].volumes, found["x"].unknown) == (1, 1)
    assert found["x"].whole == Summary(3, 0, 0, 1.0, 3.0, 2.0, float(np.std([1, 2, 3])))
    assert (found["none"].whole, found["none"].unknown) == (None, 1)


def test_volumes_with_different_channels_have_no_channel_figures() -> None:
    """Channel 1 of a volume of two is nothing that one of three has; the whole still is."""
    volumes = [np.ones((2, 4)), np.zeros((3, 4))]
    found = field_figures(rows(["a", "b"], statistics=pa.array(list(map(_row, volumes)), SUMMARY_TYPE)))["full"]
    assert found.channels == ()
    assert found.whole is not None
    assert (found.whole.count, found.whole.mean) == (20, 0.4)


def test_half_a_row_of_figures_is_refused() -> None:
    """Statistics of another tool that lack figures name the sample and what is missing."""
    half: Any = _row(np.ones((1, 3))) | {"mean": None, "std": None}
    with pytest.raises(
        DataError, match="statistics of sample 'a': found no mean, expected all figures, or none at all"
    ):
        field_figures(rows(["a"], statistics=pa.array([half], SUMMARY_TYPE)))
