"""merge: rows of several catalogues as one, or a reason why not."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest

from tests.catalog.tables import lines, rows
from voxload.catalog import Rows, write_rows
from voxload.catalog.checksums import checksums_name
from voxload.catalog.merge import merge
from voxload.catalog.table import Catalog
from voxload.convert import ConvertOptions, convert
from voxload.data.dataset import VolumeDataset
from voxload.errors import DataError, UsageError
from voxload.verification import verify


def test_samples_of_two_folders_are_read_from_a_third(tmp_path: Path) -> None:
    """Voxels of a merged catalogue are those of its sources, checksums included, wherever it lies."""
    volumes = {}
    for number, name in enumerate("ab"):
        (tmp_path / f"raw{name}").mkdir()
        volumes[name] = np.random.default_rng(number).integers(0, 9, (4, 5, 6)).astype("<i2")
        np.save(tmp_path / f"raw{name}" / f"{name}.npy", volumes[name])
        convert(tmp_path / f"raw{name}", tmp_path / "in" / name, options=ConvertOptions(checksums=True))
    (tmp_path / "out" / "deep").mkdir(parents=True)
    sources = [Rows.read(tmp_path / "in" / name) for name in "ab"]
    place = tmp_path / "out" / "deep" / "all.parquet"
    write_rows({place: merge(sources, place.parent)})
    sums = checksums_name(Path("catalog.parquet"))
    assert Catalog.read(place, allow_outside=True).entry("a", "volume").checksums == f"../../in/a/{sums}"
    with closing(VolumeDataset(place, allow_outside=True)) as data:
        assert data.sample_ids == ("a", "b")
        for index, name in enumerate("ab"):
            (found,) = data[index]
            assert np.array_equal(found[0], volumes[name])
    (tmp_path / "in" / "b" / sums).unlink()
    with closing(VolumeDataset(place, allow_outside=True)) as data, pytest.raises(DataError, match="checksums"):
        data[1]


def test_the_order_does_not_matter(tmp_path: Path) -> None:
    """Equal rows give equal catalogues, sorted by id, whichever came first."""
    one, other = rows(["c", "a"], tmp_path), rows(["b"], tmp_path)
    found = merge([one, other], tmp_path)
    assert found.samples == ["a", "b", "c"]
    assert found.table.equals(merge([other, one], tmp_path).table)


def test_equal_rows_are_there_once(tmp_path: Path) -> None:
    """A volume that two catalogues have, one by a link and from another folder, is one; NaN is equal to itself."""
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to("in")
    nan: Any = [float("nan")]
    one = rows(["a"], tmp_path / "in", path=["a.zarr"], omega_m=nan)
    other = rows(["a", "b"], tmp_path, path=["link/a.zarr", "b.zarr"], stored_bytes=[1000, 5], omega_m=nan * 2)
    found = merge([one, other], tmp_path)
    assert found.strings("path") == ["in/a.zarr", "b.zarr"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"path": ["b.zarr"]},
            r"column 'path': found '.*/a\.zarr' in one and '.*/b\.zarr' in other, expected equal rows",
        ),
        ({"stored_bytes": [7]}, "column 'stored_bytes': found 1000 in one and 7 in other"),
        ({"omega_m": [0.5]}, r"column 'omega_m': found 0\.25 in one and 0\.5 in other"),
        ({"universe": ["u"]}, "column 'universe'"),
        (
            {"dataset": ["labels"], "omega_m": [0.5]},
            r"sample 'a': found targets \(0\.25,\) and \(0\.5,\) of \['omega_m'\]",
        ),
    ],
)
def test_rows_that_disagree_are_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    """Two catalogues that say different things of one volume or sample are told which differs."""
    one = Rows.of(rows(["a"], omega_m=[0.25]).table, tmp_path, name="one")
    other = Rows.of(rows(["a"], **({"omega_m": [0.25]} | changes)).table, tmp_path, name="other")
    with pytest.raises(DataError, match=words):
        merge([one, other], tmp_path)


def test_datasets_of_one_sample_come_together(tmp_path: Path) -> None:
    """Volumes in one catalogue and their labels in another become samples of both."""
    one = rows(["a"], tmp_path / "x", omega_m=[0.25])
    other = rows(["a"], tmp_path / "y", dataset=["labels"], omega_m=[0.25])
    found = merge([one, other], tmp_path)
    assert found.strings("dataset") == ["full", "labels"]
    assert found.strings("path") == ["x/a.zarr", "y/a.zarr"]


def test_different_targets(tmp_path: Path) -> None:
    """They are refused with the option that keeps the common ones."""
    one = rows(["a"], tmp_path, omega_m=[0.25], h0=[0.7])
    other = rows(["b"], tmp_path, omega_m=[0.5], sigma_8=[0.8])
    with pytest.raises(UsageError, match=r"\['omega_m', 'sigma_8'\], expected .*'h0'.*; --common-targets keeps"):
        merge([one, other], tmp_path)
    found = merge([one, other], tmp_path, common_targets=True)
    assert found.targets == ("omega_m",)
    assert "h0" not in found.table.column_names


def test_columns_of_other_tools(tmp_path: Path) -> None:
    """Those that all have are kept, in a type that all values fit."""
    one = rows(["a"], tmp_path, note=pa.array(["x"]).dictionary_encode(), seed=pa.array([1], pa.int16()), only=["y"])
    other = rows(["b"], tmp_path, note=["z"], seed=pa.array([2], pa.int64()))
    found = merge([one, other], tmp_path)
    assert found.table.column_names[-2:] == ["note", "seed"]
    assert [(row["note"], row["seed"]) for row in lines(found)] == [("x", 1), ("z", 2)]


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (pa.array(["x"]), pa.array([True]), "column 'note': found types string, bool, expected one type"),
        (
            pa.array([2**60 + 1]),
            pa.array([0.5]),
            "column 'note' of the catalogue: found .*, expected values that type double",
        ),
    ],
)
def test_types_that_do_not_fit(tmp_path: Path, one: pa.Array, other: pa.Array, words: str) -> None:
    """No value is changed to fit another's type."""
    with pytest.raises(UsageError, match=words):
        merge([rows(["a"], tmp_path, note=one), rows(["b"], tmp_path, note=other)], tmp_path)


