"""Tests of the demo's labelled universes: the rule by hand, repetition, and files that the loader reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

import voxload
from voxload.demo.structures import CLASSES, StructureRule, label_structures, make_structures
from voxload.demo.universes import Universe, UniverseSpec
from voxload.errors import UsageError


def test_structures_are_told_apart_by_their_voxels() -> None:
    """Without smoothing: a speck is background, a bar is small, a brick is large; corners do not join."""
    density = np.zeros((12, 12, 12), np.int16)
    density[0, 0, 0] = 9
    density[2, 2, 2:7] = 9
    density[5:8, 5:8, 7:9] = 9
    density[3, 3, 7] = 9  # touches the bar at an edge only
    labels = label_structures(density, StructureRule(0.0, 0.95, smallest=2, large=10))
    expected = np.zeros_like(labels)
    expected[2, 2, 2:7] = 1
    expected[5:8, 5:8, 7:9] = 2
    np.testing.assert_array_equal(labels, expected)
    assert labels.dtype == np.uint8


def test_structures_are_where_the_smoothed_density_is_high() -> None:
    """No voxel below the quantile is labelled, all above it are in structures or in specks, and all classes occur."""
    rule = StructureRule()
    density = Universe.draw(UniverseSpec(3, 0, 32)).counts[..., 0]
    labels = label_structures(density)
    smooth = ndimage.gaussian_filter(density.astype(float), rule.smoothing, mode="nearest")
    dense = smooth > np.quantile(smooth, rule.quantile)
    assert not labels[~dense].any()
    assert set(np.unique(labels)) == set(range(CLASSES))
    for one in (1, 2):
        found, count = ndimage.label(labels == one)
        sizes = np.bincount(found.ravel())[1:]
        assert len(sizes) == count
        assert (sizes >= rule.smallest).all()
        assert ((sizes >= rule.large) == (one == 2)).all()
    specks, _ = ndimage.label(dense & (labels == 0))
    assert np.bincount(specks.ravel())[1:].max(initial=0) < rule.smallest


@pytest.mark.long
def test_samples_are_repeatable_and_are_read_as_they_are(tmp_path: Path) -> None:
    """Sample i depends on seed and i only; the catalogue leads to counts and labels of the same voxels."""
    told: list[int] = []
    few = make_structures(tmp_path / "few", count=2, size=16, seed=5)
    many = make_structures(tmp_path / "many", count=3, size=16, seed=5, progress=told.append)
    assert told == [1, 1, 1]
    for name in ("structures-00000.h5", "structures-00001.h5"):
        assert few.with_name(name).read_bytes() == many.with_name(name).read_bytes()
    data = voxload.VolumeDataset(many, fields={"x": "density", "labels": "labels"})
    for index in range(3):
        x, labels = data[index]
        density = Universe.draw(UniverseSpec(5, index, 16)).counts[..., 0]
        np.testing.assert_array_equal(x[0], density)
        np.testing.assert_array_equal(labels[0], label_structures(density))
    data.close()
    assert sorted(path.suffix for path in (tmp_path / "few").iterdir()) == [".h5", ".h5", ".parquet"]


@pytest.mark.parametrize(
    "wrong", [{"smoothing": -1.0}, {"quantile": 1.0}, {"smallest": 0}, {"smallest": 9, "large": 8}]
)
def test_impossible_rules_are_refused(wrong: dict[str, float]) -> None:
    """Shares that are none and sizes in the wrong order raise UsageError."""
    with pytest.raises(UsageError, match="structures: found smoothing"):
        StructureRule(**wrong)  # type: ignore[arg-type] # one dict for fields of two types


@pytest.mark.parametrize(("count", "size", "seed"), [(0, 16, 0), (1, 9, 0), (1, 16, -1)])
def test_impossible_collections_are_refused(tmp_path: Path, count: int, size: int, seed: int) -> None:
    """Nothing is written for them."""
    with pytest.raises(UsageError, match="expected"):
        make_structures(tmp_path / "raw", count=count, size=size, seed=seed)
    assert list(tmp_path.iterdir()) == []
