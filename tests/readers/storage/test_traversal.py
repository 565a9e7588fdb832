"""Paths that catalogues, headers and HDF5 files name: none leads out of its folder unless that is allowed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from tests.support.launches import fork_launches
from voxload import VolumeDataset
from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.table import Catalog, Entry
from voxload.cli.main import run
from voxload.convert import convert
from voxload.convert.options import ConvertOptions
from voxload.convert.sources.hints import Hints
from voxload.errors import UsageError
from voxload.readers import Location, open_reader
from voxload.readers.remote.store import SCHEMES_VARIABLE
from voxload.verification import verify

CUBE = np.arange(8 * 8 * 8, dtype="<i2").reshape(8, 8, 8)
SECRET = CUBE + 1000


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Make a folder of the user's own with files that nobody else should get."""
    folder = tmp_path / "mine"
    folder.mkdir()
    with h5py.File(folder / "s.h5", "w") as file:
        file["x"] = SECRET
        file["t"] = np.array([7.0])
    np.save(folder / "s.npy", SECRET)
    (folder / "s.raw").write_bytes(SECRET.tobytes())
    return folder


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """Make the folder that a stranger's archive was unpacked to."""
    folder = tmp_path / "strange"
    folder.mkdir()
    return folder


def catalogue(folder: Path, path: str, checksums: str = "") -> None:
    """Write a catalogue of one sample that names a path."""
    entry = Entry("a", "a.h5", "x", CUBE.shape, "<i2", "DHW", 1, {"t": 1.0})
    table = Catalog.from_entries([entry], folder).table
    for name, value in (("path", path), ("checksums", checksums)):
        table = table.set_column(table.column_names.index(name), name, pa.array([value]))
    pq.write_table(table, folder / CATALOG_NAME)


def linked(strange: Path, mine: Path) -> str:
    """Name a link that leads out."""
    (strange / "in.h5").symlink_to(mine / "s.h5")
    return "in.h5"


def linked_folder(strange: Path, mine: Path) -> str:
    """Name a file in a folder that is a link."""
    (strange / "sub").symlink_to(mine)
    return "sub/s.h5"


PATHS: dict[str, Callable[[Path, Path], str]] = {
    "absolute": lambda _, mine: str(mine / "s.h5"),
    "up": lambda _, __: "../mine/s.h5",
    "down and up": lambda _, __: "sub/../../mine/s.h5",
    "url": lambda _, mine: f"file://{mine}/s.h5",
    "chain": lambda _, mine: f"simplecache::file://{mine}/s.h5",
    "link": linked,
    "folder": linked_folder,
}


