"""Types that no tensor has, and files of other formats: named for what they are, and never called damaged."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import h5py
import ml_dtypes
import numpy as np
import pytest
import torch
import zarr

import voxload
from voxload.cli.main import run
from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers import Location, find_format, open_reader

SHAPE = (4, 5, 6)
HELD = ("?", "i1", "u1", "<i2", ">u2", "<u4", ">i4", "<i8", "<u8", ">f2", "<f4", ">f8")
"""Types of numpy that torch holds."""


def written(path: Path, dtype: Any) -> Path:
    """Write an HDF5 file of zeros of a type."""
    with h5py.File(path, "w") as file:
        file.create_dataset("x", SHAPE, dtype)
        file["x"][...] = np.zeros(SHAPE, dtype)
    return path


@pytest.mark.parametrize("dtype", HELD)
def test_every_type_that_torch_holds_is_read(tmp_path: Path, dtype: str) -> None:
    """Integers of 1 to 8 bytes, with and without a sign, floats and booleans become tensors of the same numbers."""
    values = np.arange(np.prod(SHAPE)).reshape(SHAPE).astype(dtype)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = values
    item = voxload.VolumeDataset(str(tmp_path / "x.h5"))[0][0]
    native = values.astype(values.dtype.newbyteorder("="))
    assert item.dtype is torch.from_numpy(native).dtype
    np.testing.assert_array_equal(item[0].numpy(), values)


@pytest.mark.parametrize(
    ("dtype", "said"),
    [
        (np.longdouble, "float64"),
        (np.complex64, "two channels"),
        (np.clongdouble, "two channels"),
        (np.dtype([("a", "i4"), ("b", "f4")]), "each field"),
        ("S3", "numbers"),
    ],
)
def test_types_that_torch_has_not_are_refused_when_opened(tmp_path: Path, dtype: Any, said: str) -> None:
    """The reader refuses, with a remedy, and so do info and convert: nobody comes as far as torch's TypeError."""
    path = written(tmp_path / "x.h5", dtype)
    with pytest.raises(UsageError, match=rf"dtype .*, expected .*torch can hold.*{said}"):
        open_reader(Location(f"{path}", "x"))
    assert run(["info", f"{path}", "--dataset", "x"]) in (1, 2)
    assert run(["convert", f"{path}", f"{tmp_path / 'out'}"]) in (1, 2)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4"])
def test_ml_dtypes_as_h5py_and_numpy_keep_them(tmp_path: Path, name: str) -> None:
    """Both store opaque bytes, and the error says of what these may be."""
    values = np.ones(SHAPE, getattr(ml_dtypes, name))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = values
    np.save(tmp_path / "x.npy", values)
    for path in (tmp_path / "x.h5", tmp_path / "x.npy"):
        with pytest.raises(UsageError, match=r"dtype .*V.*bfloat16.*float32"):
            open_reader(Location(f"{path}"))


