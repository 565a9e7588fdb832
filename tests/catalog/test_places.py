"""Catalogues behind a URL: the same samples as from the folder, of what lies below that URL and nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest
import zarr

from tests.support.rangeserver import RangeServer, serving
from voxload.catalog import Rows, filter_rows, parse, write_rows
from voxload.catalog.checksums import checksums_name
from voxload.catalog.columns import column
from voxload.catalog.places import CATALOG_NAME, place_of
from voxload.catalog.table import Catalog
from voxload.cli.main import run
from voxload.convert import ConvertOptions, convert
from voxload.convert.options import Packing, StoredFormat
from voxload.convert.storage.compression import Compression
from voxload.data.dataset import VolumeDataset
from voxload.errors import DataError, NotFoundError, StorageError, UsageError
from voxload.readers.protocol import Location
from voxload.readers.registry import open_reader
from voxload.transforms import standardize_by

Array = npt.NDArray[Any]
pytestmark = pytest.mark.usefixtures("no_leaks")
SHAPE = (8, 6, 10)


def _cubes(folder: Path, count: int) -> dict[str, Array]:
    """Write raw cubes, each its own voxels; return them by sample id."""
    folder.mkdir()
    made = {f"u{i}": np.random.default_rng(i).integers(0, 99, SHAPE).astype("<i2") for i in range(count)}
    for name, cube in made.items():
        np.save(folder / f"{name}.npy", cube)
    return made


@pytest.fixture
def site(tmp_path: Path) -> Iterator[RangeServer]:
    """Serve a folder, empty at first."""
    (tmp_path / "served").mkdir()
    with serving(tmp_path / "served") as found:
        found.age = 3600.0
        yield found


def _converted(site: RangeServer, tmp_path: Path, **options: Any) -> dict[str, Array]:
    """Convert cubes into the served folder."""
    made = _cubes(tmp_path / "raw", 5)
    targets = {name: {"a": float(number)} for number, name in enumerate(made)}
    convert(tmp_path / "raw", site.folder / "all", options=ConvertOptions(targets=targets, **options))
    return made


WAYS: dict[str, dict[str, Any]] = {
    "zarr": {},
    "hdf5": {"format": StoredFormat.HDF5},
    "zarr, packed": {"pack": Packing.ALWAYS},
    "hdf5, packed": {"pack": Packing.ALWAYS, "format": StoredFormat.HDF5},
    "zarr, split": {"split": (4, 6, 5)},
}


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("checksums", [False, True], ids=["plain", "summed"])
@pytest.mark.parametrize("way", list(WAYS))
def test_samples_are_those_of_the_folder(site: RangeServer, tmp_path: Path, way: str, checksums: bool) -> None:
    """Ids, blocks, targets and conditions are the same from far as from near."""
    _converted(site, tmp_path, checksums=checksums, **WAYS[way])
    local = VolumeDataset(site.folder / "all", targets="a", halo=1)
    far = VolumeDataset(f"{site.url}/all/{CATALOG_NAME}", targets="a", halo=1)
    assert list(far.sample_ids) == list(local.sample_ids)
    for index in range(len(local)):
        for one, other in zip(far[index], local[index], strict=True):
            assert one.dtype == other.dtype
            assert one.equal(other)
    assert list(far.subset(where="a > 2").sample_ids) == list(local.subset(where="a > 2").sample_ids)
    local.close()
    far.close()


@pytest.mark.long
def test_a_chunk_that_was_changed_on_the_far_side_is_an_error(site: RangeServer, tmp_path: Path) -> None:
    """Recorded checksums are compared behind a URL, too."""
    made = _converted(site, tmp_path, checksums=True, format=StoredFormat.HDF5, compression=Compression.NONE)
    path = site.folder / "all" / "u1.h5"
    stored, cube = bytearray(path.read_bytes()), made["u1"].tobytes()
    at = bytes(stored).index(cube[:64])
    stored[at + 5] ^= 16
    path.write_bytes(stored)
    data = VolumeDataset(f"{site.url}/all/{CATALOG_NAME}")
    np.testing.assert_array_equal(data[0][0].numpy()[0], made["u0"])
    with pytest.raises(DataError, match="u1"):
        data[1]
    data.close()


@pytest.mark.long
def test_checksums_are_fetched_once_and_again_when_they_changed(site: RangeServer, tmp_path: Path) -> None:
    """A damaged file of checksums, or none, is never believed."""
    _converted(site, tmp_path, checksums=True)
    data = VolumeDataset(f"{site.url}/all/{CATALOG_NAME}")
    name = checksums_name(Path(CATALOG_NAME))
    got = [data[index][0].numpy() for index in range(5)]
    whole = (site.folder / "all" / name).read_bytes()
    assert len(got) == 5
    data.close()
    (site.folder / "all" / name).write_bytes(whole[:-40])
    again = VolumeDataset(f"{site.url}/all/{CATALOG_NAME}")
    with pytest.raises(DataError, match=name):
        again[0]
    (site.folder / "all" / name).unlink()
    with pytest.raises(DataError, match="no such file"):
        again[1]
    again.close()


@pytest.mark.long
def test_paths_that_lead_out_are_refused(site: RangeServer, tmp_path: Path) -> None:
    """A catalogue behind a URL names what lies below that URL."""
    _converted(site, tmp_path)
    place = site.folder / "all" / CATALOG_NAME
    sound = pq.read_table(place)
    for odd in ("../all/u0.zarr", "/etc/passwd", f"{site.url}/all/u0.zarr", "a/../../x.zarr", "http://other/x.zarr"):
        for name in ("path", "checksums"):
            values = [odd, *sound.column(name).to_pylist()[1:]]
            at = sound.column_names.index(name)
            pq.write_table(sound.set_column(at, name, column(values, sound.schema.field(name).type)), place)
            with pytest.raises(UsageError, match="--allow-outside"):
                VolumeDataset(f"{site.url}/all/{CATALOG_NAME}")
    at = sound.column_names.index("path")
    values = [f"{site.url}/all/u0.zarr", *sound.column("path").to_pylist()[1:]]
    pq.write_table(sound.set_column(at, "path", column(values, sound.schema.field("path").type)), place)
    data = VolumeDataset(f"{site.url}/all/{CATALOG_NAME}", allow_outside=True)
    assert data[0][0].equal(VolumeDataset(site.folder / "all" / "u0.zarr")[0][0])
    data.close()


def test_what_is_no_catalogue_is_an_error(site: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of nothing is told apart."""
    _converted(site, tmp_path)
    url = f"{site.url}/all/{CATALOG_NAME}"
    with pytest.raises(NotFoundError, match="no such object"):
        Catalog.read(f"{site.url}/none.parquet")
    with pytest.raises(UsageError, match="leave file:// out"):
        Catalog.read(f"file://{site.folder}/all/{CATALOG_NAME}")
    with pytest.raises(UsageError, match="copy the catalogue first"):
        Catalog.read(Path(url))
    monkeypatch.setenv("VOXLOAD_MAX_TABLE", "1000")
    with pytest.raises(DataError, match="bytes"):
        Catalog.read(url)
    monkeypatch.delenv("VOXLOAD_MAX_TABLE")
    place = site.folder / "all" / CATALOG_NAME
    place.write_bytes(place.read_bytes()[:-100])
    with pytest.raises(DataError, match="complete Parquet file"):
        Catalog.read(url)
    site.trouble = lambda _number, _path: "403"
    with pytest.raises(StorageError):
        Catalog.read(url)


