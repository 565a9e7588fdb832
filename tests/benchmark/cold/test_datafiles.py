"""DataFiles: the files of catalogues, folders, patterns and hierarchies, each once."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import zarr

from voxload.benchmark.cold.datafiles import data_files
from voxload.benchmark.workload.workload import Samples
from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.table import Catalog, Entry
from voxload.errors import NotFoundError

VOLUME = np.zeros((4, 4, 4), np.int16)


def below(folder: Path) -> set[str]:
    """Return all files in a folder."""
    return {os.fspath(path) for path in folder.rglob("*") if path.is_file()}


def entry(sample: str, path: str, dataset: str) -> Entry:
    """Return a row of a catalogue."""
    return Entry(sample, path, dataset, VOLUME.shape, "<i2", "DHW", VOLUME.nbytes)


@pytest.fixture
def hierarchy(tmp_path: Path) -> Path:
    """Return a Zarr group of two arrays, a file for each chunk."""
    group = zarr.open_group(tmp_path / "u.zarr", mode="w")
    for name in ("full", "small/inner"):
        array = group.create_array(name, shape=VOLUME.shape, chunks=(2, 4, 4), dtype="i2")
        array[:] = VOLUME + 1
    return tmp_path / "u.zarr"


def test_a_pattern_names_files(tmp_path: Path) -> None:
    """In the order of the samples; their bytes are counted."""
    for name in "ba":
        np.save(tmp_path / f"{name}.npy", VOLUME)
    found = data_files(Samples(os.fspath(tmp_path / "*.npy")))
    assert found.files == (f"{tmp_path}/a.npy", f"{tmp_path}/b.npy")
    assert found.nbytes == 2 * (tmp_path / "a.npy").stat().st_size
    assert found.remote == 0


def test_of_a_hierarchy_the_array_counts(hierarchy: Path) -> None:
    """All files of the one that is read, and none of its neighbour."""
    found = data_files(Samples(os.fspath(hierarchy), dataset="full"))
    assert set(found.files) == below(hierarchy / "full")
    assert len(found.files) == 3
    assert set(data_files(Samples(os.fspath(hierarchy), dataset="small/inner")).files) == below(
        hierarchy / "small/inner"
    )


def test_a_folder_that_is_one_array_counts_whole(hierarchy: Path) -> None:
    """Where no dataset is named."""
    assert set(data_files(Samples(os.fspath(hierarchy / "full"))).files) == below(hierarchy / "full")


def test_a_catalogue_names_files_each_once(tmp_path: Path, hierarchy: Path) -> None:
    """Two samples may share a file, and a sample may be behind a URL; the catalogue's folder names it, too."""
    (tmp_path / "many.h5").write_bytes(b"x" * 100)
    rows = [
        entry("u1", "many.h5", "full"),
        entry("u2", "many.h5", "full"),
        entry("u3", hierarchy.name, "full"),
        entry("u4", "s3://bucket/u4.h5", "full"),
    ]
    Catalog.from_entries(rows, tmp_path, allow_outside=True).write(tmp_path / CATALOG_NAME)
    for location in (tmp_path, tmp_path / CATALOG_NAME):
        found = data_files(Samples(os.fspath(location), allow_outside=True))
        assert found.files[0] == f"{tmp_path}/many.h5"
        assert set(found.files[1:]) == below(hierarchy / "full")
        assert len(found.files) == 4
        assert found.remote == 1


def test_local_urls_are_files(tmp_path: Path) -> None:
    """Their pages are in this node's page cache like any other's."""
    np.save(tmp_path / "a.npy", VOLUME)
    assert data_files(Samples(f"file://{tmp_path}/a.npy")).files == (f"{tmp_path}/a.npy",)


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    """A catalogue may know more than there is."""
    Catalog.from_entries([entry("u1", "gone.h5", "full")], tmp_path).write(tmp_path / CATALOG_NAME)
    with pytest.raises(NotFoundError, match=r"gone\.h5: found no such file"):
        data_files(Samples(os.fspath(tmp_path)))
