"""NRRD images as pynrrd writes them."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import nrrd
import numpy as np
import pytest

from tests.laws.source import Array, check_converts, check_source, coordinates, read_box
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.medicine.nrrd import Nrrd
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.geometry import Box

PLAIN = {"type": "short", "dimension": "3", "sizes": "4 3 2", "endian": "little", "encoding": "raw"}


def _open(path: Path, **hints: Any) -> Source:
    assert Nrrd().claims(Probe(path))
    (source,) = Nrrd().sources(Probe(path), Hints(**hints))
    return source


def _write(path: Path, fields: dict[str, str], content: bytes = b"") -> Path:
    """Write a file by the published layout: a magic, a line for each field, a blank line, the voxels."""
    lines = "".join(f"{name}: {value}\n" for name, value in fields.items())
    path.write_bytes(f"NRRD0004\n# a comment\n{lines}\n".encode() + content)
    return path


@pytest.mark.parametrize("encoding", ["raw", "gzip"])
@pytest.mark.parametrize("suffix", [".nrrd", ".nhdr"])
@pytest.mark.parametrize("dtype", ["<i2", ">f4", "u1"])
def test_no_axis_moves(tmp_path: Path, suffix: str, encoding: str, dtype: str) -> None:
    """The first size is W: an array that pynrrd wrote as (x, y, z) comes out as (D, H, W), attached or not."""
    volume = coordinates((1, 3, 5, 7), dtype)
    path = tmp_path / f"scan{suffix}"
    nrrd.write(str(path), volume[0].transpose(2, 1, 0), {"encoding": encoding})
    source = _open(path)
    check_source(source, volume)
    cube = source.describe()
    assert (cube.dataset, cube.is_sequential) == ("image", encoding == "gzip")
    assert len(cube.companions) == (suffix == ".nhdr")
    if dtype == ">f4":
        check_converts(tmp_path, {("scan", "image"): volume})


@pytest.mark.parametrize(
    ("kinds", "axes"),
    [
        ("vector domain domain domain", "DHWC"),
        ("domain domain domain list", "CDHW"),
        ("space space RGB-color space", "DCHW"),
    ],
)
def test_kinds_name_the_channels(tmp_path: Path, kinds: str, axes: str) -> None:
    """Of four axes, the one whose kind is not of space holds the channels, wherever it is."""
    volume = coordinates((2, 3, 4, 5), "<i2")
    stored = volume.transpose(["CDHW".index(axis) for axis in axes])
    sizes = " ".join(str(extent) for extent in stored.shape[::-1])
    fields = {**PLAIN, "dimension": "4", "sizes": sizes}
    source = _open(_write(tmp_path / "scan.nrrd", {**fields, "kinds": kinds}, stored.tobytes()))
    check_source(source, volume)
    assert source.describe().order.axes == axes


def test_space_directions_name_the_channels(tmp_path: Path) -> None:
    """An axis without a direction in space holds the channels; without any word, the caller says."""
    volume = coordinates((2, 3, 4, 5), "<i2")
    fields = {**PLAIN, "dimension": "4", "sizes": "5 4 3 2"}
    space = {"space": "left-posterior-superior", "space directions": "(2,0,0) (0,3,0) (0,0,4) none"}
    source = _open(_write(tmp_path / "scan.nrrd", {**fields, **space}, volume.tobytes()))
    check_source(source, volume)
    found = source.describe().attributes
    assert found["spacing"] == [4.0, 3.0, 2.0]
    assert found["space_directions"] == [[2.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 4.0], None]
    path = _write(tmp_path / "scan.nrrd", fields, volume.tobytes())
    with pytest.raises(UsageError, match="four axes without names"):
        _open(path)
    check_source(_open(path, axes="CDHW"), volume)
    path = _write(tmp_path / "scan.nrrd", {**PLAIN, "kinds": "vector domain domain"}, bytes(48))
    with pytest.raises(UsageError, match="three axes of space"):
        _open(path)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *[("signed char", "i1"), ("uint8_t", "u1"), ("unsigned short int", "u2"), ("ushort", "u2"), ("int", "i4")],
        *[("uint32", "u4"), ("long long int", "i8"), ("ulonglong", "u8"), ("float", "f4"), ("double", "f8")],
    ],
)
def test_types(tmp_path: Path, name: str, dtype: str) -> None:
    """Every name of a type is known, in either byte order; pynrrd reads the same."""
    volume = coordinates((1, 2, 3, 4), f">{dtype}")
    path = _write(tmp_path / "scan.nrrd", {**PLAIN, "type": name, "endian": "big"}, volume.tobytes())
    check_source(_open(path), volume)
    np.testing.assert_array_equal(nrrd.read(str(path))[0].transpose(2, 1, 0), volume[0])


@pytest.mark.parametrize("encoding", ["raw", "gzip"])
def test_skipped_bytes(tmp_path: Path, encoding: str) -> None:
    """A byte skip counts decoded bytes; -1 takes raw voxels from the end of their file."""
    volume: Array = coordinates((1, 2, 3, 4), "<i2")
    pack = gzip.compress if encoding == "gzip" else bytes
    (tmp_path / "voxels").write_bytes(pack(b"header" + volume.tobytes()))
    fields = {**PLAIN, "encoding": encoding, "data file": "voxels"}
    check_source(_open(_write(tmp_path / "scan.nhdr", {**fields, "byte skip": "6"})), volume)
    path = _write(tmp_path / "scan.nhdr", {**fields, "byte skip": "-1"})
    if encoding == "raw":
        check_source(_open(path), volume)
    else:
        with pytest.raises(UsageError, match="byte skip -1"):
            _open(path)


def test_faults(tmp_path: Path) -> None:
    """Cut, foreign, incomplete and ambiguous files are refused with what was found."""
    path = _write(tmp_path / "scan.nrrd", PLAIN, bytes(47))
    with pytest.raises(DataError, match=r"scan\.nrrd: found \d+ bytes, expected \d+ bytes"):
        _open(path)
    path = tmp_path / "cut.nrrd"
    nrrd.write(str(path), np.random.default_rng(0).random((9, 9, 9)), {"encoding": "gzip"})
    os.truncate(path, path.stat().st_size - 20)
    with pytest.raises(DataError, match=r"cut\.nrrd.*truncated"):
        read_box(_open(path), Box.whole((9, 9, 9)))
    cases: list[tuple[dict[str, str], type[Exception], str]] = [
        ({"endian": "middle"}, DataError, "endian 'middle'"),
        ({"sizes": "4 3"}, DataError, "2 sizes, expected 3"),
        ({"sizes": "four 3 2"}, DataError, "four"),
        ({"kinds": "domain"}, DataError, "1 kinds"),
        ({"type": "block"}, UsageError, "type 'block'"),
        ({"encoding": "bzip2"}, UsageError, "encoding 'bzip2'.*save it again"),
        ({"line skip": "2"}, UsageError, "line skip 2"),
        ({"data file": "LIST"}, UsageError, "several files"),
        ({"data file": "lost.raw"}, NotFoundError, r"no lost\.raw beside it"),
        ({"dimension": "2", "sizes": "4 6"}, UsageError, "2 axes"),
        ({"sizes ": "4 3 2"}, DataError, "Duplicate"),
    ]
    for fields, error, message in cases:
        with pytest.raises(error, match=message):
            _open(_write(tmp_path / "scan.nrrd", {**PLAIN, **fields}, bytes(48)))
    with pytest.raises(DataError, match="no field 'type'"):
        _open(_write(tmp_path / "scan.nrrd", {"dimension": "3"}))
    (tmp_path / "scan.nrrd").write_bytes(b"NRRD0004\n" + b"x" * 2**20)
    with pytest.raises(DataError, match="a header without an end"):
        _open(tmp_path / "scan.nrrd")


def test_foreign_files_are_not_claimed(tmp_path: Path) -> None:
    """A name alone makes no NRRD file."""
    path = tmp_path / "scan.nrrd"
    for content in (b"", b"NRRD", b"NRRDfile", b"ObjectType = Image\n"):
        path.write_bytes(content)
        assert not Nrrd().claims(Probe(path))