def _custom(base: Any, *, size: int, fields: tuple[int, ...] = (), bias: int = 0, precision: int = 0) -> Any:
    kind = base.copy()
    if precision:
        kind.set_precision(precision)
        return kind
    kind.set_fields(*fields)
    kind.set_size(size)
    kind.set_ebias(bias)
    return kind


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (_custom(h5py.h5t.IEEE_F32LE, size=2, fields=(15, 7, 8, 0, 7), bias=127), "float32"),
        (_custom(h5py.h5t.IEEE_F16LE, size=1, fields=(7, 2, 5, 0, 2), bias=15), "float16"),
        (_custom(h5py.h5t.STD_I8LE, size=1, precision=4), "int8"),
    ],
    ids=["bfloat16", "float8_e5m2", "int4"],
)
def test_custom_numbers_of_hdf5_are_read(tmp_path: Path, kind: Any, dtype: str) -> None:
    """HDF5 describes bfloat16, 8-bit floats and 4-bit integers to the bit: libhdf5 widens them without loss."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        space = h5py.h5s.create_simple(SHAPE)
        made = h5py.h5d.create(file.id, b"x", kind, space)
        made.write(space, space, np.full(SHAPE, -1.5 if dtype != "int8" else -3, dtype))
        expected = file["x"][...]
    with closing(open_reader(Location(f"{tmp_path / 'x.h5'}"))) as reader:
        out = np.empty((1, *SHAPE), dtype)
        reader.read_into(Box.whole(SHAPE), out)
    assert reader.describe().dtype == dtype
    np.testing.assert_array_equal(out[0], expected)


def array(path: Path, name: str, version: Literal[2, 3]) -> None:
    """Write a Zarr array whose metadata have another type."""
    zarr.create_array(path, shape=SHAPE, dtype="f4", zarr_format=version)[:] = 1
    metadata = path / ("zarr.json" if version == 3 else ".zarray")
    found = json.loads(metadata.read_text())
    found["data_type" if version == 3 else "dtype"] = name
    metadata.write_text(json.dumps(found))


@pytest.mark.parametrize(
    ("name", "version"),
    [("bfloat16", 3), ("int4", 3), ("float8_e4m3fn", 3), ("bfloat16", 2), ("<f16", 2), ("|O", 2)],
)
def test_types_that_zarr_python_does_not_know_are_named(tmp_path: Path, name: str, version: Literal[2, 3]) -> None:
    """Opened as an array, as one of a group and as the only one; the other arrays of the group stay readable."""
    group = tmp_path / "g.zarr"
    zarr.open_group(group, mode="w", zarr_format=version).create_array("sound", data=np.ones(SHAPE, "f4"))
    array(group / "strange", name, version)
    array(tmp_path / "one.zarr" / "strange", name, version)
    zarr.open_group(tmp_path / "one.zarr", mode="a", zarr_format=version)
    for path, dataset in ((group / "strange", ""), (group, "strange"), (tmp_path / "one.zarr", "")):
        with pytest.raises(UsageError) as raised:
            open_reader(Location(f"{path}", dataset))
        assert f"type {name!r}" in str(raised.value)
        assert "strange" in str(raised.value)
    assert find_format(f"{group}").datasets(f"{group}") == ("sound", "strange")
    open_reader(Location(f"{group}", "sound")).close()


def test_damaged_zarr_metadata_stay_damage(tmp_path: Path) -> None:
    """What is broken beside a type that is known is no matter of types."""
    array(tmp_path / "x.zarr", "float32", 3)
    metadata = tmp_path / "x.zarr" / "zarr.json"
    metadata.write_text(metadata.read_text().replace('"default"', '"defau1t"'))
    with pytest.raises(DataError):
        open_reader(Location(f"{tmp_path / 'x.zarr'}"))


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_files_that_libhdf5_wrote_in_pieces_are_named(
    tmp_path: Path, libver: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every piece of a family and both halves of a split file, at readers, info and convert."""
    values = np.random.default_rng(0).integers(0, 99, (16, 16, 16)).astype("<i4")
    with h5py.File(tmp_path / "part-%03d.h5", "w", driver="family", memb_size=6000, libver=libver) as file:
        file["x"] = values
    with h5py.File(tmp_path / "half", "w", driver="split", libver=libver) as file:
        file["x"] = values
    pieces = sorted(tmp_path.glob("part-*"))
    assert len(pieces) > 2
    for path in (pieces[0], pieces[2], tmp_path / "half-m.h5", tmp_path / "half-r.h5"):
        said = "HDF5 family" if path in pieces else "split HDF5 file"
        with pytest.raises(UsageError, match=said):
            open_reader(Location(f"{path}"))
        for arguments in (["info", f"{path}"], ["convert", f"{path}", f"{tmp_path / 'out'}"]):
            assert run(arguments) == 2
            assert said in capsys.readouterr().err


def test_a_file_that_was_cut_stays_damaged(tmp_path: Path) -> None:
    """A plain HDF5 file that ends too early is no piece of a family."""
    path = written(tmp_path / "x-00000.h5", "<i4")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match="truncated"):
        open_reader(Location(f"{path}"))


@pytest.mark.parametrize("version", [1, 2, 5])
def test_netcdf_3_is_named(tmp_path: Path, version: int, capsys: pytest.CaptureFixture[str]) -> None:
    """By readers, info and convert, in a folder of other files too; described as headerless it is taken as that."""
    folder = tmp_path / "raw"
    folder.mkdir()
    path = folder / "u.nc"
    path.write_bytes(b"CDF" + bytes([version]) + bytes(60))
    np.save(folder / "sound.npy", np.ones(SHAPE, "<f4"))
    with pytest.raises(UsageError, match="nccopy -k nc4"):
        open_reader(Location(f"{path}"))
    out = f"{tmp_path / 'out'}"
    for arguments in (["info", f"{path}"], ["convert", f"{path}", out], ["convert", f"{folder}", out]):
        assert run(arguments) == 2
        assert "netCDF-3" in capsys.readouterr().err
    assert run(["info", f"{path}", "--shape", "4,4,4", "--dtype", "u1"]) == 0
