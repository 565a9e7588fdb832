"""MetaImages written from the published layout of MetaIO."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.laws.source import check_converts, check_source, coordinates, read_box
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.medicine.metaimage import MetaImage
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.geometry import Box

NAMES = {"i1": "CHAR", "u1": "UCHAR", "i2": "SHORT", "u2": "USHORT", "i4": "INT", "u4": "UINT"}
NAMES |= {"i8": "LONG_LONG", "u8": "ULONG_LONG", "f4": "FLOAT", "f8": "DOUBLE"}


def _open(path: Path, **hints: Any) -> Source:
    assert MetaImage().claims(Probe(path))
    (source,) = MetaImage().sources(Probe(path), Hints(**hints))
    return source


def _write(path: Path, content: bytes, **fields: object) -> Path:
    """Write a header of lines, and the voxels behind it or, where a name is given, beside it."""
    every = {
        "ObjectType": "Image",
        "NDims": 3,
        "BinaryData": True,
        "BinaryDataByteOrderMSB": False,
        "DimSize": "4 3 2",
        "ElementType": "MET_SHORT",
        "ElementDataFile": "LOCAL",
        **fields,
    }
    every["ElementDataFile"] = every.pop("ElementDataFile")  # the last line by definition
    text = "".join(f"{name} = {value}\n" for name, value in every.items() if value is not None).encode()
    if every["ElementDataFile"] == "LOCAL":
        path.write_bytes(text + content)
    else:
        path.write_bytes(text)
        (path.parent / str(every["ElementDataFile"])).write_bytes(content)
    return path


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("suffix", [".mha", ".mhd"])
@pytest.mark.parametrize("is_compressed", [False, True])
@pytest.mark.parametrize("dtype", ["i1", ">i2", "<f4", ">u8"])
@pytest.mark.parametrize("channels", [1, 3])
def test_no_axis_moves(tmp_path: Path, suffix: str, is_compressed: bool, dtype: str, channels: int) -> None:
    """The first of DimSize is W and channels lie side by side, attached or not, in zlib or plain."""
    volume = coordinates((channels, 3, 5, 7), dtype)
    stored = volume.transpose(1, 2, 3, 0).tobytes()
    path = _write(
        tmp_path / f"scan{suffix}",
        zlib.compress(stored) if is_compressed else stored,
        DimSize="7 5 3",
        ElementType=f"MET_{NAMES[np.dtype(dtype).str[1:]]}",
        BinaryDataByteOrderMSB=dtype.startswith(">"),
        ElementNumberOfChannels=channels,
        CompressedData=is_compressed,
        ElementDataFile="LOCAL" if suffix == ".mha" else "scan.zraw",
    )
    source = _open(path)
    check_source(source, volume)
    cube = source.describe()
    assert (cube.dataset, cube.is_sequential) == ("image", is_compressed)
    assert [path.name for path in cube.companions] == ["scan.zraw"] * (suffix == ".mhd")
    if (dtype, channels) == (">i2", 3):
        check_converts(tmp_path, {("scan", "image"): volume})


def test_attributes(tmp_path: Path) -> None:
    """Spacing is kept along D, H and W; place and direction in the file's own order."""
    geometry = {"ElementSpacing": "0.5 0.75 2", "Offset": "1 2 3", "TransformMatrix": "1 0 0 0 1 0 0 0 1"}
    path = _write(tmp_path / "scan.mha", bytes(48), **geometry, AnatomicalOrientation="RAI")
    assert _open(path).describe().attributes == {
        "spacing": [2.0, 0.75, 0.5],
        "origin": [1.0, 2.0, 3.0],
        "direction": [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        "orientation": "RAI",
    }


def test_four_axes(tmp_path: Path) -> None:
    """Nothing says what a fourth axis is: the caller does, unless it is one."""
    volume = coordinates((2, 3, 4, 5), "<i2")
    path = _write(tmp_path / "scan.mha", volume.tobytes(), NDims=4, DimSize="5 4 3 2")
    with pytest.raises(UsageError, match="four axes without names"):
        _open(path)
    check_source(_open(path, axes="CDHW"), volume)
    check_source(_open(_write(path, volume[:1].tobytes(), NDims=4, DimSize="5 4 3 1")), volume[:1])


def test_header_size(tmp_path: Path) -> None:
    """HeaderSize skips bytes of the file of the voxels; -1 takes them from its end."""
    volume = coordinates((1, 2, 3, 4), "<i2")
    for size in (6, -1):
        path = _write(tmp_path / "scan.mhd", b"header" + volume.tobytes(), HeaderSize=size, ElementDataFile="scan.raw")
        check_source(_open(path), volume)
    check_source(_open(_write(tmp_path / "scan.mha", volume.tobytes(), HeaderSize=-1)), volume)
    with pytest.raises(DataError, match="47 bytes"):
        _open(_write(tmp_path / "scan.mhd", bytes(47), HeaderSize=-1, ElementDataFile="scan.raw"))


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"DimSize": "4 3 3"}, DataError, r"scan\.mha: found \d+ bytes, expected \d+ bytes"),
        ({"DimSize": "4 3"}, DataError, "DimSize 4 3, 1 channels, expected 3 extents"),
        ({"DimSize": "4 3 two"}, DataError, "two"),
        ({"NDims": None}, DataError, ""),
        ({"BinaryDataByteOrderMSB": None}, DataError, "no byte order.*BinaryDataByteOrderMSB = False"),
        ({"ElementByteOrderMSB": "True"}, DataError, "two byte orders"),
        ({"CompressedData": "maybe"}, DataError, "CompressedData = maybe"),
        ({"BinaryData": "False"}, UsageError, "BinaryData = False"),
        ({"ObjectType": "Tube"}, UsageError, "ObjectType = Tube"),
        ({"ElementType": "MET_STRING"}, UsageError, "MET_STRING"),
        ({"ElementToIntensityFunctionSlope": "2"}, UsageError, "Slope = 2"),
        ({"HeaderSize": "7"}, UsageError, "HeaderSize = 7 for LOCAL"),
        ({"ElementDataFile": "LIST"}, UsageError, "several files"),
        ({"ElementDataFile": "slice%03d.raw 1 9 1"}, UsageError, "several files"),
    ],
)
def test_headers_that_are_refused(tmp_path: Path, fields: dict[str, Any], error: type[Exception], message: str) -> None:
    """Damaged, ambiguous and foreign headers are refused with the line that is to blame."""
    path = _write(tmp_path / "scan.mha", bytes(48), **fields)
    if "NDims" in fields:
        assert not MetaImage().claims(Probe(path))
        return
    with pytest.raises(error, match=message):
        _open(path)


