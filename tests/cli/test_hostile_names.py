"""Hostile names through every format and command.

Whatever members, datasets, extensions, features, files, samples, columns and targets are called: nothing is written
outside of the output, a command ends by itself with status 0, 1 or 2, and no control character reaches the terminal.
"""

from __future__ import annotations

import io
import json
import os
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import asdf
import h5py
import nibabel
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from astropy.io import fits

from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.table import Catalog, Entry
from voxload.cli.main import run

CUBE = np.arange(8 * 8 * 8, dtype="<i2").reshape(8, 8, 8)

NAMES: Mapping[str, str] = {
    "escape": "a\x1b[2J\x1b]0;owned\x07b",
    "markup": "[/b]",
    "climb": "../../canary/x",
    "absolute": "/CANARY/x",
    "direction": "a\u202eb",
    "undecodable": "a\udcffb",
    "colour": "[red]a[/red] :smile:",
    "newline": "a\nvoxload: all is well\r",
    "dots": "..",
    "dot": ".",
    "empty": "",
    "nul": "a\0b",
    "hidden": ".hidden",
    "long": "\N{LATIN SMALL LETTER E WITH ACUTE}" * 300,
    "metadata": "zarr.json",
    "reserved": "__voxload",
    "own": "voxload",
    "targets": "targets",
    "c1": "a\x9b2Jb",
    "formula": "$\\bad{$",
    "backslash": "..\\..\\canary\\x",
    "percent": "%s{0}%2e%2e%2f",
    "partial": "a.partial-convert",
    "quote": "'\"; rm -rf $HOME #",
    "lone": "\ud800",
    "bom": "\ufeffa\u200b",
    "slash": "a//b/./c/",
}
REFUSED = {
    ("hdf5", "undecodable"),
    ("hdf5", "nul"),
    ("npz", "nul"),
    *(("file", name) for name in ("climb", "hidden", "dots", "dot", "empty", "backslash")),  # which are hidden as files
}
"""Formats of which any member can be converted, but under these names."""
RAW_SHORT, CATALOG_SHORT = "escape", "markup"
KINDS_SHORT = ("hdf5", "file", "sidecar")
"""What the short run tries; all else is long."""


def npz(folder: Path, name: str) -> None:
    """Write an archive with a member of that name."""
    data = io.BytesIO()
    np.save(data, CUBE)
    with zipfile.ZipFile(folder / "a.npz", "w") as file:
        file.writestr(f"{name}.npy", data.getvalue())


def hdf5(folder: Path, name: str) -> None:
    """Write a file with a dataset of that name."""
    with h5py.File(folder / "a.h5", "w") as file:
        dataset = file.create_dataset(name.encode(errors="surrogateescape"), data=CUBE)
        dataset.attrs["axes"] = name.encode(errors="replace").replace(b"\0", b"?")
        for dimension, label in zip(dataset.dims, "dhw", strict=True):
            dimension.label = label


def zarrs(folder: Path, name: str) -> None:
    """Write a hierarchy with an array whose folder has that name."""
    zarr.create_group(folder / "a.zarr", zarr_format=3)
    array = zarr.create_array(
        folder / "a.zarr" / "x", shape=CUBE.shape, chunks=CUBE.shape, dtype="<i2", dimension_names=list("dhw")
    )
    array[...] = CUBE
    place = os.path.join(os.fsencode(folder / "a.zarr"), os.fsencode(name.replace("/", "_")))  # noqa: PTH118 - bytes
    if name in (".", "..", ""):
        raise ValueError(name)
    os.rename(os.fsencode(folder / "a.zarr" / "x"), place)  # noqa: PTH104 - as above


def tree(folder: Path, name: str) -> None:
    """Write an ASDF tree with an array of that name."""
    asdf.AsdfFile({name: CUBE}).write_to(folder / "a.asdf")


def image(folder: Path, name: str) -> None:
    """Write a FITS image whose extension has that name."""
    hdus = fits.HDUList([fits.PrimaryHDU(), fits.ImageHDU(CUBE.astype(">i2"))])
    hdus[1].header["EXTNAME"] = name.encode("ascii", "backslashreplace").decode()[:40]
    hdus.writeto(folder / "a.fits")