@pytest.mark.parametrize("kind", PATHS)
def test_a_catalogue_reads_nothing_outside_of_its_folder(
    mine: Path, strange: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By no kind of path, in no command; with leave it is read, but for chains of URLs."""
    fork_launches(monkeypatch)
    catalogue(strange, PATHS[kind](strange, mine))
    (strange / "out").mkdir()

    def read(*, allow_outside: bool) -> int:
        with closing(VolumeDataset(strange, allow_outside=allow_outside)) as data:
            return int(data[0][0].max())

    with pytest.raises(UsageError, match="--allow-outside"):
        read(allow_outside=False)
    # What verification finds wrong of a volume is a row of its report.
    assert run(["verify", str(strange)]) in (1, 2)
    assert run(["info", str(strange), "--sample", "a"]) == 2
    if kind == "absolute":
        assert run(["train", str(strange), "--epochs", "1", "--output", str(strange / "out")]) == 2
    if kind == "chain":
        with pytest.raises(UsageError, match=SCHEMES_VARIABLE):
            read(allow_outside=True)
    elif kind not in ("down and up", "url"):  # no such folder; a client with its own rules
        assert read(allow_outside=True) == SECRET.max()
        assert verify(strange, allow_outside=True).damaged == 0


@pytest.mark.parametrize("command", ["merge", "split", "filter"])
def test_no_command_turns_a_path_that_leads_out_into_one_that_does_not(
    mine: Path, strange: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rewritten for the folder above, a path that climbs would not climb any more."""
    catalogue(strange, "../mine/s.h5")
    out = mine.parent / "all.parquet"
    call = {
        "merge": ["merge", str(out), str(strange)],
        "split": ["split", str(strange), "--train", "1", "--out", str(mine.parent)],
        "filter": ["filter", str(strange), str(out), "--where", "t > 0"],
    }[command]
    assert run(["catalog", *call]) == 2
    assert "--allow-outside" in capsys.readouterr().err
    assert not list(mine.parent.glob("*.parquet"))
    assert run(["catalog", *call, "--allow-outside"]) == 0


@pytest.mark.parametrize("link", ["x", "x/c", "x/c/0/0/0", "x/zarr.json"])
def test_a_catalogue_reads_no_zarr_hierarchy_that_leads_out(mine: Path, strange: Path, link: str) -> None:
    """By an array, a folder of chunks, a chunk or metadata that are links; with leave they are read."""
    for root, values in ((mine, SECRET), (strange, CUBE)):
        group = zarr.create_group(root / "z.zarr", zarr_format=3)
        array = group.create_array(
            "x", shape=CUBE.shape, chunks=CUBE.shape, dtype="<i2", dimension_names=list("dhw"), compressors=None
        )
        array[...] = values
    place = strange / "z.zarr" / link
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink()
    place.symlink_to(mine / "z.zarr" / link)
    catalogue(strange, "z.zarr")
    with pytest.raises(UsageError, match="--allow-outside"), closing(VolumeDataset(strange)) as data:
        data[0]
    with closing(VolumeDataset(strange, allow_outside=True)) as data:
        assert int(data[0][0].max()) == (CUBE if link == "x/zarr.json" else SECRET).max()


def test_checksums_stay_in_the_folder(mine: Path, strange: Path) -> None:
    """They are a file that a catalogue names, too."""
    with h5py.File(strange / "a.h5", "w") as file:
        file["x"] = CUBE
    catalogue(strange, "a.h5", "../mine/s.parquet")
    with pytest.raises(UsageError, match="checksums"):
        Catalog.read(strange / CATALOG_NAME)
    (strange / "sums.parquet").symlink_to(mine / "s.h5")
    catalogue(strange, "a.h5", "sums.parquet")
    with closing(VolumeDataset(strange)) as data, pytest.raises(UsageError, match="checksums"):
        data[0]


def nrrd(folder: Path, data: str) -> Path:
    """Write a detached NRRD header."""
    path = folder / "a.nhdr"
    path.write_text(
        f"NRRD0004\ntype: int16\ndimension: 3\nsizes: 8 8 8\nendian: little\nencoding: raw\ndata file: {data}\n\n"
    )
    return path


def meta(folder: Path, data: str) -> Path:
    """Write a MetaImage header."""
    path = folder / "a.mhd"
    path.write_text(
        "ObjectType = Image\nNDims = 3\nBinaryData = True\nBinaryDataByteOrderMSB = False\nDimSize = 8 8 8\n"
        f"ElementType = MET_SHORT\nElementDataFile = {data}\n"
    )
    return path


def external(folder: Path, data: str) -> Path:
    """Write an HDF5 file whose dataset lies in a raw file."""
    path = folder / "a.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", CUBE.shape, "<i2", external=[(data, 0, CUBE.nbytes)])
        for dimension, label in zip(dataset.dims, "dhw", strict=True):
            dimension.label = label
    return path


def virtual(folder: Path, data: str) -> Path:
    """Write an HDF5 file whose dataset is mapped to another file's."""
    path = folder / "a.h5"
    layout = h5py.VirtualLayout(CUBE.shape, "<i2")
    layout[:] = h5py.VirtualSource(data.replace(".raw", ".h5"), "x", CUBE.shape)
    with h5py.File(path, "w") as file:
        dataset = file.create_virtual_dataset("x", layout)
        for dimension, label in zip(dataset.dims, "dhw", strict=True):
            dimension.label = label
    return path


