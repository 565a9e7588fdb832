"""CF packing: numbers that stand for others are refused wherever a volume is opened, and all others are read."""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess
import sys
from base64 import standard_b64encode
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import voxload
from voxload.catalog.table import Catalog, Entry
from voxload.cli.main import run
from voxload.convert import convert
from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers import Location, open_reader
from voxload.readers.cfpacking import NAMES, check_packing
from voxload.readers.hdf5 import Hdf5Format

SHAPE = (4, 5, 6)
NAN64 = standard_b64encode(struct.pack("<d", float("nan"))).decode()
MINUS64 = standard_b64encode(struct.pack("<d", -1.0)).decode()

PACKED: list[tuple[str, dict[str, Any], str]] = [
    ("<i2", {"scale_factor": 0.5}, "scale_factor = 0.5"),
    ("<i2", {"add_offset": 273.15, "scale_factor": 1.0}, "add_offset = 273.15"),
    ("<i2", {"_FillValue": -99}, "_FillValue = -99"),
    ("<f4", {"_FillValue": 9.96921e36}, "_FillValue = 9.96921e+36"),
    ("<f4", {"missing_value": -5.0, "_FillValue": float("nan")}, "missing_value = -5.0"),
    ("<f4", {"missing_value": [-5.0, float("nan")]}, "missing_value = [-5.0, nan]"),
    ("|i1", {"_Unsigned": "true"}, "_Unsigned = 'true'"),
    ("|u1", {"_Unsigned": "false"}, "_Unsigned = 'false'"),
    ("|u1", {"_Unsigned": "perhaps"}, "_Unsigned = 'perhaps'"),
    ("<i2", {"scale_factor": "0.5"}, "scale_factor"),
    ("<i2", {"scale_factor": []}, "scale_factor"),
    ("<i2", {"add_offset": [0.0] * 5_000}, "add_offset"),
]
"""Type, attributes, and what the error says of them."""
PLAIN: list[tuple[str, dict[str, Any]]] = [
    ("<i2", {"scale_factor": 1.0, "add_offset": 0.0}),
    ("<i2", {"scale_factor": [1], "add_offset": 0}),
    ("<f4", {"_FillValue": float("nan")}),
    ("<f8", {"missing_value": float("nan")}),
    ("<i2", {"_FillValue": float("nan")}),
    ("|u1", {"_Unsigned": "true"}),
    ("<i4", {"_Unsigned": "False"}),
    ("<f4", {"_Unsigned": "true"}),
    ("<i2", {"units": "K", "valid_range": [0, 1], "SCALE_FACTOR": 3.0}),
]
"""Type, and attributes that change no number."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=8,
)
"""Whatever may stand in the metadata of a Zarr array."""

Write = Callable[[Path, np.ndarray[Any, Any], Mapping[str, Any]], Path]


def hdf5(folder: Path, values: np.ndarray[Any, Any], attributes: Mapping[str, Any]) -> Path:
    """Write a netCDF-4 file of one variable."""
    path = folder / "t.nc"
    with h5py.File(path, "w") as file:
        file["t"] = values
        file["t"].attrs.update({name: np.zeros(0) if value == [] else value for name, value in attributes.items()})
    return path


def zarr2(folder: Path, values: np.ndarray[Any, Any], attributes: Mapping[str, Any]) -> Path:
    """Write a hierarchy of format 2 with one array."""
    return _zarr(folder, values, attributes, 2)


def zarr3(folder: Path, values: np.ndarray[Any, Any], attributes: Mapping[str, Any]) -> Path:
    """Write a hierarchy of format 3 with one array."""
    return _zarr(folder, values, attributes, 3)


def _zarr(folder: Path, values: np.ndarray[Any, Any], attributes: Mapping[str, Any], version: Any) -> Path:
    path = folder / "t.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=version)
    group.create_array("t", data=values, fill_value=0, attributes=dict(attributes))
    return path


def numbers(dtype: str) -> np.ndarray[Any, Any]:
    """Return numbers that tell their places."""
    return np.arange(np.prod(SHAPE)).reshape(SHAPE).astype(dtype)


@pytest.mark.parametrize("write", [hdf5, zarr2, zarr3])
@pytest.mark.parametrize(("dtype", "attributes", "said"), PACKED)
def test_packed_numbers_are_refused(
    tmp_path: Path, write: Write, dtype: str, attributes: dict[str, Any], said: str
) -> None:
    """Every attribute that changes a number is named with its value, and an answer is given."""
    path = write(tmp_path, numbers(dtype), attributes)
    with pytest.raises(UsageError) as raised:
        open_reader(Location(str(path), "t"))
    assert said in str(raised.value)
    assert f"{path}:t" in str(raised.value)
    assert "drop_encoding" in str(raised.value)
    assert len(str(raised.value)) < 800


@pytest.mark.parametrize("write", [hdf5, zarr2, zarr3])
@pytest.mark.parametrize(("dtype", "attributes"), PLAIN)
def test_attributes_that_change_nothing_are_read(
    tmp_path: Path, write: Write, dtype: str, attributes: dict[str, Any]
) -> None:
    """The identity is no packing: voxels are those of h5py and zarr-python."""
    values = numbers(dtype)
    path = write(tmp_path, values, attributes)
    with closing(open_reader(Location(str(path), "t"))) as reader:
        out = np.empty((1, *SHAPE), reader.describe().native_dtype)
        reader.read_into(Box.whole(SHAPE), out)
    np.testing.assert_array_equal(out[0], values)


@pytest.mark.parametrize(
    ("fill", "attributes", "is_packed"),
    [
        (float("nan"), {"_ARRAY_DIMENSIONS": ["z", "y", "x"]}, False),
        (None, {"_ARRAY_DIMENSIONS": ["z", "y", "x"]}, False),
        (0, {"_ARRAY_DIMENSIONS": ["z", "y", "x"]}, False),
        (-1.0, {"_ARRAY_DIMENSIONS": ["z", "y", "x"]}, True),
        (-1.0, {}, False),
    ],
)
def test_fill_values_as_xarray_keeps_them_in_format_2(
    tmp_path: Path, fill: Any, attributes: dict[str, Any], is_packed: bool
) -> None:
    """The ``_FillValue`` of xarray is the fill value of the array there, and zarr's own default says nothing."""
    array = zarr.create_array(
        tmp_path / "t.zarr", shape=SHAPE, dtype="f4", zarr_format=2, fill_value=fill, attributes=attributes
    )
    array[:] = 1
    location = Location(f"{tmp_path / 't.zarr'}")
    if not is_packed:
        open_reader(location).close()
        return
    with pytest.raises(UsageError, match=r"_FillValue = -1\.0"):
        open_reader(location)