def nrrd(folder: Path, name: str) -> None:
    """Write a NRRD file with texts of that kind, beside a header that names such a file."""
    head = "NRRD0004\ntype: int16\ndimension: 3\nsizes: 8 8 8\nendian: little\nencoding: raw\n"
    line = name.replace("\n", " ").replace("\r", " ").encode(errors="surrogatepass")
    (folder / "a.nrrd").write_bytes(head.encode() + b"content: " + line + b"\n\n" + CUBE.tobytes())
    (folder / "b.nhdr").write_bytes(head.encode() + b"data file: " + line + b"\n\n")


def nifti(folder: Path, name: str) -> None:
    """Write a NIfTI image whose description is that name."""
    made = nibabel.Nifti1Image(CUBE, np.eye(4))  # type: ignore[no-untyped-call] # nibabel's own
    made.header["descrip"] = name.encode(errors="surrogatepass")[:79]
    nibabel.save(made, folder / "a.nii")


def file(folder: Path, name: str) -> None:
    """Write a file of that name."""
    path = os.path.join(os.fsencode(folder), os.fsencode(name.replace("/", "_")) + b".npy")  # noqa: PTH118 - bytes
    with open(path, "wb") as opened:  # noqa: PTH123 - as above
        np.save(opened, CUBE)


def attribute(folder: Path, name: str) -> None:
    """Write an HDF5 file whose targets have that name."""
    with h5py.File(folder / "a.h5", "w") as opened:
        dataset = opened.create_dataset("x", data=CUBE)
        for dimension, label in zip(dataset.dims, "dhw", strict=True):
            dimension.label = label
        opened["targets"] = [1.0]
        opened["targets"].attrs["names"] = np.array([name.encode(errors="surrogateescape")], object)


def sidecar(folder: Path, name: str) -> None:
    """Write a table of targets with a column of that name."""
    np.save(folder / "a.npy", CUBE)
    with (folder / "targets.csv").open("w", errors="surrogateescape") as table:
        table.write(f"sample,{name}\na,1\n")


RAW: Mapping[str, Callable[[Path, str], None]] = {
    made.__name__: made for made in (npz, hdf5, zarrs, tree, image, nrrd, nifti, file, attribute, sidecar)
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a folder with places for what goes in and comes out, and see that everything else stays as it was."""
    for name in ("canary", "work/raw", "work/out", "work/more"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "canary" / "x").write_bytes(b"mine")
    monkeypatch.chdir(tmp_path / "work")
    yield tmp_path / "work"
    assert {path.name for path in tmp_path.iterdir()} == {"canary", "work"}
    assert [path.name for path in (tmp_path / "canary").iterdir()] == ["x"]
    assert (tmp_path / "canary" / "x").read_bytes() == b"mine"
    assert {path.name for path in (tmp_path / "work").iterdir()} <= {"raw", "out", "more", "plot.png"}
    assert not Path("/CANARY").exists()


def check(capfd: pytest.CaptureFixture[str], *arguments: str) -> int:
    """Run a command; an exception of any kind fails the test, and so does anything that is not printable."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status = run(list(arguments))
    assert status in (0, 1, 2), (status, arguments)
    for text in capfd.readouterr():
        odd = [one for one in text if not one.isprintable() and one != "\n"]
        assert not odd, (odd, arguments, text[-500:])
        assert "Traceback" not in text
        assert not any(line.startswith("voxload: all is well") for line in text.splitlines())
    return status


@pytest.mark.few_cases(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, name, marks=[] if name == RAW_SHORT and kind in KINDS_SHORT else pytest.mark.long)
        for kind in RAW
        for name in NAMES
    ],
)
def test_raw_files(place: Path, capfd: pytest.CaptureFixture[str], kind: str, name: str) -> None:
    """Every format, converted to both storages, looked at, verified, and its catalogue listed, cut and merged."""
    try:
        RAW[kind](place / "raw", NAMES[name])
    except (ValueError, TypeError, OSError, RuntimeError, KeyError, AttributeError) as error:
        pytest.skip(f"the format has no such name: {type(error).__name__}")
    given = ["--targets", "raw/targets.csv"] if kind == "sidecar" else []
    for stored in ("zarr", "hdf5"):
        check(capfd, "convert", "raw", f"out/{stored}", "--format", stored, "--dry-run", *given)
        status = check(capfd, "convert", "raw", f"out/{stored}", "--format", stored, "--checksums", *given)
        if kind in ("npz", "hdf5", "file"):
            assert status == 0 or (kind, name) in REFUSED
    for path in sorted(os.listdir("raw")):  # noqa: PTH208 - names as the system has them
        check(capfd, "info", f"raw/{path}")
        check(capfd, "info", f"raw/{path}", "--json")
    check(capfd, "info", "raw", "--plot", "plot.png")
    for folder in Path("out").iterdir():
        if (folder / CATALOG_NAME).exists():
            listed = Catalog.read(folder / CATALOG_NAME)
            assert all(one.isprintable() for pair in listed.keys for one in pair)
            commands(capfd, folder, listed.samples[0], draws=folder.name == "zarr")