def test_voxels_that_are_refused(tmp_path: Path) -> None:
    """Lost, cut and appended voxels are refused."""
    path = _write(tmp_path / "scan.mhd", bytes(48), ElementDataFile="scan.raw")
    (tmp_path / "scan.raw").unlink()
    with pytest.raises(NotFoundError, match=r"no scan\.raw beside it"):
        _open(path)
    content = zlib.compress(np.random.default_rng(0).bytes(48))
    for damaged, message in ((content[:-6], "truncated"), (content + b"tail", "bytes behind the compressed stream")):
        source = _open(_write(tmp_path / "scan.mha", damaged, CompressedData="True"))
        with pytest.raises(DataError, match=rf"scan\.mha.*{message}"):
            read_box(source, Box.whole((2, 3, 4)))
    path = tmp_path / "scan.mha"
    os.truncate(_write(path, b""), path.stat().st_size - 2)
    path.write_bytes(path.read_bytes().replace(b"ElementDataFile = LOCA", b""))
    with pytest.raises(DataError, match="no ElementDataFile"):
        _open(path)


def test_foreign_files_are_not_claimed(tmp_path: Path) -> None:
    """A name alone makes no MetaImage."""
    path = tmp_path / "scan.mha"
    for content in (b"", b"NRRD0004\nDimSize = 3\nNDims = 3\nElementType = x\n", b"ObjectType = Tube\nNDims = 3\n"):
        path.write_bytes(content)
        assert not MetaImage().claims(Probe(path))
