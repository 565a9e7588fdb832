"""Archives of numpy, plain and deflated."""

from __future__ import annotations

import os
import tracemalloc
import zipfile
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.laws.source import check_converts, check_source, coordinates, read_box
from voxload.convert import ConvertOptions
from voxload.convert.sources import Hints
from voxload.convert.sources.arrays.npy import Npy, Npz
from voxload.convert.sources.binary.streams import SCRATCH_BYTES
from voxload.convert.sources.probe import Probe
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.geometry import Box

AXES = ["".join(letters) for letters in (*permutations("CDHW"), *permutations("DHW"))]


def _save(path: Path, *, compressed: bool, **arrays: Any) -> Probe:
    (np.savez_compressed if compressed else np.savez)(path, **arrays)
    return Probe(path)


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("is_fortran", [False, True])
@pytest.mark.parametrize("axes", AXES)
def test_no_axis_moves_in_archives(tmp_path: Path, axes: str, *, is_fortran: bool, compressed: bool) -> None:
    """Arrays of any axes and memory order are read as they are, channels that lie one behind the other too."""
    volume = coordinates((2 if "C" in axes else 1, 3, 4, 5), ">i4")
    stored = (
        volume.transpose(["CDHW".index(axis) for axis in axes])
        if "C" in axes
        else volume[0].transpose(["DHW".index(axis) for axis in axes])
    )
    probe = _save(tmp_path / "a.npz", compressed=compressed, cube=np.asarray(stored, order="F" if is_fortran else "C"))
    assert Npz().claims(probe)
    (source,) = Npz().sources(probe, Hints(axes=axes))
    assert source.describe().dataset == "cube"
    assert source.describe().is_sequential is compressed
    check_source(source, volume)
    if axes in ("WCHD", "HWD"):
        check_converts(tmp_path / "a.npz", {("a", "cube"): volume}, options=ConvertOptions(hints=Hints(axes)))


def test_every_volume_is_one_dataset(tmp_path: Path) -> None:
    """Arrays that are no volumes are left alone; the caller may choose, and what is not there is said."""
    arrays = {"a": np.zeros((2, 3, 4), "u1"), "y": np.zeros(4), "b": np.ones((3, 2, 4), "f4"), "z": np.float64(1)}
    probe = _save(tmp_path / "a.npz", compressed=False, **arrays)
    assert [source.describe().dataset for source in Npz().sources(probe, Hints())] == ["a", "b"]
    assert [source.describe().dataset for source in Npz().sources(probe, Hints(datasets=("b",)))] == ["b"]
    with pytest.raises(NotFoundError, match=r"no 'c', expected a \(2, 3, 4\), y \(4,\)"):
        Npz().sources(probe, Hints(datasets=("b", "c")))
    with pytest.raises(UsageError, match="three"):
        Npz().sources(probe, Hints(datasets=("y",)))
    with pytest.raises(UsageError, match=r"found y \(4,\), expected an array of three or four axes"):
        Npz().sources(_save(tmp_path / "b.npz", compressed=False, y=np.zeros(4)), Hints())
    with pytest.raises(UsageError, match=r"array 'x'.*four axes without names.*--axes CDHW"):
        Npz().sources(_save(tmp_path / "c.npz", compressed=False, x=np.zeros((1, 2, 3, 4))), Hints())


@pytest.mark.parametrize("compressed", [False, True])
def test_a_voxel_that_changed_is_found(tmp_path: Path, *, compressed: bool) -> None:
    """The archive's checksum is compared: of a plain array before it is used, of a stream at its end."""
    noise = np.random.default_rng(0).integers(0, 99, (1, 8, 9, 10)).astype("i2")
    probe = _save(tmp_path / "a.npz", compressed=compressed, cube=noise[0])
    (source,) = Npz().sources(probe, Hints())
    check_source(source, noise)
    with probe.path.open("r+b") as file:
        file.seek(700)
        byte = file.read(1)[0]
        file.seek(700)
        file.write(bytes([byte ^ 4]))
    with pytest.raises(DataError, match=r"a\.npz.*(CRC-32|Error -3|readable data)"):
        read_box(source, Box.whole((8, 9, 10)))


@pytest.mark.parametrize("compressed", [False, True])
def test_memory_is_bounded(tmp_path: Path, *, compressed: bool) -> None:
    """Neither planning nor reading holds more of an array than the box that is asked for and a few pieces."""
    probe = _save(tmp_path / "a.npz", compressed=compressed, cube=np.zeros((32, 512, 512), "u1"))
    out = np.ones((1, 1, 512, 512), "u1")
    tracemalloc.start()
    try:
        (source,) = Npz().sources(probe, Hints())
        with source.open() as read_into:
            for first in (0, 30, 31):
                read_into(Box((first, 0, 0), (first + 1, 512, 512)), out)
        assert tracemalloc.get_traced_memory()[1] < 2 * SCRATCH_BYTES
    finally:
        tracemalloc.stop()
    assert not out.any()


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    """A cut archive, a member of another length and one under two names raise DataError with the file's name."""
    probe = _save(tmp_path / "a.npz", compressed=False, cube=np.zeros((2, 3, 4)))
    os.truncate(probe.path, probe.size - 30)
    with pytest.raises(DataError, match=r"a\.npz: found .*zip"):
        Npz().sources(probe, Hints())
    np.save(tmp_path / "cube.npy", np.zeros((2, 3, 4)))
    content = (tmp_path / "cube.npy").read_bytes()
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("cube.npy", content + b"more")
    with pytest.raises(DataError, match="array 'cube': found 324 bytes, expected 320 bytes for <f8"):
        Npz().sources(Probe(tmp_path / "b.npz"), Hints())
    with zipfile.ZipFile(tmp_path / "c.npz", "w") as archive:
        archive.writestr("cube.npy", content)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("cube.npy", content)
    with pytest.raises(DataError, match="two members of this name"):
        Npz().sources(Probe(tmp_path / "c.npz"), Hints())


def test_what_is_not_claimed(tmp_path: Path) -> None:
    """Other archives and plain arrays are no npz files; an npz is no npy."""
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("readme.txt", "text")
    np.save(tmp_path / "b.npy", np.zeros((2, 2, 2)))
    (tmp_path / "c.npz").write_bytes(b"PK\x03\x04")
    assert not any(Npz().claims(Probe(tmp_path / name)) for name in ("a.npz", "b.npy", "c.npz"))
    assert not Npy().claims(_save(tmp_path / "d.npz", compressed=False, x=np.zeros((2, 2, 2))))
    assert Npz().is_generic
    assert Npy().is_generic