def test_fill_values_as_xarray_writes_them_in_format_3(tmp_path: Path) -> None:
    """There floats are eight bytes in base64: NaN stands for itself, and any other number is told."""
    for text, is_packed in ((NAN64, False), (MINUS64, True), ("AAAA", True), ("NaN", False), ("x" * 12, True)):
        path = zarr3(tmp_path, numbers("<f4"), {"_FillValue": text})
        words = "_FillValue.* = -1.0" if text == MINUS64 else "_FillValue"
        with pytest.raises(UsageError, match=words) if is_packed else contextlib.nullcontext():
            open_reader(Location(f"{path}", "t")).close()


XARRAY_WRITES = """
import sys
import numpy as np
import xarray

values = np.load(f"{sys.argv[1]}/values.npy")
names, how = ("z", "y", "x"), {"zarr_format": int(sys.argv[2]), "consolidated": False}
plain = {"f": (names, values), "i": (names, values.astype("i2")), "b": (names, values > 3)}
xarray.Dataset(plain).to_zarr(f"{sys.argv[1]}/plain.zarr", **how)
encoding = {"f": {"dtype": "i2", "scale_factor": 0.5, "add_offset": 1.0, "_FillValue": -99}}
xarray.Dataset({"f": plain["f"]}).to_zarr(f"{sys.argv[1]}/packed.zarr", encoding=encoding, **how)
loaded = xarray.open_zarr(f"{sys.argv[1]}/packed.zarr", consolidated=False).load()
loaded.drop_encoding().to_zarr(f"{sys.argv[1]}/decoded.zarr", **how)
"""


@pytest.mark.long
@pytest.mark.parametrize("zarr_format", [2, pytest.param(3, marks=pytest.mark.long)])
def test_what_xarray_writes(tmp_path: Path, zarr_format: int) -> None:
    """Plain floats, integers and booleans of xarray's are read; packed ones are refused until they are decoded.

    xarray runs in a process of its own, for it keeps its threads.
    """
    values = numbers("<f4")
    np.save(tmp_path / "values.npy", values)
    subprocess.run([sys.executable, "-c", XARRAY_WRITES, str(tmp_path), str(zarr_format)], check=True, timeout=300)
    for name, expected in (("f", values), ("i", values.astype("i2")), ("b", values > 3)):
        np.testing.assert_array_equal(
            voxload.VolumeDataset(str(tmp_path / "plain.zarr"), fields={"x": name})[0][0][0].numpy(), expected
        )
    packed = tmp_path / "packed.zarr"
    with pytest.raises(UsageError, match=r"scale_factor = 0\.5, add_offset = 1\.0, _FillValue = -99"):
        open_reader(Location(f"{packed}", "f"))
    for path in (packed, tmp_path / "decoded.zarr"):
        found = voxload.VolumeDataset(str(path), fields={"x": "f"})[0][0][0].numpy()
        np.testing.assert_array_equal(found, values)