def test_nothing_to_merge(tmp_path: Path) -> None:
    """No catalogue is not an empty one."""
    with pytest.raises(UsageError, match="no catalogue"):
        merge([], tmp_path)


def _shared(folder: Path) -> Path:
    """Write a catalogue of two samples that share one volume, with its checksums; return it."""
    folder.mkdir()
    with h5py.File(folder / "both.h5", "w") as file:
        values = np.arange(8 * 4 * 4, dtype="<i2").reshape(8, 4, 4)
        file.create_dataset("x", data=values, chunks=(4, 4, 4))
    place = folder / "catalog.parquet"
    found = rows(
        ["low", "high"],
        folder,
        path=["both.h5"] * 2,
        dataset=["x"] * 2,
        shape=[[4, 4, 4]] * 2,
        axes=["DHW"] * 2,
        window=[[0, 0, 0], [4, 0, 0]],
    )
    write_rows({place: found})
    return place


def test_samples_that_share_a_volume_keep_its_checksums(tmp_path: Path) -> None:
    """Checksums of a shared volume are found from another folder too."""
    place = _shared(tmp_path / "in")
    assert verify(place, write=True).recorded == 1
    moved = tmp_path / "all.parquet"
    write_rows({moved: merge([Rows.read(place)], tmp_path)})
    with closing(VolumeDataset(moved)) as data:
        assert data.sample_ids == ("high", "low")
        assert np.asarray(data[0]).min() == 4 * 4 * 4
