"""ASDF files as the asdf library writes them."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import asdf
import numpy as np
import pytest

from tests.laws.source import check_converts, check_source, coordinates
from voxload.convert.sources.arrays.asdf import Asdf
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.errors import DataError, NotFoundError, UsageError


def _open(path: Path, **hints: Any) -> tuple[Source, ...]:
    assert Asdf().claims(Probe(path))
    return Asdf().sources(Probe(path), Hints(**hints))


def _write(path: Path, tree: dict[str, Any], **options: Any) -> Path:
    asdf.AsdfFile(tree).write_to(path, **options)
    return path


@pytest.mark.parametrize("dtype", ["u1", "<i2", ">i4", "<u8", ">f4", "<f8", "?"])
def test_no_axis_moves(tmp_path: Path, dtype: str) -> None:
    """An array comes out as it was written, of every type and byte order."""
    volume = coordinates((1, 3, 5, 7), dtype)
    tree = {"other": np.arange(9), "data": {"density": volume[0]}}
    (source,) = _open(_write(tmp_path / "ic.asdf", tree))
    check_source(source, volume)
    assert source.describe().dataset == "density"
    if dtype == ">f4":
        check_converts(tmp_path / "ic.asdf", {("ic", "density"): volume})


def test_arrays_are_volumes(tmp_path: Path) -> None:
    """Each array of three or four axes is a volume under its last key; some can be chosen."""
    first, second = coordinates((1, 2, 3, 4)), coordinates((3, 2, 3, 4), "<f4")
    tree = {"a": {"density": first[0]}, "b": [{"density": first[0] + 1}], "velocity": second[0], "table": np.zeros(5)}
    path = _write(tmp_path / "ic.asdf", tree)
    sources = _open(path)
    assert [source.describe().dataset for source in sources] == ["a_density", "b_0_density", "velocity"]
    check_source(sources[0], first)
    check_source(sources[1], first + 1)
    assert [source.describe().dataset for source in _open(path, datasets=("velocity",))] == ["velocity"]
    with pytest.raises(NotFoundError, match="no volume 'gas'"):
        _open(path, datasets=("gas",))


def _pack(path: Path, arrays: dict[str, str], *blocks: bytes) -> Path:
    """Write a file by the standard's layout: tree, padding, then each block with its header."""
    nodes = "".join(f"{name}: !core/ndarray-1.1.0 {{{facts}, byteorder: big}}\n" for name, facts in arrays.items())
    head = "#ASDF 1.0.0\n#ASDF_STANDARD 1.6.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n"
    tree = f"{head}{nodes}...\n".encode()
    sizes = [struct.pack(">H I4s QQQ 16x", 50, 0, b"", len(block) + 5, len(block), len(block)) for block in blocks]
    # A header may be longer than version 1 of the standard has it, and a block than what is used of it.
    parts = [b"\xd3BLK" + size + bytes(2) + block + bytes(5) for size, block in zip(sizes, blocks, strict=True)]
    path.write_bytes(tree + b" " * 11 + b"".join(parts))
    return path


def test_views_of_a_block(tmp_path: Path) -> None:
    """Offset and strides tell arrays in one block apart, in C and Fortran order; views with gaps are refused."""
    volume = coordinates((4, 3, 5, 7), ">i2")
    facts = "datatype: int16, source: 1"
    arrays = {
        "part": f"{facts}, offset: 210, shape: [3, 5, 7], strides: [70, 14, 2]",
        "turned": f"{facts}, offset: 420, shape: [7, 5, 3], strides: [2, 14, 70]",
    }
    path = _pack(tmp_path / "ic.asdf", arrays, b"another", volume.tobytes())
    part, turned = _open(path)
    check_source(part, volume[1:2])
    check_source(turned, volume[2:3].transpose(0, 3, 2, 1))
    with asdf.open(path) as file:
        np.testing.assert_array_equal(file["turned"], volume[2].transpose(2, 1, 0))
    gaps = {"gaps": f"{facts}, shape: [3, 5, 7], strides: [140, 14, 2]"}
    with pytest.raises(UsageError, match=r"array 'gaps': found strides \[140, 14, 2\]"):
        _open(_pack(path, gaps, b"", volume.tobytes()))
    with pytest.raises(DataError, match="one of 1 blocks"):
        _open(_pack(path, gaps, volume.tobytes()))


def test_four_axes(tmp_path: Path) -> None:
    """Nothing names four axes but the caller."""
    volume = coordinates((3, 4, 5, 6), "<f4")
    path = _write(tmp_path / "ic.asdf", {"displacement": volume.transpose(1, 2, 3, 0).copy()})
    with pytest.raises(UsageError, match="four axes without names"):
        _open(path)
    check_source(_open(path, axes="DHWC")[0], volume)


def test_attributes(tmp_path: Path) -> None:
    """Plain values of the header are kept, those of the library are not needed."""
    header = {"BoxSize": 2000.0, "ZD_k": [1, 2], "SimName": "base", "table": np.zeros(100)}
    found = _open(_write(tmp_path / "ic.asdf", {"data": {"density": np.zeros((2, 3, 4))}, "header": header}))
    assert found[0].describe().attributes == {"BoxSize": 2000.0, "ZD_k": [1, 2], "SimName": "base"}


def test_layouts_that_are_refused(tmp_path: Path) -> None:
    """Compressed blocks, masks and voxels in other files are refused, each with what was found."""
    cube = np.zeros((2, 3, 4))
    with pytest.raises(UsageError, match=r"compressed with zlib.*all_array_compression=None"):
        _open(_write(tmp_path / "ic.asdf", {"density": cube}, all_array_compression="zlib"))
    with pytest.raises(UsageError, match="a mask"):
        _open(_write(tmp_path / "ic.asdf", {"density": np.ma.array(cube, mask=cube == 0)}))
    with pytest.raises(UsageError, match=r"voxels in 'ic0000\.asdf'"):
        _open(_write(tmp_path / "ic.asdf", {"density": cube}, all_array_storage="external"))
    with pytest.raises(UsageError, match="no array of three or four axes"):
        _open(_write(tmp_path / "ic.asdf", {"table": np.zeros(9), "words": ["a"]}))


def test_faults(tmp_path: Path) -> None:
    """Cut and damaged files are refused before a voxel is read."""
    path = _write(tmp_path / "ic.asdf", {"density": coordinates((1, 8, 8, 8))[0]})
    content = path.read_bytes()
    start = content.index(b"\xd3BLK")
    os.truncate(path, start + 54 + 2047)
    with pytest.raises(DataError, match=r"ic\.asdf.*for block 0; the file is truncated"):
        _open(path)
    os.truncate(path, start)
    with pytest.raises(DataError, match="one of 0 blocks"):
        _open(path)
    os.truncate(path, start + 20)
    with pytest.raises(DataError, match=r"ic\.asdf"):
        _open(path)
    os.truncate(path, start // 2)
    with pytest.raises(DataError, match=r"ic\.asdf"):
        _open(path)
    path.write_bytes(content.replace(b"shape: [8, 8, 8]", b"shape: [8, 8, 9]"))
    with pytest.raises(DataError, match="a block of 2048 bytes, expected 2304"):
        _open(path)


def test_foreign_files_are_not_claimed(tmp_path: Path) -> None:
    """A name alone makes no ASDF file."""
    path = tmp_path / "ic.asdf"
    for content in (b"", b"%YAML 1.1\n", b"SIMPLE  = T"):
        path.write_bytes(content)
        assert not Asdf().claims(Probe(path))