def test_hostile_attributes_of_hdf5_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """References, tables, records and lists of any length are refused by their type, unread."""
    path = tmp_path / "t.h5"
    records = np.dtype([("a", "i4"), ("b", "f8")])
    lists = h5py.vlen_dtype(np.dtype("f8"))
    with h5py.File(path, "w", libver="latest") as file:
        for name in ("reference", "records", "lists", "table", "text", "empty"):
            file[name] = numbers("<i2")
        file["reference"].attrs["scale_factor"] = file["text"].ref
        file["records"].attrs.create("add_offset", np.zeros(3, records))
        ragged = np.empty(1, dtype=object)
        ragged[0] = np.zeros(9)
        file["lists"].attrs.create("missing_value", ragged, dtype=lists)
        file["table"].attrs["_FillValue"] = np.zeros(2_000_000, "<i2")
        file["text"].attrs["scale_factor"] = "one"
        file["empty"].attrs["scale_factor"] = h5py.Empty("f8")
    read: list[str] = []
    get = h5py.AttributeManager.__getitem__

    def spied(attributes: Any, name: str) -> Any:
        read.append(name)
        return get(attributes, name)

    monkeypatch.setattr(h5py.AttributeManager, "__getitem__", spied)
    expected = {
        "reference": "scale_factor = an attribute of references",
        "records": "add_offset = an attribute of records",
        "lists": "missing_value = an attribute of lists of any length",
        "table": r"_FillValue = an array of shape \(2000000,\)",
        "text": "scale_factor = text",
        "empty": "scale_factor = no value",
    }
    for name, said in expected.items():
        with pytest.raises(UsageError, match=said):
            open_reader(Location(f"{path}", name))
    assert not read


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(NAMES), JSON), st.sampled_from(["i2", "u1", "f4", "?"]))
def test_any_json_is_judged(attributes: dict[str, Any], dtype: str) -> None:
    """Whatever stands in the attributes, they are the identity or a UsageError."""
    with contextlib.suppress(UsageError):
        check_packing("x", attributes, np.dtype(dtype))


def test_every_door_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Reader, data set, loader, vector, conversion, dry run, info and benchmark refuse with the same words."""
    folder, out = tmp_path / "raw", tmp_path / "out"
    folder.mkdir()
    path = hdf5(folder, numbers("<i2"), {"scale_factor": 0.5})
    data = voxload.VolumeDataset(str(path), fields={"x": "t"})
    doors: tuple[Callable[[], object], ...] = (
        lambda: open_reader(Location(f"{path}", "t")),
        lambda: data[0],
        lambda: next(iter(voxload.DataLoader(data))),
        lambda: convert(path, out),
        lambda: Hdf5Format().read_vector(vector(tmp_path), "v"),
    )
    for door in doors:
        with pytest.raises(UsageError, match=r"CF attributes scale_factor = 0\.5"):
            door()
    entry = Entry("t", path.name, "t", shape=SHAPE, dtype="<i2", axes="DHW", stored_bytes=240)
    Catalog.from_entries([entry], tmp_path).write(folder / "catalog.parquet")
    for arguments in (
        ["info", f"{path}"],
        ["convert", f"{path}", f"{out}", "--dry-run"],
        ["convert", f"{folder}", f"{out}"],
        ["bench", "run", f"{folder}", "--steps", "1"],
    ):
        assert run(arguments) == 2, arguments
        assert "CF attributes scale_factor = 0.5" in capsys.readouterr().err, arguments
    assert run(["verify", f"{folder}"]) == 1
    assert "scale_factor" in capsys.readouterr().out
    assert not out.exists() or not [name for name in out.iterdir() if not name.name.startswith(".")]


def vector(folder: Path) -> str:
    """Return a file with a vector that is packed."""
    with h5py.File(folder / "vector.h5", "w") as file:
        file["v"] = np.arange(3)
        file["v"].attrs["scale_factor"] = 0.5
    return str(folder / "vector.h5")


def test_damaged_attributes_are_damage(tmp_path: Path) -> None:
    """JSON that is no metadata stays a fault of the data."""
    path = zarr3(tmp_path, numbers("<f4"), {})
    metadata = path / "t" / "zarr.json"
    found = json.loads(metadata.read_text())
    metadata.write_text(json.dumps({**found, "attributes": [1, 2]}))
    with pytest.raises(DataError):
        open_reader(Location(f"{path}", "t"))