HEADERS = {"nrrd": nrrd, "metaimage": meta, "external": external, "virtual": virtual}


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("place", ["absolute", "up", "link"])
@pytest.mark.parametrize("kind", HEADERS)
def test_a_header_copies_nothing_from_outside(
    mine: Path, strange: Path, kind: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's folder that is converted holds the stranger's voxels; with leave also those that it names."""
    monkeypatch.chdir(strange)  # from where libhdf5 takes names of raw files
    for name in ("s.raw", "s.h5"):
        (strange / f"l{name}").symlink_to(mine / name)
    data = {"absolute": str(mine / "s.raw"), "up": "../mine/s.raw", "link": "ls.raw"}[place]
    header = HEADERS[kind](strange, data)
    out = mine.parent / "out"
    for source in (header, strange):
        with pytest.raises(UsageError, match="--allow-outside"):
            convert(source, out)
    assert run(["info", str(header)]) == 2
    if kind in ("external", "virtual"):
        with pytest.raises(UsageError, match="--allow-outside"):
            open_reader(Location(str(header), "x"))
    for name in ("ls.raw", "ls.h5"):
        if name not in (data, data.replace(".raw", ".h5")):
            (strange / name).unlink()
    found = convert(header, out, options=ConvertOptions(hints=Hints(allow_outside=True)))
    with closing(VolumeDataset(out)) as voxels:
        assert np.array_equal(voxels[0][0][0].numpy(), SECRET)
    assert found.converted


def test_a_link_among_raw_files_is_not_followed_outside(mine: Path, strange: Path) -> None:
    """Nor is that of a chunk of a Zarr array."""
    array = zarr.create_array(
        strange / "z.zarr",
        shape=(8, 8, 8),
        chunks=(8, 8, 8),
        dtype="<i2",
        compressors=None,
        dimension_names=list("dhw"),
    )
    array[...] = CUBE
    assert convert(strange, mine.parent / "before").converted == ("z",)
    (strange / "z.zarr" / "c" / "0" / "0" / "0").unlink()
    (strange / "z.zarr" / "c" / "0" / "0" / "0").symlink_to(mine / "s.raw")
    for source in (strange, strange / "z.zarr"):
        with pytest.raises(UsageError, match="--allow-outside"):
            convert(source, mine.parent / "out")
    (strange / "a.npy").symlink_to(mine / "s.npy")
    with pytest.raises(UsageError, match="--allow-outside"):
        convert(strange, mine.parent / "out")
    # The caller's own link is the caller's.
    assert convert(strange / "a.npy", mine.parent / "out").converted == ("a",)


def test_links_of_hdf5_lead_to_no_targets_of_another_file(mine: Path, strange: Path) -> None:
    """An external link to a vector is no vector of the file."""
    with h5py.File(strange / "a.h5", "w") as file:
        file["x"] = CUBE
        file["t"] = h5py.ExternalLink(os.fspath(mine / "s.h5"), "t")
    data = VolumeDataset(strange / "a.h5", fields={"x": "x"}, targets=["t"], axes="DHW")
    with closing(data), pytest.raises(UsageError, match="link to another file"):
        data[0]


def test_a_folder_that_is_itself_a_link_is_a_folder(mine: Path, strange: Path) -> None:
    """Users name their folders by links; what is in them is in them."""
    with h5py.File(strange / "a.h5", "w") as file:
        file["x"] = CUBE
    catalogue(strange, "a.h5")
    (mine / "there").symlink_to(strange)
    with closing(VolumeDataset(mine / "there")) as data:
        assert np.array_equal(data[0][0][0].numpy(), CUBE)
    catalogue(strange, f"../{strange.name}/a.h5")
    with closing(VolumeDataset(strange)) as data:
        assert len(data) == 1


def test_the_list_of_a_catalogue_shows_what_it_names(strange: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is opened for it, and it is how a user sees what a stranger names."""
    catalogue(strange, "/etc/passwd")
    assert run(["catalog", "list", str(strange), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["path"] == "/etc/passwd"