def commands(capfd: pytest.CaptureFixture[str], folder: Path, sample: str, *, draws: bool) -> None:
    """Run each command that takes a catalogue; to draw takes longer than all others together."""
    for path in Path("more").iterdir():
        path.unlink()
    check(capfd, "catalog", "list", str(folder), "--statistics")
    check(capfd, "catalog", "list", str(folder), "--columns", "sample,path,dataset")
    check(capfd, "catalog", "split", str(folder), "--train", "1", "--out", "more")
    check(capfd, "catalog", "filter", str(folder), "more/f.parquet", "--where", "stored_bytes >= 0")
    check(capfd, "catalog", "merge", "more/m.parquet", str(folder))
    check(capfd, "info", str(folder))
    check(capfd, "info", str(folder), "--sample", sample, *(["--plot", "plot.png"] if draws else []))
    check(capfd, "verify", str(folder))
    check(capfd, "train", str(folder), "--model", "unet3d")
    check(capfd, "bench", "run", str(folder), "--loader", sample)


COLUMNS = ("sample", "path", "dataset", "universe", "checksums", "dtype", "axes", "target", "other")
COLUMNS_SHORT = ("sample", "dataset", "dtype", "target", "other")
"""What the short run tries."""
DRAWN = ("sample", "path", "dataset", "axes")
"""What a picture's words are made from."""


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n == CATALOG_SHORT else pytest.mark.long) for n in NAMES])
@pytest.mark.parametrize(
    "column", [pytest.param(n, marks=[] if n in COLUMNS_SHORT else pytest.mark.long) for n in COLUMNS]
)
def test_catalogues(place: Path, capfd: pytest.CaptureFixture[str], column: str, name: str) -> None:
    """Every column of text, and the names of further ones, in a catalogue that anybody may have written."""
    text = NAMES[name]
    np.save(place / "out" / "a.npy", CUBE)
    row = Entry("a", "a.npy", "", CUBE.shape, "<i2", "DHW", CUBE.nbytes, {"t": 1.0})
    table = Catalog.from_entries([row], place / "out").table
    try:
        if column in ("target", "other"):
            values = pa.array([2.0] if column == "target" else [text])
            table = table.append_column(text, values)
        else:
            table = table.set_column(table.column_names.index(column), column, pa.array([text]))
    except UnicodeEncodeError:
        pytest.skip("Parquet has no such text")
    pq.write_table(table, place / "out" / CATALOG_NAME)
    commands(capfd, Path("out"), text if column == "sample" else "a", draws=column in DRAWN)
    check(capfd, "catalog", "list", "out", "--columns", text)
    check(capfd, "catalog", "list", "out", "--where", text)
    check(capfd, "info", "out", "--dataset", text)


def test_json_of_hostile_names_is_json(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Names are there whole, escaped as JSON has it."""
    file(place / "raw", NAMES["undecodable"])
    assert check(capfd, "convert", "raw", "out", "--json") == 0
    assert run(["info", "out", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["samples"] == 1
    assert Catalog.read("out/catalog.parquet").samples == ("a%FFb",)
