"""Grids in Fortran unformatted records, written from the page of LyMAS that publishes their layout."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.laws.source import check_converts, check_source, coordinates, read_box
from voxload.convert.sources import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.records.cosmoflow import NopfsRaw
from voxload.convert.sources.simulation.fortran import FortranGrid
from voxload.errors import DataError, UsageError
from voxload.geometry import Box


def _write(path: Path, volume: Any, rest: bytes = b"", *, endian: str = "<") -> Path:
    """Write dim1, dim2, dim3 and `rest`, then a record for each index of the last axis, the first running fastest."""
    records = [struct.pack(f"{endian}3i", *volume.shape) + rest]
    records += [volume[:, :, index].tobytes("F") for index in range(volume.shape[2])]
    marked = [struct.pack(f"{endian}i", len(record)) for record in records]
    path.write_bytes(b"".join(mark + record + mark for mark, record in zip(marked, records, strict=True)))
    return path


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("endian", "<>")
@pytest.mark.parametrize("kind", ["f", "d"])
@pytest.mark.parametrize("form", ["", "2{kind}", "4{kind}", "2{kind}if", "8f"])
def test_no_axis_moves_in_fortran_grids(tmp_path: Path, *, endian: str, kind: str, form: str) -> None:
    """Both byte orders, both precisions and headers of any length give the grid; box and redshift where they are."""
    volume = coordinates((1, 4, 5, 6), f"{endian}f{4 if kind == 'f' else 8}")
    form = endian + form.format(kind=kind)
    numbers = (50.0, 2.5, 0, 1, 0, 0, 0, 0)[: len(struct.unpack(form, bytes(struct.calcsize(form))))]
    path = _write(tmp_path / "grid.bin", volume[0], struct.pack(form, *numbers), endian=endian)
    probe = Probe(path)
    assert FortranGrid().claims(probe)
    assert not NopfsRaw().claims(probe)
    (source,) = FortranGrid().sources(probe, Hints())
    known = struct.calcsize(form) in {8, 16}
    expected = {"box_size": 50.0, "box_size_units": "Mpc/h", "redshift": 2.5}
    assert source.describe().attributes == (expected if known and "8f" not in form else {})
    check_source(source, volume)
    if form == f"{endian}2{kind}":
        check_converts(path, {("grid", "volume"): volume})


def test_header_values_of_another_kind_are_left_alone(tmp_path: Path) -> None:
    """A record with numbers that are no box and redshift, such as integers, gives none."""
    path = _write(tmp_path / "grid.bin", np.ones((2, 3, 4), "<f4"), struct.pack("<2i", 3, 4))
    (source,) = FortranGrid().sources(Probe(path), Hints())
    assert source.describe().attributes == {}


def test_axes_that_the_caller_names(tmp_path: Path) -> None:
    """The caller may say which axes dim1, dim2 and dim3 are."""
    volume = coordinates((1, 4, 5, 6), "<f4")
    path = _write(tmp_path / "grid.bin", volume[0].transpose(2, 1, 0))
    (source,) = FortranGrid().sources(Probe(path), Hints(axes="WHD"))
    check_source(source, volume)
    with pytest.raises(UsageError, match="axes"):
        FortranGrid().sources(Probe(path), Hints(axes="CDHW"))


@pytest.mark.parametrize("is_last", [False, True])
def test_a_wrong_marker_is_found(tmp_path: Path, *, is_last: bool) -> None:
    """Each marker of a slice that is read must say its length; other slices stay readable."""
    volume = coordinates((1, 4, 5, 6), "<f4")
    path = _write(tmp_path / "grid.bin", volume[0])
    place = 20 + 2 * 88 + (84 if is_last else 0)
    content = bytearray(path.read_bytes())
    assert struct.unpack_from("<i", content, place) == (80,)
    struct.pack_into("<i", content, place, 81)
    path.write_bytes(content)
    (source,) = FortranGrid().sources(Probe(path), Hints())
    np.testing.assert_array_equal(read_box(source, Box((0, 0, 3), (4, 5, 6))), volume[..., 3:])
    with pytest.raises(DataError, match=rf"grid\.bin, slice 2: found record marker 81 at byte {place}, expected 80"):
        read_box(source, Box((1, 1, 2), (2, 2, 3)))


def test_a_cut_grid_is_refused(tmp_path: Path) -> None:
    """A file that is shorter or longer than its header says is refused before anything is read, and when cut later."""
    path = _write(tmp_path / "grid.bin", np.ones((4, 5, 6), ">f8"), endian=">")
    size = path.stat().st_size
    (source,) = FortranGrid().sources(Probe(path), Hints())
    for wrong in (size - 1, size + 1):
        os.truncate(path, wrong)
        assert FortranGrid().claims(Probe(path))
        with pytest.raises(DataError, match=rf"found {wrong} bytes, expected {size} bytes for 6 slices of >f8"):
            FortranGrid().sources(Probe(path), Hints())
    os.truncate(path, size - 300)
    with pytest.raises(DataError, match=r"slice 4: found record marker none at byte|the end of the file"):
        read_box(source, Box.whole((4, 5, 6)))


def test_what_is_not_claimed(tmp_path: Path) -> None:
    """Other Fortran files, such as particles or tables, and files that are none do not have this structure."""
    path = tmp_path / "grid.bin"
    header = struct.pack("<4i", 12, 4, 5, 6) + struct.pack("<i", 12)
    contents = [
        b"",
        bytes(400),
        header,
        header + struct.pack("<i", 60) + bytes(400),
        struct.pack("<4i", 12, 0, 5, 6) + struct.pack("<2i", 12, 0) + bytes(400),
        struct.pack("<2i", 4, 100) + struct.pack("<2i", 4, 400) + bytes(400),
        struct.pack("<i", 256) + bytes(256) + struct.pack("<2i", 256, 1200) + bytes(1200),
        np.lib.format.magic(1, 0) + bytes(400),
    ]
    for content in contents:
        path.write_bytes(content)
        assert not FortranGrid().claims(Probe(path))