@pytest.mark.long
def test_rows_of_a_url_keep_its_urls(site: RangeServer, tmp_path: Path) -> None:
    """Rows that are written elsewhere name the same volumes."""
    made = _converted(site, tmp_path, checksums=True)
    rows = Rows.read(f"{site.url}/all")
    local = Rows.read(site.folder / "all")
    assert rows.table.equals(local.table)
    some = filter_rows(rows, where=parse("a >= 3"))
    write_rows({tmp_path / "some.parquet": some})
    with pytest.raises(UsageError, match="--allow-outside"):
        VolumeDataset(tmp_path / "some.parquet")
    data = VolumeDataset(tmp_path / "some.parquet", allow_outside=True)
    assert list(data.sample_ids) == ["u3", "u4"]
    np.testing.assert_array_equal(data[1][0].numpy()[0], made["u4"])
    data.close()
    assert repr(standardize_by(f"{site.url}/all")) == repr(standardize_by(site.folder / "all"))


@pytest.mark.long
def test_commands_take_urls(site: RangeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands that only read take a URL; those that write beside it say what to do."""
    _converted(site, tmp_path)
    url = f"{site.url}/all/{CATALOG_NAME}"
    assert run(["catalog", "list", f"{site.url}/all", "--json"]) == 0
    assert [row["sample"] for row in json.loads(capsys.readouterr().out)["rows"]] == [f"u{i}" for i in range(5)]
    assert run(["info", url, "--sample", "u2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["targets"] == {"a": 2.0}
    assert run(["catalog", "split", url]) == 2
    assert "copy the catalogue first" in " ".join(capsys.readouterr().err.split())


def test_what_convert_writes_is_found_without_a_listing(site: RangeServer, tmp_path: Path) -> None:
    """The group has a copy of the document of its array."""
    made = _converted(site, tmp_path)
    data = VolumeDataset(f"{site.url}/all/u3.zarr")
    np.testing.assert_array_equal(data[0][0].numpy()[0], made["u3"])
    data.close()
    group = zarr.open_group(site.folder / "all" / "u3.zarr", mode="r", use_consolidated=True)
    assert list(group.array_keys()) == ["volume"]
    np.testing.assert_array_equal(np.asarray(group["volume"])[0], made["u3"])
    document = json.loads((site.folder / "all" / "u3.zarr" / "zarr.json").read_text())
    own = json.loads((site.folder / "all" / "u3.zarr" / "volume" / "zarr.json").read_text())
    assert document["consolidated_metadata"]["metadata"] == {"volume": own}


def test_an_array_that_was_added_later_is_found(site: RangeServer, tmp_path: Path) -> None:
    """Copies of documents do not hide what a folder holds."""
    made = _converted(site, tmp_path)
    path = site.folder / "all" / "u3.zarr"
    added = zarr.open_group(path, mode="a").create_array("mask", shape=SHAPE, chunks=SHAPE, dtype="u1", fill_value=7)
    added[...] = 1
    for name, found in (("volume", made["u3"]), ("mask", np.ones(SHAPE, "u1"))):
        reader = open_reader(Location(os.fspath(path), name))
        out = np.empty((1, *SHAPE), found.dtype)
        reader.read_into(reader.describe().whole, out)
        reader.close()
        np.testing.assert_array_equal(out[0], found)
    with pytest.raises(UsageError, match="mask"):
        VolumeDataset(path)[0]


def test_places() -> None:
    """Where paths lead."""
    assert place_of("s3://b/c", ".") == "s3://b/c"
    assert place_of("s3://b/c", "x/../y.zarr") == "s3://b/c/y.zarr"
    assert place_of("s3://b/c", "/abs.h5") == "/abs.h5"
    assert place_of(Path("/data"), ".") == "/data"
