"""Members of archives and datasets of files with names that lead elsewhere are converted under names that do not."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from voxload.catalog.table import Catalog
from voxload.convert import ConvertOptions, StoredFormat, convert
from voxload.data.lists.samples import location_of
from voxload.readers import open_reader

CUBE = np.arange(6 * 7 * 8, dtype="<i2").reshape(6, 7, 8)


def archive(path: Path, *names: str) -> None:
    """Write an archive whose members, each the cube, have any names."""
    data = io.BytesIO()
    np.save(data, CUBE)
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(zipfile.ZipInfo(name + ".npy"), data.getvalue())


def tree(folder: Path) -> dict[str, bytes | None]:
    """Return all that is in a folder."""
    return {str(path): None if path.is_dir() else path.read_bytes() for path in sorted(folder.rglob("*"))}


@pytest.mark.parametrize("stored", StoredFormat)
@pytest.mark.parametrize("climb", ["absolute", "up", "shard"])
def test_a_member_of_an_archive_writes_nothing_outside(tmp_path: Path, climb: str, stored: StoredFormat) -> None:
    """Neither an absolute name nor one that climbs leaves the output; the voxels are right."""
    others = tmp_path / "others"
    others.mkdir()
    (others / "c").write_bytes(b"theirs")
    name = {"absolute": f"{others}/x", "up": "../../others/x", "shard": f"{others}"}[climb]
    (tmp_path / "raw").mkdir()
    archive(tmp_path / "raw" / "a.npz", name)
    before = tree(others)

    catalog = Catalog.read(convert(tmp_path / "raw", tmp_path / "out", options=ConvertOptions(format=stored)).catalog)

    assert tree(others) == before
    assert {path.name for path in tmp_path.iterdir()} == {"others", "raw", "out"}
    ((sample, dataset),) = catalog.keys
    reader = open_reader(location_of(catalog.entry(sample, dataset), catalog.root))
    out = np.empty((1, *CUBE.shape), CUBE.dtype)
    reader.read_into(reader.describe().whole, out)
    reader.close()
    assert (out[0] == CUBE).all()


def test_datasets_of_hdf5_whose_names_climb_or_are_reserved_get_their_own_volumes(tmp_path: Path) -> None:
    """Each of them, those that a volume's own metadata are called by too."""
    names = ["..", "zarr.json", "a\x1b[2Jb", "c", "__x", "é" * 200, "voxload\u202e"]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in names:
            dataset = file.create_dataset(name, data=CUBE)
            for dimension, label in zip(dataset.dims, "dhw", strict=True):
                dimension.label = label
    catalog = Catalog.read(convert(tmp_path / "a.h5", tmp_path / "out").catalog)
    assert len(catalog.datasets) == len(names)
    assert all(name.isprintable() for name in catalog.datasets)


def test_a_link_where_a_lock_would_be_is_not_written_through(tmp_path: Path) -> None:
    """A link that somebody left in the output folder is refused or removed, and its end stays."""
    mine = tmp_path / "mine"
    mine.write_text("keep")
    out = tmp_path / "out"
    out.mkdir()
    np.save(tmp_path / "a.npy", CUBE)
    (out / ".voxload-convert.lock").symlink_to(mine)
    (out / ".a.zarr.partial-convert").symlink_to(tmp_path)
    with pytest.raises(OSError, match="symbolic links"):
        convert(tmp_path / "a.npy", out)
    assert mine.read_text() == "keep"
    (out / ".voxload-convert.lock").unlink()
    before = set(tmp_path.iterdir())
    convert(tmp_path / "a.npy", out)
    assert set(tmp_path.iterdir()) == before
